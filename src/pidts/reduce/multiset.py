"""Reduces a batch on a table without a key to the number of copies of each row that are added or removed.

A table without a key is a multiset. Each image of a change adds or removes one copy of a row, and the order does not
matter: the sum for each distinct row is the whole effect. A row that the log removes existed before the batch, or the
batch added it. So the target has at least as many copies as the sum removes.

Rows are distinguished by the bits of the source's images. For removed rows, 0.0 and -0.0 count as one value: a target
treats them as equal, so both would find the same rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch
from pidts.reduce.identity import image_columns, plain_zero


def multiset_change(batch: ChangeBatch) -> tuple[pa.Table, pa.Int64Array, pa.Table]:
    """Returns the distinct removed rows, the number of copies of each, and the added rows, one row per copy."""
    schema = batch.table.arrow
    gone, new = (pc.indices_nonzero(batch.rows.column(side).is_valid()) for side in ("before", "after"))
    images = [
        pa.concat_arrays([before.take(gone), after.take(new)])
        for before, after in zip(
            *(image_columns(batch, side, schema.names) for side in ("before", "after")), strict=True
        )
    ]
    copies = pa.concat_arrays(
        [pa.repeat(pa.scalar(-1, pa.int64()), len(gone)), pa.repeat(pa.scalar(1, pa.int64()), len(new))]
    )
    sums = summed(images, copies)
    row, total = sums.column("place").combine_chunks(), sums.column("copies").combine_chunks()

    less = pc.less(total, 0)
    lost = [values.take(row.filter(less)) for values in images]
    times = pc.negate(total.filter(less))
    if any(pa.types.is_floating(kind) for kind in schema.types):
        joined = summed([plain_zero(values) for values in lost], times)
        first = joined.column("place").combine_chunks()
        lost, times = [values.take(first) for values in lost], joined.column("copies").combine_chunks()

    more = pc.greater(total, 0)
    added = pa.array(np.repeat(row.filter(more).to_numpy(), total.filter(more).to_numpy()), pa.int64())
    return (
        pa.Table.from_arrays(lost, schema=schema),
        times,
        pa.Table.from_arrays([values.take(added) for values in images], schema=schema),
    )


def summed(columns: list[pa.Array], copies: pa.Int64Array) -> pa.Table:
    """Returns, for each distinct row, the index of its last occurrence and the sum of its copies.

    The rows are in the order of these indexes.
    """
    by = [f"column{number}" for number in range(len(columns))]
    rows = pa.Table.from_arrays([*columns, copies, pa.arange(0, len(copies))], names=[*by, "copies", "place"])
    sums = rows.group_by(by, use_threads=False).aggregate([("copies", "sum"), ("place", "max")])
    sums = sums.select(["copies_sum", "place_max"]).rename_columns(["copies", "place"])
    return sums.sort_by("place")
