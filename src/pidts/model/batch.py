"""Many changes of one table as Arrow columns: the form in which rows are passed between the steps of the product."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

CHANGE_FIELDS = ("lsn", "op", "before", "after", "partial")


def change_schema(table: Table) -> pa.Schema:
    """Returns the columns of a `ChangeBatch`.

    `before` and `after` are null structs if an operation has no such image. `partial` is null if the images have all
    columns. Otherwise it has a bitmap of the columns for each image, first the before image, then the after image (if
    the operation has them), each in whole bytes with the first column in the lowest bit. An insert with two bitmaps is
    the second half of an update whose first half belongs to another worker. A column that an image lacks is null in its
    struct, which does not mean that its value is NULL.
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
    """The source's table, if its target table has another name or structure; otherwise None."""

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
        """Builds a batch from its columns; without `partial` every image has all columns."""
        if partial is None:
            partial = pa.nulls(len(ops), pa.binary())
        arrays = [lsns, ops, before, after, partial]
        return cls(table, pa.RecordBatch.from_arrays(arrays, schema=change_schema(table)))

    @property
    def origin(self) -> TableName:
        """Returns the source's table."""
        return self.upstream or self.table.name

    @property
    def is_partial(self) -> bool:
        """Whether some image lacks columns."""
        return bool(self.rows.column("partial").null_count < len(self))
