"""A large batch as one Spark job: decode slices in parallel, shuffle blobs to their workers, apply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.decoding import decode
from pidts.batch.pointers import Pointer
from pidts.batch.workers import Commit
from pidts.reduce import Counts
from pidts.spark.failures import structured

_BLOBS = "worker int, place bigint, changes binary"
_RESULTS = "worker int, counts string"

_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_job(slices: DataFrame, context: JobContext, commit: Commit) -> Counts:
    """Runs the batch whose pointers `slices` holds; returns when every worker has committed."""
    blobs = slices.mapInArrow(_decoding(context), _BLOBS)
    dealt = blobs.repartitionById(context.workers, F.col("worker"))
    results = dealt.mapInArrow(_applying(context, commit), _RESULTS).collect()
    return sum((Counts(**json.loads(row.counts)) for row in results), Counts())


def _decoding(context: JobContext) -> _Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                pointer = Pointer.from_json(text)
                if pointer == Pointer():
                    yield _blob_rows([(worker, 0, b"") for worker in range(context.workers)])
                for blob in structured(decode(context, pointer)):
                    yield _blob_rows([(blob.worker, blob.order, blob.pack())])

    return task


def _applying(context: JobContext, commit: Commit) -> _Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: dict[int, list[Blob]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                mine = blobs.setdefault(row["worker"], [])
                if row["changes"]:
                    mine.append(Blob.unpack(row["worker"], row["place"], row["changes"]))
        for worker, mine in blobs.items():
            (counts,) = structured(_apply_alone(context, commit, worker, mine))
            text = json.dumps({name: getattr(counts, name) for name in Counts.__slots__})
            yield pa.RecordBatch.from_arrays([pa.array([worker], pa.int32()), pa.array([text])], ["worker", "counts"])

    return task


def _apply_alone(context: JobContext, commit: Commit, worker: int, blobs: list[Blob]) -> Iterator[Counts]:
    with context.committer() as committer:
        yield apply(committer, commit, worker, blobs)


def _blob_rows(rows: list[tuple[int, int, bytes]]) -> pa.RecordBatch:
    workers, places, changes = zip(*rows, strict=True)
    arrays = [pa.array(workers, pa.int32()), pa.array(places, pa.int64()), pa.array(changes, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["worker", "place", "changes"])
