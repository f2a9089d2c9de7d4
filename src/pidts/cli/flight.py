"""What is on its way: how far the target is of a table's log, by the task's checkpoints and the relay's index.

A task moves its checkpoint for its own tables' sake. A place that only other tables' transactions lie before is reached
all the same: the relay's index tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from pidts.apply import TargetSession
from pidts.batch.meaning import Meaning
from pidts.model import Checkpoint, Lsn, PidtsError, TableName
from pidts.plan import PlanState, WorkKind
from pidts.relay import RelayReader
from pidts.source.connection import Session, query, server_info
from pidts.source.position import log_end, settled
from pidts.source.structures import source_dialect
from pidts.task.config import TaskConfig

_PATIENCE = 20.0
"""A checkpoint that has not moved for so long is not going to."""
_IMPATIENCE = 1.0
"""The same once that has happened."""
_FIRST_POLL, _LONGEST_POLL = 0.02, 0.5
_RELAY_SECONDS = 2.0


class TaskFlight:
    """Of one task; `source` is the connection that its rows are read on."""

    def __init__(
        self,
        config: TaskConfig,
        source: Session,
        target: TargetSession,
        *,
        stop: threading.Event | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._config, self._source, self._target, self._say = config, source, target, say
        self._stop = stop or threading.Event()
        self._server = server_info(source)
        self._meaning = Meaning(config.allow, source_dialect(source))
        self._patience = _PATIENCE
        self._moved: tuple[list[Lsn], float] = ([], time.monotonic())
        self.is_known = bool(self._states())
        """Whether the task has ever run."""

    @property
    def change_no(self) -> int:
        """How often the source was replaced, as the checkpoints count: of all places that are told here.

        Until the task follows the server that answers, no checkpoint has any place of its log.
        """
        known = max((state.lsn.change_no for state in self._states()), default=0)
        if not self._relay.is_dir():
            return known
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as relay:
            origin = relay.origin
        if origin is None or origin.server == self._server.identity:
            return known if origin is None else origin.change_no
        return max(known, origin.change_no) + 1

    @property
    def _relay(self) -> Path:
        return self._config.relay / self._config.source.source_id

    def settled(self) -> Lsn:
        """On MariaDB the rows that are read from now on are those of this very place, until `place` is asked."""
        self._leave_snapshot()
        return Lsn.at(settled(self._source, self._server), self.change_no)

    def place(self) -> Lsn:
        """The log's end; what is read after it is read anew."""
        self._leave_snapshot()
        return Lsn.at(log_end(self._source), self.change_no)

    def reached(self, table: TableName, lsn: Lsn) -> bool:
        """False where the table is still being copied, or nothing moves."""
        pause, told = _FIRST_POLL, False
        while True:
            states = self._states()
            if not states:
                return True
            copies = [state.copy[table] for state in states if table in state.copy]
            if any(not copy.done for copy in copies):
                self._say(f"{table} is still being copied")
                return False
            behind = min(state.at(table) for state in states)
            if behind >= lsn or self.untouched(table, behind, lsn):
                return True
            self._note([state.at(table) for state in states])
            if time.monotonic() - self._moved[1] > self._patience:
                self._say(f"the target stands at {behind} and does not move; is the task running?")
                self._patience = _IMPATIENCE
                return False
            if not told:
                self._say(f"waiting for the target: it is at {behind}, {table} was read at {lsn}")
                told = True
            if self._stop.wait(pause):
                return False
            pause = min(pause * 1.5, _LONGEST_POLL)

    def caught_up(self, table: TableName, checkpoints: Sequence[Checkpoint], lsn: Lsn) -> bool:
        """Whether these have all of a table's log up to there."""
        states = map(_state, checkpoints)
        return self.untouched(table, min(state.at(table) for state in states), lsn)

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """By the relay's index, as far as the relay has it by now or in a moment."""
        if after >= upto:
            return True
        if not self._relay.is_dir():
            return False
        try:
            with closing(RelayReader(self._config.relay, self._config.source.source_id)) as relay:
                return self._has(relay, after, upto) and not self._touches(relay, table, after, upto)
        except (PidtsError, OSError):
            return False  # Purged, cut back or broken meanwhile: nobody knows.

    def _has(self, relay: RelayReader, after: Lsn, upto: Lsn) -> bool:
        first = relay.first
        if first is None or first > after:
            return False
        deadline = time.monotonic() + _RELAY_SECONDS
        received = relay.received
        while received is None or received < upto:
            if not relay.wait(received, max(deadline - time.monotonic(), 0)):
                return False
            received = relay.received
        return True

    def _touches(self, relay: RelayReader, table: TableName, after: Lsn, upto: Lsn) -> bool:
        for entry in relay.entries(after):
            if entry.transaction.prev_lsn >= upto:
                break
            work = self._meaning(entry)
            if work.kind is not WorkKind.NOTHING and (work.tables is None or table in work.tables):
                return True
            if entry.lacks_rows:
                return True
        return False

    def _states(self) -> list[PlanState]:
        stored = self._target.checkpoints(self._config.name, self._config.source.source_id)
        return list(map(_state, stored))

    def _note(self, places: list[Lsn]) -> None:
        if places != self._moved[0]:
            if self._moved[0]:
                self._patience = _PATIENCE
            self._moved = places, time.monotonic()

    def _leave_snapshot(self) -> None:
        if self._server.is_mariadb:
            query(self._source, "ROLLBACK")


def _state(checkpoint: Checkpoint) -> PlanState:
    return PlanState.from_checkpoint(checkpoint.lsn, checkpoint.copy)
