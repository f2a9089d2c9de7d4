"""The halts on record from before an attempt: shards that waited then and have not reached their change again.

An attempt begins without waiting shards: all of them arrive again. Without these records people would read that
nothing waits, while a shard is still blocked on its change. So a shard's record stays, marked as old, until

1. the shard arrives: the record is written again at the same place; or
2. its table has passed that place in any way, or is no table of the task any more: the record is removed. If a run ends
   between the two, the next attempt removes it, because it checks the records before it reports anything.

Every attempt tries failed changes again, so of their records only the time stays: a table that halts at the same place
again has halted since then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from pidts.apply import Target, TargetSession
from pidts.model import DdlState, Halt, Lsn, TableName, Transient
from pidts.task.operate.orders import is_waiting_for_shards

AS_BEFORE = " (as the task stood before it was started; it has not come there again)"

At = Callable[[TableName], Lsn]
"""Returns the Lsn up to which the target has a table's changes."""


@dataclass(slots=True)
class PreviousHalts:
    """The halts of one source of a task that were on record when the attempt began."""

    task: str
    source: str
    told: Sequence[Halt] = ()
    """All halts on record when the attempt began."""
    _kept: list[Halt] = field(default_factory=list)

    def begin_attempt(self, target: TargetSession, at: At, tables: Collection[TableName]) -> None:
        """Removes all recorded halts except those of shards that are still blocked at the same place."""
        self.told = target.meta.halts.read(self.task, self.source)
        self._kept = [halt for halt in _standing(self.told, at, tables) if not self._is_done(target, halt)]
        target.meta.halts.resolve(self.task, self.source)
        for halt in self._kept:
            target.meta.halts.save(self.task, self.source, _as_before(halt))

    def drop_past_records(self, target: Target, at: At, tables: Collection[TableName]) -> None:
        """Removes the records of shards that have passed their change."""
        left = _standing(self._kept, at, tables)
        over = [halt.place for halt in self._kept if halt not in left]
        if over:
            with suppress(Transient), closing(target.connect()) as session:
                session.meta.halts.resolve(self.task, self.source, over)
                self._kept = left

    def since(self, table: TableName, at: Lsn) -> float:
        """Returns when the target first refused rows of a table at this place, in seconds since 1970; 0 if unknown."""
        rows = (halt for halt in self.told if not halt.statement and table in halt.tables and halt.lsn >= at)
        return min((halt.since for halt in rows if halt.since), default=0.0)

    def _is_done(self, target: TargetSession, halt: Halt) -> bool:
        journal = target.meta.journal.read(self.task, self.source, halt.lsn)
        return journal is not None and journal.state is DdlState.DONE


def _standing(halts: Iterable[Halt], at: At, tables: Collection[TableName]) -> list[Halt]:
    return [
        halt
        for halt in halts
        if halt.statement
        and is_waiting_for_shards(halt)
        and any(name in tables and at(name) < halt.lsn for name in halt.tables)
    ]


def _as_before(halt: Halt) -> Halt:
    return halt if halt.what.endswith(AS_BEFORE) else replace(halt, what=f"{halt.what}{AS_BEFORE}")
