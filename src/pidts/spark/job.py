"""Runs a large batch as one Spark job.

- An *ordinary* batch: its slices are decoded in parallel; the changes are shuffled as blobs to workers and applied.
- A *long* batch, which would not fit into memory: each worker's Spark task decodes the log for itself and applies it
  part by part. Nothing is shuffled, so the batch takes no space in the JVM and on the disk.

If a worker fails to apply changes, it has already retried for as long as that makes sense. So the worker's Spark task
returns the error as a result. If the task raised the error, Spark would run the task again. So Spark repeats a worker's
task only if the task's process has died.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from pidts.apply import Committer
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.decoding import AT_ONCE, decode
from pidts.batch.long_batch import long_work
from pidts.batch.pointers import Pointer
from pidts.batch.workers import Commit
from pidts.model import PidtsError
from pidts.plan import BatchPlan
from pidts.reduce import Counts
from pidts.spark.failures import as_text, carried, from_text
from pidts.spark.versions import dealt
from pidts.spark.worker_memory import keep_what_is_loaded
from pidts.time_spent import CommitTime

_LONG_BYTES = 32 << 20
_BLOBS = "worker int, place bigint, changes binary"
_RESULTS = "worker int, counts string, error string, spent string"

_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_job(
    slices: DataFrame, context: JobContext, commit: Commit, plan: BatchPlan, waiting: int
) -> tuple[Counts, CommitTime]:
    """Runs the batch with the pointers in `slices` until all workers have committed; returns counts and commit time."""
    # Copied rows that wait for this batch are reduced together with all of its changes. The planner keeps such a batch
    # small.
    if not waiting and (plan.log_bytes > _LONG_BYTES or plan.largest > AT_ONCE):
        numbers = slices.sparkSession.range(0, context.workers, 1, context.workers)
        results = numbers.mapInArrow(_long(context, commit, plan), _RESULTS)
    else:
        blobs = slices.mapInArrow(_decoding(context), _BLOBS)
        of_workers = dealt(blobs, context.workers, "worker")
        results = of_workers.mapInArrow(_applying(context, commit), _RESULTS)
    rows = results.collect()
    for row in rows:
        if row.error:
            raise from_text(row.error)
    counts = sum((Counts(**json.loads(row.counts)) for row in rows), Counts())
    return counts, sum((CommitTime.of(json.loads(row.spent)) for row in rows), CommitTime())


def _decoding(context: JobContext) -> _Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        for batch in batches:
            for text in batch.column(0).to_pylist():
                pointer = Pointer.from_json(text)
                if pointer == Pointer():
                    yield _blob_rows([(worker, 0, b"") for worker in range(context.workers)])
                with carried():
                    for blob in decode(context, pointer):
                        yield _blob_rows([(blob.worker, blob.order, blob.pack())])

    return task


def _applying(context: JobContext, commit: Commit) -> _Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        blobs: dict[int, list[Blob]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                mine = blobs.setdefault(row["worker"], [])
                if row["changes"]:
                    mine.append(Blob.unpack(row["worker"], row["place"], row["changes"]))
        for worker, mine in blobs.items():
            with context.committer() as committer:
                yield _result(worker, committer, partial(apply, committer, commit, worker, mine))

    return task


def _long(context: JobContext, commit: Commit, plan: BatchPlan) -> _Task:
    """Returns the function of a Spark task that decodes and applies a long batch for one worker."""
    work = long_work(context, commit, plan)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with context.committer() as committer:
                    yield _result(number, committer, partial(work, committer, number))

    return task


def _result(worker: int, committer: Committer, work: Callable[[], Counts]) -> pa.RecordBatch:
    counts, failed = Counts(), ""
    try:
        counts = work()
    except PidtsError as error:
        failed = as_text(error)
    text = json.dumps({name: getattr(counts, name) for name in Counts.__slots__})
    spent = json.dumps(committer.times.reading().to_json())
    arrays = [pa.array([worker], pa.int32()), pa.array([text]), pa.array([failed]), pa.array([spent])]
    return pa.RecordBatch.from_arrays(arrays, ["worker", "counts", "error", "spent"])


def _blob_rows(rows: list[tuple[int, int, bytes]]) -> pa.RecordBatch:
    workers, places, changes = zip(*rows, strict=True)
    arrays = [pa.array(workers, pa.int32()), pa.array(places, pa.int64()), pa.array(changes, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["worker", "place", "changes"])
