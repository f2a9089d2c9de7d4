"""Packs decoded changes, so that a Spark task can send them to the worker that writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pidts.model import ChangeBatch, Table, TableName

_TABLE, _UPSTREAM = b"pidts.table", b"pidts.upstream"
_PLACES = 1 << 32
"""A blob's `order` is the slice's number times this constant, plus the blob's number in the slice. The constant is
larger than any number of a blob in its slice.
"""


@dataclass(frozen=True, slots=True)
class Blob:
    """Changes of one table for one worker. Sorted by `order`, the blobs of a batch are in log order."""

    worker: int
    order: int
    changes: ChangeBatch

    COPIED: ClassVar[int] = 0
    """The `order` of blobs with copied rows."""

    @staticmethod
    def first_order(number: int) -> int:
        """Returns the `order` of the first changes of a log slice."""
        return (1 + number) * _PLACES

    @property
    def slice(self) -> int:
        """Returns the number of the slice with the changes, from 1 on; 0 for copied rows."""
        return self.order // _PLACES

    def pack(self) -> bytes:
        """Returns the changes as Arrow IPC, with the table's structure. Spark shuffles these bytes instead of rows."""
        batch = self.changes
        about = {_TABLE: json.dumps(batch.table.to_json()).encode()}
        if batch.upstream is not None:
            about[_UPSTREAM] = json.dumps([batch.upstream.schema, batch.upstream.name]).encode()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.rows.schema.with_metadata(about)) as writer:
            writer.write_batch(batch.rows.replace_schema_metadata(about))
        return bytes(sink.getvalue())

    @classmethod
    def unpack(cls, worker: int, order: int, data: bytes) -> Blob:
        """The inverse of `pack`."""
        with pa.ipc.open_stream(data) as reader:
            about = reader.schema.metadata
            rows = reader.read_next_batch().replace_schema_metadata(None)
        table = Table.from_json(json.loads(about[_TABLE]))
        upstream = TableName(*json.loads(about[_UPSTREAM])) if _UPSTREAM in about else None
        return cls(worker, order, ChangeBatch(table, rows, upstream))
