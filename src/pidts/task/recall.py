"""Shards that waited when the task was last at work, and have not come to their change again.

An attempt begins with nothing that waits: all arrive again. Until then people would read that nothing waits, while a
shard stands before its change, as it did. So what the record says of shards stays there, told as what it is, until

1. the shard arrives: the record is written anew at the same place; or
2. its table is past that place, by whatever way, or is none of the task's any more: it is taken off. Who ended between
   the one and the other leaves it to the next attempt, which looks before it says anything.

What has failed is tried again by every attempt, so nothing is kept of that, but when it began: who is found to stand
where it stood has done so since then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from pidts.apply import Target, TargetSession
from pidts.model import DdlState, Halt, Lsn, TableName, Transient
from pidts.task.orders import is_of_shards

AS_BEFORE = " (as the task stood before it was started; it has not come there again)"

At = Callable[[TableName], Lsn]
"""How far a table is on the target."""


@dataclass(slots=True)
class Recall:
    """Of one source of a task."""

    task: str
    source: str
    told: Sequence[Halt] = ()
    """All that was on record when the attempt began."""
    _kept: list[Halt] = field(default_factory=list)

    def begins(self, target: TargetSession, at: At, tables: Collection[TableName]) -> None:
        """All that is on record goes but for shards that stand where they stood."""
        self.told = target.halts.halts(self.task, self.source)
        self._kept = [halt for halt in _standing(self.told, at, tables) if not self._is_done(target, halt)]
        target.halts.resolve(self.task, self.source)
        for halt in self._kept:
            target.halts.tell(self.task, self.source, _as_before(halt))

    def goes_on(self, target: Target, at: At, tables: Collection[TableName]) -> None:
        """Take off the record what is past."""
        left = _standing(self._kept, at, tables)
        over = [halt.place for halt in self._kept if halt not in left]
        if over:
            with suppress(Transient), closing(target.connect()) as session:
                session.halts.resolve(self.task, self.source, over)
                self._kept = left

    def since(self, table: TableName, at: Lsn) -> float:
        """When rows of a table that stands there were refused first, as far as is known; else 0."""
        rows = (halt for halt in self.told if not halt.statement and table in halt.tables and halt.lsn >= at)
        return min((halt.since for halt in rows if halt.since), default=0.0)

    def _is_done(self, target: TargetSession, halt: Halt) -> bool:
        journal = target.read_journal(self.task, self.source, halt.lsn)
        return journal is not None and journal.state is DdlState.DONE


def _standing(halts: Iterable[Halt], at: At, tables: Collection[TableName]) -> list[Halt]:
    return [
        halt
        for halt in halts
        if halt.statement and is_of_shards(halt) and any(name in tables and at(name) < halt.lsn for name in halt.tables)
    ]


def _as_before(halt: Halt) -> Halt:
    return halt if halt.what.endswith(AS_BEFORE) else replace(halt, what=f"{halt.what}{AS_BEFORE}")
