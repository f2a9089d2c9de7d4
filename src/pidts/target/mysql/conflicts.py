"""Finds the target rows that safe mode removes: they have a new row's unique value, but another identity.

The keys 'a' and 'A' are different identities, even if a collation ignores case. If the source and the target have the
same collation, the source cannot have both rows at once. So the target's row is from an earlier or a later time.

REPLACE would also remove the colliding rows, but it has two faults. It would remove the row with the new row's
identity, too, and lose its values in columns that only the target has. And if two new rows were equal in a unique key
by the target's collation, they would silently become one.

The server compares the values, so two values that are equal by a collation are the same value. If the source has
another collation, it may have both values in two rows: then only equal bytes are the same value. A NULL in a unique key
equals no value.

Two kinds of keys are left out: keys over expressions or over columns that only the target computes, since PiDTS does
not know their values; and keys that do not follow from a unique key of the source, since the source may have two rows
with the same values. All other collisions stop the task, as they do outside of safe mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Key, Table
from pidts.target.mysql.dialect import identifier
from pidts.target.mysql.encode import joined, literals, wrapped
from pidts.target.mysql.exact import is_collated, rows_exactly
from pidts.target.mysql.shape import MyTable, UniqueKeyParts

_ESCAPED = (("|", "||"), ("%", "|%"), ("_", "|_"))


def conflicts(table: Table, found: MyTable, rows: pa.Table, *, respelled: bool) -> Iterator[pa.Array]:
    """Yields, for each unique key, one condition per row that finds other rows with the same value.

    The key of the identity is left out, unless different texts in this key may be equal (`respelled`).
    """
    identity = frozenset(name.lower() for name in table.identity)
    names = {column.name.lower(): column for column in table.columns}
    for key in found.unique:
        if (key.columns == identity and not respelled) or not key.columns <= names.keys():
            continue
        if not any(_follows(key, one) for one in table.keys):
            continue
        parts = [(names[name.lower()], prefix) for name, prefix in key.parts]
        whole = reduce(pc.and_, [pc.is_valid(rows[column.name]) for column, _ in parts])
        mine = rows.filter(whole)
        if mine.num_rows:
            equal = [_equal(column, found.column(column.name) or column, prefix, mine) for column, prefix in parts]
            own = rows_exactly(map(table.column, table.identity), found, mine)
            yield wrapped(joined([*equal, wrapped(own, b"NOT (", b")")], b" AND "), b"(", b") OR ")


def _follows(key: UniqueKeyParts, of_source: Key) -> bool:
    """Whether rows that differ in a unique key of the source always differ in this key of the target, too."""
    if not (of_source.primary or of_source.declared_unique):
        return False
    parts = {name.lower(): prefix for name, prefix in key.parts}
    for name, prefix in zip_longest(of_source.columns, of_source.prefixes):
        there = parts.get(name.lower(), 0)
        if there is not None and (prefix is None or prefix > there):
            return False
    return True


def _equal(column: Column, found: Column, prefix: int | None, rows: pa.Table) -> pa.Array:
    """Returns conditions that compare a column as the key does, and also byte by byte if the collations differ."""
    before, after = (b"", b"") if prefix is None else (b"LEFT(", f",{prefix})".encode())
    here, mine = before + identifier(column.name).encode() + after, literals(column, rows[column.name])
    mine = wrapped(mine, before, after)
    conditions = [wrapped(mine, here + b" = ", b"")]
    if prefix is not None and (like := _like(column, found, prefix, rows)) is not None:
        conditions.insert(0, like)
    if is_collated(found) and found.type.collation != column.type.collation:
        by_bytes = b"CAST(CONVERT(" + here + b" USING utf8mb4) AS BINARY) = CAST("
        conditions.append(wrapped(mine, by_bytes, b" AS BINARY)"))
    return joined(conditions, b" AND ")


def _like(column: Column, found: Column, prefix: int, rows: pa.Table) -> pa.Array | None:
    """Returns conditions for which the server uses the index of a key over a prefix; None for some types.

    Such a key compares only the first characters. The server uses its index only with LIKE.
    """
    values = rows[column.name]
    if is_collated(found) and column.type.is_text:
        start = pc.utf8_rtrim(pc.utf8_slice_codeunits(values, 0, prefix), " ")
    elif column.type.is_bytes and found.type.is_bytes:
        start = pc.binary_slice(values, 0, prefix)
    else:
        return None
    for character, escaped in _ESCAPED:
        start = pc.replace_substring(start, pattern=character, replacement=escaped)
    any_end = pa.scalar("%", start.type), pa.scalar("", start.type)
    name = identifier(column.name).encode()
    return wrapped(literals(column, pc.binary_join_element_wise(start, *any_end)), name + b" LIKE ", b" ESCAPE '|'")
