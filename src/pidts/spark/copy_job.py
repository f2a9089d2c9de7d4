"""Carries out the copy requests of a batch: in threads of the driver, or in one Spark job.

The driver's threads do most of their work without the interpreter's lock, and begin at once. So on one machine they
copy as fast as Spark tasks, with a third of the memory. Spark copies only if more cores can help (on a cluster, or if
the task asks for many threads), and if the copy takes longer than the start of Spark. The driver copies meanwhile.
Either the driver alone or Spark alone carries out a request, so its crash points are the same in both cases.

The job runs after the batch's log is committed on the target, so no change is lost if the job fails. The planner gets
the results only when the whole job is done. So an interrupted job leaves chunks on the target that the planner does not
know. When the same rows are read again, `pidts.batch.copy.load_task` finds these chunks on the target.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import structlog

from pidts.apply import Target
from pidts.batch.context import JobContext
from pidts.batch.copy.bundles import bundles
from pidts.batch.copy.copy_threads import CopyThreads
from pidts.batch.copy.finish import FinishThreads
from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk, carry_out, waits_for_batch, warm
from pidts.batch.copy.pieces import CutRequest, RequestCutter, RowRateLimit
from pidts.batch.copy.staging import stage
from pidts.batch.copy.target_statistics import Statistics
from pidts.model import PidtsError
from pidts.plan import BatchPlan, ChunkRequest, Phase, StagedChunk
from pidts.spark.failures import as_text, from_text, gravest
from pidts.spark.job_size import copies_much
from pidts.spark.on_demand import SparkOnDemand
from pidts.spark.worker_memory import keep_what_is_loaded, memory_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger(__name__)

_RESULTS = "number int, fetched string, error string"
_LOOK_SECONDS = 0.1
_DRIVER_THREADS = 8
"""The largest number of threads that the driver can keep busy. More threads would wait for the interpreter's lock,
which a thread holds for two fifths of its CPU time. Most of the time, a thread waits for a server.
"""
_MANY = 80
"""Spark starts if there are more rows to copy than `direct-rows` times this number. In about twice the time of Spark's
start, the driver copies that many rows itself.
"""
_WHILE_SPARK_STARTS = 200_000
"""While Spark starts, the driver reads at most this many rows at once. Spark takes over only after the driver has read
these rows, even if Spark is ready earlier.
"""
_MOST_PAUSE = 2.5
"""The longest time, in seconds, for which a copy waits for its rate limit. After this time, the copy leaves the
remaining rows to a later copy, since batches wait meanwhile. Even a copy without a rate limit may let batches wait for
this long.
"""


class _StoppedError(Exception):
    """Raised if the run was asked to end before the Spark job began."""


class CopyRunner:
    """Carries out a run's copy requests, batch by batch. Other threads may call `cancel`, and at the end `close`."""

    def __init__(self, stop: Callable[[], bool], direct_rows: int = 100_000, *, is_cluster: bool = False) -> None:
        """`stop` says whether the run has to end.

        `direct_rows` is the setting of the task; with 0, the driver copies nothing.

        `is_cluster`: whether Spark's processes run on several machines.
        """
        self._stop, self._direct_rows, self._is_cluster = stop, direct_rows, is_cluster
        self._rows_here = 0
        self._cutter, self._rate_limit = RequestCutter(), RowRateLimit()
        self._running: tuple[SparkSession, str] | None = None
        self._statistics = Statistics()
        self._awaits_spark = False
        self._threads: CopyThreads | None = None
        """The driver's threads for its last requests, which may have ended."""
        self.jobs = 0
        """The number of jobs that Spark has carried out."""

    @property
    def awaits_spark(self) -> bool:
        """Whether rows wait to be copied until Spark has started."""
        return self._awaits_spark

    @property
    def loaded(self) -> Mapping[ChunkRequest, int]:
        """Returns the number of rows read for each of the driver's last requests. Spark's jobs do not report this."""
        threads = self._threads
        return threads.loaded if threads is not None else {}

    def run(self, spark: SparkOnDemand, context: JobContext, plan: BatchPlan, batch: int) -> None:
        """Carries out all requests of a batch.

        A request that is interrupted, or that must not continue yet, has no result, and the planner makes it again.
        `batch` is the number of this batch, whose log is already committed on the target.
        """
        ending = [request for request in plan.read if request.phase is Phase.FINISH]
        reading = [request for request in plan.read if request.phase is not Phase.FINISH]
        # If the source no longer has a table, the table is skipped until its DROP is read from the log.
        finishing = FinishThreads(context, [request for request in ending if request.table in context.structures])
        try:
            if reading:
                self._read(spark, context, plan, reading, batch)
            while not finishing.wait(_LOOK_SECONDS):
                if self._stop():
                    return
        finally:
            finishing.begin_no_more()
        self._statistics.gather(context.target, finishing.later)
        for request in ending:
            is_last, here = request not in finishing.unread, plan.end.lsn
            stage(context.staging, StagedChunk(request, here, 0, None, None, is_last=is_last, low=here))

    def cancel(self) -> None:
        """Ends the running Spark job, if there is one; called from another thread."""
        running = self._running
        if running is not None:
            with suppress(Exception):  # a dead JVM has no job to cancel
                running[0].sparkContext.cancelJobsWithTag(running[1])

    def close(self, seconds: float) -> None:
        """Ends the copying. Waits at most `seconds` until the target has gathered statistics of copied tables."""
        self._cutter.close()
        self._statistics.close(seconds)

    def _read(
        self, spark: SparkOnDemand, context: JobContext, plan: BatchPlan, requests: Sequence[ChunkRequest], batch: int
    ) -> None:
        rate = context.copy_rate
        if not self._may_read():
            return
        began = self._rate_limit.now()
        is_driver = self._direct_rows > 0 and not spark.is_prepared
        most = self._rate_limit.most(rate)
        if is_driver and self._needs_spark(context, plan):
            spark.begin()
            most = min(_WHILE_SPARK_STARTS, most or _WHILE_SPARK_STARTS)
        elif is_driver and any(waits_for_batch(context, request) for request in requests):
            # The rows are staged for the batch that settles the request. If too many rows are staged, that batch
            # becomes a Spark job.
            waiting = max(1, self._direct_rows // 2)
            most = min(waiting, most or waiting)
        cuts = self._cutter.cut(context, requests, batch, most)
        self._cutter.look_ahead(context, cuts)
        cut = self._rate_limit.now()
        pieces = [piece for cut in cuts for piece in cut.pieces]
        try:
            work = self._here(context, pieces) if is_driver else self._in_spark(spark, context, pieces)
        except Exception:
            if self._stop():
                return
            raise
        if work is None:
            return
        rows = sum(one.rows for one in work)
        self._rows_here += rows if is_driver else 0
        self._rate_limit.took(rows, rate, began)
        _store_results(context, cuts, work)
        # The time spent: `cut` and `job` are measured by the clock, `reading` and `chunks` are summed over all tasks.
        seconds = {"cut": round(cut - began, 3), "job": round(self._rate_limit.now() - cut, 3)}
        seconds |= {"reading": sum(one.reading for one in work), "chunks": sum(one.seconds for one in work)}
        _log.debug("copied", requests=len(cuts), pieces=len(pieces), rows=rows, seconds=seconds, here=is_driver)

    def _needs_spark(self, context: JobContext, plan: BatchPlan) -> bool:
        """Whether more cores can help, and the number of rows is worth the start of Spark."""
        helps = self._is_cluster or context.copy_threads > _DRIVER_THREADS
        return helps and copies_much(plan.end.copy.values(), self._rows_here, self._direct_rows * _MANY)

    def _here(self, context: JobContext, pieces: Sequence[RequestedChunk]) -> list[FetchedPiece] | None:
        """Reads and loads the pieces in this process. Returns None if the run has to end before all of them are loaded.

        After None, the threads continue, but nobody waits for them.
        """
        self._threads = threads = CopyThreads(context, pieces, self._stop)
        while not threads.wait(_LOOK_SECONDS):
            if self._stop():
                return None
        if self._stop():
            return None
        if threads.failures:
            raise gravest(threads.failures)
        return threads.fetched

    def _in_spark(
        self, spark: SparkOnDemand, context: JobContext, pieces: Sequence[RequestedChunk]
    ) -> list[FetchedPiece] | None:
        if not pieces:
            return []
        self._awaits_spark = spark.session is None
        spark.begin()
        session = spark.wait(self._stop)
        self._awaits_spark = False
        return None if session is None else self._job(session, context, pieces)

    def _may_read(self) -> bool:
        """Waits until more rows may be read; returns False if that takes too long, or if the run has to end."""
        until = self._rate_limit.now() + _MOST_PAUSE
        while (wait := self._rate_limit.wait()) and not self._stop() and self._rate_limit.now() < until:
            time.sleep(min(wait, _LOOK_SECONDS))
        return not wait and not self._stop()

    def _job(self, spark: SparkSession, context: JobContext, pieces: Sequence[RequestedChunk]) -> list[FetchedPiece]:
        # The counts are in the order of the pieces, since each table has one request.
        counts = Counter(piece.request.table for piece in pieces)
        known = {name: table for name, table in context.structures.items() if name in counts}
        # If the copy may use all of Spark's slots, there may be more Spark tasks than slots: a free slot takes the next
        # task.
        takes_next = spark.sparkContext.defaultParallelism <= context.copy_threads
        tasks = bundles(list(counts.values()), min(len(pieces), context.copy_threads), takes_next=takes_next)
        tag = f"pidts-copy-{uuid4().hex}"
        spark.sparkContext.addJobTag(tag)
        self._running = spark, tag
        try:
            if self._stop():
                raise _StoppedError
            numbers = spark.range(0, len(tasks), 1, len(tasks))
            work = _carrying(replace(context, structures=known, watched={}), pieces, tasks)
            rows = numbers.mapInArrow(work, _RESULTS).collect()
        finally:
            self._running = None
            spark.sparkContext.removeJobTag(tag)
        failed = [from_text(row.error) for row in rows if row.error]
        if failed:
            raise gravest(failed)
        self.jobs += 1
        return [FetchedPiece.from_json(row.fetched) for row in sorted(rows, key=lambda row: row.number)]


def prepare(target: Target, spark: SparkSession) -> None:
    """Starts Spark's processes, and makes them load their modules. `SparkOnDemand` calls this in a separate thread."""
    slots = spark.sparkContext.defaultParallelism
    with suppress(Exception):  # the code that needs the processes will get the same error, and report it
        spark.range(0, slots, 1, slots).mapInArrow(_warming(target), _RESULTS).collect()


def _store_results(context: JobContext, cuts: Sequence[CutRequest], fetched: Sequence[FetchedPiece]) -> None:
    results = iter(fetched)
    for cut in cuts:
        cut.store_result(context, [next(results) for _ in cut.pieces])


def _warming(target: Target) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(Exception):  # the code that needs a connection will report the error
            target.connect().close()
        warm()
        keep_what_is_loaded()
        for _ in batches:
            time.sleep(_LOOK_SECONDS)  # without this pause, one process would run all of these tasks
        yield from ()

    return task


def _carrying(
    context: JobContext, pieces: Sequence[RequestedChunk], tasks: Sequence[range]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        with memory_kept():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _results(context, pieces, tasks[number])

    return task


def _results(context: JobContext, pieces: Sequence[RequestedChunk], numbers: range) -> Iterator[pa.RecordBatch]:
    """Yields the results up to the first piece that fails. Then the whole job has failed, so the Spark task ends."""
    number = numbers.start
    try:
        for fetched in carry_out(context, [pieces[each] for each in numbers]):
            yield _result(number, fetched=fetched.to_json())
            number += 1
    except PidtsError as failure:
        yield _result(number, error=as_text(failure))


def _result(number: int, *, fetched: str = "", error: str = "") -> pa.RecordBatch:
    arrays = [pa.array([number], pa.int32()), pa.array([fetched]), pa.array([error])]
    return pa.RecordBatch.from_arrays(arrays, ["number", "fetched", "error"])
