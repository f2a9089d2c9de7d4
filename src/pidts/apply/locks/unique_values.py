"""Finds keys that need a unique value which a locked row has on the target.

    row 1 is locked, and has u = 5 on the target       UPDATE 2 SET u = 5 would be refused: row 2 is locked, too
    so row 2 keeps u = 3                               INSERT (3, u = 3) would be refused: row 3 is locked, too

If a table has unique keys besides its identity, all of its rows belong to one worker, so no other worker writes them.
The target is asked which rows have the values that the batch writes, because only its collations decide whether 'ß'
equals 's' or 'ø' equals 'o'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.port import TargetSession
from pidts.apply.rows.target_rows import has_text, target_rows
from pidts.model import ChangeBatch, Key, Op, Table
from pidts.reduce.key_numbers import Mask, Numbers, chunkless, key_numbers, merged

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holders:
    """The target's rows with a unique value that some change of a batch writes."""

    change: Numbers
    """The indexes of changes in the batch. A change occurs once for each row that has one of its unique values."""
    row: Numbers
    """For each entry of `change`, the index of the row in `keys`."""
    keys: pa.Table
    """The keys of the target's rows, as the target has them."""
    by: Sequence[Columns]
    """For each entry of `change`, the columns of the unique value."""


def unique_keys(session: TargetSession, table: Table) -> list[Columns]:
    """Returns the unique keys of the target's table, except the identity, with the source's column names.

    Keys that only the source has are left out: the target refuses no row because of them.
    """
    there = session.schema.structure(table.name)
    if there is None or not session.schema.collision_columns(table):
        return []
    spelt = {name.lower(): name for name in table.arrow.names}
    unique = [tuple(spelt.get(name.lower(), "") for name in key.columns) for key in there.keys if key.unique]
    return list(dict.fromkeys(key for key in unique if "" not in key and key != table.identity))


def holders(session: TargetSession, batch: ChangeBatch, keys: Sequence[Columns]) -> Holders:
    """Returns the target's rows with unique values that the changes of a batch write; locks none of these rows."""
    table = batch.table
    writes = np.nonzero(batch.rows.column("op").to_numpy() != Op.DELETE)[0]
    after = batch.rows.column("after").take(pa.array(writes))
    images = pa.Table.from_arrays(after.flatten(), schema=table.arrow)
    none = pa.schema([table.arrow.field(name) for name in table.identity]).empty_table()
    changes, places, found, size = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [none], 0
    by: list[Columns] = []
    for names in keys:
        values = images.select(list(names))
        whole = np.ones(len(writes), np.bool_)
        for column in chunkless(values, names):
            whole &= np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        change, values = writes[whole], values.filter(pa.array(whole))
        if not len(change):
            continue
        number = key_numbers(chunkless(values, names))
        _, first, each = np.unique(number, return_index=True, return_inverse=True)
        by_value = _by(table, names)
        rows, at = target_rows(session, by_value, values.take(pa.array(first)), lock=False, again=has_text(by_value))
        there = at[each] >= 0
        changes.append(change[there])
        by += [names] * len(changes[-1])
        places.append(size + at[each][there])
        found.append(rows.select(list(table.identity)).cast(none.schema))
        size += rows.num_rows
    return Holders(np.concatenate(changes), np.concatenate(places), pa.concat_tables(found).combine_chunks(), by)


def waiting_keys(
    key_rows: KeyRows, locked: Mask, ids: Sequence[str], found: Holders, other_locks: Sequence[str]
) -> dict[int, str]:
    """Returns the free keys that need a unique value of a locked row, each with this row's lock.

    The row that has the value may also wait for a locked row itself. `ids` has the id that each key's lock has or would
    have. `other_locks` has the locks of rows in `found` that the batch does not change.
    """
    if not len(found.change):
        return {}
    events, size = key_rows.events, len(key_rows.at)
    locked = locked.copy()
    arriving = np.nonzero(~events.leaves)[0]
    key_of = np.full(len(events.batch), -1)
    key_of[events.change[arriving]] = events.key[arriving]
    needing, holder = key_of[found.change], keys_of(key_rows, found.keys)[found.row]
    has_other = np.array([bool(one) for one in other_locks], np.bool_)[found.row]
    order = np.argsort(found.change, kind="stable")
    waiting: dict[int, str] = {}
    while True:
        is_held = np.where(holder >= 0, locked[np.minimum(holder, size - 1)], has_other)
        new: dict[int, str] = {}
        for place in order[((needing >= 0) & (needing != holder) & ~locked[needing] & is_held)[order]].tolist():
            name = ids[holder[place]] if holder[place] >= 0 else other_locks[found.row[place]]
            new.setdefault(int(needing[place]), name)
        if not new:
            return waiting
        waiting |= new
        locked[list(new)] = True


def keys_of(key_rows: KeyRows, rows: pa.Table) -> Numbers:
    """Returns, for each row, the index of its key among the batch's keys, or -1."""
    names = list(rows.column_names)
    here = np.nonzero(key_rows.at >= 0)[0]
    mine = chunkless(key_rows.rows.select(names).take(pa.array(key_rows.at[here])).cast(rows.schema), names)
    numbers = key_numbers(merged([mine, chunkless(rows, names)]))
    known = dict(zip(numbers[: len(here)].tolist(), here.tolist(), strict=True))
    return np.array([known.get(one, -1) for one in numbers[len(here) :].tolist()], np.int64)


def _by(table: Table, names: Columns) -> Table:
    """Returns the table as if these columns were its primary key."""
    wanted = {*table.identity, *names}
    columns = tuple(column for column in table.columns if column.name in wanted)
    return replace(table, columns=columns, keys=(Key("value", names, unique=True, primary=True),))
