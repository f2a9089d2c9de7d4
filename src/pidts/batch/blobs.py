"""Changes on their way from the task that decodes them to the worker that writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from pidts.model import ChangeBatch, Table

_TABLE = b"pidts.table"


@dataclass(frozen=True, slots=True)
class Blob:
    """Changes of one table for one worker; `order` is their place in the batch."""

    worker: int
    order: int
    changes: ChangeBatch

    def pack(self) -> bytes:
        """As Arrow IPC with the table's structure beside it: what crosses Spark's shuffle instead of rows."""
        batch = self.changes
        table = json.dumps(batch.table.to_json()).encode()
        schema = batch.rows.schema.with_metadata({_TABLE: table})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch.rows.replace_schema_metadata({_TABLE: table}))
        return bytes(sink.getvalue())

    @classmethod
    def unpack(cls, worker: int, order: int, data: bytes) -> Blob:
        """The inverse of `pack`."""
        with pa.ipc.open_stream(data) as reader:
            table = Table.from_json(json.loads(reader.schema.metadata[_TABLE]))
            rows = reader.read_next_batch().replace_schema_metadata(None)
        return cls(worker, order, ChangeBatch(table, rows))
