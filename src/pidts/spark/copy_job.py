"""Carries out a batch's requests of the full copy in one Spark job. Each Spark task reads and loads some chunks.

Until Spark has started, the driver carries out small requests by itself. In the time that Spark needs to start, it can
write a hundred thousand rows into a server, or millions of rows into a warehouse. So a task with only small tables
needs no Spark. If more rows are left to read, Spark starts meanwhile. A request is carried out either by the driver
alone or by Spark alone, so its crash points are the same in both cases.

The job runs after the batch's log is committed on the target, so no change is lost if the job fails. An interrupted job
leaves chunks on the target that the planner does not know of. When the same rows are read again, these chunks are found
there, see `pidts.batch.copy.load_task`. The planner gets the results only when the whole job is done.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from itertools import accumulate, takewhile
from math import ceil
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import structlog

from pidts.apply import Target
from pidts.batch.context import JobContext
from pidts.batch.copy.finish import Finishing
from pidts.batch.copy.load_task import Fetched, RequestedChunk, carry_out, close_kept, warm
from pidts.batch.copy.pieces import CutRequest, Pace, RequestCutter
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
_AT_ONCE = 4
"""The largest number of pieces that the driver reads at once without Spark.

While one is loaded, the next is read. The log waits until all of them are loaded.
"""
_SERVER_PIECE = 2_500
"""The rows of a piece for a server. `direct-rows` is meant for servers: a warehouse's pieces have more rows, and the
driver copies as many pieces.
"""
_SHARE = 0.75
"""The share of the remaining rows that the next Spark tasks of all slots take together."""
_MOST_PAUSE = 2.5
"""The longest time that the log waits for a copy with a rate limit.

This is not longer than the log waits for a copy without a rate limit.
"""


class _StoppedError(Exception):
    """Raised if the run was asked to end before its job began."""


class CopyRunner:
    """Carries out the requests of one run, batch by batch, in one thread.

    Other threads may call `cancel`, and finally `close`.
    """

    def __init__(self, stop: Callable[[], bool], direct_rows: int = 100_000) -> None:
        """`direct_rows` is the number of rows that the driver copies to a server by itself.

        If there are more, Spark copies the rest.
        """
        self._stop, self._direct_rows, self._rows_here = stop, direct_rows, 0
        self._cutter, self._pace = RequestCutter(), Pace()
        self._running: tuple[SparkSession, str] | None = None
        self._statistics = Statistics()
        self._awaits_spark = False
        self.jobs = 0
        """The number of jobs that Spark has carried out."""

    @property
    def awaits_spark(self) -> bool:
        """Whether rows wait until Spark has started."""
        return self._awaits_spark

    def run(self, spark: SparkOnDemand, context: JobContext, plan: BatchPlan, batch: int) -> None:
        """Carries out all requests of a batch.

        A request that is interrupted, or that must not continue yet, has no result, and the planner makes it again.
        `batch` is the number of this batch, whose log is already committed on the target.
        """
        ending = [request for request in plan.read if request.phase is Phase.FINISH]
        reading = [request for request in plan.read if request.phase is not Phase.FINISH]
        # If the source no longer has a table, the table is skipped until its DROP is read from the log.
        finishing = Finishing(context, [request for request in ending if request.table in context.structures])
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
        """Ends the running job; called from another thread."""
        running = self._running
        if running is not None:
            with suppress(Exception):  # a dead JVM runs no job
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
        began = self._pace.now()
        piece = context.target.piece_rows
        direct_rows = self._direct_rows * piece // _SERVER_PIECE
        is_driver = not spark.is_prepared and direct_rows > 0 and not _any_long(plan, requests, direct_rows)
        most = self._pace.most(rate)
        if is_driver:
            at_once = min(direct_rows, _AT_ONCE * piece)
            most = min(at_once, most or at_once)
            if copies_much(plan.end.copy.values(), self._rows_here, direct_rows):
                spark.begin()
        cuts = self._cutter.cut(context, requests, batch, most, _AT_ONCE if is_driver else None)
        self._cutter.look_ahead(context, cuts)
        cut = self._pace.now()
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
        self._pace.took(rows, rate, began)
        _settle(context, cuts, work)
        # The time spent: `cut` and `job` are measured by the clock, `reading` and `chunks` are summed over all tasks.
        seconds = {"cut": round(cut - began, 3), "job": round(self._pace.now() - cut, 3)}
        seconds |= {"reading": sum(one.reading for one in work), "chunks": sum(one.seconds for one in work)}
        _log.debug("copied", requests=len(cuts), pieces=len(pieces), rows=rows, seconds=seconds, here=is_driver)

    def _here(self, context: JobContext, pieces: Sequence[RequestedChunk]) -> list[Fetched] | None:
        """Reads and loads the pieces in this process. Returns None if the run has to end before all of them are loaded.

        In this case the thread continues, but nothing waits for it, as for a Spark task that Spark assumes to be dead.
        """
        fetched: list[Fetched] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                fetched.extend(takewhile(lambda _: not self._stop(), carry_out(context, pieces)))
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)
            finally:
                close_kept()

        thread = threading.Thread(target=copy_context().run, args=(work,), name="copy", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            if self._stop():
                return None
        if failures:
            raise failures[0]
        return fetched

    def _in_spark(
        self, spark: SparkOnDemand, context: JobContext, pieces: Sequence[RequestedChunk]
    ) -> list[Fetched] | None:
        if not pieces:
            return []
        self._awaits_spark = spark.session is None
        spark.begin()
        session = spark.wait(self._stop)
        self._awaits_spark = False
        return None if session is None else self._job(session, context, pieces)

    def _may_read(self) -> bool:
        """Waits until more rows may be read; returns False if that takes too long, or if the run has to end."""
        until = self._pace.now() + _MOST_PAUSE
        while (wait := self._pace.wait()) and not self._stop() and self._pace.now() < until:
            time.sleep(min(wait, _LOOK_SECONDS))
        return not wait and not self._stop()

    def _job(self, spark: SparkSession, context: JobContext, pieces: Sequence[RequestedChunk]) -> list[Fetched]:
        counts = Counter(piece.request.table for piece in pieces)  # in the pieces' order: each table has one request
        known = {name: table for name, table in context.structures.items() if name in counts}
        # If Spark has no more slots than the copy may use, there may be more Spark tasks than slots: a free slot takes
        # the next one.
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
        return [Fetched.from_json(row.fetched) for row in sorted(rows, key=lambda row: row.number)]


def prepare(target: Target, spark: SparkSession) -> None:
    """Starts Spark's processes, and makes them load the modules that they will need. The driver continues meanwhile."""
    slots = spark.sparkContext.defaultParallelism
    with suppress(Exception):  # the code that needs the processes will get the same error, and report it
        spark.range(0, slots, 1, slots).mapInArrow(_warming(target), _RESULTS).collect()


def _any_long(plan: BatchPlan, requests: Sequence[ChunkRequest], direct_rows: int) -> bool:
    """Whether one of the requests is a single transaction with more rows than the driver may read at once."""
    states = [plan.end.copy.get(request.table) for request in requests if request.whole]
    return not all(state is not None and state.estimate <= direct_rows for state in states)


def _settle(context: JobContext, cuts: Sequence[CutRequest], fetched: Sequence[Fetched]) -> None:
    results = iter(fetched)
    for cut in cuts:
        cut.settled(context, [next(results) for _ in cut.pieces])


def _warming(target: Target) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(Exception):  # the code that needs a connection will report the error
            target.connect().close()
        warm()
        keep_what_is_loaded()
        for _ in batches:
            time.sleep(_LOOK_SECONDS)  # otherwise one process would do all of it
        yield from ()

    return task


def bundles(counts: Sequence[int], slots: int, *, takes_next: bool) -> list[range]:
    """Divides the pieces between Spark tasks. Each Spark task takes its pieces in order.

    `counts`: the number of pieces by table.

    The start of a Spark task costs as much time as some ten thousand rows, so there are few Spark tasks. With
    `takes_next`, a slot takes several Spark tasks one after the other. Then the last ones are short, so that all slots
    end at about the same time. This assumes that all pieces take the same time; `next_limit` chooses their sizes
    accordingly. If the end of a table is near, a Spark task ends there: if two of them fill one table, its index
    becomes half empty.
    """
    found: list[range] = []
    ends = list(accumulate(counts))
    begin, pieces = 0, ends[-1]
    while begin < pieces:
        left, free = pieces - begin, slots - len(found)
        size = ceil(left * _SHARE / slots if takes_next else left / free)
        plain = begin + size
        near = range(begin + ceil(size / 2), begin + ceil(left / slots) + 1) if takes_next else range(0)
        end = min((end for end in ends[:-1] if end in near), key=lambda end: abs(end - plain), default=plain)
        found.append(range(begin, end))
        begin = end
    return found


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
