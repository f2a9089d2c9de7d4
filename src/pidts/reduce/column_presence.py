"""Reads which columns each image of a batch has, if the log has partial images (MINIMAL and NOBLOB)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Op, image_column

_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ColumnPresence:
    """The images of a batch's changes, and the columns of each image: masks with one row per change."""

    has_before: _Mask
    has_after: _Mask
    copied: _Mask
    halved: _Mask
    """INSERTs that are the second half of an UPDATE. The row that has their missing values is already removed."""
    before: _Mask
    after: _Mask


def column_presence(batch: ChangeBatch) -> ColumnPresence:
    """Returns which columns the images of a batch have, from the bitmaps in its column `partial`."""
    width = len(batch.table.columns)
    op = batch.rows.column("op").to_numpy()
    has_before, has_after = (op == Op.UPDATE) | (op == Op.DELETE), op != Op.DELETE
    before, after = (np.repeat(has[:, None], width, axis=1) for has in (has_before, has_after))
    halved = np.zeros(len(batch), np.bool_)
    encoded = batch.rows.column("partial").dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    step = (width + 7) // 8
    for number, data in enumerate(encoded.dictionary.to_pylist()):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.bool_)
        mine = codes == number
        before[mine & has_before] = bits[:width]
        after[mine & has_after] = bits[(len(data) - step) * 8 :][:width]
        halved |= mine & (op == Op.INSERT) & (len(data) > step)
    return ColumnPresence(has_before, has_after, op == Op.COPY, halved, before, after)


def with_whole_keys(batch: ChangeBatch) -> ChangeBatch:
    """Adds the key to each after image that leaves it out because the update did not change the key.

    A batch needs this before its changes are assigned to workers by their keys. Other values are completed when the
    target can be read.
    """
    if not batch.is_partial or not batch.table.identity:
        return batch
    rows, table = batch.rows, batch.table
    presence = column_presence(batch)
    after = rows.column("after")
    fields = list(table.arrow)
    columns = after.flatten()
    for name in table.identity:
        place = table.arrow.get_field_index(name)
        old = image_column(rows.column("before"), place)
        columns[place] = pc.if_else(pa.array(presence.after[:, place]), columns[place], old)
    filled = pa.StructArray.from_arrays(columns, fields=fields, mask=after.is_null())
    arrays = [filled if field == "after" else rows.column(field) for field in rows.schema.names]
    return replace(batch, rows=pa.RecordBatch.from_arrays(arrays, schema=rows.schema))
