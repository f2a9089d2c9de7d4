"""Plans and carries out the batches of one source, one after the other.

The driver itself decodes and applies a small batch. It also applies a large transaction, part by part
(`pidts.batch.long_batch`). Other large batches are Spark jobs (`pidts.spark.job_size`), whose Spark tasks share the
work. The driver and the Spark tasks decode and apply with the same functions.

A thread of the driver plans all batches, and carries out the driver's own batches as transactions arrive. If a batch
becomes a job, the thread writes a note and waits, because only a call of Spark's query has the job's partitions. The
query's next call reads the note, see `pidts.spark.slices`, and carries out this one batch. The thread and the call take
the same lock for each batch, so only one batch is under way at a time. Spark starts when a job or a copy needs it, and
ends when it has had no work for a while, see `pidts.spark.on_demand`.

A batch's requests of the full copy are carried out last, when the batch's log is committed on the target, see
`pidts.spark.copy_job`. If the run has to end, it interrupts these requests. No row is lost: the planner of the next run
makes these requests again.

A schema change is not part of a batch. When the batch before it is on the target, the schema change runs in a separate
thread, and at first all batches wait for it. So with one worker, a reader of the target always sees a state that the
source had between two transactions, even around schema changes. If the schema change takes longer than
`_GRACE_SECONDS`, only its tables wait, and all other tables go on. If it fails permanently, its tables wait in the same
way until an operator has decided about it.

Spark's checkpoint directory belongs to one query. Only the target's checkpoint counts: every start, even after a failed
batch, claims the task there with a new epoch, and every query begins a new directory. So Spark's own record does not
matter if the driver dies:

- between two batches of the driver: the target has the first batch, and the next run continues after it;
- while the driver carries out a large transaction: see `pidts.batch.long_batch`;
- after the note about a job is written, before Spark's call (Spark may still be starting): nothing is done, and the
  next run plans the batch again. If the JVM dies at this point, the attempt ends, and the next attempt starts another
  JVM;
- in the call: the workers' checkpoints show what each worker has committed, and the next run begins at the state that
  all workers have reached;
- after the job is done, before Spark records this: the target has the batch, and Spark's record is not used;
- while Spark is being released: no batch is under way, and the note about the next job is for another query;
- while the driver copies, even while Spark starts for the remaining requests: either the driver or Spark carries out a
  request. If a request is interrupted, the same rows are read again, and the rows that are already loaded are found,
  see `pidts.batch.copy.load_task`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from structlog.contextvars import bound_contextvars

from pidts.batch.applying import apply
from pidts.batch.batch_done import BatchDone
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.copy.staging import forget, staged_chunk
from pidts.batch.decoding import SliceReader, decode
from pidts.batch.end_deadline import EndDeadline
from pidts.batch.known_tables import KnownTables
from pidts.batch.lagging_merge import MovedKeysCleanup
from pidts.batch.log_place import end_of_batch
from pidts.batch.long_batch import LongBatch, long_work
from pidts.batch.pointers import pointers
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Commit, Workers
from pidts.binlog import LargeSliceError
from pidts.ddl.ddl_threads import DdlThreads
from pidts.ddl.planner_signals import kept_of, signal_kept
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.record import join
from pidts.model import Checkpoint, Halt, Halted, LogEntry, Lsn, TableName, byte_size, with_gtids
from pidts.plan import (
    BatchPlan,
    Limits,
    Phase,
    PlanState,
    UnappliedSearch,
    WaitingTableSearch,
    next_state,
    plan_between,
)
from pidts.reduce import Counts
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.watch import FolderWatch
from pidts.spark.copy_job import CopyRunner, prepare
from pidts.spark.failures import restored
from pidts.spark.job_note import JobNote, SliceOptions
from pidts.spark.job_size import Execution, execution_of
from pidts.spark.on_demand import SparkOnDemand
from pidts.spark.planning import Planner
from pidts.time_spent import IDLE, CommitTime, StepTimes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = structlog.get_logger(__name__)

_UNKNOWN_TABLE = (
    "Leave the table out (block-allow-list). A task with task-mode: incremental copies no rows, so it cannot add the "
    "table. Another task with task-mode: all can copy the table and replicate its changes"
)
_GRACE_SECONDS = 3.0
"""The longest time, in seconds, for which all batches wait for a schema change."""
_READ_SECONDS, _POLL_SECONDS = 0.005, 0.02
"""The intervals at which a thread checks for work that the relay does not show: the first while the copy has open
requests, the second in the first `_BUSY_SECONDS` without a batch.
"""
_BUSY_SECONDS = 1.0
_READS_ROWS = (Phase.ROWS, Phase.REREAD)
_DECODED_BYTES = 256 << 20
"""The largest size, in bytes, of the decoded rows that the driver may have in memory. A larger batch is carried out in
parts. Only a batch with a compressed log, or with row images that lack most columns, can be larger.
"""
_LITTLE_LOG = 64 << 10
"""If a batch has fewer bytes of log than this, the size of its decoded rows is not measured."""
_PART_SECONDS = 10.0
"""The longest time for which a run that has to end waits until a long batch has written its present part."""
_LOOK_SECONDS = 0.1
"""The interval at which a copy checks whether the run has to end, and interrupts itself if so. A thread that waits to
begin a batch checks at the same interval.
"""
_REST_AFTER_SECONDS, _RESTING_LOOK_SECONDS = 10.0, 0.5
"""After `_REST_AFTER_SECONDS` without a batch and without waiting tables, the stream looks for new work only every
`_RESTING_LOOK_SECONDS`. New entries in the relay end this rest at once.
"""


@dataclass(frozen=True, slots=True)
class _Halts:
    """The halts of a stream. The object stays the same as long as no halt changes."""

    by_lsn: Mapping[Lsn, Halt]
    """The halts of schema changes."""
    halts: tuple[Halt, ...]
    tables: frozenset[TableName]
    is_about_all: bool
    """Whether a halt names no tables, and so concerns all tables."""

    @classmethod
    def of(cls, refused: Sequence[Halt], by_lsn: Mapping[Lsn, Halt]) -> _Halts:
        halts = (*refused, *by_lsn.values())
        tables = frozenset(name for halt in halts for name in halt.tables)
        return cls(by_lsn, halts, tables, is_about_all=not all(halt.tables for halt in halts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkUse:
    """How a stream uses Spark."""

    session: Callable[[], SparkSession]
    """Returns the session, which all streams of the run share."""
    give_back: Callable[[], None] = lambda: None
    """Releases the session."""
    direct_rows: int
    """The largest number of rows in a batch that the driver applies without Spark."""
    scratch: Path
    """The folder of the attempt's temporary files."""
    is_cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRules:
    """The halts of earlier attempts, and the functions that decide what an error halts."""

    rows: Sequence[Halt] = ()
    """The halts of tables whose rows the target has refused. These tables are still halted."""
    earlier: Sequence[Halt] = ()
    """The halts that earlier attempts recorded, with the times at which the tables were halted."""
    is_final: Callable[[Halted], bool] = lambda _: True
    """Returns whether an error halts only its tables, and not the whole run."""
    copies_again: Callable[[Halt], bool] = lambda _: False
    """Returns whether the run copies the tables of a halt again: then no operator is needed."""


class TaskStream:
    """Runs batches from a claimed checkpoint until it is stopped or fails."""

    leave_seconds = 10.0
    """How long a run that ends waits for a schema change, or for a batch that waits for a lock on the target."""
    call_seconds = 30.0
    """The time after which a call of Spark's query returns even without a job, so that Spark sees progress."""

    def __init__(
        self,
        *,
        context: JobContext,
        checkpoints: tuple[Checkpoint, ...],
        classifier: TransactionClassifier,
        limits: Limits,
        goal: Lsn | None,
        spark: SparkUse,
        on_batch: Callable[[BatchDone], None],
        halts: HaltRules | None = None,
        shards: ShardGroups | None = None,
        leaves: Callable[[], bool] = lambda: False,
    ) -> None:
        """`leaves` returns whether the process is about to end. If so, `close` may return while a batch runs."""
        halts = halts or HaltRules()
        self._classifier, self._limits = classifier, limits
        self._direct_rows, self._goal, self._scratch, self._on_batch = spark.direct_rows, goal, spark.scratch, on_batch
        self._context = context
        self._workers, self._state, claimed = Workers.claimed(checkpoints, context.dealing)
        self._gtids = claimed.gtid
        self._unapplied, self._waiting_changes = UnappliedSearch(classifier), WaitingTableSearch(classifier)
        self._halted = halts.rows
        self._halts_seen: _Halts | None = None
        refused = {name for halt in halts.rows for name in halt.tables} & context.structures.keys()
        self._state = self._state.halting(refused) if refused else self._state
        self._shards = shards or ShardGroups()
        self._keep = partial(signal_kept, context.staging)
        self._shards.barrier.attend(context.source.source_id, self._keep, self._state.exceptions)
        join(self._shards, context)
        self._moved_keys_cleanup = MovedKeysCleanup(context, checkpoints, time.sleep)
        self._ddl = DdlThreads(classifier, halts.is_final, self._shards, halts.earlier, halts.copies_again)
        self._relay = RelayReader(context.relay, context.source.source_id)
        self._reader = SliceReader(self._relay)
        self._watch = FolderWatch(Folder.of(context.relay, context.source.source_id).path)
        self._planner = Planner(self._relay, context.staging, limits, classifier, goal)
        self._known_tables = KnownTables(self._relay, classifier, _UNKNOWN_TABLE)
        self._committers = [context.committer() for _ in range(context.workers)]
        self._slices, self._note = spark.scratch / "slices.pickle", spark.scratch / "job.json"
        name = f"pidts-{context.source.source_id}-{context.epoch}"
        prepared = partial(prepare, context.target)
        self._spark = SparkOnDemand(
            spark.session, spark.give_back, name, spark.scratch, self._slices, self._called, prepared
        )
        self._is_noted, self._is_done = threading.Event(), threading.Event()
        """The first event is set while a job waits for its call; the second is set when that call has returned."""
        self._job: BatchPlan | None = None
        """The plan of the job about which a note was written."""
        self._busy = threading.Lock()
        self._closing, self._leaves = False, leaves
        self._long_batch: LongBatch | None = None
        """The long batch that is under way in this process; None if there is none."""
        self._copying = CopyRunner(lambda: self._closing, spark.direct_rows, is_cluster=spark.is_cluster)
        self._jobs = 0
        self.times = StepTimes()
        """Measures how the thread that carries out a batch spends its time."""
        self._failure: Exception | None = None
        self._log = _log.bind()
        """The logger of batches: the module's logger looks up its settings for each line."""

    @property
    def state(self) -> PlanState:
        """Returns the last state that is committed on the target."""
        return self._state

    @property
    def halts(self) -> tuple[Halt, ...]:
        """Returns the halts that wait for an operator. All tables without a halt continue."""
        return self._halts_at_present.halts

    @property
    def rows_failed(self) -> bool:
        """Whether the run has failed because of rows, and not because of a schema change."""
        return self._ddl.failure is None

    def only_halts_left(self, relay: RelayReader) -> bool:
        """Whether the target has all changes in the relay, except those that wait for an operator or other shards."""
        state, halted = self._state, self._ddl.waiting_for_others
        if state.open_requests or not halted >= state.dues:
            return False
        log, kept = partial(relay.entries, joined=True), kept_of(self._context.staging)
        return next_state(state, log, {}, self._limits, self._classifier, self._goal, (), halted, kept) is None

    @property
    def halted_tables(self) -> frozenset[TableName]:
        """Returns the halted tables, which cannot continue. A halt without tables concerns all tables."""
        present = self._halts_at_present
        return frozenset(self.tables) if present.is_about_all else present.tables

    @property
    def _halts_at_present(self) -> _Halts:
        by_lsn, known = self._ddl.halts, self._halts_seen
        if known is None or known.by_lsn is not by_lsn:
            self._halts_seen = known = _Halts.of(self._halted, by_lsn)
        return known

    @property
    def waiting(self) -> Mapping[TableName, Lsn]:
        """Returns the place in the log of each halted table, and of each other table that waits at an earlier place."""
        state = self._state
        return {**dict.fromkeys(self.halted_tables, state.lsn), **state.exceptions}

    def unapplied(self, relay: RelayReader, received: Lsn, waiting: Mapping[TableName, Lsn]) -> LogEntry | None:
        """Returns the first received entry that is not applied, without waiting tables; None if there is none."""
        return self._unapplied.first(self._state, partial(relay.entries, joined=True), received, waiting)

    def oldest_waiting(self, relay: RelayReader, received: Lsn, waiting: Mapping[TableName, Lsn]) -> LogEntry | None:
        """Returns the first received entry with a change that waits with its table; None if there is none."""
        log = partial(relay.entries, joined=True)
        return self._waiting_changes.first(waiting, self._state.copy, log, received)

    @property
    def tables(self) -> Collection[TableName]:
        """Returns the tables that the task knows at present."""
        return self._context.structures.keys()

    @property
    def being_copied(self) -> Mapping[TableName, int]:
        """Returns how many rows of each table the present requests of the copy have read. They are not settled yet."""
        loaded = self._copying.loaded
        requests = self._state.open_requests if loaded else ()
        return {one.table: loaded[one] for one in requests if one in loaded and one.phase is Phase.ROWS}

    @property
    def written(self) -> int | None:
        """Returns how many changes of a long batch are written so far; None if there is no long batch."""
        batch = self._long_batch
        return batch.written if batch is not None else None

    @property
    def awaits_spark(self) -> bool:
        """Whether there is work that cannot begin before Spark has started."""
        return self._copying.awaits_spark or (self._note.exists() and not self._spark.is_called)

    @property
    def commit_times(self) -> list[CommitTime]:
        """Returns, for each worker, the time of all commits of this run. The time of Spark jobs is divided evenly."""
        return [committer.times.reading() for committer in self._committers]

    @property
    def spark(self) -> SparkSession | None:
        """Returns the session that is in use; None if there is none."""
        return self._spark.session

    @property
    def spark_jobs(self) -> int:
        """Returns the number of jobs that Spark has carried out, for batches and for copies."""
        return self._jobs + self._copying.jobs

    def start(self) -> None:
        """Starts the thread that plans and carries out the batches."""
        classifier = replace(self._classifier, side_effects=None)  # a Spark job only reads slices, and asks no source
        options = SliceOptions(self._context.relay, self._context.source.source_id, classifier, self._note)
        options.save(self._slices)
        threading.Thread(target=copy_context().run, args=(self._work,), daemon=True).start()

    def _work(self) -> None:
        """Plans all batches, and carries out the small ones, until the run ends."""
        while self._begins():
            try:
                with bound_contextvars(source=self._context.source.source_id):
                    self._go_on()
            except Exception as error:  # noqa: BLE001 - `failure` returns the error
                self._failure = error
            finally:
                self._busy.release()
            if self._is_noted.is_set() and not self._closing:
                self._spark.begin(calls=True)
                self._wait_for_job()

    def _wait_for_job(self) -> None:
        """Waits until the job of the note is done, or can no longer be done in this run."""
        try:
            while not self._is_done.wait(_LOOK_SECONDS) and not self._closing and self._failure is None:
                if (failure := self._spark.failure()) is not None:
                    self._failure = failure
        except Exception as error:  # noqa: BLE001 - a JVM that was killed raises an error
            self._failure = self._failure or error
        self._spark.used()

    def failure(self) -> Exception | None:
        """Returns the error because of which the run cannot continue; None while it can."""
        failure = self._failure or self._ddl.failure or self._spark.failure()
        return None if failure is None else restored(failure)

    def close(self) -> None:
        """Waits until the log of the current batch is applied, then ends the query.

        The target is left at a transaction's end.

        A copy is interrupted. If a schema change does not end within `leave_seconds`, it continues on the target, and
        the next run finds it in the journal. A large transaction that the driver applies is left between two parts. A
        batch that waits for a lock on the target ends with the process, as if the process had been killed. The server
        rolls back this transaction or batch, and the next run plans it again.
        """
        self._closing = True
        deadline = time.monotonic() + self.leave_seconds
        end_deadline = EndDeadline(self._leaves, self.leave_seconds)
        self._is_noted.set()  # ends a call that waits for a job
        self._spark.close(end_deadline.is_over)
        while not self._busy.acquire(timeout=_LOOK_SECONDS):
            self._copying.cancel()
            if end_deadline.is_over():
                if (batch := self._long_batch) is not None:
                    batch.is_left = True
                    if self._busy.acquire(timeout=_PART_SECONDS):
                        break
                _log.warning("a batch waits for the target and is left to the next run", at=str(self._state.lsn))
                self._ddl.close(0)
                return
        try:
            self._spark.end()
        finally:
            self._busy.release()
        self._ddl.close(max(0.0, deadline - time.monotonic()))
        self._shards.barrier.leave(self._context.source.source_id, self._keep)
        self._shards.forget(self._context.source.source_id)
        for committer in self._committers:
            committer.close()
        self._relay.close()
        self._watch.close()
        self._copying.close(max(0.0, deadline - time.monotonic()))

    def _called(self, slices: DataFrame, query: Path, batch_id: int) -> None:
        """If this call of Spark is for a job, carries out the job. Then waits until another job is noted."""
        note = _noted(query, batch_id)
        if note is not None:
            self._do_job(slices, note)
        ends = time.monotonic() + self.call_seconds
        while not self._closing and not self._spark.is_ending and time.monotonic() < ends:
            if self._is_noted.wait(_LOOK_SECONDS):
                return

    def _do_job(self, slices: DataFrame, note: JobNote) -> None:
        if not self._begins():
            return
        try:
            with bound_contextvars(source=self._context.source.source_id):
                self._note.unlink(missing_ok=True)
                self._is_noted.clear()
                if note.before.to_json() == self._state.to_json():
                    self._run(slices, note.after, note.planned)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._busy.release()
            self._is_done.set()

    def _begins(self) -> bool:
        """Whether a batch can begin. If it can, this method has taken `_busy`, the lock that each batch holds.

        The wait for the lock ends when the run is closed. Without this end, two threads could wait for each other: the
        thread that closes the run has the lock, and waits for Spark's thread, which may wait for the lock here.
        """
        while not self._busy.acquire(timeout=_LOOK_SECONDS):
            if self._closing:
                return False
        if self._closing or self._failure is not None:
            self._busy.release()
            return False
        return True

    def _go_on(self) -> None:
        """Carries out small batches as transactions arrive, until a batch has to be a job."""
        worked = time.monotonic()
        while not self._closing:
            self.times.step("plan")
            after = self._planner.next(self._state)
            if after is not None:
                planned = time.time()
                if not self._run(None, after, planned):
                    self._is_done.clear()
                    JobNote(self._state, after, planned).save(self._note)
                    self._is_noted.set()
                    self.times.step("job")
                    return
                worked = time.monotonic()
            elif self._state.open_requests:
                self.times.step("copy")
                self._watch.wait(_READ_SECONDS)
            else:
                self.times.step(IDLE)
                self._spark.rest()
                idle = time.monotonic() - worked
                if idle >= _BUSY_SECONDS:
                    self._relay.close()  # an open file takes disk space even after it was deleted
                self._watch.wait(self._pause(idle))

    def _pause(self, idle: float) -> float:
        """Returns how long to wait for the relay, after `idle` seconds without a batch."""
        if idle < _BUSY_SECONDS:
            return _POLL_SECONDS
        at_rest = idle >= _REST_AFTER_SECONDS and not self._state.held and self._state.due is None
        return _RESTING_LOOK_SECONDS if at_rest else _LOOK_SECONDS

    def _run(self, slices: DataFrame | None, end: PlanState, planned: float) -> bool:
        """Carries out the batch up to this state. If it must be a job and `slices` is None, only returns False."""
        clock = _Clock(planned)
        self._take_structures()
        plan, self._job = self._job, None
        if plan is None or plan.end != end:
            plan = plan_between(self._state, end, self._planner.entries, self._classifier)
        written = [chunk for request in plan.write if (chunk := staged_chunk(self._context.staging, request))]
        waiting = sum(chunk.waiting for chunk in written)
        execution = Execution.JOB if slices is not None else self._execution_of(plan, waiting)
        if slices is None and execution is Execution.JOB:
            self._job = plan
            return False
        gtids = with_gtids(self._gtids, plan.gtids)
        self._known_tables.demand(self._context, plan)
        place = end_of_batch(self._relay, self._workers.checkpoints, self._state.lsn, end.lsn)
        moved = self._workers.moved(end, gtids, place, self._context.dealing)
        commit = Commit.of(self._workers, moved, plan.origin)
        clock.step("plan")
        counts = None if execution is Execution.IN_PARTS else self._carry_out(slices, plan, commit, clock, waiting)
        is_in_parts = counts is None
        if counts is None:
            counts = self._carry_out_in_parts(plan, commit, clock)
        # A job may cut a transaction into parts.
        self._moved_keys_cleanup.batch_done(self._context, commit, cut=is_in_parts or execution is Execution.JOB)
        # Most copied rows are already on the target. They are counted only here, when it is certain that they are not
        # read again.
        settled = [chunk for request in plan.settled if (chunk := staged_chunk(self._context.staging, request))]
        looked_up = {chunk.request.table: chunk.rows for chunk in settled if chunk.request.phase is Phase.EXTRAS}
        if rows := sum(chunk.rows for chunk in settled if chunk.request.phase in _READS_ROWS):
            counts = replace(counts, copied=rows)
        self._state, self._gtids, self._workers = end, gtids, moved
        left = set(end.open_requests)
        forget(self._context.staging, [request for request in plan.start.open_requests if request not in left])
        self._on_batch(BatchDone(plan, commit.after[0], counts, looked_up))
        source = self._context.source.source_id
        self._shards.barrier.set_held(source, end.exceptions)
        self._ddl.start(self._context, end)
        if end.due is not None:
            self.times.step("ddl")
            with self._shards.barrier.quiet(source):
                self._ddl.wait([end.due], _GRACE_SECONDS, lambda: self._closing)
        if plan.read:
            self.times.step("copy")
            self._copying.run(self._spark, self._context, plan, moved.checkpoints[0].batch)
            clock.step("copy")
        clock.log(self._log, plan, counts)
        if any(request.phase is Phase.FINISH for request in plan.read):
            self._reconnect()
        return True

    def _take_structures(self) -> None:
        """If schema changes are done, puts their structures into the context, which the next batches use."""
        context = self._ddl.collect(self._context)
        if context is not self._context:
            self._context = context
            self._reconnect()
            times = [committer.times for committer in self._committers]
            self._committers = [context.committer() for _ in times]
            for committer, spent in zip(self._committers, times, strict=True):
                committer.times = spent

    def _reconnect(self) -> None:
        """Closes all sessions on the target, because they have cached the old structures of its tables."""
        for committer in self._committers:
            committer.close()

    def _carry_out(
        self, slices: DataFrame | None, plan: BatchPlan, commit: Commit, clock: _Clock, waiting: int
    ) -> Counts | None:
        """Carries out a batch as a job or at once; returns None, and applies nothing, if its rows are too large."""
        context = self._context_of(plan)
        if slices is not None:
            from pidts.spark.job import run_job

            self.times.step("job")
            counts, spent = run_job(slices, context, commit, plan, waiting)
            for committer in self._committers:
                committer.times.add(spent / context.workers)
            self._jobs += 1
            clock.step("job")
            return counts
        self.times.step("decode")
        try:
            blobs = self._decoded(context, plan, may_be_large=bool(waiting) or context.target.buffers_rows)
        except LargeSliceError:
            _log.info("the rows of a batch are many times as large as its log, and are applied in parts")
            return None
        clock.step("decode")
        self.times.step("apply")
        work = [partial(apply, self._committers[worker], commit, worker, mine) for worker, mine in enumerate(blobs)]
        counts = side_by_side(work)
        clock.step("apply")
        self.times.step("plan")
        return counts

    def _decoded(self, context: JobContext, plan: BatchPlan, *, may_be_large: bool) -> list[list[Blob]]:
        """Returns each worker's blobs. Unless `may_be_large`, raises `LargeSliceError` if they need too much memory."""
        blobs: list[list[Blob]] = [[] for _ in range(context.workers)]
        is_measured, size = not may_be_large and plan.log_bytes >= _LITTLE_LOG, 0
        self._reader.cuts_slices = may_be_large
        for pointer in pointers(plan):
            for blob in decode(context, pointer, self._reader):
                blobs[blob.worker].append(blob)
                size += byte_size(blob.changes.rows) if is_measured else 0
                if size > _DECODED_BYTES:
                    raise LargeSliceError
        return blobs

    def _carry_out_in_parts(self, plan: BatchPlan, commit: Commit, clock: _Clock) -> Counts:
        """Decodes and applies a long batch in this process, part by part."""
        batch = LongBatch()
        work = long_work(self._context_of(plan), commit, plan, batch)
        self.times.step("apply")
        self._long_batch = batch
        try:
            counts = side_by_side([partial(work, one, worker) for worker, one in enumerate(self._committers)])
        finally:
            self._long_batch = None
        clock.step("apply")
        self.times.step("plan")
        return counts

    def _context_of(self, plan: BatchPlan) -> JobContext:
        context, copying = self._context, plan.end.unfinished
        return context if context.copying == copying else replace(context, copying=copying)

    def _execution_of(self, plan: BatchPlan, waiting: int) -> Execution:
        context = self._context
        return execution_of(
            plan, self._direct_rows, waiting, workers=context.workers, buffers_rows=context.target.buffers_rows
        )


def _noted(query: Path, batch_id: int) -> JobNote | None:
    """Returns the job for which Spark makes this call, from the query's own log; None if there is no job.

    Spark writes the query's log before it makes the call. Asking the data frame would cost a Spark job.
    """
    path = query / "offsets" / str(batch_id)
    return JobNote.of(json.loads(path.read_text().splitlines()[-1]))


def side_by_side(work: Sequence[Callable[[], Counts]]) -> Counts:
    """Runs each function in a thread of its own, waits for all of them, and returns the sum of their counts.

    A single function runs in this thread. The threads do not keep the process from ending, since one of them may be
    waiting for a lock on the target.
    """
    if len(work) == 1:
        return work[0]()
    found: list[Counts | BaseException] = [Counts()] * len(work)

    def do(place: int) -> None:
        try:
            found[place] = work[place]()
        except BaseException as error:  # noqa: BLE001 - the calling thread raises it
            found[place] = error

    # Log lines of these threads name the source, as log lines of this thread do.
    threads = [threading.Thread(target=copy_context().run, args=(do, place), daemon=True) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counts()
    for one in found:
        if isinstance(one, BaseException):
            raise one
        counts += one
    return counts


class _Clock:
    """Measures how the time of one batch is spent; `bench/` reads the figures."""

    def __init__(self, planned: float) -> None:
        self._planned, self._called, self._last = planned, time.time(), time.monotonic()
        self._steps: dict[str, float] = {}

    def step(self, name: str) -> None:
        """Notes the time since the previous step."""
        now = time.monotonic()
        self._steps[name], self._last = round(now - self._last, 4), now

    def log(self, logger: structlog.stdlib.BoundLogger, plan: BatchPlan, counts: Counts) -> None:
        """Logs the figures of a finished batch."""
        if not logger.is_enabled_for(logging.DEBUG):
            return
        about = {"entries": plan.entries, "changes": counts.total, "lsn": str(plan.end.lsn)}
        logger.debug("batch done", planned=self._planned, called=self._called, seconds=self._steps, **about)
