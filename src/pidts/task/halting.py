"""Tables that halt while the rest of their task goes on, over the attempts of one run.

Rows of one table that the target refuses end an attempt, with nothing of the batch in the target (of a worker that was
quicker, all of its part: its checkpoint says so). The next attempt begins as any does, but holds that table where it
is; so the batch is planned again without it. Of tables that become one the error names the one that the row comes from,
where that could be told (`pidts.apply.refused`), else all that land there are held. Each attempt finds one of them.
Crash points:

1. Before the next attempt has committed anything: the checkpoint knows nothing of it. The next run meets the same rows,
   ends the same way, and halts the table again, or finds that they are taken now.
2. After: the checkpoint holds the table where it is. The next run lets it go on from there, with the same two ends.

An operator who has mended the cause takes the halt off the record (`pidts ddl retry`), and the next attempt begins with
the table, as a next run would. So it does where the table did not fit, and has been changed for the shards that land
there: one whose change was skipped goes on when the others' is run.

Schema changes halt in their own lane, see `pidts.batch.ddl_lane`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import structlog

from pidts.apply import Target, TargetSession
from pidts.apply.checkpoint import fenced
from pidts.batch.shard_groups import ShardGroups
from pidts.model import DecodeError, Halt, Halted, Table, TableName, Transient, Where
from pidts.plan import PlanState
from pidts.plan.continuity import Discontinuity
from pidts.plan.shard_versions import same_version
from pidts.relay import RelayReader
from pidts.rules import Rules
from pidts.spark.stream import TaskStream
from pidts.task.recall import Recall

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.5
_RECORD_SECONDS = 1.0
"""So often the record is asked whether an operator has lifted a halt."""
_WHOLE_TASK = frozenset({"structure-unknown", "ddl-does-not-fit", "unique-keys-changed", "checkpoint-mismatch"})
"""Errors that name a table, and leave it open what else they concern."""


_BESIDE_OTHERS = (
    "Other shards have rows there, so keep the table. Where a change of this one, or of one of its source, was skipped "
    "(pidts ddl skip), it goes on by itself when the target has got the others', at once by pidts ddl unlock. Where a "
    "change of theirs was run without this one (unlock), make it on this one, too, stop the task, and have its rows "
    "read again by --resync; or give the target's table by hand what it lacks (ALTER TABLE ... ADD or MODIFY COLUMN), "
    "and say pidts ddl retry"
)


class Halting:
    """Of one run."""

    def __init__(self, task: str, source: str) -> None:
        self._task, self._source = task, source
        self._halted: dict[TableName, Halt] = {}
        self._rules = Rules()
        self._stream: TaskStream | None = None
        self._shards: ShardGroups | None = None
        self._relay: RelayReader | None = None
        self._looked, self._asked, self._rested = 0.0, 0.0, False
        self._epoch = 0
        self._recall = Recall(task, source)
        self._agreed: dict[TableName, Table | None] = {}
        """What tables that shards share were when the attempt began."""
        self._unfit: dict[TableName, Table | None] = {}
        """What they were for those of which rows did not fit."""

    @property
    def rows(self) -> tuple[Halt, ...]:
        """Tables of which rows were refused."""
        return tuple(dict.fromkeys(self._halted.values()))

    @property
    def told(self) -> Sequence[Halt]:
        """What was on record when the attempt began."""
        return self._recall.told

    def begins(
        self, target: TargetSession, rules: Rules, state: PlanState, tables: Collection[TableName], epoch: int = 0
    ) -> None:
        """Another attempt, which has claimed the task, with these; what halted in an earlier one may do so again."""
        self._stream, self._epoch = None, epoch
        self._rules = rules
        self._unfit = {name: before for name, before in self._unfit.items() if name in self._halted}
        self._recall.begins(target, state.at, tables)
        for halt in self.rows:
            target.halts.tell(self._task, self._source, halt)

    def runs(self, stream: TaskStream, relay: RelayReader, shards: ShardGroups) -> None:
        """From now on errors may be those of rows."""
        self._stream, self._relay, self._looked, self._shards = stream, relay, 0.0, shards
        merged = filter(self._rules.routes.may_merge, stream.tables)
        self._agreed = {name: shards.agreed(self._rules.landed_name(name)) for name in merged}

    def forget(self) -> None:
        """The task's rules have changed: whatever was refused may be taken now."""
        self._halted.clear()

    def takes(self, error: Halted) -> bool:
        """Whether the next attempt can go on, but for the table that this names."""
        stream = self._stream
        if stream is None or not stream.rows_failed:
            return False
        meant = self._meant(error.where, stream.tables)
        names = tuple(sorted(meant - self._halted.keys()))
        if not names:
            return False
        if isinstance(error, DecodeError | Discontinuity) or error.code in _WHOLE_TASK:
            return False
        at = min(map(stream.state.at, names))
        place = self._relay.position(at) if self._relay is not None else None
        position = error.where.position or str(place or "")
        since = self._recall.since(names[0], at) or time.time()
        halt = Halt.of(error, names, at, position=position, since=since)
        if error.code == "target-shape" and any(map(self._rules.routes.may_merge, names)):
            halt = replace(halt, todo=_BESIDE_OTHERS)
            self._unfit |= {name: self._agreed.get(name) for name in names}
        self._halted |= dict.fromkeys(names, halt)
        told = "rows are refused, their table waits for an operator"
        _log.error(told, source=self._source, halt=str(halt), todo=halt.todo)
        return True

    def goes_on(self, target: Target) -> None:
        """What shards waited for when the attempt began is off the record when they are past it."""
        if self._stream is not None:
            self._recall.goes_on(target, self._stream.state.at, self._stream.tables)

    def _meant(self, where: Where, tables: Collection[TableName]) -> set[TableName]:
        """An error says the source's name, or that of the target's table, and then all that land there are meant.

        One table may land, with others, under its own name: of its own an error is where it says the source, too.
        """
        own = {name for name in tables if where.table == str(name)}
        if own and where.source == self._source:
            return own
        return own | {name for name in tables if where.table == str(self._rules.landed_name(name))}

    def is_lifted(self, target: Target) -> bool:
        """Whether rows that were refused are to be tried again, in the next attempt.

        Since an operator wants it, or since they did not fit, and the table has been changed. Another run that has
        taken the task over takes halts off the record, too: this one is over then.
        """
        if not self._halted or time.monotonic() < self._asked + _RECORD_SECONDS:
            return False
        changed = {name for name, before in self._unfit.items() if name in self._halted and self._differs(name, before)}
        for name in changed:
            _log.info("the target's table was changed for other shards, rows are tried again", table=str(name))
            del self._halted[name], self._unfit[name]
        if changed:
            return True
        with suppress(Transient), closing(target.connect()) as session:
            told = {halt.place for halt in session.halts.halts(self._task, self._source)}
            lifted = {name for name, halt in self._halted.items() if halt.place not in told}
            for stored in session.checkpoints(self._task, self._source) if lifted else ():
                if stored.epoch > self._epoch:
                    raise fenced(stored, self._epoch)
            for name in lifted:
                _log.info("an operator wants the table to be tried again", table=str(name))
                del self._halted[name]
            self._asked = time.monotonic()
            return bool(lifted)
        self._asked = time.monotonic()
        return False

    def _differs(self, name: TableName, before: Table | None) -> bool:
        now = self._shards.agreed(self._rules.landed_name(name)) if self._shards is not None else None
        return now is not None and (before is None or not same_version(before, now))

    def rests(self, stream: TaskStream, relay: RelayReader) -> bool:
        """Whether nothing is left to do but what waits for an operator."""
        if not stream.halts:
            return False
        if time.monotonic() >= self._looked + _LOOK_SECONDS:
            self._rested, self._looked = stream.rests(relay), time.monotonic()
        return self._rested
