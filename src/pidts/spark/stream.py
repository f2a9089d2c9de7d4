"""The streaming query of one task, and what the driver does with each batch.

Two lanes, one pair of functions: a small batch is decoded and applied by the driver itself, which costs no Spark job; a
large one, or one that reads or writes chunks of a copy, is a job whose tasks share the work. A DDL is the driver's.

Spark's checkpoint directory is bookkeeping of one run. The truth is the target's checkpoint: every start, also the one
after a failed batch, claims the task there with a new epoch and begins a new directory. So it does not matter what
Spark believes to have done when the driver dies.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.ddl import run_ddl
from pidts.batch.decoding import decode
from pidts.batch.meaning import Meaning
from pidts.batch.pointers import pointers
from pidts.batch.staging import forget
from pidts.batch.workers import Commit, Workers
from pidts.model import Checkpoint, GtidSet, Halted, Lsn, Transient, Where, parse_gtid, parse_gtid_set
from pidts.plan import BatchKind, BatchPlan, Limits, PlanState, plan_between
from pidts.reduce import Counts
from pidts.relay import RelayReader
from pidts.spark.failures import restored
from pidts.spark.job import run_job
from pidts.spark.slices import SliceOptions, SliceSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BatchDone:
    """What the driver tells after each batch."""

    plan: BatchPlan
    checkpoint: Checkpoint
    counts: Counts
    seconds: float


class TaskStream:
    """Runs batches from a claimed checkpoint until it is stopped or fails."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        context: JobContext,
        checkpoints: tuple[Checkpoint, ...],
        meaning: Meaning,
        limits: Limits,
        direct_rows: int,
        goal: Lsn | None,
        scratch: Path,
        on_batch: Callable[[BatchDone], None],
    ) -> None:
        self._spark, self._meaning, self._limits = spark, meaning, limits
        self._direct_rows, self._goal, self._scratch, self._on_batch = direct_rows, goal, scratch, on_batch
        self._context = context
        self._workers, slowest = Workers.claimed(checkpoints)
        self._state = PlanState.from_checkpoint(slowest.lsn, slowest.copy)
        self._gtids = slowest.gtid
        self._relay = RelayReader(context.relay, context.source.source_id)
        self._committers = [context.committer() for _ in range(context.workers)]
        self._query: StreamingQuery | None = None
        self._busy = threading.Lock()
        self._closing = False
        self._failure: Exception | None = None

    @property
    def state(self) -> PlanState:
        """The last state that is durable in the target."""
        return self._state

    def start(self) -> None:
        """Begin the query."""
        options = SliceOptions(
            relay=self._context.relay,
            source_id=self._context.source.source_id,
            staging=self._context.staging,
            start=self._state,
            limits=self._limits,
            meaning=self._meaning,
            goal=self._goal,
        )
        path = self._scratch / "slices.pickle"
        options.save(path)
        self._spark.dataSource.register(SliceSource)
        stream = self._spark.readStream.format(SliceSource.name()).option("options", str(path)).load()
        self._query = (
            stream.writeStream.queryName(f"pidts-{self._context.epoch}")
            .option("checkpointLocation", str(self._scratch / "query"))
            .foreachBatch(self._batch)
            .start()
        )

    def failure(self) -> Exception | None:
        """Why the query has ended; None while it runs."""
        if self._failure is not None:
            return restored(self._failure)
        if self._query is None or self._query.isActive:
            return None
        error = self._query.exception()
        return restored(error) if error else Transient("spark-failed", "Spark ended the query without saying why")

    def close(self) -> None:
        """Let the batch under way finish, then end the query: the target is left at a transaction's end."""
        self._closing = True
        with self._busy:
            if self._query is not None:
                with suppress(Exception):  # a query whose JVM is gone has stopped
                    self._query.stop()
        for committer in self._committers:
            committer.close()
        self._relay.close()

    def _batch(self, slices: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._closing or self._failure is not None:
                return
            try:
                self._run(slices, self._planned_end(batch_id))
            except Exception as error:
                self._failure = error
                raise

    def _planned_end(self, batch_id: int) -> PlanState:
        """From the query's own log, which Spark writes before it calls us: the data frame would cost a job to ask."""
        offsets = (self._scratch / "query" / "offsets" / str(batch_id)).read_text()
        return PlanState.from_json(_json_state(offsets))

    def _run(self, slices: DataFrame, end: PlanState) -> None:
        began = time.monotonic()
        plan = plan_between(self._state, end, self._relay.entries(self._state.lsn), self._meaning)
        gtids = _with(self._gtids, plan.gtids)
        self._check_structures(plan)
        position = self._relay.position(end.lsn)
        moved = self._workers.moved(end, gtids, str(position or ""))
        commit = Commit(self._workers.checkpoints, moved.checkpoints)
        counts = self._carry_out(slices, plan, commit)
        self._state, self._gtids, self._workers = end, gtids, moved
        forget(self._context.staging, plan.write)
        self._on_batch(BatchDone(plan, commit.after[0], counts, time.monotonic() - began))

    def _check_structures(self, plan: BatchPlan) -> None:
        """Rows of a table whose structure nobody knows must not be passed over in silence."""
        for name in sorted(plan.tables):
            if self._meaning.allow(name) and name not in self._context.structures and plan.end.kind is BatchKind.ROWS:
                raise Halted(
                    "structure-unknown",
                    "the log has rows of a table that the task does not know",
                    where=Where(source=self._context.source.source_id, position=str(plan.start.lsn), table=str(name)),
                    todo="It was added to the task after its start: exclude it, or start a new task that copies it too",
                )

    def _carry_out(self, slices: DataFrame, plan: BatchPlan, commit: Commit) -> Counts:
        if plan.ddl is not None:
            self._context, commit = run_ddl(self._context, self._meaning.allow, self._relay, plan.ddl, commit)
            if commit.before == commit.after:
                return Counts()
        if plan.read or plan.write or plan.row_events > self._direct_rows:
            return run_job(slices, self._context, commit)
        blobs: list[list[Blob]] = [[] for _ in range(self._context.workers)]
        for pointer in pointers(plan):
            for blob in decode(self._context, pointer):
                blobs[blob.worker].append(blob)
        work = [(self._committers[worker], commit, worker, mine) for worker, mine in enumerate(blobs)]
        if len(work) == 1:
            return apply(*work[0])
        with ThreadPoolExecutor(len(work)) as pool:
            return sum(pool.map(lambda arguments: apply(*arguments), work), Counts())


def _with(gtid_set: str, gtids: tuple[str, ...]) -> str:
    if not gtids:
        return gtid_set
    merged: GtidSet = parse_gtid_set(gtid_set, mariadb=":" not in gtids[0])
    for gtid in gtids:
        merged = merged.add(parse_gtid(gtid))
    return str(merged)


def _json_state(offsets: str) -> str:
    """The one source's state in a file of Spark's offset log: a version, a line of metadata, a line per source."""
    state = json.loads(offsets.splitlines()[-1])["state"]
    if not isinstance(state, str):
        raise TypeError("Spark's offset log does not hold a state of ours")
    return state
