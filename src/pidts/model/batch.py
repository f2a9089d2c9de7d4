"""Many changes of one table as Arrow columns: the form in which rows travel through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

CHANGE_FIELDS = ("lsn", "op", "before", "after", "partial")


def change_schema(table: Table) -> pa.Schema:
    """The columns of a `ChangeBatch`.

    `before` and `after` are null structs where an op has no such image. `partial` is null where the images hold all
    columns. Else it says which they hold: the bitmap of the before image's columns, then the after image's (of those
    that the op has), each in whole bytes with the first column in the lowest bit. An insert with two bitmaps is what is
    left of an update whose row has gone to another worker by its key. A column that an image does not hold
    is null in its struct, which then says nothing about its value.
    """
    row = pa.struct(list(table.arrow))
    return pa.schema(
        [
            pa.field("lsn", pa.binary(Lsn.SIZE), nullable=False),
            pa.field("op", pa.int8(), nullable=False),
            pa.field("before", row),
            pa.field("after", row),
            pa.field("partial", pa.binary()),
        ]
    )


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of one table under one structure, in log order."""

    table: Table
    rows: pa.RecordBatch
    upstream: TableName | None = None
    """The source's table, where its target table has another name or structure; else it is left out."""

    def __post_init__(self) -> None:
        if self.rows.schema.names != list(CHANGE_FIELDS):
            raise ValueError(f"not a change batch of {self.table.name}: {self.rows.schema.names}")

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @classmethod
    def of(
        cls,
        table: Table,
        lsns: pa.Array,
        ops: pa.Array,
        before: pa.StructArray,
        after: pa.StructArray,
        partial: pa.Array | None = None,
    ) -> ChangeBatch:
        """Builds a batch of its columns; without `partial` every image holds all columns."""
        if partial is None:
            partial = pa.nulls(len(ops), pa.binary())
        arrays = [lsns, ops, before, after, partial]
        return cls(table, pa.RecordBatch.from_arrays(arrays, schema=change_schema(table)))

    @property
    def origin(self) -> TableName:
        """The source's table."""
        return self.upstream or self.table.name

    @property
    def is_partial(self) -> bool:
        """Whether some image lacks columns."""
        return bool(self.rows.column("partial").null_count < len(self))
