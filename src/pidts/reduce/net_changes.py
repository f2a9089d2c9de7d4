"""Computes the net effect of a batch: at most one delete and one upsert per row, however often it changed.

A target removes all of `deletes`, then writes all of `upserts`. The claim is: *at no moment while the statements run*
does a row that is written find another row with one of its unique values. Servers check each row when they write it.
Without this claim there would be faults such as these:

    rows (1, u=1) and (2, u=2);  swap their u          fails as one upsert: u=2 is still taken when row 1 is written
    row  (1, u=1);  set u=5;  INSERT (2, u=1)          MySQL's ON DUPLICATE KEY UPDATE overwrites row 1, row 2 is lost

Therefore, a row whose secondary unique values differ between the start and the end of the batch is removed first, even
if it is written again. The remaining rows already have the unique values of the batch's end, and the source had all of
these at once. So chains and rotations of any length need no special treatment.

A row was new in the batch if its first change is an INSERT, or an UPDATE from another key. For a new row, no row of the
target is removed. Two kinds of changes do not count as a first change:

- A copied row. While a table is being copied, all its rows on the target came from the log or from an earlier chunk. So
  these rows equal the source's rows at the start of the batch.
- A key that a repair has not found on the source. If the log has no change of the key, the target's row is removed;
  otherwise the log decides.

If chunks are loaded as soon as they are read, rows of the target may be ahead of the batch's log. Such rows may differ
from the source's rows at the start of the batch. In these tables (`ahead`) every row that the log changes is removed
first. The remaining rows do not change in the batch, so they already have their values of the batch's end.

Several tables of the source may be merged into one. If a row moves between two of them, this is an INSERT in one table
and a DELETE in the other, in either order:

    INSERT INTO b SELECT * FROM a WHERE id=1;  DELETE FROM a WHERE id=1

If all tables were reduced as one table, the DELETE would be the last change, and the row would be lost. So the net
effect is computed for each row in each of these tables (the shards). The row exists in the end if one of the shards has
it. The target then gets it from the shard that wrote it last. The INSERT and the DELETE may also be in different parts
of a batch (`pidts.apply.merge.moved_rows`). Between two transactions, only one of the shards may have a row with a
given key. If two shards had such a row, and a batch ended there, the later DELETE would remove the row. A target table
with only one source table does not count as merged: there, a row that the batch inserts and deletes is removed, since a
chunk of the copy may have loaded it.

The target table may be *wider*: it may have columns that a row's own table lacks. A new row must not keep values in
these columns from another table's row, or from a row of a dropped table of the same name. A row is new to its table
after an INSERT, after an UPDATE from another key, and if it was copied. Then the target's row with the same key is
removed first, whichever table it belongs to. If a row's own table already had the row, the row keeps its values in
these columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Lsn, Op, Table, TableName, Where
from pidts.model.advice import RESYNC
from pidts.reduce.collision_columns import watched_columns
from pidts.reduce.identity import (
    FEW,
    FewKeys,
    Identities,
    any_of,
    brought,
    distinct,
    few_keys,
    identities,
    image_columns,
)
from pidts.reduce.multiset import multiset_change
from pidts.reduce.net_change import Counts, ExpectedRows, NetChange, by_width

_GONE: Final = frozenset({int(Op.DELETE), int(Op.ABSENT)})
_READ: Final = frozenset({int(Op.COPY), int(Op.ABSENT)})
"""The operations that do not come from the log."""


def net_changes(
    batches: Sequence[ChangeBatch],
    watched: Mapping[TableName, Collection[str]] | None = None,
    ahead: Collection[TableName] = (),
    merged: Collection[TableName] = (),
    wider: Collection[TableName] = (),
    own: Mapping[TableName, Mapping[TableName, Collection[str]]] | None = None,
    expecting: Collection[TableName] = (),
    inserting: Collection[TableName] = (),
) -> list[NetChange]:
    """Reduces batches to one `NetChange` per table with changes, or to several for tables in `own`.

    Batches of one table are in log order, except batches of merged tables, which are sorted here. Copied rows count as
    earlier than all changes of the log, wherever they are in `batches`.

    - `watched` has, for each table, the columns by which two rows of the target can collide although their identities
      differ (`pidts.reduce.collision_columns`).
    - `ahead`: tables whose rows on the target may be later than the log of the batches.
    - `merged`: target tables with several source tables, which the batches' `upstream` distinguishes.
    - `wider`: shared target tables with columns that some of these changes lack.
    - `own` has, for tables with a key, the columns that each source table really has, in lower case. The rows of a
      source table are written with only these columns. If a table has several `NetChange`s, the first has all deletes.
    - `expecting`: tables, not merged, whose result has `NetChange.expected`.
    - `inserting`: tables, not merged, whose result has `NetChange.is_new`. The target has no row with a key that a
      batch inserts: if the batch deletes the key again, nothing is removed.
    """
    by_table: dict[TableName, list[ChangeBatch]] = {}
    for batch in batches:
        if len(batch):
            by_table.setdefault(batch.table.name, []).append(batch)
    return [
        change
        for name, parts in by_table.items()
        for change in _net_change(
            parts,
            (watched or {}).get(name, ()),
            (own or {}).get(name, {}),
            ahead=name in ahead,
            merged=name in merged,
            wider=name in wider,
            expecting=name in expecting,
            inserting=name in inserting,
        )
    ]


def _net_change(
    parts: list[ChangeBatch],
    besides: Collection[str],
    own: Mapping[TableName, Collection[str]],
    *,
    ahead: bool,
    merged: bool,
    wider: bool,
    expecting: bool,
    inserting: bool,
) -> list[NetChange]:
    table = parts[0].table
    for part in parts:
        _check(part, table)
    rows = parts[0].rows if len(parts) == 1 else pa.concat_batches([part.rows for part in parts])
    member = None
    if merged:
        origins = list(dict.fromkeys(part.origin for part in parts))
        numbers = [pa.repeat(pa.scalar(origins.index(part.origin), pa.int32()), len(part)) for part in parts]
        order = pc.sort_indices(rows.column("lsn"))
        rows, member = rows.take(order), pa.concat_arrays(numbers).take(order)
    batch = ChangeBatch(table, rows)
    if not table.identity:
        deletes, times, upserts = multiset_change(batch)
        return [NetChange(table, deletes, upserts, _counts(batch), times)]
    names = {*besides, *(name for part in parts for name in watched_columns(part.table))}
    watched = [name for name in table.arrow.names if name in names]
    few = few_keys(batch) if member is None and not wider else None
    if few is not None and not watched:
        return [_of_few(batch, few, expecting=expecting, inserting=inserting)]
    change, kept = _keyed(
        batch, few, member, watched, ahead=ahead, wider=wider, expecting=expecting, inserting=inserting
    )
    if member is None or not own:
        return [change]
    return by_width(change, member.take(kept), [own.get(origin) for origin in origins])


def _check(part: ChangeBatch, table: Table) -> None:
    is_same = part.table is table
    if not is_same and (part.table.arrow != table.arrow or part.table.identity != table.identity):
        raise Halted(
            "structures-differ",
            "One batch has changes of the table under two structures",
            where=Where(table=str(table.name)),
            todo="Tables that are merged into one must have the same columns, types and key",
        )
    if part.is_partial:
        is_partial = part.rows.column("partial").is_valid()
        raise Halted(
            "partial-row-image",
            "Rows are incomplete in the log, and were not completed",
            where=Where(
                table=str(table.name), position=str(Lsn.from_bytes(part.rows["lsn"].filter(is_partial)[0].as_py()))
            ),
            todo="Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, then copy the table "
            f"again: {RESYNC}",
        )


def _keyed(
    batch: ChangeBatch,
    few: FewKeys | None,
    member: pa.Int32Array | None,
    watched: Sequence[str],
    *,
    ahead: bool,
    wider: bool,
    expecting: bool,
    inserting: bool,
) -> tuple[NetChange, pa.Int64Array]:
    """Reduces a batch on a table with a key; also returns, for each written row, the change that it comes from.

    Each flag says whether the table is among the tables that `net_changes` gets under the flag's name.
    """
    table, size = batch.table, len(batch)
    by = [f"key{number}" for number in range(len(table.identity))]
    nets = _nets(batch, member, by, wider=wider) if few is None else _as_columns(few, _few(few), by)

    written = nets.column("kept").is_valid()
    removed = pc.invert(written)
    # If a key was inserted and deleted in the batch, a row of the target with this key belongs to another table or
    # program, and must stay.
    if member is not None or inserting:
        removed = pc.and_(removed, nets.column("start").is_valid())
    if watched and ahead:
        removed = pc.or_(removed, pc.and_(written, nets.column("logged")))
    elif watched:
        last_row = _row(pc.coalesce(nets.column("kept"), nets.column("last")), size)
        removed = pc.or_(removed, _watched_changed(batch, nets, last_row, watched))
    if wider:
        came = pc.equal(nets.column("came"), nets.column("kept"))
        removed = pc.or_(removed, pc.fill_null(came, fill_value=False))
    kept = _row(nets.column("kept").filter(written), size)
    rows = batch.rows.column("after").take(kept)
    change = NetChange(
        table=table,
        deletes=pa.Table.from_arrays([nets.column(name).filter(removed) for name in by], names=list(table.identity)),
        upserts=pa.Table.from_arrays(rows.flatten(), schema=table.arrow),
        counts=_counts(batch),
        expected=_expected(batch, nets, by, written, removed) if expecting else None,
        is_new=nets.column("start").is_null().filter(written) if inserting else None,
        likely_new=None if member is not None else pc.or_(nets.column("start").is_null(), removed).filter(written),
    )
    return change, kept


def _expected(
    batch: ChangeBatch, nets: pa.RecordBatch, by: Sequence[str], written: pa.BooleanArray, removed: pa.BooleanArray
) -> ExpectedRows:
    """Returns each key's row before the batch's first change of the key, and the deleted keys that had no such row.

    If a deleted key had no such row, the batch itself has inserted and deleted a row with this key.
    """
    table, start = batch.table, nets.column("start")

    def before(keys: pa.BooleanArray) -> pa.Table:
        images = batch.rows.column("before").take(_row(start.filter(keys), len(batch)))
        return pa.Table.from_arrays(images.flatten(), schema=table.arrow)

    was_there = start.is_valid()
    changed = pc.and_not(pc.and_(written, was_there), removed)
    absent = pc.and_not(removed, was_there)
    return ExpectedRows(
        removed=before(pc.and_(removed, was_there)),
        changed=before(changed),
        is_changed=changed.filter(written),
        absent=pa.Table.from_arrays([nets.column(name).filter(absent) for name in by], names=list(table.identity)),
    )


def _nets(batch: ChangeBatch, member: pa.Int32Array | None, by: list[str], *, wider: bool) -> pa.RecordBatch:
    """Returns the result of each row's changes (`_per_row`), in the order of the keys."""
    keys = identities(batch)
    events = _events(batch, keys, member, by, wider=wider)
    if member is None:
        return _in_key_order(_per_row(events, by, keys, batch), by)
    return _in_key_order(_merged(_per_row(events, [*by, "member"], keys, batch), by), by)


@dataclass(frozen=True, slots=True)
class _NetRow:
    """The result of one row's changes; `_per_row` explains the fields."""

    key: tuple[Any, ...]
    last: int
    kept: int | None
    start: int | None
    logged: bool


def _few(keys: FewKeys) -> list[_NetRow]:
    """Does the same as `_nets` for a few rows of one table, without Arrow's joins, which are slow for few rows."""
    size = len(keys.ops)
    ends: dict[tuple[Any, ...], tuple[int, int | None]] = {}
    """For each key, the numbers of its last change and of its first logged change, as `_order` gives them."""
    deleted, existed = [False] * size, [False] * size
    for place, (op, old, new) in enumerate(zip(keys.ops, keys.before, keys.after, strict=True)):
        gone, updated = op in _GONE, op == Op.UPDATE
        moved = updated and old != new
        deleted[place], existed[place] = gone, gone or (updated and not moved)
        is_read = op in _READ
        order = 2 * place + 1 + (0 if is_read else 2 * size)
        _note_change(ends, old if gone else new, order, None if is_read else order)
        if moved:
            _note_change(ends, old, order - 1, order - 1)
    nets = []
    for key, (last, first) in sorted(ends.items()):
        stays = last & 1 and not deleted[(last >> 1) % size]
        was_there = first is not None and (not first & 1 or existed[(first >> 1) % size])
        nets.append(_NetRow(key, last, last if stays else None, first if was_there else None, first is not None))
    return nets


def _as_columns(keys: FewKeys, nets: Sequence[_NetRow], by: Sequence[str]) -> pa.RecordBatch:
    numbers = ([net.last for net in nets], [net.kept for net in nets], [net.start for net in nets])
    return pa.RecordBatch.from_arrays(
        [
            *keys.arrays(net.key for net in nets),
            *(pa.array(column, pa.int64()) for column in numbers),
            pa.array([net.logged for net in nets]),
        ],
        names=[*by, "last", "kept", "start", "logged"],
    )


def _of_few(batch: ChangeBatch, keys: FewKeys, *, expecting: bool, inserting: bool) -> NetChange:
    """Returns the same change as `_keyed` for a table without watched columns."""
    table, size, nets = batch.table, len(batch), _few(keys)
    names = list(table.identity)

    def images(side: str, orders: Iterable[int]) -> pa.Table:
        places, whole = [(order >> 1) % size for order in orders], batch.rows.column(side)
        first = places[0] if places else 0
        is_slice = places == list(range(first, first + len(places)))  # as for rows that were inserted in key order
        taken = whole.slice(first, len(places)) if is_slice else whole.take(pa.array(places, pa.int64()))
        return pa.Table.from_arrays(taken.flatten(), schema=table.arrow)

    def listed(found: Iterable[tuple[Any, ...]]) -> pa.Table:
        values = list(found)
        return pa.Table.from_arrays(keys.arrays(values), names=names) if values else _no_keys(table)

    removed = [net for net in nets if net.kept is None and not (inserting and net.start is None)]
    kept = [net for net in nets if net.kept is not None]
    expected = None
    if expecting:
        expected = ExpectedRows(
            removed=images("before", (net.start for net in removed if net.start is not None)),
            changed=images("before", (net.start for net in kept if net.start is not None)),
            is_changed=pa.array([net.start is not None for net in kept], pa.bool_()),
            absent=listed(net.key for net in removed if net.start is None),
        )
    return NetChange(
        table=table,
        deletes=listed(net.key for net in removed),
        upserts=images("after", (net.kept for net in kept if net.kept is not None)),
        counts=_counts(batch),
        expected=expected,
        is_new=pa.array([net.start is None for net in kept], pa.bool_()) if inserting else None,
    )


@lru_cache(maxsize=1024)
def _no_keys(table: Table) -> pa.Table:
    """Returns an empty list of keys. The list is cached, since most small batches delete nothing."""
    return pa.schema([table.arrow.field(name) for name in table.identity]).empty_table()


def _note_change(
    ends: dict[tuple[Any, ...], tuple[int, int | None]], key: tuple[Any, ...], order: int, logged: int | None
) -> None:
    last, first = ends.get(key, (order, logged))
    ends[key] = max(last, order), logged if first is None else first if logged is None else min(first, logged)


def _in_key_order(nets: pa.Table, by: list[str]) -> pa.RecordBatch:
    """Sorts the rows by the key, so that the target goes through its index in one direction."""
    (batch,) = nets.combine_chunks().to_batches()
    if len(by) == 1 and pa.types.is_integer(batch.column(by[0]).type):  # numpy sorts much faster than Arrow
        return batch.take(pa.array(np.argsort(batch.column(by[0]).to_numpy())))
    return batch.take(pc.sort_indices(batch, [(name, "ascending") for name in by]))


def _events(
    batch: ChangeBatch, keys: Identities, member: pa.Int32Array | None, by: Sequence[str], *, wider: bool
) -> pa.Table:
    """Returns each key's changes (events), numbered by `_order`. An update of a key is an event of both keys."""
    order, logged = _order(batch, merged=member is not None)
    columns = [*keys.current] if member is None else [*keys.current, member]
    if pc.any(keys.moved).as_py():
        left = pc.indices_nonzero(keys.moved)
        leaving = keys.before if member is None else [*keys.before, member]
        columns = [pa.concat_arrays([now, old.take(left)]) for now, old in zip(columns, leaving, strict=True)]
        order, logged = (pa.concat_arrays([way, pc.subtract(way.take(left), 1)]) for way in (order, logged))
    names = [*by, *(["member"] if member is not None else []), "order", "logged"]
    if not wider:
        return pa.Table.from_arrays([*columns, order, logged], names=names)
    came = pc.and_(_arrives(order), brought(batch, keys).take(_row(order, len(batch))))
    return pa.Table.from_arrays([*columns, order, logged, came], names=[*names, "came"])


def _per_row(events: pa.Table, by: list[str], keys: Identities, batch: ChangeBatch) -> pa.Table:
    """Reduces each row's changes to their result, which has these columns.

    - `last`: the number of the row's last change.
    - `kept`: the same number if the row exists after that change, else NULL.
    - `start`: the number of the row's first change in the log if the row existed before that change, else NULL.
    - `logged`: whether the log changes the row.
    - `came`, if the target has more columns: equals `kept` for rows that are new to their table, else NULL.
    """
    size = len(batch)
    wider = "came" in events.column_names
    asked = [("order", "max"), ("logged", "min"), *([("came", "any")] if wider else [])]
    nets = events.group_by(by, use_threads=False).aggregate(asked)
    last, first = (nets.column(name).combine_chunks() for name in ("order_max", "logged_min"))
    never = pa.scalar(None, pa.int64())
    stays = pc.and_(_arrives(last), pc.invert(keys.deleted.take(_row(last, size))))
    updated = pc.equal(batch.rows.column("op"), int(Op.UPDATE))
    found = pc.or_(keys.deleted, pc.and_not(updated, keys.moved))
    existed = pc.or_(pc.invert(_arrives(first)), found.take(_row(first, size)))
    kept = pc.if_else(stays, last, never)
    columns = [last, kept, pc.if_else(existed, first, never), first.is_valid()]
    names = [*by, "last", "kept", "start", "logged"]
    if wider:
        columns.append(pc.if_else(nets.column("came_any").combine_chunks(), kept, never))
        names.append("came")
    return pa.Table.from_arrays([*(nets.column(name) for name in by), *columns], names=names)


def _merged(nets: pa.Table, by: list[str]) -> pa.Table:
    """Returns one result for each key over all shards. `starts` counts the shards that had the row before."""
    whole = [("last", "max"), ("kept", "max"), ("start", "min"), ("logged", "any"), ("start", "count")]
    names = [*by, "last", "kept", "start", "logged", "starts"]
    if "came" in nets.column_names:
        whole, names = [*whole, ("came", "max")], [*names, "came"]
    found = nets.group_by(by, use_threads=False).aggregate(whole)
    return found.select([*by, *("_".join(each) for each in whole)]).rename_columns(names)


def _order(batch: ChangeBatch, *, merged: bool) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Returns a number for each change, higher for a later change; then the same numbers for logged changes only.

    The number of a change is `2 * index + 1`. Logged changes are later than rows that were read, so `2 * size` is added
    to their numbers. An update that gives its row another key has two numbers. The update's own, odd number belongs to
    the new key. The even number just below belongs to the old key, from which the update removes the row. The second
    result is NULL for changes that were not logged. If `merged`, a key that a repair has not found on the source counts
    as logged: it stands for an existing row of this table.
    """
    size = len(batch)
    place = pc.add(pc.multiply(pa.arange(0, size, 1), 2), 1)
    op = batch.rows.column("op")
    read = pc.or_(pc.equal(op, int(Op.COPY)), pc.equal(op, int(Op.ABSENT)))
    order = pc.if_else(read, place, pc.add(place, 2 * size))
    unlogged = pc.equal(op, int(Op.COPY)) if merged else read
    return order, pc.if_else(unlogged, pa.scalar(None, pa.int64()), order)


def _row(order: pa.Int64Array, size: int) -> pa.Int64Array:
    return pc.modulo(pc.shift_right(order, 1), size)


def _arrives(order: pa.Int64Array) -> pa.BooleanArray:
    """Returns a mask of the events that is False where an update removes the key."""
    return pc.equal(pc.bit_wise_and(order, 1), 1)


def _watched_changed(
    batch: ChangeBatch, nets: pa.RecordBatch, last_row: pa.Int64Array, names: Sequence[str]
) -> pa.BooleanArray:
    """Returns which rows existed at the batch's start and had another value in one of these columns."""
    start = nets.column("start")
    first_row = _row(start, len(batch))
    old = image_columns(batch, "before", names)
    new = image_columns(batch, "after", names)
    pairs = zip(old, new, strict=True)
    changed = any_of([distinct(was.take(first_row), now.take(last_row)) for was, now in pairs])
    if "starts" in nets.schema.names:
        changed = pc.or_(changed, pc.greater(nets.column("starts"), 1))
    return pc.and_(start.is_valid(), changed)


def _counts(batch: ChangeBatch) -> Counts:
    op = batch.rows.column("op")
    kinds = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.COPY, Op.ABSENT)
    if len(batch) <= FEW:
        inserted, updated, deleted, copied, removed = map(op.to_pylist().count, map(int, kinds))
        return Counts(inserted=inserted, updated=updated, deleted=deleted, copied=copied, removed=removed)
    inserted, updated, deleted, copied, removed = (pc.sum(pc.equal(op, int(kind))).as_py() for kind in kinds)
    return Counts(inserted=inserted, updated=updated, deleted=deleted, copied=copied, removed=removed)
