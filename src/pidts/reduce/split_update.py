"""Makes one half of an update that gives its row another key: the old key's DELETE, or the new key's INSERT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Lsn, Where
from pidts.model.advice import RESYNC

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IncompleteInsert:
    """The reason why an INSERT half cannot be completed, and the beginning of the advice to operators."""

    what: str
    todo: str


def halves(batch: ChangeBatch, op: npt.NDArray[np.int64], gone: _Mask, halved: _Mask) -> ChangeBatch:
    """Returns the batch with only one half of each `halved` update: the DELETE where `gone`, the INSERT elsewhere."""
    rows, fields = batch.rows, list(batch.table.arrow)
    sides: list[pa.Array] = []
    for side, without in (("before", halved & ~gone), ("after", halved & gone)):
        image = rows.column(side)
        mask = pc.or_(image.is_null(), pa.array(without))
        sides.append(pa.StructArray.from_arrays(image.flatten(), fields=fields, mask=mask))
    arrays = [rows.column("lsn"), pa.array(op, pa.int8()), *sides, rows.column("partial")]
    return ChangeBatch(batch.table, pa.RecordBatch.from_arrays(arrays, schema=rows.schema), batch.upstream)


def halved_bitmaps(
    batch: ChangeBatch,
    row: pa.Int64Array,
    is_delete: pa.BooleanArray,
    is_insert: pa.BooleanArray,
    lack: IncompleteInsert | None,
) -> pa.BinaryArray:
    """Returns the bitmaps of the columns that the images of both halves have.

    An INSERT half that lacks some columns keeps both bitmaps, which mark it as a half. Only the row with the old key
    has the missing values. This row is not available here, so the half can never be completed. If `lack` is given, the
    function raises `Halted` for such a half. Only generated columns may be missing: MariaDB leaves them out of every
    update, and the target computes them. `row` is the index of each change in the batch.
    """
    bitmaps = batch.rows.column("partial").take(row)
    if not batch.is_partial:
        return bitmaps
    columns = batch.table.columns
    width = (len(columns) + 7) // 8
    needed = sum(1 << place for place, column in enumerate(columns) if not column.generated)
    after = pc.binary_slice(bitmaps, width, 2 * width)
    found = {bits: int.from_bytes(bits, "little") for bits in pc.unique(after.filter(is_insert)).to_pylist() if bits}
    short = [bits for bits, held in found.items() if held & needed != needed]
    lacking = pc.and_(is_insert, pc.is_in(after, value_set=pa.array(short, pa.binary())))
    if lack is not None and pc.any(lacking).as_py():
        where = pc.indices_nonzero(lacking)[0].as_py()
        raise Halted(
            "partial-row-image",
            f"the log has only a part of a row whose key changes, and {lack.what}",
            where=Where(
                table=str(batch.table.name),
                position=str(Lsn.from_bytes(batch.rows.column("lsn")[row[where].as_py()].as_py())),
            ),
            todo=f"{lack.todo} binlog_row_image=FULL on the source, let its sessions reconnect, then copy the table "
            f"again: {RESYNC}",
        )
    whole = [bits for bits, held in found.items() if held == (1 << len(columns)) - 1]
    full = pc.and_(is_insert, pc.is_in(after, value_set=pa.array(whole, pa.binary())))
    return pc.if_else(full, None, pc.if_else(is_delete, pc.binary_slice(bitmaps, 0, width), bitmaps))
