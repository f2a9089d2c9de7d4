"""Which worker a change goes to: all changes of one row to the same one, in any process, for ever.

An update that gives its row another key may belong to two workers; it reaches them as a delete and an insert. Rows of a
table with secondary unique keys may trade values with any other row of it, so such a table goes to one worker whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Lsn, Op, Where
from pidts.reduce.identity import identities
from pidts.reduce.key_hash import key_hash, spreads, table_number
from pidts.reduce.watched import watched_columns


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
        _halved_bitmaps(batch, row, is_delete, is_insert),
    ]
    bucket = pc.if_else(is_delete, old.take(row), now.take(row))
    return pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema), bucket


def _halved_bitmaps(
    batch: ChangeBatch, row: pa.Int64Array, is_delete: pa.BooleanArray, is_insert: pa.BooleanArray
) -> pa.BinaryArray:
    """Which columns the images hold. An insert that lacks some keeps both bitmaps, so that it is known for a half.

    What an insert's image does not hold would have to come from the row under the old key. That is the other worker's,
    who removes it at a time of its own, so such an insert can never be completed. Only generated columns may be missing
    (MariaDB leaves them out of every update): the target computes them.
    """
    told = batch.rows.column("partial").take(row)
    if not batch.is_partial:
        return told
    columns = batch.table.columns
    width = (len(columns) + 7) // 8
    needed = sum(1 << place for place, column in enumerate(columns) if not column.generated)
    after = pc.binary_slice(told, width, 2 * width)
    found = {bits: int.from_bytes(bits, "little") for bits in pc.unique(after.filter(is_insert)).to_pylist() if bits}
    short = [bits for bits, held in found.items() if held & needed != needed]
    lacking = pc.and_(is_insert, pc.is_in(after, value_set=pa.array(short, pa.binary())))
    if pc.any(lacking).as_py():
        where = pc.indices_nonzero(lacking)[0].as_py()
        raise Halted(
            "partial-row-image",
            "a row that is told in part gets another key, and the two keys belong to two workers",
            where=Where(
                table=str(batch.table.name),
                position=str(Lsn.from_bytes(batch.rows.column("lsn")[row[where].as_py()].as_py())),
            ),
            todo="Set worker-count: 1, or SET GLOBAL binlog_row_image=FULL on the source and copy the table again",
        )
    whole = [bits for bits, held in found.items() if held == (1 << len(columns)) - 1]
    full = pc.and_(is_insert, pc.is_in(after, value_set=pa.array(whole, pa.binary())))
    return pc.if_else(full, None, pc.if_else(is_delete, pc.binary_slice(told, 0, width), told))
