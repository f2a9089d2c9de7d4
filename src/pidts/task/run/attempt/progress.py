"""Measures and shows the progress of one attempt: the lag, the stages, the waiting tables and the locked rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pidts.batch.batch_done import BatchDone
from pidts.gate.stream import ChannelStream
from pidts.model import LogEntry, Lsn, TableName
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.spark.stream import TaskStream
from pidts.task.config.task_file import TaskConfig
from pidts.task.measure.lag_meter import LagMeter
from pidts.task.measure.stage_meter import StageMeter
from pidts.task.measure.target_ping import TargetPing
from pidts.task.operate.progress import Stage
from pidts.task.operate.stage_report import StageReport
from pidts.task.run.halted_tables import HaltedTables
from pidts.task.run.locked_rows import LockedRows
from pidts.task.run.retried_tables import RetriedTables
from pidts.task.run.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Completeness:
    """Which changes the target lacks at one moment."""

    is_caught_up: bool
    """Whether the target lacks only changes of halted tables."""
    only_halts_left: bool
    """Whether a table is halted, and the target lacks only changes of halted tables."""


@dataclass(frozen=True, slots=True)
class ObservedTables:
    """The objects that know the halted tables, the retried tables and the locked rows, over all attempts."""

    halted: HaltedTables
    retried: RetriedTables
    locked: LockedRows


class AttemptProgress:
    """Measures one attempt, and gives its progress to the tracker."""

    def __init__(
        self, config: TaskConfig, tracker: Tracker, apart: ObservedTables, relay: RelayReader, ping: TargetPing
    ) -> None:
        server = config.source.server
        self._config, self._tracker, self._apart, self._relay, self._ping = config, tracker, apart, relay, ping
        self._lag = LagMeter(relay.folder)
        self.stages = StageMeter(server.source_id, f"{server.host}:{server.port}", config.target)

    def close(self) -> None:
        """Closes the lag meter."""
        self._lag.close()

    def batch(self, done: BatchDone) -> None:
        """Counts a batch that is on the target, unless the batch may have old changes of a table that is tried again.

        Old changes would make the lag of all other tables look larger.
        """
        if not self._apart.retried.may_delay_others(self._apart.halted.at_present):
            self._lag.batch(done)

    def show(self, stream: TaskStream | ChannelStream, state: PlanState, received: Lsn | None) -> Completeness:
        """Shows the state of the stream, and returns what the target lacks of the log up to `received`."""
        halted, retried = self._apart.halted, self._apart.retried
        self._tracker.halted(stream.halts)
        self._tracker.locked(self._apart.locked.look())
        only_halts_left = halted.only_halts_left(stream, self._relay)
        waiting, lacking = self._waiting_and_lacking(stream, state, received)
        halted.drop_past_records(self._config.target.server, retried.tables if received is not None else None)
        self._note_waiting(stream, waiting)
        # A halted table does not prevent `caught_up`, but a table that catches up does.
        catches_up = retried.is_any or not state.exceptions.keys() <= stream.halted_tables
        caught_up = only_halts_left or (received is not None and not catches_up and lacking is None)
        only_waiting = received is not None and lacking is None
        stage: Stage = "copy" if state.copying else "sync"
        # Before log is received, it is not known what the target lacks. None keeps the last known time.
        waits_since = self._committed_at(lacking) if received is not None else None
        self._report(stage, stream, waits_since, caught_up=caught_up, only_waiting=only_waiting)
        return Completeness(caught_up, only_halts_left)

    def _waiting_and_lacking(
        self, stream: TaskStream | ChannelStream, state: PlanState, received: Lsn | None
    ) -> tuple[Mapping[TableName, Lsn], LogEntry | None]:
        """Returns the waiting tables, with their Lsns, and the first log entry with a lacking change of another table.

        The entry is None if the target has all changes of the other tables, or if nothing was received yet.
        """
        waiting = stream.waiting
        if received is None:
            return waiting, None
        lacking = stream.unapplied(self._relay, received, waiting)
        retried = self._apart.retried.look(state, stream.halted_tables, received, is_level=lacking is None)
        if retried:
            waiting = {**retried, **waiting}
            lacking = lacking and stream.unapplied(self._relay, received, waiting)
        return waiting, lacking

    def _note_waiting(self, stream: TaskStream | ChannelStream, waiting: Mapping[TableName, Lsn]) -> None:
        received = self._relay.received
        oldest = stream.oldest_waiting(self._relay, received, waiting) if received is not None else None
        self._tracker.waits(len(waiting), self._committed_at(oldest))

    def _report(
        self,
        stage: Stage,
        stream: TaskStream | ChannelStream,
        waits_since: float | None,
        *,
        caught_up: bool,
        only_waiting: bool,
    ) -> None:
        delay = self._lag.delay()

        def report(lag: float | None, rate: float) -> StageReport:
            return self.stages.report(stream, self._ping.best, lag=lag, applying=delay.applying, rate=rate)

        self._tracker.show(
            stage,
            caught_up=caught_up,
            only_waiting=only_waiting,
            waits_since=waits_since,
            delay=max(delay.whole or 0.0, self.stages.receiving.lag_seconds or 0.0),
            report=report,
            awaits_spark=stream.awaits_spark,
            written=stream.written,
            being_copied=stream.being_copied,
        )

    def _committed_at(self, entry: LogEntry | None) -> float:
        """Returns when the source committed the entry, by this machine's clock; 0 if there is no entry."""
        if entry is None:
            return 0.0
        return self._lag.committed_at(entry, self.stages.receiving.clock_ahead_seconds or 0.0)
