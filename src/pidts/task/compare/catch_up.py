"""Waits until the task's checkpoints and the relay's index show that the target has a table's log up to an Lsn.

A task's checkpoint moves only when one of the task's tables changes. So the target may have all changes of a table up
to an Lsn, although the checkpoint is before this Lsn. Then the relay's index shows that the log between the two places
has no change of the table. The comparison does not wait for a table that is halted or waits for other shards. The
target's record of halts shows such tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_unaltered
from pidts.model import Checkpoint, Halt, Lsn, TableName
from pidts.model.errors import listed
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.source.connection import Session, query, server_info
from pidts.source.position import log_end, settled
from pidts.source.structures import source_dialect
from pidts.task.compare.relayed_changes import RelayedChanges
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.ddl_commands import is_tried_again
from pidts.task.operate.presence import sees_run
from pidts.verify import NotCaughtUp

_PATIENCE = 20.0
"""If a checkpoint has not moved for this number of seconds, the comparison no longer waits for it."""
_IMPATIENCE = 1.0
"""The limit in seconds for later waits, after one wait has ended at the limit `_PATIENCE`."""
UNSEEN_SECONDS = 3.0
"""If PiDTS sees no run of the task for this number of seconds, a comparison no longer waits for tables. A shorter time
would not do: a run that restarts is not seen for a moment.
"""
_FIRST_POLL, _LONGEST_POLL = 0.02, 0.5
_ASK_SECONDS = 1.0
"""The interval at which a wait asks the target whether the task runs."""
_MOST_OF_STATEMENT = 120


class TaskCatchUp:
    """Waits for the target to catch up with one source. `source` is the connection on which the rows are read."""

    def __init__(
        self,
        config: TaskConfig,
        source: Session,
        target: TargetSession,
        *,
        stop: threading.Event | None = None,
        say: Callable[[str], None] = lambda _: None,
        prefix: str = "",
        unseen_seconds: float = _PATIENCE,
        sees: Callable[[TaskConfig, TargetSession], bool | None] = sees_run,
    ) -> None:
        """`prefix` precedes a table's name in messages. All waits end when no run was seen for `unseen_seconds`.

        `sees` says whether a run of the task is seen.
        """
        self._sees = sees
        self._config, self._source, self._target, self._say = config, source, target, say
        self._stop, self._prefix = stop or threading.Event(), prefix
        self._unseen_seconds, self._unseen_since = unseen_seconds, 0.0
        self._server = server_info(source)
        self._changes = RelayedChanges(config, source_dialect(source))
        self._patience = _PATIENCE
        self._seen: dict[TableName, tuple[tuple[Lsn, ...], float]] = {}
        """For each table: its Lsns in all checkpoints, as last read, and the time since which they are the same."""
        self._run_seen: bool | None = None
        self._ask_again = 0.0
        self._lsns: tuple[Lsn, ...] | None = None
        """The Lsns of the checkpoints, as last read."""

    @property
    def change_no(self) -> int:
        """The number of failovers, which is part of every Lsn that this object makes.

        If the task does not yet read the log of the server that answers, the number is higher than in any checkpoint.
        So no checkpoint seems to have reached a position in that log.
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
        """Returns an Lsn. Later reads get all changes before this Lsn.

        On MariaDB, later reads get the rows exactly as they are at this Lsn, until `place` is called.
        """
        self._leave_snapshot()
        return Lsn.at(settled(self._source, self._server), self.change_no)

    def place(self) -> Lsn:
        """Returns the end of the log. Ends the snapshot, so each later read gets the rows that exist when it reads."""
        self._leave_snapshot()
        return Lsn.at(log_end(self._source), self.change_no)

    def await_target(self, table: TableName, lsn: Lsn) -> NotCaughtUp | None:
        """Waits until the target has the table's log up to `lsn`. Returns None, or the reason why the target lacks it.

        If the table is halted or still being copied, returns at once. Otherwise gives up when no checkpoint moves, or
        when the user stops the comparison.
        """
        pause, is_announced = _FIRST_POLL, False
        while True:
            states = self._states()
            if not states:
                return None
            copies = [state.copy[table] for state in states if table in state.copy]
            if any(not copy.done for copy in copies):
                self._say(f"{table} is still being copied")
                return self._copying(table, min(state.at(table) for state in states))
            at = min(state.at(table) for state in states)
            if at >= lsn or self.untouched(table, at, lsn):
                return None
            if (halt := self._halt(table, at)) is not None:
                self._say(f"{table} is halted or waits for a schema change")
                return NotCaughtUp(_reason(halt, self._prefix))
            if self._waits_in_vain(table, states):
                return self._stays()
            if not is_announced:
                self._say(self._awaited(table))
                is_announced = True
            if self._stop.wait(pause):
                return NotCaughtUp()
            pause = min(pause * 1.5, _LONGEST_POLL)

    def _waits_in_vain(self, table: TableName, states: Sequence[PlanState]) -> bool:
        """Whether to give up: for some time no checkpoint has moved, or no run was seen that could move one."""
        since, now = self._since(table, states), time.monotonic()
        if now - since > self._patience:
            self._patience = _IMPATIENCE
            return True
        if self._sees_run() is not False:
            self._unseen_since = 0.0
            return False
        self._unseen_since = self._unseen_since or now
        return now - self._unseen_since >= self._unseen_seconds

    def _sees_run(self) -> bool | None:
        """Whether a run of the task is seen; None if it is not known. Asks again after a second."""
        if (now := time.monotonic()) >= self._ask_again:
            self._run_seen, self._ask_again = self._sees(self._config, self._target), now + _ASK_SECONDS
        return self._run_seen

    def _awaited(self, table: TableName) -> str:
        if self._sees_run():
            return f"waiting until the target has all changes of {self._prefix}{table} that the source has now"
        return f"the target does not have all changes of {self._prefix}{table} yet, and PiDTS sees no run of the task"

    def _copying(self, table: TableName, at: Lsn) -> NotCaughtUp:
        """Returns the reason why a copy does not continue: its table is halted, or else PiDTS sees no run of the task.

        The reason is empty if the table is not halted and a run is seen: this run may still copy.
        """
        if (halt := self._halt(table, at)) is not None:
            why = f"the copy of {self._prefix}{table} waits for a halt: [{halt.code}] {halt.why}"
            return NotCaughtUp(f"{why}; see: pidts ddl list {self._config.shell_path}")
        if self._sees(self._config, self._target):
            return NotCaughtUp()
        return self._no_run("the copy is not finished, and PiDTS sees no run of the task")

    def _stays(self) -> NotCaughtUp:
        """Returns the reason why a checkpoint does not move: no run is seen. The reason is empty if a run is seen."""
        if self._sees(self._config, self._target):
            self._say("the target does not move, although PiDTS sees a run of the task")
            return NotCaughtUp()
        return self._no_run("there are changes that are not applied, and PiDTS sees no run of the task")

    def _no_run(self, why: str) -> NotCaughtUp:
        """Returns the reason and the next step. The text names no table, so it is shown only once for all tables."""
        return NotCaughtUp(f"{why}. Start the task, and compare again: {self._config.run_command()}", is_stopped=True)

    def caught_up(self, table: TableName, checkpoints: Sequence[Checkpoint], lsn: Lsn) -> bool:
        """Whether these checkpoints show that the target has a table's whole log up to `lsn`."""
        states = map(_state, checkpoints)
        return self.untouched(table, min(state.at(table) for state in states), lsn)

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """Whether the relay's index proves that the log has no change of a table between two Lsns."""
        return self._changes.untouched(table, after, upto)

    def _states(self) -> list[PlanState]:
        stored = self._target.meta.checkpoints.read(self._config.name, self._config.source.source_id)
        for row in stored:
            demand_unaltered(row)
        return list(map(_state, stored))

    def _halt(self, table: TableName, at: Lsn) -> Halt | None:
        """Returns the halt that blocks the table or the task; None if there is none.

        A halt at an Lsn before `at` is outdated. The halt of a change that is tried again does not count: the change
        may succeed.
        """
        halts = self._target.meta.halts.read(self._config.name, self._config.source.source_id)
        open_halts = (halt for halt in halts if halt.lsn >= at and not is_tried_again(halt))
        return next((halt for halt in open_halts if not halt.tables or table in halt.tables), None)

    def _since(self, table: TableName, states: Sequence[PlanState]) -> float:
        """Returns the time since which the table's Lsns in all checkpoints are the same.

        If a checkpoint or a table's Lsn moves, the task runs, and the next waits may be long again. Only Lsns of the
        same table are compared, since two tables may have different Lsns although nothing moves. If their Lsns were
        compared, ten tables that wait for ever would take ten long waits.
        """
        lsns, places = tuple(state.lsn for state in states), tuple(state.at(table) for state in states)
        before, since = self._seen.get(table, (places, time.monotonic()))
        if before != places:
            since = time.monotonic()
        if before != places or (self._lsns is not None and lsns != self._lsns):
            self._patience, self._unseen_since = _PATIENCE, 0.0
        self._seen[table], self._lsns = (places, since), lsns
        return since

    def _leave_snapshot(self) -> None:
        if self._server.is_mariadb:
            query(self._source, "ROLLBACK")


def _reason(halt: Halt, prefix: str) -> str:
    statement = " ".join(halt.statement.split())
    if len(statement) > _MOST_OF_STATEMENT:
        statement = f"{statement[: _MOST_OF_STATEMENT - 3]}..."
    place = f"{halt.position or halt.lsn}" + (f" ({statement})" if statement else "")
    named = listed(f"{prefix}{table}" for table in halt.tables) or f"{prefix}the task"
    return f"{named} {'wait' if len(halt.tables) > 1 else 'waits'} at {place}: [{halt.code}] {halt.why}"


def _state(checkpoint: Checkpoint) -> PlanState:
    return PlanState.from_checkpoint(checkpoint.lsn, checkpoint.copy)
