"""Gives each change to a worker: all changes of one row to the same one, in any process, for ever.

An update that gives its row another key may belong to two workers; it reaches them as a delete and an insert. Rows of a
table with secondary unique keys may trade values with any other row of it, so such a table goes to one worker whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Op
from pidts.reduce.collision_columns import watched_columns
from pidts.reduce.identity import identities
from pidts.reduce.key_hash import key_hash, spreads, table_number
from pidts.reduce.split_update import Lacking, halved_bitmaps

# The old key's worker removes the row at a time of its own.
_TWO_WORKERS = Lacking("the two keys belong to two workers", "Set worker-count: 1, or SET GLOBAL")


def buckets(batch: ChangeBatch, count: int, watched: Collection[str] = ()) -> list[ChangeBatch | None]:
    """Split a batch into `count` parts, each in log order; None for a part without changes.

    Parts of one batch may be reduced and written apart from each other: no row of the target is touched by two of them.
    `watched` as for `net_changes`.
    """
    if count < 1:
        raise ValueError(f"a number of buckets, not {count}")
    table = batch.table
    names = () if watched or watched_columns(table) else table.identity
    spread = [place for place, name in enumerate(names) if spreads(table.column(name))]
    parts: list[ChangeBatch | None] = [None] * count
    if not len(batch):
        return parts
    if count == 1 or not spread:
        parts[table_number(table) % count] = batch
        return parts
    keys = identities(batch)
    seed = table_number(table)
    now = _bucket([keys.current[i] for i in spread], seed, count)
    old = _bucket([keys.before[i] for i in spread], seed, count) if pc.any(keys.moved).as_py() else now
    crossing = pc.indices_nonzero(pc.and_(keys.moved, pc.fill_null(pc.not_equal(old, now), fill_value=False)))
    rows, place = batch.rows, now
    if len(crossing):
        rows, place = _halved(batch, crossing, old, now)
    for number in range(count):
        mine = pc.indices_nonzero(pc.equal(place, number))
        if len(mine):
            parts[number] = batch if len(mine) == len(rows) else replace(batch, rows=rows.take(mine))
    return parts


def _bucket(columns: list[pa.Array], seed: int, count: int) -> pa.UInt64Array:
    """The upper half of the hash, scaled to 0 ... count - 1."""
    half = pa.scalar(32, pa.uint64())
    upper = pc.shift_right(key_hash(columns, seed), half)
    return pc.shift_right(pc.multiply(upper, pa.scalar(count, pa.uint64())), half)


def _halved(
    batch: ChangeBatch, crossing: pa.UInt64Array, old: pa.UInt64Array, now: pa.UInt64Array
) -> tuple[pa.RecordBatch, pa.UInt64Array]:
    """The batch with each crossing update as a delete and an insert at its place, and the bucket of each row."""
    crossing = crossing.cast(pa.int64())
    moments = pa.concat_arrays([pc.add(pc.multiply(pa.arange(0, len(batch), 1), 2), 1), pc.multiply(crossing, 2)])
    moments = moments.take(pc.sort_indices(moments))
    row = pc.shift_right(moments, 1)
    is_delete = pc.equal(pc.bit_wise_and(moments, 1), 0)
    is_insert = pc.and_not(pc.is_in(row, value_set=crossing), is_delete)
    op = pc.if_else(is_delete, pa.scalar(int(Op.DELETE), pa.int8()), batch.rows.column("op").take(row))
    none = pa.scalar(None, pa.int64())
    columns = [
        batch.rows.column("lsn").take(row),
        pc.if_else(is_insert, pa.scalar(int(Op.INSERT), pa.int8()), op),
        batch.rows.column("before").take(pc.if_else(is_insert, none, row)),
        batch.rows.column("after").take(pc.if_else(is_delete, none, row)),
        halved_bitmaps(batch, row, is_delete, is_insert, _TWO_WORKERS),
    ]
    bucket = pc.if_else(is_delete, old.take(row), now.take(row))
    return pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema), bucket
