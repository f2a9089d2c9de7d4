"""Compares spans of a table in Spark's jobs. Each task of a job compares one span, on connections of its own.

The tasks only read, so Spark may repeat them after one of its processes has died. While a job runs, the caller settles
the rows that the previous job has found.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from pidts.model import PidtsError, Transient
from pidts.spark.failures import as_text, from_text, gravest
from pidts.spark.worker_memory import keep_what_is_loaded
from pidts.verify import KeySpan, SpanResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work: TypeAlias = Callable[[Sequence[KeySpan]], Sequence[SpanResult]]
"""A function that compares spans, and returns one result for each span. Spark may send it to other machines."""
_LOOK_SECONDS = 0.1
_TASKS_OF_SLOT = 2
"""The number of tasks in a job for each slot of Spark. With several tasks, all slots end at about the same time."""


def demand_workers(spark: SparkSession, work: Work, seconds: float, look: Callable[[], None]) -> None:
    """Raises if no process of Spark begins this work within `seconds`, or if the process cannot reach the servers.

    `look` raises if the work has to end.
    """
    with _jobs(spark) as begin:
        job, until = begin(work, [[]]), monotonic() + seconds
        while not job.done():
            _pause(job, look)
            if monotonic() > until:
                raise Transient("spark-failed", f"no executor of Spark was free within {seconds:.0f} seconds")
        job.result()


def compare_in_jobs(
    spark: SparkSession, work: Work, spans: Iterable[KeySpan], look: Callable[[], None]
) -> Generator[SpanResult, None, None]:
    """Yields the results in the order of the spans; `look` raises if the work has to end."""
    left = iter(spans)
    with _jobs(spark) as begin:
        running: Future[list[SpanResult]] | None = None
        while True:
            part = [[span] for span in islice(left, spark.sparkContext.defaultParallelism * _TASKS_OF_SLOT)]
            following = begin(work, part) if part else None
            if running is not None:
                while not running.done():
                    _pause(running, look)
                yield from running.result()
            if following is None:
                return
            running = following


def _pause(job: Future[list[SpanResult]], look: Callable[[], None]) -> None:
    wait([job], _LOOK_SECONDS)
    look()


_Begin: TypeAlias = Callable[[Work, Sequence[Sequence[KeySpan]]], "Future[list[SpanResult]]"]


@contextmanager
def _jobs(spark: SparkSession) -> Iterator[_Begin]:
    """Yields a function that requests a job; jobs run one after the other. At the end, cancels jobs that still run."""
    tag = f"pidts-compare-{uuid4().hex}"
    pool = ThreadPoolExecutor(1, "compare")
    try:
        yield lambda work, tasks: pool.submit(_job, spark, tag, work, tasks)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):  # a dead JVM has no job to cancel
            spark.sparkContext.cancelJobsWithTag(tag)


def _job(spark: SparkSession, tag: str, work: Work, tasks: Sequence[Sequence[KeySpan]]) -> list[SpanResult]:
    context = spark.sparkContext
    context.addJobTag(tag)
    try:
        found = context.parallelize(range(len(tasks)), len(tasks)).map(_carrying(work, tasks)).collect()
    finally:
        context.removeJobTag(tag)
    failed = [from_text(one) for one in found if isinstance(one, str)]
    if failed:
        raise gravest(failed)
    return [result for one in found if not isinstance(one, str) for result in one]


def _carrying(work: Work, tasks: Sequence[Sequence[KeySpan]]) -> Callable[[int], Sequence[SpanResult] | str]:
    """Returns the code of a task. The code returns PiDTS's errors as text, since Spark repeats a task that raises."""

    def task(number: int) -> Sequence[SpanResult] | str:
        keep_what_is_loaded()
        try:
            return work(tasks[number])
        except PidtsError as error:
            return as_text(error)

    return task
