"""Tables that halt while the rest of their task goes on, over the attempts of one run.

Rows of one table that the target refuses end an attempt, with nothing of the batch in the target (of a worker that was
quicker, all of its part: its checkpoint says so). The next attempt begins as any does, but holds that table where it
is; so the batch is planned again without it. Crash points:

1. Before the next attempt has committed anything: the checkpoint knows nothing of it. The next run meets the same rows,
   ends the same way, and halts the table again, or finds that they are taken now.
2. After: the checkpoint holds the table where it is. The next run lets it go on from there, with the same two ends.

An operator who has mended the cause takes the halt off the record (`pidts ddl retry`), and the next attempt begins with
the table, as a next run would.

Schema changes halt in their own lane, see `pidts.batch.ddl_lane`.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

import structlog

from pidts.apply import Target, TargetSession
from pidts.model import DecodeError, Halt, Halted, TableName, Transient
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.rules import Rules
from pidts.spark.stream import TaskStream

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.5
_RECORD_SECONDS = 1.0
"""So often the record is asked whether an operator has lifted a halt."""
_WHOLE_TASK = frozenset({"structure-unknown", "ddl-does-not-fit", "unique-keys-changed", "checkpoint-mismatch"})
"""Errors that name a table, and leave it open what else they concern."""


class Halting:
    """Of one run."""

    def __init__(self, task: str, source: str) -> None:
        self._task, self._source = task, source
        self._halted: dict[TableName, Halt] = {}
        self._rules = Rules()
        self._stream: TaskStream | None = None
        self._relay: RelayReader | None = None
        self._looked, self._asked, self._rested = 0.0, 0.0, False

    @property
    def rows(self) -> tuple[Halt, ...]:
        """Tables of which rows were refused."""
        return tuple(dict.fromkeys(self._halted.values()))

    def begins(self, target: TargetSession, rules: Rules) -> None:
        """Another attempt, which has claimed the task; what halted in an earlier one may do so again."""
        self._stream = None
        self._rules = rules
        target.halts.resolve(self._task, self._source)
        for halt in self.rows:
            target.halts.tell(self._task, self._source, halt)

    def runs(self, stream: TaskStream, relay: RelayReader) -> None:
        """From now on errors may be those of rows."""
        self._stream, self._relay, self._looked = stream, relay, 0.0

    def forget(self) -> None:
        """The task's rules have changed: whatever was refused may be taken now."""
        self._halted.clear()

    def takes(self, error: Halted) -> bool:
        """Whether the next attempt can go on, but for the table that this names."""
        stream = self._stream
        if stream is None or not stream.rows_failed:
            return False
        # An error says the source's name, or that of the target's table where it lands.
        meant = {name for name in stream.tables if error.where.table in {str(name), str(self._rules.landed_name(name))}}
        names = tuple(sorted(meant - self._halted.keys()))
        if not names:
            return False
        if isinstance(error, DecodeError | Discontinuity) or error.code in _WHOLE_TASK:
            return False
        at = min(map(stream.state.at, names))
        place = self._relay.position(at) if self._relay is not None else None
        position = error.where.position or str(place or "")
        halt = Halt.of(error, names, at, position=position, since=time.time())
        self._halted |= dict.fromkeys(names, halt)
        _log.error("rows are refused, their table waits for an operator", halt=str(halt), todo=halt.todo)
        return True

    def is_lifted(self, target: Target) -> bool:
        """Whether an operator wants rows that were refused to be tried again; then the next attempt does."""
        if not self._halted or time.monotonic() < self._asked + _RECORD_SECONDS:
            return False
        with suppress(Transient), closing(target.connect()) as session:
            told = {halt.place for halt in session.halts.halts(self._task, self._source)}
            lifted = {name for name, halt in self._halted.items() if halt.place not in told}
            for name in lifted:
                _log.info("an operator wants the table to be tried again", table=str(name))
                del self._halted[name]
            self._asked = time.monotonic()
            return bool(lifted)
        self._asked = time.monotonic()
        return False

    def rests(self, stream: TaskStream, relay: RelayReader) -> bool:
        """Whether nothing is left to do but what waits for an operator."""
        if not stream.halts:
            return False
        if time.monotonic() >= self._looked + _LOOK_SECONDS:
            self._rested, self._looked = stream.rests(relay), time.monotonic()
        return self._rested
