"""Makes the attempts of one part of a task, one after the other.

An attempt lasts from the claim to the goal, a stop or a failure.

An attempt ends and another begins for one of these reasons:

- the relay is damaged, and the source sends its log again (`relay_refetch`);
- the log names a table that the task does not know: the next attempt lets it join (`table_set`);
- the task file has changed, and the running task can apply the change (`config_reload`);
- the target refuses rows of one table: the next attempt holds that table at its Lsn (`halted_tables`);
- the attempt has applied the relay's log without the source, and the source answers again;
- the log is lost, and the user has asked to copy all tables again;
- a schema change sets values that only the source has, and the tables of the change are copied again.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from pidts.apply import ApplyRules, TargetSession
from pidts.apply.checkpoint import demand_not_fenced
from pidts.batch.batch_done import BatchDone
from pidts.batch.context import JobContext, watched_by
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Workers
from pidts.ddl.outcome import CopyAgain
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.gate.stream import ChannelStream
from pidts.model import CommandKind, DdlCommand, Fenced, Halt, Halted, LogEntry, Lsn, PidtsError, TableName, Transient
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.relay.disk_space import low_space
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.task_needs import TaskNeed
from pidts.replicate import RELAY_FULL, ReceiveProblem
from pidts.source import Session as SourceSession
from pidts.source import connect
from pidts.spark.master import is_local
from pidts.spark.stream import TaskStream
from pidts.task.checks.added_source import ShardAhead
from pidts.task.config.task_file import TaskConfig
from pidts.task.measure.lag_meter import LagMeter
from pidts.task.measure.stage_meter import StageMeter
from pidts.task.measure.standby_sampling import StandbySampling
from pidts.task.measure.target_ping import TargetPing
from pidts.task.operate.catalog_publications import CatalogPublications
from pidts.task.operate.log_loss import last_moved, loses_log, loss_from, with_loss_explained
from pidts.task.operate.orders import has_failed
from pidts.task.operate.progress import Stage
from pidts.task.operate.publications import Publications, PublishingTurns
from pidts.task.operate.stage_report import StageReport
from pidts.task.operate.warehouse_sweeps import WarehouseSweeps
from pidts.task.run.alerts import Alerts
from pidts.task.run.channel_start import begin_channel, open_channel
from pidts.task.run.config_reload import ConfigReload
from pidts.task.run.counters_ahead import CountersAhead
from pidts.task.run.cutover_under_way import CutoverWatch, demand_not_cut_over, demand_startable
from pidts.task.run.failover import Failover, StandbyWatch, until_no_repeat
from pidts.task.run.goal import ProvenGoal, RunCompletion, end_of_log
from pidts.task.run.halted_tables import HaltedTables
from pidts.task.run.locked_rows import LockedRows, demand_unlocked, has_locked_rows
from pidts.task.run.read_structures import StartStopped, wait_for_relay
from pidts.task.run.relay_refetch import RelayRefetch
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.retried_tables import RetriedTables
from pidts.task.run.shared_spark import SharedSpark
from pidts.task.run.start import StartState, begin_task
from pidts.task.run.table_set import StartRequest
from pidts.task.run.tracker import Tracker
from pidts.task.tables.copy_start import Patterns
from pidts.task.tables.rewind_request import RewindPoint

_log = structlog.get_logger(__name__)

_REPORT_SECONDS, _IDLE_SECONDS = 0.2, 0.5
_REST_AFTER_SECONDS, _RESTING_SECONDS = 10.0, 1.0
"""After `_REST_AFTER_SECONDS` without a batch, the run looks for changes only every `_RESTING_SECONDS`."""
_PURGE_SECONDS = 10.0
"""The interval at which relay segments that the target's checkpoint has passed are removed."""
_LOOK_SECONDS = 1.0
"""The interval at which the replicator's status is read, if it has changed or the run is not idle."""
_RESTING_LOOK_SECONDS = 5.0
"""The interval at which the replicator's status is read in any case."""
_BACK_SECONDS, _ANSWER_SECONDS = 2.0, 5.0
"""The interval at which an attempt that began without the source tries to reach it, and the time for the answer."""
_PATTERN = re.compile(r"[*?\[\]!~,:]")
"""Characters of a name that have a special meaning in patterns."""
_UNKNOWN = frozenset({"structure-unknown", "ddl-does-not-fit"})
"""Codes of errors that may be resolved when a table joins the task."""


@dataclass(frozen=True, slots=True)
class SharedByParts:
    """The objects that all parts of a run share."""

    spark: SharedSpark
    completion: RunCompletion
    reload: ConfigReload
    shards: ShardGroups
    alerts: Alerts
    epochs: dict[str, int]
    """The epoch of the last claim of each source."""
    publishing: PublishingTurns = field(default_factory=PublishingTurns)


@dataclass(frozen=True, slots=True)
class _Meters:
    """The objects that measure the lag and the stages of one attempt."""

    lag: LagMeter
    stages: StageMeter
    ping: TargetPing


class Attempts:
    """Runs one part of a task. It keeps what outlives an attempt, such as the goal and the halted tables."""

    def __init__(
        self,
        config: TaskConfig,
        replicator: ReplicatorProcess,
        scratch: Path,
        tracker: Tracker,
        shared: SharedByParts,
        stop: threading.Event,
        resync: Patterns,
        rewind: RewindPoint | None = None,
    ) -> None:
        self._config, self._replicator, self._scratch = config, replicator, scratch
        self._tracker, self._shared, self._stop = tracker, shared, stop
        self._goal: ProvenGoal | None = None
        self._locked = LockedRows(config, shared.alerts)
        self._refetch = RelayRefetch(config)
        self._failover = Failover(self._note)
        self._applied: Lsn | None = None
        """The Lsn up to which the target had the log when this run last looked."""
        self._epoch = 0
        """The epoch of the last attempt's claim; 0 before the first."""
        self._moved_at = last_moved(config)
        self._moved = time.monotonic()
        """The time of the last commit; before the first one, the time at which the run began."""
        self._attempt = 0
        self._lag: LagMeter | None = None
        """Measures the lag of the current attempt."""
        self.spark_jobs = 0
        """The number of jobs that Spark has completed in all attempts."""
        self._disk_is_low = False
        self._starts_over = resync == ()
        """Whether the task may begin at a new position if the log is lost."""
        self._wanted = StartRequest(resync, rewind=rewind)
        self._asked: Halted | None = None
        """The error that the next attempt resolves by adding tables to the task."""
        self._answered: set[tuple[str, str, str]] = set()
        self._halted, self._retried = HaltedTables(config.name, config.source.source_id), RetriedTables()
        self._is_asked_again = False
        """Whether another attempt is wanted: the target may accept the refused rows now, or the source is back."""
        self._copied_for: set[Lsn] = set()
        """Schema changes for which this run has copied tables again."""
        self._replaces: Halt | None = None
        """The schema change for which the next attempt records a ddl command, after it has recorded the copy."""
        self._absence: Transient | None = None
        """The error of the connection to the source, if the source was absent when the attempt began."""

    def is_over(self, *, until_synced: bool) -> bool:
        """Makes one attempt; returns False if another one has to follow at once."""
        before, self._is_asked_again = self._config, False
        try:
            self._attempt_once(until_synced=until_synced)
        except Halted as error:
            self._has_arrived(arrived=False)
            self._answer(error)
            return False
        except CopyAgain as found:
            self._has_arrived(arrived=False)
            self._copy_again(found.halt)
            return False
        except Transient:
            self._has_arrived(arrived=False)
            if self._fails_over(is_failing=True):
                return False
            raise
        except Fenced:
            self._has_arrived(arrived=False)
            # A cutover claims the task, too. Then the cutover is a better reason than `fenced`.
            demand_startable(self._config)
            raise
        except Exception:
            self._has_arrived(arrived=False)
            raise
        return self._shared.completion.is_over or (self._config is before and not self._is_asked_again)

    def _fails_over(self, *, is_failing: bool) -> bool:
        """Switches to another server of the source, if the current one is lost or another one was chosen.

        Returns whether it has switched. `is_failing` says whether the last attempt has failed.
        """
        if self._config.relay_from is not None:
            return False  # The machine that receives the log chooses the server.
        moved = self._failover.look(self._config, is_failing=is_failing)
        if moved is None:
            return False
        self._replicator.stop()
        before, self._config = self._config, self._shared.reload.moved(moved)
        if self._config != replace(before, source=moved):
            self._halted.forget()
        self._goal, self._refetch = None, RelayRefetch(self._config)
        return True

    def _answer(self, error: Halted) -> None:
        """Prepares a next attempt that can avoid this error; raises the error if an operator has to decide."""
        self._demand_own_epoch()
        place = _place(error)
        if self._halted.halt_table_of(error):
            return
        if not self._is_final(error):
            self._answered.add(place)
            self._asked = error
            if error.code == "structure-unknown":
                self._wanted = replace(self._wanted, unknown=self._wanted.unknown | {error.where.table})
            self._wanted = replace(self._wanted, renames=True)
            _log.info("the log names a table that the task does not know", code=error.code, table=place[1])
            return
        if error.code in _UNKNOWN and place in self._answered:
            raise error
        try:
            self._tracker.refetching(self._refetch(error, self._applied), self._refetch.refetches)
        except Halted as final:
            if not (self._starts_over and loses_log(final)):
                several = len(self._shared.reload.parts) > 1
                raise with_loss_explained(self._config, final, self._moved_at, is_one_of_several=several) from error
            self._starts_over = False
            self._wanted = replace(self._wanted, resync=(), lost=loss_from(final))
            _log.warning("the log is lost, a new position is taken", code=final.code, what=final.what)

    def _may_copy_again(self, halt: Halt) -> bool:
        """Whether a new copy of the halted tables would provide the values that the schema change needs.

        Each halt leads to one copy at most.
        """
        config = self._config
        return (
            config.mode != "incremental"
            and not config.is_between_zones
            and halt.lsn not in self._copied_for
            and bool(halt.tables)
            and not any(config.rules.routes.may_merge(name) or _PATTERN.search(str(name)) for name in halt.tables)
            # A copy would not wait until an operator has resolved locks, and an operator could resolve a lock during
            # the copy.
            and not has_locked_rows(config, halt.tables)
        )

    def _copy_again(self, halt: Halt) -> None:
        """Prepares an attempt that copies the tables of a schema change again.

        A ddl command then replaces the schema change by statements that create its columns. The copy is recorded before
        the ddl command, so the schema change is found again after a crash between the two. The copy cannot end before
        the schema change, because all copied rows are read after it.
        """
        self._copied_for.add(halt.lsn)
        self._replaces = halt
        self._wanted = replace(self._wanted, resync=tuple(map(str, halt.tables)))
        _log.warning(
            "a schema change sets values that only the source knows: its tables are copied again", halt=str(halt)
        )

    def _order_statements(self, target: TargetSession) -> None:
        """Records a ddl command with statements for the schema change whose tables are being copied again."""
        halt = self._replaces
        if halt is None:
            return
        order = DdlCommand(lsn=halt.lsn, kind=CommandKind.REPLACE, statements=halt.instead)
        target.begin()
        target.meta.orders.give(self._config.name, self._config.source.source_id, order)
        target.commit()
        self._replaces = None

    def _demand_own_epoch(self) -> None:
        """Raises if another run has taken over the task since the last claim of this run.

        The check prevents two cases. A frozen run wakes up and loses a connection, and its next attempt takes the task
        back from the run that has replaced it. Or, while the run is frozen, the log that it needs is purged from the
        relay; then its error advises an operator to empty a relay that the other run uses.
        """
        if not self._epoch:
            return
        with suppress(Transient), closing(self._config.target.server.connect()) as target:
            stored = target.meta.checkpoints.read(self._config.name, self._config.source.source_id)
            try:
                demand_not_fenced(stored, self._epoch)
            except Fenced:
                demand_not_cut_over(target, self._config)
                raise

    def _is_final(self, error: Halted) -> bool:
        """Whether the error cannot be resolved by a table that joins."""
        may_join = error.code in _UNKNOWN and error.where.table and self._config.mode != "incremental"
        return not may_join or _place(error) in self._answered

    def _attempt_once(self, *, until_synced: bool) -> None:
        """Runs one attempt from the claim to the goal, a stop or a failure."""
        config = self._config
        self._demand_own_epoch()
        self._attempt += 1
        scratch = self._scratch / str(self._attempt)
        scratch.mkdir()
        with ExitStack() as sessions:
            source = self._reach_source(sessions)
            target = sessions.enter_context(closing(config.target.server.connect()))
            need = TaskNeed(config.relay, config.source.source_id, config.name, config.relay_keep)
            self._show_step("step 2 of 3: reading the structures of the tables")
            begun = self._begin(source, target, need)
            self._note_start(begun)
            self._order_statements(target)
            _, state, _ = Workers.claimed(begun.checkpoints)
            self._halted.begin_attempt(target, config.rules, state, begun.structures, begun.checkpoints[0].epoch)
            self._retried.begin_attempt(self._halted.recorded)
            with closing(RelayReader(config.relay, config.source.source_id)) as relay:
                slowest = self._applied = state.needs
                self._begin_need(need, slowest)
                self._show_step("step 3 of 3: waiting for the source's log")
                wait_for_relay(config, self._replicator, slowest, self._stop, relay)
                # If another server has replaced the source after the checkpoint, positions are those in the log of that
                # server.
                safe_until = until_no_repeat(config, target, self._replicator, begun.safe_until, self._stop)
                change_no = relay.origin.change_no if relay.origin else slowest.change_no
                if until_synced and self._absence is None:
                    self._take_goal(relay)
                staging = config.relay / config.source.source_id / "chunks" / config.name
                shutil.rmtree(staging, ignore_errors=True)
                first = begun.checkpoints[0]
                copied = begun.structures if config.mode != "incremental" else ()
                self._tracker.resumed(state, first.gtid, first.position, copied)
                writers = 1 if config.target.is_datacenter else config.workers
                locked = self._locked.begin_attempt(config)
                demand_unlocked(config, locked, begun.structures.values())
                context = JobContext(
                    task=config.name,
                    source=config.source.server,
                    relay=config.relay,
                    staging=staging / str(first.epoch),
                    target=config.target.server,
                    workers=writers,
                    epoch=first.epoch,
                    change_no=change_no,
                    structures=begun.structures,
                    dialect=begun.dialect,
                    charsets=begun.charsets,
                    split_rows=config.split_transactions,
                    rules=begun.rules,
                    writing=ApplyRules(
                        source=config.source.source_id,
                        version_column=config.version_column,
                        converges=config.zones.converges,
                        zone=config.zone,
                        into_zone=config.zones.target if config.is_between_zones else None,
                        owners=config.zones.owners,
                        on_divergence=config.on_divergence,
                        has_locks=bool(locked),
                        keeps_changes=config.target.keeps_changes,
                        lock_limit=config.lock_limit,
                        safe=config.safe_mode,
                        safe_until=safe_until,
                        beside=len(self._shared.shards.known.sources) > 1,
                        filters=begun.rules,
                    ),
                    watched=watched_by(target, map(begun.rules.target_table, begun.structures.values()), writers),
                    copy_threads=config.limits.threads,
                    copy_rate=config.limits.rate or 0,
                ).with_different_shards()
                stream = self._stream(begun, context, scratch)
                self._halted.watch_stream(stream, relay, self._shared.shards)
                ping = TargetPing()
                watch = CutoverWatch(config, config.target.server, ping)
                measuring = self._measuring(relay, ping)
                standbys = StandbyWatch(config, self._note)
                counters = CountersAhead(config)
                sampling = StandbySampling(config)
                sweeps = WarehouseSweeps(config)
                publications = Publications(config, lambda: self._shared.reload.parts, self._shared.publishing)
                to_server = CatalogPublications(config, self._shared.publishing.lock, self._tracker.catalog_lag)
                with (
                    self._shared.spark.losing_is_transient(lambda: stream.spark),
                    closing(standbys),
                    closing(counters),
                    closing(sampling),
                    closing(sweeps),
                    closing(publications),
                    closing(to_server),
                    closing(stream),
                    closing(watch),
                    closing(measuring.lag),
                ):
                    stream.start()
                    try:
                        self._watch(stream, relay, need, watch, measuring)
                    finally:
                        self.spark_jobs += stream.spark_jobs
                self._tracker.locked(self._locked.look(now=True))
                self._halted.drop_past_records(config.target.server)
                if self._shared.completion.is_over:
                    publications.finish(self._stop)
                    to_server.finish(self._stop)
                with suppress(Transient):
                    # While the task is stopped, its recorded need keeps other tasks from purging this log.
                    need.move(stream.state.needs)

    def _reach_source(self, sessions: ExitStack) -> SourceSession | Transient:
        """Returns a session with the source, or the error if it is absent. The relay's log is then still applied."""
        self._absence = None
        try:
            return sessions.enter_context(closing(connect(self._config.source.server)))
        except Transient as error:
            self._absence = error
            return error

    def _is_source_back(self) -> bool:
        try:
            connect(replace(self._config.source.server, connect_timeout=_ANSWER_SECONDS)).close()
        except PidtsError:
            return False
        return True

    def _note(self, text: str) -> None:
        self._tracker.note(text)

    def _show_step(self, text: str) -> None:
        """Shows the steps of the first attempt before any change is applied.

        Later attempts are shown with their cause.
        """
        if self._attempt == 1:
            self._tracker.show("starting", message=text)

    def _stream(self, begun: StartState, context: JobContext, scratch: Path) -> TaskStream | ChannelStream:
        """Returns the stream that applies the log: a channel's if the target is a datacenter."""
        config = self._config
        classifier = TransactionClassifier(
            config.allow,
            begun.dialect,
            config.rules.events,
            config.marks_in,
            frozenset(config.zones.forwards),
            config.returns_to,
            reads_notes=config.reads_notes,
        )
        goal = self._goal.lsn if self._goal is not None else None
        if config.target.is_datacenter:
            return open_channel(
                config, begun, context, classifier, goal, self._committed, self._shared.shards, self._stop.is_set
            )
        return TaskStream(
            spark=partial(self._shared.spark.session, config.source.source_id),
            give_back=partial(self._shared.spark.give_back, config.source.source_id),
            context=context,
            checkpoints=begun.checkpoints,
            classifier=classifier,
            limits=replace(config.limits, follows=config.mode != "full"),
            direct_rows=config.direct_rows,
            goal=goal,
            scratch=scratch,
            on_batch=self._committed,
            halted=self._halted.rows,
            earlier_halts=self._halted.recorded,
            halts_alone=self._is_final,
            copies_again=self._may_copy_again,
            shards=self._shared.shards,
            leaves=self._stop.is_set,
            is_cluster=not is_local(config.spark_master),
        )

    def _begin(self, source: SourceSession | Transient, target: TargetSession, need: TaskNeed) -> StartState:
        """Begins the task; returns the state from which it continues.

        Records the task's need in the relay first. So no other task purges the relay before this task's place is known.
        """
        need.begin()
        own = self._config.source.source_id
        other_parts = [part for part in self._shared.reload.parts if part.source.source_id != own]
        self._shared.shards.set_aside(own, aside=False)
        try:
            if self._config.target.is_datacenter:
                return begin_channel(
                    self._config,
                    source,
                    target,
                    self._replicator,
                    self._stop,
                    self._wanted,
                    on_claim=self._claims,
                    epoch=self._epoch,
                )
            return begin_task(
                self._config,
                source,
                target,
                self._replicator,
                self._stop,
                self._wanted,
                other_parts,
                on_claim=self._claims,
                epoch=self._epoch,
            )
        except ShardAhead:
            self._shared.shards.set_aside(own, aside=True)
            raise
        except Transient:
            raise
        except Exception:
            need.withdraw()
            raise

    def _claims(self, epoch: int) -> None:
        self._epoch = epoch
        self._shared.epochs[self._config.source.source_id] = epoch

    def _note_start(self, begun: StartState) -> None:
        """Notes that the start has done what was requested, and has recorded this on the target."""
        asked, self._asked, self._wanted = self._asked, None, StartRequest()
        for note in begun.notes:
            _log.info(note)
        if begun.notes:
            self._tracker.note("; ".join(begun.notes))
        if asked is not None and not begun.joined and asked.code != "ddl-does-not-fit":
            raise asked

    def _committed(self, done: BatchDone) -> None:
        self._applied, self._moved_at, self._moved = done.plan.end.needs, time.time(), time.monotonic()
        self._refetch.applied()
        self._tracker.batch(done)
        if self._lag is not None and not self._retried.may_delay_others(self._halted.at_present):
            self._lag.batch(done)

    def _measuring(self, relay: RelayReader, ping: TargetPing) -> _Meters:
        """Returns the objects that measure this attempt."""
        server = self._config.source.server
        self._lag = LagMeter(relay.folder)
        meter = StageMeter(server.source_id, f"{server.host}:{server.port}", self._config.target)
        return _Meters(self._lag, meter, ping)

    def _watch(
        self,
        stream: TaskStream | ChannelStream,
        relay: RelayReader,
        need: TaskNeed,
        watch: CutoverWatch,
        measuring: _Meters,
    ) -> None:
        purge_at, look_at, back_at = time.monotonic() + _PURGE_SECONDS, 0.0, time.monotonic() + _BACK_SECONDS
        lack: ReceiveProblem | None = None
        caught_up, stamp = False, 0
        while True:
            failure = stream.failure()
            if failure is not None:
                raise failure
            self._replicator.watch()
            state = stream.state
            received = relay.received
            stage: Stage = "copy" if state.copying else "sync"
            late = time.monotonic() - look_at
            if late >= _RESTING_LOOK_SECONDS - _LOOK_SECONDS or (
                late >= 0 and not (caught_up and stamp == self._replicator.status_stamp)
            ):
                stamp = self._replicator.status_stamp
                lack, look_at = self._replicator.lack(), time.monotonic() + _LOOK_SECONDS
                measuring.stages.look(stream, relay, state.lsn, self._replicator.status())
                self._tracker.lacks(lack, measuring.stages.relay_bytes)
                self._tracker.warns(measuring.stages.log_warning, low_space(relay.folder.path))
                if lack is not None and lack.error.code == RELAY_FULL:
                    purge_at = 0.0
                self._warn_of_disk(relay)
                if self._fails_over(is_failing=lack is not None or self._absence is not None):
                    return
            if self._absence is not None and time.monotonic() >= back_at:
                if self._is_source_back():
                    # Now tables may join and a goal may be taken: both need the source.
                    _log.info("the source is back", source=self._config.source.source_id)
                    self._is_asked_again = True
                    return
                back_at = time.monotonic() + _BACK_SECONDS
            self._tracker.halted(stream.halts)
            self._tracker.locked(self._locked.look())
            only_halts_left = self._halted.only_halts_left(stream, relay)
            waiting, lacking = self._waiting_and_lacking(stream, relay, state, received)
            retried = self._retried.tables if received is not None else None
            self._halted.drop_past_records(self._config.target.server, retried)
            self._note_waiting(stream, relay, waiting, measuring)
            # Halted tables do not count here, but tables that catch up do.
            catches_up = self._retried.is_any or not state.exceptions.keys() <= stream.halted_tables
            caught_up = only_halts_left or (received is not None and not catches_up and lacking is None)
            only_waiting = received is not None and lacking is None
            self._report(stage, stream, measuring, lacking, caught_up=caught_up, only_waiting=only_waiting)
            if self._has_arrived(arrived=self._is_goal(state, relay, only_halts_left=only_halts_left)):
                return
            if self._goal is not None and self._goal.is_outdated(relay):
                self._is_asked_again = True
                return
            if time.monotonic() >= purge_at:
                self._purge(need, state.needs)
                purge_at = time.monotonic() + _PURGE_SECONDS
            changed = self._shared.reload.look(self._config, halted=any(map(has_failed, stream.halts)))
            if changed is not None:
                self._config = changed
                self._halted.forget()
                return
            if watch.forbids_run():
                _log.info("the task is being cut over, and this run ends", task=self._config.name)
                return
            self._tracker.being_cut_over(str(watch.seen or ""))
            if self._halted.has_retry(self._config.target.server):
                self._is_asked_again = True
                return
            if self._stop.wait(self._pause(caught_up=caught_up)):
                return

    def _pause(self, *, caught_up: bool) -> float:
        if not caught_up:
            return _REPORT_SECONDS
        return _RESTING_SECONDS if time.monotonic() - self._moved > _REST_AFTER_SECONDS else _IDLE_SECONDS

    def _report(
        self,
        stage: Stage,
        stream: TaskStream | ChannelStream,
        measuring: _Meters,
        lacking: LogEntry | None,
        *,
        caught_up: bool,
        only_waiting: bool,
    ) -> None:
        """Reports the progress, with the lag and the stages that were measured."""
        receiving, delay = measuring.stages.receiving, measuring.lag.delay()
        ahead = receiving.clock_ahead_seconds or 0.0

        def report(lag: float | None, rate: float) -> StageReport:
            return measuring.stages.report(stream, measuring.ping.best, lag=lag, applying=delay.applying, rate=rate)

        self._tracker.show(
            stage,
            caught_up=caught_up,
            only_waiting=only_waiting,
            waits_since=measuring.lag.committed_at(lacking, ahead) if lacking is not None else 0.0,
            delay=max(delay.whole or 0.0, receiving.lag_seconds or 0.0),
            report=report,
            awaits_spark=stream.awaits_spark,
        )

    def _waiting_and_lacking(
        self, stream: TaskStream | ChannelStream, relay: RelayReader, state: PlanState, received: Lsn | None
    ) -> tuple[Mapping[TableName, Lsn], LogEntry | None]:
        """Returns the waiting tables, with their places, and the first entry with changes that other tables lack.

        The entry is None if these tables lack no changes, or if nothing was received yet.
        """
        waiting = stream.waiting
        if received is None:
            return waiting, None
        lacking = stream.unapplied(relay, received, waiting)
        retried = self._retried.look(state, stream.halted_tables, received, is_level=lacking is None)
        if retried:
            waiting = {**retried, **waiting}
            lacking = lacking and stream.unapplied(relay, received, waiting)
        return waiting, lacking

    def _note_waiting(
        self,
        stream: TaskStream | ChannelStream,
        relay: RelayReader,
        waiting: Mapping[TableName, Lsn],
        measuring: _Meters,
    ) -> None:
        """Notes how many tables wait, and when the source committed the oldest change that waits."""
        received, since = relay.received, 0.0
        oldest = stream.oldest_waiting(relay, received, waiting) if received is not None else None
        if oldest is not None:
            since = measuring.lag.committed_at(oldest, measuring.stages.receiving.clock_ahead_seconds or 0.0)
        self._tracker.waits(len(waiting), since)

    def _warn_of_disk(self, relay: RelayReader) -> None:
        """Warns once when the relay's disk is nearly full, and again only if there was room in between."""
        found = low_space(relay.folder.path)
        if found and not self._disk_is_low:
            _log.warning("the relay's disk is nearly full", source=self._config.source.source_id, what=found)
            self._tracker.note(found)
        self._disk_is_low = bool(found)

    def _begin_need(self, need: TaskNeed, applied: Lsn) -> None:
        """Records the task's place in the relay. On a full disk, log that all tasks have applied is purged first."""
        try:
            need.move(applied)
        except Transient:
            self._release(applied)
            need.move(applied)

    def _has_arrived(self, *, arrived: bool) -> bool:
        """Reports whether this part is at its goal. Returns whether the run is over."""
        return self._shared.completion.found(self._config.source.source_id, arrived=arrived)

    def _take_goal(self, relay: RelayReader) -> None:
        """Waits until it is proved that the relay has the source's current log.

        The replicator may find that the source now has another log.
        """
        self._goal = self._goal or ProvenGoal(partial(end_of_log, self._config))
        while not self._goal.take(relay):
            self._replicator.watch()
            if self._stop.wait(_REPORT_SECONDS):
                raise StartStopped

    def _is_goal(self, state: PlanState, relay: RelayReader, *, only_halts_left: bool) -> bool:
        """Whether this part has applied the log up to its goal and copied all rows.

        Tables that need an operator do not count. `only_halts_left` says whether the target lacks only changes of such
        tables.
        """
        if self._goal is None or (goal := self._goal.lsn) is None or self._absence is not None:
            return False
        received = relay.received
        has_rest = only_halts_left and received is not None and received >= goal
        is_there = has_rest or (not state.copying and state.needs >= goal)
        return is_there and self._goal.is_proven(relay)

    def _purge(self, need: TaskNeed, applied: Lsn) -> None:
        """Removes log that all tasks of the relay have applied, even if the disk has no room to record the need."""
        with suppress(Transient):
            need.move(applied)
        self._release(applied)

    def _release(self, applied: Lsn) -> None:
        config = self._config
        release(config.relay, config.source.source_id, PurgeLimits(checkpoints={config.name: applied}))


def _place(error: Halted) -> tuple[str, str, str]:
    return error.code, error.where.table, error.where.position
