"""Reads the target's rows for given keys, and matches rows with keys.

The server decides which keys are equal. If its collation ignores case or accents, a query for 'A' returns the row 'a'.
If its column has another type, a query for '1' returns the row '1.0'. An event of 'A' would overwrite the row 'a'. So
rows and keys are first matched by their bytes, and then only the keys without a row are queried once more. If this
query returns a row, which is rare, a few queries find the row's key by bisecting the list of keys. Then several keys
may have the same row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.port import TargetSession
from pidts.model import Key, Table
from pidts.reduce.identity import plain_zero
from pidts.reduce.key_numbers import Numbers, chunkless, key_numbers, merged


def target_rows(
    session: TargetSession, table: Table, keys: pa.Table, *, lock: bool = True, again: bool = False
) -> tuple[pa.Table, Numbers]:
    """Returns the rows, and for each key the index of its row (of the first, if there are several), or -1.

    `again`: keys without a row are queried once more, even if no two keys are equal under the source's collations.
    """
    rows = session.read_rows(table, keys=keys, lock=lock)
    at = _matched(table, keys, rows)
    if again or may_fold(table) or _has_others(at, rows.num_rows) or _has_padding(table, keys):
        return _asked_again(session, table, keys, rows, at, lock=lock)
    return rows, at


def _asked_again(
    session: TargetSession, table: Table, keys: pa.Table, rows: pa.Table, at: Numbers, *, lock: bool
) -> tuple[pa.Table, Numbers]:
    """Adds rows that the target has under other spellings of keys without a row; returns the new `rows` and `at`."""
    found: list[tuple[int, pa.Table]] = []
    alone = np.nonzero(at < 0)[0]
    if len(alone):
        _assign(session, table, keys, alone, found, lock=lock)
    if not found:
        return rows, at
    at = at.copy()
    for place, (key, _) in enumerate(found):
        at[key] = rows.num_rows + place
    rows = pa.concat_tables([rows, *(row for _, row in found)])
    _, first, each = np.unique(key_numbers(chunkless(rows, table.identity)), return_index=True, return_inverse=True)
    return rows, np.where(at < 0, -1, first[each[at]])


def narrowed(table: Table, names: tuple[str, ...]) -> Table:
    """Returns the table with only its identity and these columns, so that less is read."""
    wanted = {*table.identity, *names}
    columns = tuple(column for column in table.columns if column.name in wanted)
    return replace(table, columns=columns, keys=(Key("identity", table.identity, unique=True, primary=True),))


def _matched(table: Table, keys: pa.Table, rows: pa.Table) -> Numbers:
    if not rows.num_rows or not keys.num_rows:
        return np.full(keys.num_rows, -1)
    names = table.identity
    if len(names) == 1:  # the lookup makes a hash table of the rows, which are seldom more than the keys
        (wanted,), (found,) = chunkless(keys, names), chunkless(rows, names)
        place = pc.index_in(plain_zero(wanted), value_set=plain_zero(found))
        return np.asarray(place.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    numbers = key_numbers(merged([chunkless(keys, names), chunkless(rows, names)]))
    wanted, found = numbers[: keys.num_rows], numbers[keys.num_rows :]
    order = np.argsort(found, kind="stable")
    place = order[np.minimum(np.searchsorted(found[order], wanted), len(found) - 1)]
    return np.where(found[place] == wanted, place, -1)


def _has_others(at: Numbers, rows: int) -> bool:
    """Whether rows were read that belong to none of the keys. `rows` is the number of rows that were read."""
    matched = np.zeros(rows, np.bool_)
    matched[at[at >= 0]] = True
    return not matched.all()


def may_fold(table: Table) -> bool:
    """Whether a server may treat different keys of the table as equal."""
    types = [table.column(name).type for name in table.identity]
    return any(kind.is_text and not (kind.collation or "").endswith("_bin") for kind in types)


def has_text(table: Table) -> bool:
    """Whether the key of the table has text, which the target need not compare by its bytes."""
    return any(table.column(name).type.is_text for name in table.identity)


def _has_padding(table: Table, keys: pa.Table) -> bool:
    """Whether a key has a space at the end, which most collations ignore."""
    texts = [name for name in table.identity if table.column(name).type.is_text]
    return any(pc.any(pc.ends_with(values, " ")).as_py() for values in chunkless(keys, texts))


def _assign(
    session: TargetSession,
    table: Table,
    keys: pa.Table,
    wanted: Numbers,
    found: list[tuple[int, pa.Table]],
    *,
    lock: bool,
) -> None:
    rows = session.read_rows(table, keys=keys.take(pa.array(wanted)), lock=lock)
    if not rows.num_rows:
        return
    if len(wanted) == 1:
        found.append((int(wanted[0]), rows.slice(0, 1)))
        return
    half = len(wanted) // 2
    _assign(session, table, keys, wanted[:half], found, lock=lock)
    _assign(session, table, keys, wanted[half:], found, lock=lock)
