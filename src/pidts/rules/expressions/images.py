"""The columns of row images that an expression asks for, also where the log has rows in part.

Under MINIMAL and NOBLOB images an update's new row lacks what it did not change: those values stand in the old row.
What stands in neither nobody knows here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Column, Halted, Kept, Lsn, Table, Where
from pidts.rules.expressions.values import NOW, Rows

SIZE = ""
"""A column of this name stands among the others for expressions without any column: it has as many values."""


def columns_of_images(
    batch: ChangeBatch, side: str, columns: Sequence[Column], of: Kept | None = None, times: pa.Array | None = None
) -> Rows:
    """Returns the columns of the images `before` or `after` by name.

    The images are those of these changes (None: of all), which all have them.
    """
    images = _Images(batch, of)
    rows: dict[str, pa.Array] = {SIZE: images.taken(batch.rows.column("op"))}
    if times is not None:
        rows[NOW] = images.taken(times)
    for column in columns:
        values = images.values(side, column)
        if batch.is_partial:
            values = _completed(images, side, column, values)
        rows[column.name] = values
    return rows


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of some changes of a batch; it copies no column that nobody asks for."""

    batch: ChangeBatch
    of: Kept | None

    def taken(self, values: pa.Array) -> pa.Array:
        return values if self.of is None else self.of.of(values)

    def values(self, side: str, column: Column) -> pa.Array:
        images = self.batch.rows.column(side)
        return self.taken(pc.struct_field(images, [images.type.get_field_index(column.name)]))

    def held(self, side: str, column: Column) -> pa.BooleanArray:
        return _held(self.taken(self.batch.rows.column("partial")), self.batch.table, side, column)


def _completed(images: _Images, side: str, column: Column, values: pa.Array) -> pa.Array:
    batch = images.batch
    held = images.held(side, column)
    if side == "after":
        before = pc.and_(images.held("before", column), images.taken(batch.rows.column("before").is_valid()))
        values = pc.if_else(pc.or_(held, pc.invert(before)), values, images.values("before", column))
        held = pc.or_(held, before)
    if not pc.all(held).as_py():
        place = pc.indices_nonzero(pc.invert(held))[0].as_py()
        lsn = images.taken(batch.rows.column("lsn"))[place].as_py()
        raise Halted(
            "partial-row-image",
            f"an expression filter asks for the column {column.name}, which the log does not tell of this change",
            where=Where(table=str(batch.table.name), position=str(Lsn.from_bytes(lsn))),
            todo="SET GLOBAL binlog_row_image=FULL on the source; to get over this change, take the filter out",
        )
    return values


def _held(told: pa.Array, table: Table, side: str, column: Column) -> pa.BooleanArray:
    """Whether the image has the column, by the bitmaps of those changes whose images lack columns."""
    width = (len(table.columns) + 7) // 8
    place = table.columns.index(column)
    first = place // 8
    if side == "after":  # the before image's bitmap stands in front of it, where there is such an image
        has_before = pc.equal(pc.binary_length(told), 2 * width)
        byte = pc.if_else(
            has_before,
            pc.binary_slice(told, width + first, width + first + 1),
            pc.binary_slice(told, first, first + 1),
        )
    else:
        byte = pc.binary_slice(told, first, first + 1)
    having = [bytes([bits]) for bits in range(256) if bits >> (place % 8) & 1]
    return pc.or_(told.is_null(), pc.is_in(byte, value_set=pa.array(having, pa.binary())))
