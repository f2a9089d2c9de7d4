"""Makes the successive attempts of one part of a task.

An attempt lasts from the claim to the goal, a stop or a failure.

An attempt ends and another begins for one of these reasons:

- the relay is damaged, and the source sends its log again (`relay_refetch`);
- the relay lacks rows of an XA transaction, and begins anew before them (`attempt/relay_beginning`);
- the log names a table that the task does not know: the next attempt lets it join (`table_set`);
- the task file has changed, and the running task can apply the change (`config_reload`);
- the target refuses rows of one table: the next attempt holds that table at its Lsn (`halted_tables`);
- the attempt has applied the relay's log without the source, and the source answers again;
- the log is lost, and the user has asked to copy all tables again;
- a schema change sets values that only the source has, and the tables of the change are copied again.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_not_fenced
from pidts.batch.batch_done import BatchDone
from pidts.batch.context import JobContext
from pidts.batch.log_place import demand_same_log
from pidts.batch.side_effects import SideEffects
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Workers
from pidts.ddl.outcome import CopyAgain
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.gate.stream import ChannelStream
from pidts.model import Fenced, Halted, Lsn, PidtsError, Transient
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.relay.disk_space import low_space
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.task_needs import TaskNeed
from pidts.replicate import RELAY_FULL, ReceiveProblem
from pidts.source import Session as SourceSession
from pidts.source import connect
from pidts.spark.master import is_local
from pidts.spark.stream import HaltRules, SparkUse, TaskStream
from pidts.task.checks.added_source import ShardAhead
from pidts.task.config.task_file import TaskConfig
from pidts.task.measure.standby_sampling import StandbySampling
from pidts.task.measure.target_ping import TargetPing
from pidts.task.operate.catalog_publications import CatalogPublications
from pidts.task.operate.ddl_commands import has_failed
from pidts.task.operate.log_loss import last_moved, with_loss_explained
from pidts.task.operate.publications import Publications, PublishingTurns
from pidts.task.operate.warehouse_sweeps import WarehouseSweeps
from pidts.task.run.alerts import Alerts
from pidts.task.run.attempt.job_context import job_context, staging_folder
from pidts.task.run.attempt.next_attempt import NextAttempt
from pidts.task.run.attempt.progress import AttemptProgress, ObservedTables
from pidts.task.run.attempt.relay_beginning import EarlierBeginning
from pidts.task.run.channel_start import begin_channel, open_channel
from pidts.task.run.config_reload import ConfigReload
from pidts.task.run.counters_ahead import CountersAhead
from pidts.task.run.cutover_under_way import CutoverWatch, demand_not_cut_over, demand_startable
from pidts.task.run.failover import Failover, StandbyWatch, until_no_repeat
from pidts.task.run.goal import ProvenGoal, RunCompletion, end_of_log
from pidts.task.run.halted_tables import HaltedTables
from pidts.task.run.locked_rows import LockedRows, demand_unlocked
from pidts.task.run.read_structures import StartStopped, wait_for_relay
from pidts.task.run.relay_refetch import RelayRefetch
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.retried_tables import RetriedTables
from pidts.task.run.shared_spark import SharedSpark
from pidts.task.run.start import StartState, begin_task
from pidts.task.run.tracker import Tracker
from pidts.task.tables.copy_start import Patterns
from pidts.task.tables.rewind_request import RewindPoint
from pidts.task.tables.rule_changes import Caution

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
"""The interval at which an attempt that began without the source connects to it, and the time for an answer."""


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


@dataclass(slots=True)
class _Running:
    """An attempt that applies changes, and the times of the next checks that may end it."""

    stream: TaskStream | ChannelStream
    relay: RelayReader
    need: TaskNeed
    cutover: CutoverWatch
    progress: AttemptProgress
    look_at: float = 0.0
    """When the replicator's status is read next."""
    status_stamp: int = 0
    """The `ReplicatorProcess.status_stamp` of the status that was read last."""
    lack: ReceiveProblem | None = None
    """The reason why the replicator receives nothing; None if it receives the log."""
    purge_at: float = field(default_factory=lambda: time.monotonic() + _PURGE_SECONDS)
    back_at: float = field(default_factory=lambda: time.monotonic() + _BACK_SECONDS)
    """When the run next tries to connect to a source that was absent when the attempt began."""
    is_caught_up: bool = False


class Attempts:
    """Runs one part of a task, and has the objects that outlive an attempt, such as the goal and the halted tables."""

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
        self._refetch = RelayRefetch(config)
        self._earlier = EarlierBeginning(replicator, stop)
        self._failover = Failover(self._note)
        self._applied: Lsn | None = None
        """The Lsn up to which the target is known to have the log."""
        self._epoch = 0
        """The epoch of the last claim; 0 before the first claim."""
        self._has_begun = False
        """Whether an attempt of this run has begun the task, and so has committed a claim."""
        self._moved_at = last_moved(config)
        self._moved = time.monotonic()
        """The time of the last commit; before the first one, the time at which the run began."""
        self._attempt = 0
        self._progress: AttemptProgress | None = None
        self.spark_jobs = 0
        """The number of jobs that Spark has completed in all attempts."""
        self._disk_is_low = False
        self._next = NextAttempt(resync, rewind)
        self._halted = HaltedTables(config.name, config.source.source_id, into_zone=config.into_zone)
        self._apart = ObservedTables(self._halted, RetriedTables(), LockedRows(config, shared.alerts))
        self._is_asked_again = False
        """Whether another attempt is wanted: the target may accept the refused rows now, or the source is back."""
        self._absence: Transient | None = None
        """The error of the connection to the source, if the source was absent when the attempt began."""

    def attempt(self, *, until_synced: bool) -> bool:
        """Makes one attempt. Returns whether the run is over; if not, another attempt has to follow at once."""
        before, self._is_asked_again = self._config, False
        try:
            self._attempt_once(until_synced=until_synced)
        except Halted as error:
            self._has_arrived(arrived=False)
            self._answer(error)
            return False
        except CopyAgain as found:
            self._has_arrived(arrived=False)
            self._next.copy_again(found.halt)
            return False
        except Transient:
            self._has_arrived(arrived=False)
            if self._fails_over(is_failing=True):
                return False
            raise
        except Fenced:
            self._has_arrived(arrived=False)
            # A cutover also claims the task. After a cutover, this call raises an error that names the cutover.
            demand_startable(self._config)
            raise
        except Exception:
            self._has_arrived(arrived=False)
            raise
        return self._shared.completion.is_over or (self._config is before and not self._is_asked_again)

    def _fails_over(self, *, is_failing: bool) -> bool:
        """Switches to another server of the source, if the current server is lost or an operator has chosen another.

        Returns whether the task has switched. `is_failing`: the current server may be lost. If another machine receives
        the log, only an operator chooses: this machine does not know which server that machine has chosen.
        """
        moved = self._failover.look(self._config, is_failing=is_failing and self._config.relay_from is None)
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
        if self._halted.halt_table_of(error):
            return
        if not self._is_final(error):
            self._next.let_join(error)
            return
        if self._next.has_answered(error):
            raise error
        try:
            if self._earlier.answers(
                self._config, error, self._applied, lambda text: self._tracker.show("starting", message=text)
            ):
                self._note(f"{error.what}; the relay begins anew, before the transaction's rows")
                return
            self._tracker.refetching(self._refetch(error, self._applied), self._refetch.refetches)
        except Halted as final:
            if not self._next.takes_new_position(final):
                several = len(self._shared.reload.parts) > 1
                raise with_loss_explained(self._config, final, self._moved_at, is_one_of_several=several) from error

    def _demand_own_epoch(self) -> None:
        """Raises if another run has taken over the task since the last claim of this run.

        The check prevents two failures of a run that was frozen, was replaced by another run, and wakes up:

        - The run loses a connection, and its next attempt takes the task back from the other run.
        - The log that the run needs was purged from the relay meanwhile, and its error advises an operator to empty the
          relay, which the other run uses.
        """
        if not self._epoch:
            return
        with suppress(Transient), closing(self._config.target.server.connect()) as target:
            stored = target.meta.checkpoints.read(self._config.name, self._config.source.source_id)
            try:
                demand_not_fenced(
                    stored,
                    self._config.name,
                    self._config.source.source_id,
                    self._epoch,
                    has_begun=self._has_begun,
                )
            except Fenced:
                demand_not_cut_over(target, self._config)
                raise

    def _is_final(self, error: Halted) -> bool:
        return self._next.is_final(error, self._config)

    def _attempt_once(self, *, until_synced: bool) -> None:
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
            self._has_begun = True
            self._note_start(begun)
            self._next.replace_statement(target, config)
            _, state, _ = Workers.claimed(begun.checkpoints)
            self._halted.begin_attempt(target, config.rules, state, begun.structures, begun.checkpoints[0].epoch)
            self._apart.retried.begin_attempt(self._halted.recorded)
            relay = sessions.enter_context(closing(RelayReader(config.relay, config.source.source_id)))
            self._applied = state.needs
            self._begin_need(need, state.needs)
            context = self._context(begun, target, state, relay, until_synced=until_synced)
            statements = sessions.enter_context(closing(RelayReader(config.relay, config.source.source_id)))
            side_effects = SideEffects(
                config.allow, begun.dialect, lambda: closing(connect(config.source.server)), statements
            )
            self._apply_log(self._stream(begun, context, scratch, side_effects), relay, need)

    def _context(
        self, begun: StartState, target: TargetSession, state: PlanState, relay: RelayReader, *, until_synced: bool
    ) -> JobContext:
        """Waits for the relay's log, and returns the context of this attempt's batches."""
        config, slowest = self._config, state.needs
        self._show_step("step 3 of 3: waiting for the source's log")
        wait_for_relay(
            config,
            self._replicator,
            slowest,
            self._stop,
            relay,
            show_step=lambda text: self._show_step(f"step 3 of 3: {text}"),
        )
        demand_same_log(relay, begun.checkpoints)
        safe_until = until_no_repeat(config, target, self._replicator, begun.safe_until, self._stop)
        # If another server has replaced the source after the checkpoint, positions are places in that server's log.
        change_no = relay.origin.change_no if relay.origin else slowest.change_no
        if until_synced and self._absence is None:
            self._take_goal(relay)
        shutil.rmtree(staging_folder(config), ignore_errors=True)
        first = begun.checkpoints[0]
        copied = begun.structures if config.mode != "incremental" else ()
        self._tracker.resumed(state, first.gtid, first.position, copied)
        locked = self._apart.locked.begin_attempt(config)
        demand_unlocked(config, locked, begun.structures.values())
        return job_context(
            config,
            begun,
            target,
            change_no=change_no,
            safe_until=safe_until,
            has_locks=bool(locked),
            shares_tables=len(self._shared.shards.known.sources) > 1,
        )

    def _apply_log(self, stream: TaskStream | ChannelStream, relay: RelayReader, need: TaskNeed) -> None:
        """Applies the log until the attempt ends, while other threads publish tables and watch the servers."""
        config = self._config
        self._halted.watch_stream(stream, relay, self._shared.shards)
        ping = TargetPing()
        cutover = CutoverWatch(config, config.target.server, ping)
        progress = self._progress = AttemptProgress(config, self._tracker, self._apart, relay, ping)
        publications = Publications(config, lambda: self._shared.reload.parts, self._shared.publishing)
        to_server = CatalogPublications(config, self._shared.publishing.lock, self._tracker.catalog_lag)
        with (
            self._shared.spark.losing_is_transient(lambda: stream.spark),
            closing(StandbyWatch(config, self._note)),
            closing(CountersAhead(config)),
            closing(StandbySampling(config)),
            closing(WarehouseSweeps(config)),
            closing(publications),
            closing(to_server),
            closing(stream),
            closing(cutover),
            closing(progress),
        ):
            stream.start()
            try:
                self._watch(_Running(stream, relay, need, cutover, progress))
            finally:
                self.spark_jobs += stream.spark_jobs
        self._tracker.locked(self._apart.locked.look(now=True))
        self._halted.drop_past_records(config.target.server)
        if self._shared.completion.is_over:
            publications.finish(self._stop)
            to_server.finish(self._stop)
        with suppress(Transient):
            # While this task is stopped, other tasks of the relay do not purge the log after the recorded place.
            need.move(stream.state.needs)

    def _reach_source(self, sessions: ExitStack) -> SourceSession | Transient:
        """Returns a session with the source; if the source is absent, its error: then the relay's log is applied."""
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
        """Shows a step of the first attempt. For a later attempt, the user sees its cause instead."""
        if self._attempt == 1:
            self._tracker.show("starting", message=text)

    def _stream(
        self, begun: StartState, context: JobContext, scratch: Path, side_effects: SideEffects
    ) -> TaskStream | ChannelStream:
        config = self._config
        classifier = TransactionClassifier(
            config.allow,
            begun.dialect,
            config.rules.events,
            config.marks_in,
            frozenset(config.zones.forwards),
            config.returns_to,
            reads_notes=config.reads_notes,
            side_effects=side_effects,
        )
        goal = self._goal.lsn if self._goal is not None else None
        if config.target.is_datacenter:
            return open_channel(
                config, begun, context, classifier, goal, self._committed, self._shared.shards, self._stop.is_set
            )
        return TaskStream(
            context=context,
            checkpoints=begun.checkpoints,
            classifier=classifier,
            limits=replace(config.limits, follows=config.mode != "full"),
            goal=goal,
            spark=SparkUse(
                session=partial(self._shared.spark.session, config.source.source_id),
                give_back=partial(self._shared.spark.give_back, config.source.source_id),
                direct_rows=config.direct_rows,
                scratch=scratch,
                is_cluster=not is_local(config.spark_master),
            ),
            on_batch=self._committed,
            halts=HaltRules(
                rows=self._halted.rows,
                earlier=self._halted.recorded,
                is_final=self._is_final,
                copies_again=lambda halt: self._next.may_copy_again(halt, self._config),
            ),
            shards=self._shared.shards,
            leaves=self._stop.is_set,
        )

    def _begin(self, source: SourceSession | Transient, target: TargetSession, need: TaskNeed) -> StartState:
        """Begins the task; returns the state from which the task continues.

        First records in the relay that this task needs its log: until the task's place is known, no other task may
        purge that log.
        """
        need.begin()
        own = self._config.source.source_id
        other_parts = [part for part in self._shared.reload.parts if part.source.source_id != own]
        self._shared.shards.exclude(own, excluded=False)
        try:
            if self._config.target.is_datacenter:
                return begin_channel(
                    self._config,
                    source,
                    target,
                    self._replicator,
                    self._stop,
                    on_claim=self._claims,
                    epoch=self._epoch,
                    has_begun=self._has_begun,
                )
            return begin_task(
                self._config,
                source,
                target,
                self._replicator,
                self._stop,
                self._next.request,
                other_parts,
                on_claim=self._claims,
                epoch=self._epoch,
                has_begun=self._has_begun,
                show_step=self._show_step,
            )
        except ShardAhead:
            self._shared.shards.exclude(own, excluded=True)
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
        """Shows the notes of a start, and forgets what was requested of it (`StartRequest`).

        The start has recorded on the target what it has done.
        """
        for note in begun.notes:
            (_log.warning if isinstance(note, Caution) else _log.info)(note)
        if begun.notes:
            self._tracker.note("; ".join(begun.notes))
        self._next.note_start(begun)

    def _committed(self, done: BatchDone) -> None:
        self._applied, self._moved_at, self._moved = done.plan.end.needs, time.time(), time.monotonic()
        self._refetch.applied()
        self._tracker.batch(done)
        if self._progress is not None:
            self._progress.batch(done)

    def _watch(self, running: _Running) -> None:
        """Shows the progress of the attempt until a reason is found to end it. Raises if the stream has failed."""
        stream, relay = running.stream, running.relay
        while True:
            failure = stream.failure()
            if failure is not None:
                raise failure
            self._replicator.watch()
            state, received = stream.state, relay.received
            if self._changes_server(running, state) or self._goes_back_to_source(running):
                return
            found = running.progress.show(stream, state, received)
            running.is_caught_up = found.is_caught_up
            if self._has_arrived(arrived=self._is_goal(state, relay, only_halts_left=found.only_halts_left)):
                return
            if self._goal is not None and self._goal.is_outdated(relay):
                self._is_asked_again = True
                return
            if time.monotonic() >= running.purge_at:
                self._purge(running.need, state.needs)
                running.purge_at = time.monotonic() + _PURGE_SECONDS
            if self._is_replaced(running) or self._stop.wait(self._pause(caught_up=found.is_caught_up)):
                return

    def _changes_server(self, running: _Running, state: PlanState) -> bool:
        """Reads the replicator's status, if this is due. Returns whether the task has switched to another server.

        While the run is idle and the status is unchanged, the status is read only every `_RESTING_LOOK_SECONDS`.
        """
        stages, late = running.progress.stages, time.monotonic() - running.look_at
        is_quiet = running.is_caught_up and running.status_stamp == self._replicator.status_stamp
        if late < (_RESTING_LOOK_SECONDS - _LOOK_SECONDS if is_quiet else 0):
            return False
        running.status_stamp = self._replicator.status_stamp
        running.lack, running.look_at = self._replicator.lack(), time.monotonic() + _LOOK_SECONDS
        stages.look(running.stream, running.relay, state.lsn, self._replicator.status())
        self._tracker.lacks(running.lack, stages.relay_bytes, has_connected=self._replicator.has_connected)
        self._tracker.warns(stages.log_warning, low_space(running.relay.folder.path))
        if running.lack is not None and running.lack.error.code == RELAY_FULL:
            running.purge_at = 0.0
        self._warn_of_disk(running.relay)
        return self._fails_over(is_failing=running.lack is not None or self._absence is not None)

    def _goes_back_to_source(self, running: _Running) -> bool:
        """Whether the source was absent when the attempt began, and answers again.

        The next attempt begins with the source. Only with the source can tables join and a goal be taken.
        """
        if self._absence is None or time.monotonic() < running.back_at:
            return False
        if self._is_source_back():
            _log.info("the source is back", source=self._config.source.source_id)
            self._is_asked_again = True
            return True
        running.back_at = time.monotonic() + _BACK_SECONDS
        return False

    def _is_replaced(self, running: _Running) -> bool:
        """Whether this attempt has to end because of a changed task file, a cutover or an operator's command."""
        halts = running.stream.halts
        changed = self._shared.reload.look(self._config, halted=any(map(has_failed, halts)))
        if changed is not None:
            self._config = changed
            self._halted.forget()
            return True
        if running.cutover.forbids_run():
            _log.info("the task is being cut over, and this run ends", task=self._config.name)
            return True
        self._tracker.being_cut_over(str(running.cutover.seen or ""))
        self._tracker.target_seen(running.cutover.failure)
        if self._halted.has_retry(self._config.target.server):
            self._is_asked_again = True
            return True
        return False

    def _pause(self, *, caught_up: bool) -> float:
        if not caught_up:
            return _REPORT_SECONDS
        return _RESTING_SECONDS if time.monotonic() - self._moved > _REST_AFTER_SECONDS else _IDLE_SECONDS

    def _warn_of_disk(self, relay: RelayReader) -> None:
        """Warns once when the relay's disk is nearly full, and again only if there was room in between."""
        found = low_space(relay.folder.path)
        if found and not self._disk_is_low:
            _log.warning("the relay's disk is nearly full", source=self._config.source.source_id, what=found)
            self._tracker.note(found)
        self._disk_is_low = bool(found)

    def _begin_need(self, need: TaskNeed, applied: Lsn) -> None:
        """Records in the relay how far the task is. If this fails, purges log and tries again."""
        try:
            need.move(applied)
        except Transient:
            self._release(applied)
            need.move(applied)

    def _has_arrived(self, *, arrived: bool) -> bool:
        """Reports whether this part is at its goal. Returns whether the run is over."""
        return self._shared.completion.found(self._config.source.source_id, arrived=arrived)

    def _take_goal(self, relay: RelayReader) -> None:
        """Waits until this part has a goal, which it gets only when the relay has the source's current log.

        Meanwhile the replicator may find that the source now has another log: `watch` raises the replicator's error.
        """
        self._goal = self._goal or ProvenGoal(partial(end_of_log, self._config))
        while not self._goal.take(relay):
            self._replicator.watch()
            if self._stop.wait(_REPORT_SECONDS):
                raise StartStopped

    def _is_goal(self, state: PlanState, relay: RelayReader, *, only_halts_left: bool) -> bool:
        """Whether this part has applied the log up to its goal and copied all rows.

        Tables that need an operator do not count. `only_halts_left`: the target lacks only changes of such tables.
        """
        if self._goal is None or (goal := self._goal.lsn) is None or self._absence is not None:
            return False
        received = relay.received
        has_rest = only_halts_left and received is not None and received >= goal
        is_there = has_rest or (not state.copying and state.needs >= goal)
        return is_there and self._goal.is_proven(relay)

    def _purge(self, need: TaskNeed, applied: Lsn) -> None:
        """Removes log that all tasks of the relay have applied, even if the disk is too full to record the need."""
        with suppress(Transient):
            need.move(applied)
        self._release(applied)

    def _release(self, applied: Lsn) -> None:
        config = self._config
        release(config.relay, config.source.source_id, PurgeLimits(checkpoints={config.name: applied}))
