"""Many changes of one table as Arrow columns: the form in which the steps of a batch pass rows on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

_SMALL = 1 << 16

CHANGE_FIELDS = ("lsn", "op", "before", "after", "partial")
_PARTIAL = CHANGE_FIELDS.index("partial")


@lru_cache(maxsize=1024)
def image_type(table: Table) -> pa.StructType:
    """Returns the Arrow type of a table's row images."""
    return pa.struct(list(table.arrow))


@lru_cache(maxsize=1024)
def change_schema(table: Table) -> pa.Schema:
    """Returns the columns of a `ChangeBatch`.

    `before` and `after` are null structs if an operation has no such image. `partial` is null if the images have all
    columns. Otherwise it has a bitmap of columns for each image of the operation: first for the before image, then for
    the after image. Each bitmap has whole bytes, with the first column in the lowest bit. An insert with two bitmaps is
    the second half of an update whose first half belongs to another worker. A column that an image lacks is null in the
    image's struct, although the column's value need not be NULL.
    """
    row = image_type(table)
    return pa.schema(
        [
            pa.field("lsn", pa.binary(Lsn.SIZE), nullable=False),
            pa.field("op", pa.int8(), nullable=False),
            pa.field("before", row),
            pa.field("after", row),
            pa.field("partial", pa.binary()),
        ]
    )


def image_column(images: pa.StructArray, place: int) -> pa.Array:
    """Returns one column of images, NULL where there is no image. For few images faster than `pc.struct_field`."""
    if place < 0:  # the images lack the column, and Arrow would count from the last one
        raise IndexError(place)
    if not images.null_count:
        return images.field(place)
    if images.null_count == len(images):
        return pa.nulls(len(images), images.type.field(place).type)
    return pc.struct_field(images, [place])


def byte_size(rows: pa.RecordBatch | pa.Table) -> int:
    """Returns how many bytes the rows take; for small buffers, the buffers' size, since an exact count takes long."""
    most = rows.get_total_buffer_size()
    return int(most if most <= _SMALL else rows.nbytes)


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
        return bool(self.rows.column(_PARTIAL).null_count < len(self))
