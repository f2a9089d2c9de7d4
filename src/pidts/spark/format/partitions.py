"""The work of one Spark task of a query: neighbouring log parts, and all that is needed to decode them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pidts.excerpt.cut import DecodeRange
from pidts.excerpt.rows import QueryView, record_batches
from pidts.excerpt.store import Store


class BinlogPartition(InputPartition):
    """The log parts that one Spark task reads. `repr` shows only their number and size."""

    def __init__(self, store: Store, view: QueryView, log_parts: tuple[DecodeRange, ...]) -> None:
        self.store, self.view, self.log_parts = store, view, log_parts

    def __repr__(self) -> str:
        return f"BinlogPartition({len(self.log_parts)} log parts, {sum(one.span.size for one in self.log_parts)} bytes)"

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in log order."""
        for log_part in self.log_parts:
            yield from record_batches(self.store, log_part, self.view)


class TaskReader:
    """Reads a partition in a Spark task."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields one task's rows."""
        if not isinstance(partition, BinlogPartition):
            raise TypeError(f"not a partition of this data source: {partition!r}")
        return partition.read()


def dealt(store: Store, view: QueryView, log_parts: Iterable[DecodeRange], size: int) -> list[InputPartition]:
    """Divides the log parts among tasks. Each task gets neighbouring parts, together about `size` bytes."""
    tasks: list[InputPartition] = []
    mine: list[DecodeRange] = []
    for log_part in log_parts:
        if mine and sum(one.span.size for one in mine) + log_part.span.size > size:
            tasks.append(BinlogPartition(store, view, tuple(mine)))
            mine = []
        mine.append(log_part)
    return [*tasks, BinlogPartition(store, view, tuple(mine))] if mine else tasks
