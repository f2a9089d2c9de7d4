"""The net effect of a batch: at most one delete and one upsert per row, whatever happened to it in between.

A target removes all of `deletes`, then writes all of `upserts`. The claim is that no write meets a row that holds one
of its unique values, *at any moment inside the statements*: servers check each row as they write it, so

    rows (1, u=1) and (2, u=2);  swap their u          fails as one upsert: u=2 is still taken when row 1 is written
    row  (1, u=1);  set u=5;  INSERT (2, u=1)          MySQL's ON DUPLICATE KEY UPDATE overwrites row 1, row 2 is lost

Therefore every row whose secondary unique values differ between the start and the end of the batch is removed first,
even if it is written again. What is left in between are rows whose unique values are already those of the end, and the
source held all of those at once. Chains and rotations of any length come right without being looked for.

That a row was new in the batch is told by its first change: an INSERT, or an UPDATE that came from another key. Such a
row has nothing to remove. A copied row does not count as a first change: while a table is being copied, whatever the
target has of it came from the log or from an earlier chunk, so it is what the source had at the start of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Op, Where
from pidts.reduce.identity import any_of, identities, image_columns
from pidts.reduce.multiset import multiset_change
from pidts.reduce.net_change import Counts, NetChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pidts.model import TableName
    from pidts.reduce.identity import Identities


def net_changes(batches: Sequence[ChangeBatch]) -> list[NetChange]:
    """Reduce batches in log order to one `NetChange` per table that has changes.

    Copied rows come before all changes of the log, wherever they stand in `batches`.
    """
    by_table: dict[TableName, list[ChangeBatch]] = {}
    for batch in batches:
        if len(batch):
            by_table.setdefault(batch.table.name, []).append(batch)
    return [_net_change(_joined(parts)) for parts in by_table.values()]


def _joined(parts: list[ChangeBatch]) -> ChangeBatch:
    first = parts[0]
    for other in parts[1:]:
        if other.table.arrow != first.table.arrow or other.table.identity != first.table.identity:
            raise Halted(
                "structures-differ",
                "One batch holds changes of the table under two structures",
                where=Where(table=str(first.table.name)),
                todo="Tables that are merged into one must have the same columns, types and key",
            )
    return first if len(parts) == 1 else ChangeBatch(first.table, pa.concat_batches([part.rows for part in parts]))


def _net_change(batch: ChangeBatch) -> NetChange:
    table, size = batch.table, len(batch)
    names = table.identity
    if not names:
        deletes, times, upserts = multiset_change(batch)
        return NetChange(table, deletes, upserts, _counts(batch), times)
    keys = identities(batch)
    order, logged = _order(batch)
    columns = keys.current
    if pc.any(keys.moved).as_py():
        left = pc.indices_nonzero(keys.moved)
        columns = [pa.concat_arrays([now, old.take(left)]) for now, old in zip(columns, keys.before, strict=True)]
        order, logged = (pa.concat_arrays([way, pc.subtract(way.take(left), 1)]) for way in (order, logged))

    by = [f"key{number}" for number in range(len(names))]
    events = pa.Table.from_arrays([*columns, order, logged], names=[*by, "order", "logged"])
    nets = events.group_by(by, use_threads=False).aggregate([("order", "max"), ("logged", "min")])
    nets = nets.sort_by([(name, "ascending") for name in by]).combine_chunks().to_batches()[0]

    last = nets.column("order_max")
    row = _row(last, size)
    written = pc.and_(_arrives(last), pc.invert(keys.deleted.take(row)))
    removed = pc.invert(written)
    if changed := _unique_columns_changed(batch, keys, nets.column("logged_min"), row):
        removed = pc.or_(removed, any_of(changed))

    rows = batch.rows.column("after").take(row.filter(written))
    return NetChange(
        table=table,
        deletes=pa.Table.from_arrays([nets.column(name).filter(removed) for name in by], names=list(names)),
        upserts=pa.Table.from_arrays(rows.flatten(), schema=table.arrow),
        counts=_counts(batch),
    )


def _order(batch: ChangeBatch) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Each change's place in time, twice as a number: `2 * place + 1`, and the same but NULL for copied rows.

    The even number below is for the moment when an update takes its row's old key away.
    """
    size = len(batch)
    place = pc.add(pc.multiply(pa.arange(0, size, 1), 2), 1)
    copied = pc.equal(batch.rows.column("op"), int(Op.COPY))
    order = pc.if_else(copied, place, pc.add(place, 2 * size))
    return order, pc.if_else(copied, pa.scalar(None, pa.int64()), order)


def _row(order: pa.Int64Array, size: int) -> pa.Int64Array:
    return pc.modulo(pc.shift_right(order, 1), size)


def _arrives(order: pa.Int64Array) -> pa.BooleanArray:
    """False where an update took the key away."""
    return pc.equal(pc.bit_wise_and(order, 1), 1)


def _unique_columns_changed(
    batch: ChangeBatch, keys: Identities, first: pa.Int64Array, last_row: pa.Int64Array
) -> list[pa.BooleanArray]:
    """For each column of a secondary unique key: the rows that were there at the start with another value."""
    names = dict.fromkeys(name for key in batch.table.secondary_unique for name in key.columns)
    if not names:
        return []
    first_row = _row(first, len(batch))
    updated = pc.equal(batch.rows.column("op"), int(Op.UPDATE))
    stays = pc.or_(keys.deleted, pc.and_not(updated, keys.moved))
    existed = pc.fill_null(pc.or_(pc.invert(_arrives(first)), stays.take(first_row)), fill_value=False)
    old = image_columns(batch, "before", names)
    new = image_columns(batch, "after", names)
    pairs = zip(old, new, strict=True)
    return [pc.and_(existed, _distinct(was.take(first_row), now.take(last_row))) for was, now in pairs]


def _distinct(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Unequal, with NULL equal to NULL."""
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.or_(one_null, pc.fill_null(pc.not_equal(left, right), fill_value=False))


def _counts(batch: ChangeBatch) -> Counts:
    op = batch.rows.column("op")
    inserted, updated, deleted, copied = (
        pc.sum(pc.equal(op, int(kind))).as_py() for kind in (Op.INSERT, Op.UPDATE, Op.DELETE, Op.COPY)
    )
    return Counts(inserted=inserted, updated=updated, deleted=deleted, copied=copied)
