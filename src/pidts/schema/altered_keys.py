"""Computes a table's keys after a statement, with the server's names and in the server's order.

The order matters: if there is no primary key, the first unique key over NOT NULL columns identifies the rows. MySQL
sorts the keys in each statement that changes a table, MariaDB in each statement that adds a key (`in_order`). If a
foreign key needs a key, the server creates a key. When another key begins with the same columns, the server drops the
key that it has created (`_needed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pidts.model.advice import REJOIN
from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Key, Table
from pidts.model.types import LABELED, LOB_BYTES, ColumnType, Kind
from pidts.schema.actions import Action, AddKey, ConvertCharset, DropConstraint, DropKey, RenameKey, RenameTo
from pidts.schema.charset_rules import shown_length
from pidts.schema.charsets import bytes_per_character
from pidts.schema.dialect import Dialect
from pidts.schema.parse.key_clause import PRIMARY

_A = TypeVar("_A")

_DIVISIBLE = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY, *LOB_BYTES})
"""The column types for which a key may contain only a prefix of the values."""
_IN_PARTS = _DIVISIBLE | {Kind.GEOMETRY}
_FIXED = {
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.MEDIUMINT: 3,
    Kind.INT: 4,
    Kind.BIGINT: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.YEAR: 1,
    Kind.DATE: 3,
    Kind.UUID: 16,
    Kind.INET4: 4,
    Kind.INET6: 16,
}
_TIMES = {Kind.TIME: 3, Kind.TIMESTAMP: 4, Kind.DATETIME: 5}
_SIZED = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY})
_DIGITS_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MOST_LABELS_IN_BYTE = 255


def does_not_fit(table: Table, what: str) -> Halted:
    """Returns the error for a statement that has run on the source, but does not fit the recorded structure."""
    return Halted(
        "ddl-does-not-fit",
        f"the statement cannot be applied to the recorded structure: {what}",
        where=Where(table=str(table.name)),
        todo=f"The recorded structure no longer matches the source: {REJOIN}",
    )


@dataclass(frozen=True, slots=True)
class KeptColumn:
    """An old column that still exists, or an old column whose name a new column now has."""

    before: Column
    after: Column
    is_new: bool
    """Whether the statement dropped the column and added another column with the same name."""


def keys_after(
    table: Table, kept: Mapping[str, KeptColumn], columns: Sequence[Column], actions: Sequence[Action], dialect: Dialect
) -> tuple[Key, ...]:
    """Returns the table's keys after the actions.

    `kept` contains the old columns that keys can still use, keyed by their names in lower case. `columns` are the new
    columns as the statement defines them: columns of the primary key are not yet set to NOT NULL.
    """
    is_old = not dialect.mariadb and dialect.version < (5, 7, 0)
    # MySQL before 5.7 ignores a CONVERT that rewrites no column.
    idle = RenameTo | ConvertCharset if is_old and tuple(columns) == table.columns else RenameTo
    if actions and all(isinstance(action, idle) for action in actions):
        return table.keys
    there = {_fold(column.name): column for column in columns}
    keys = _remaining(table, kept, actions, dialect)
    added = _added(table, actions)
    declared = [*keys, *(_spelled(table, there, item) for item in added)]
    named: list[Key] = []
    for key in _needed(declared, dialect):
        key = _named(key, named)  # noqa: PLW2901 - the key, now with a name
        if (present := _key(named, key.name)) is not None:
            if present.declared_unique or present.primary:
                raise does_not_fit(table, f"key {key.name} already exists")
            # The server has created the key `present` for a foreign key, which the catalog does not show. The new key
            # replaces the key `present`.
            named.remove(present)
        named.append(key)
    stored = tuple(_as_stored(key, there, dialect) for key in named)
    if dialect.mariadb and not added and not _first_ends(table, stored, there, actions):
        return stored
    return in_order(stored, there)


def closed_keys(table: Table, dialect: Dialect) -> tuple[Key, ...]:
    """Returns the keys of a new table. Its columns must have their charsets, on which key prefixes depend."""
    columns = {_fold(column.name): column for column in table.columns}
    stored = [_as_stored(key, columns, dialect) for key in table.keys]
    return tuple(sorted(stored, key=lambda key: (not key.declared_unique, _is_too_long(key, columns))))


def copied_keys(table: Table) -> tuple[Key, ...]:
    """Returns the sorted keys for CREATE TABLE LIKE. In MariaDB, the keys of `table` may be unsorted."""
    return in_order(table.keys, {_fold(column.name): column for column in table.columns})


def keeps_keys(table: Table, keys: Sequence[Key], actions: Sequence[Action], dialect: Dialect) -> bool:
    """Whether actions that only drop and add keys leave the table's keys and their order unchanged.

    A statement may drop keys and add the same keys again: `DROP KEY k, ADD KEY k (a)`. Usually this leaves the order
    unchanged. But MariaDB sorts the keys again if the statement drops the unique key that identifies rows, or a key for
    which MariaDB stores hashes.
    """
    if {_all_of(key) for key in keys} != {_all_of(key) for key in table.keys}:
        return False
    columns = {_fold(column.name): column for column in table.columns}
    dropped = [key for key in table.keys if _fold(key.name) in _dropped(actions)]
    return not dialect.mariadb or not any(
        _is_too_long(key, columns) or (key is table.keys[0] and not key.primary and _names_rows(key, table))
        for key in dropped
    )


def _dropped(actions: Sequence[Action]) -> set[str]:
    return {_fold(action.name) for action in actions if isinstance(action, DropKey | DropConstraint)}


def _names_rows(key: Key, table: Table) -> bool:
    """Whether the table's first key, `key`, identifies rows for MariaDB."""
    columns = {_fold(column.name): column for column in table.columns}
    if key.primary:
        return True
    there = [columns[_fold(name)] for name in key.columns if _fold(name) in columns]
    return key.unique and not _is_too_long(key, columns) and not any(column.nullable for column in there)


def _all_of(key: Key) -> tuple[object, ...]:
    return (
        key.name,
        key.columns,
        key.prefixes,
        key.primary,
        key.declared_unique,
        key.fulltext,
        key.descending,
        key.options,
    )


def _first_ends(table: Table, keys: Sequence[Key], columns: Mapping[str, Column], actions: Sequence[Action]) -> bool:
    """Whether the first key identified rows and no longer does; then MariaDB sorts the keys again.

    The first key no longer identifies rows in two cases: one of its columns may be NULL now, or the key was dropped
    together with its columns. In all other cases MariaDB keeps the order of the keys, even if a column's new definition
    would change this order, or if the first key itself is dropped. A key for which MariaDB stores hashes does not
    identify rows.
    """
    first = next(iter(table.keys), None)
    if first is None or not _names_rows(first, table):
        return False
    renamed = {_fold(rename.old): rename.new for rename in _of(RenameKey, actions)}
    now = _key(keys, renamed.get(_fold(first.name), first.name))
    if now is None:
        return _fold(first.name) not in _dropped(actions)
    return not now.primary and any(columns[_fold(name)].nullable for name in now.columns)


def in_order(keys: Sequence[Key], columns: Mapping[str, Column]) -> tuple[Key, ...]:
    """Returns the keys in the servers' order; `columns` are keyed by names in lower case.

    The order is:

    1. the primary key;
    2. unique keys without NULLs: keys over whole columns, then keys over prefixes;
    3. unique keys with NULLs, in the same order;
    4. unique keys that are too long (MariaDB);
    5. other keys;
    6. fulltext keys.

    Keys of equal rank keep their order. The server ranks the keys one by one: a primary key makes its columns NOT NULL
    only for the keys after it in `keys`.
    """
    without_null: set[str] = set()
    ranked: list[tuple[tuple[bool, ...], Key]] = []
    for key in keys:
        there = [columns[_fold(name)] for name in key.columns if _fold(name) in columns]
        if key.primary:
            without_null |= {_fold(column.name) for column in there}
        takes_null = any(column.nullable and _fold(column.name) not in without_null for column in there)
        if not key.declared_unique:
            rank = (True, False, False, False, key.fulltext)
        elif _is_too_long(key, columns):
            rank = (False, True, True, True, True)
        else:
            rank = (False, takes_null, not key.primary, any(key.prefixes), False)
        ranked.append((rank, key))
    return tuple(key for _, key in sorted(ranked, key=lambda one: one[0]))


def _is_too_long(key: Key, columns: Mapping[str, Column]) -> bool:
    """Whether a unique key is so long that MariaDB stores hashes of its values. Other servers refuse such a key."""
    if not key.declared_unique:
        return False
    sizes = [
        bytes_in_key(columns[name].type) if prefix is None else prefix * _width(columns[name].type)
        for name, prefix in _parts(key)
        if name in columns
    ]
    return None in sizes or sum(size for size in sizes if size is not None) > _MOST_BYTES


def _fold(name: str) -> str:
    return name.lower()


def _of(kind: type[_A], actions: Sequence[Action]) -> list[_A]:
    return [action for action in actions if isinstance(action, kind)]


def _key(keys: Sequence[Key], name: str) -> Key | None:
    return next((key for key in keys if _fold(key.name) == _fold(name)), None)


def _added(table: Table, actions: Sequence[Action]) -> list[AddKey]:
    """Returns the added keys, without the keys that IF NOT EXISTS skips.

    IF NOT EXISTS skips a key if a key added so far has the same name, or an old key, even a dropped one.
    """
    added: list[AddKey] = []
    for item in _of(AddKey, actions):
        names = [_expected_name(other) for other in added]
        if item.if_not_exists and (_key(table.keys, _expected_name(item)) or _expected_name(item) in names):
            continue
        added.append(item)
    return added


def _expected_name(item: AddKey) -> str:
    """Returns the key's name, or the name of its first column, which a key without a name would get."""
    return _fold(item.key.name or ("" if item.supports_foreign_key else item.key.columns[0]))


def _remaining(table: Table, kept: Mapping[str, KeptColumn], actions: Sequence[Action], dialect: Dialect) -> list[Key]:
    dropped = {_fold(item.name) for item in _of(DropConstraint, actions)}
    gone = {_fold(item.name) for item in _of(DropKey, actions)}
    renamed = {_fold(rename.old): rename.new for rename in _of(RenameKey, actions)}
    keys = []
    for key in table.keys:
        name = _fold(key.name)
        prefixes = key.prefixes or (None,) * len(key.columns)
        directions = key.descending or (False,) * len(key.columns)
        parts = [
            (found.after.name, _prefix_after(found, prefix, dialect), downwards)
            for column, prefix, downwards in zip(key.columns, prefixes, directions, strict=True)
            if (found := kept.get(_fold(column))) is not None
        ]
        if name in gone or (key.declared_unique and name in dropped) or not parts:
            continue
        keys.append(
            replace(
                key,
                name=renamed.get(name, key.name),
                columns=tuple(column for column, _, _ in parts),
                prefixes=tuple(prefix for _, prefix, _ in parts),
                descending=tuple(down for _, _, down in parts) if any(down for _, _, down in parts) else (),
                # After a rename, the server never drops the key by itself, even if it created the key for a foreign
                # key.
                for_foreign_key=key.for_foreign_key and name not in renamed,
            )
        )
    return keys


def _prefix_after(column: KeptColumn, prefix: int | None, dialect: Dialect) -> int | None:
    """Returns the length of a column's prefix in a key after the column is redefined; None: the whole column."""
    before, after = column.before.type, column.after.type
    if column.before == column.after:
        return prefix
    if before.kind in LABELED and not column.is_new and not dialect.mariadb:
        # MySQL treats ENUM and SET values as texts of their labels' length, so the key contains a prefix of the text.
        size = bytes_in_key(before) or 0
        if after.kind in _DIVISIBLE and size != shown_length(before) * _width(before):
            return size // _width(before) or None
    if column.is_new:
        # The server keeps the number of bytes in the key as a prefix, even if these bytes were the whole old column. If
        # the new type allows no prefix, only its full length is accepted; MySQL 5.6 also accepts one byte as the full
        # length of a few types.
        if after.kind not in _DIVISIBLE:
            return None
        return prefix or (bytes_in_key(before) or 0) // _width(before) or None
    if prefix is None or before.kind not in _DIVISIBLE or after.kind not in _DIVISIBLE:
        return None
    most = LOB_BYTES.get(after.kind, after.length)
    return None if most is not None and most < prefix else prefix


def _spelled(table: Table, columns: Mapping[str, Column], item: AddKey) -> Key:
    """Returns the key with its columns spelled as in their definitions."""
    for name in item.key.columns:
        if _fold(name) not in columns:
            raise does_not_fit(table, f"there is no column {name} for key {item.key.name}")
    names = tuple(columns[_fold(name)].name for name in item.key.columns)
    prefixes = item.prefixes or (None,) * len(names)
    return replace(item.key, columns=names, prefixes=prefixes, for_foreign_key=item.supports_foreign_key)


def _needed(keys: Sequence[Key], dialect: Dialect) -> list[Key]:
    """Returns the keys, without keys that were made for foreign keys and that another key now replaces.

    As on servers, each key is compared with the keys before it. Of two keys that were made for foreign keys, the longer
    key stays. Of two equal keys, the later key stays.
    """
    dropped: set[int] = set()
    for at, key in enumerate(keys):
        for before in range(at):
            if before in dropped or not _replaces(key, keys[before], dialect):
                continue
            other = keys[before]
            shorter = key.for_foreign_key and len(key.columns) < len(other.columns)
            dropped.add(at if not other.for_foreign_key or shorter else before)
            break
    return [key for at, key in enumerate(keys) if at not in dropped]


def _replaces(one: Key, other: Key, dialect: Dialect) -> bool:
    """Whether one key was made for a foreign key and is not needed, since the other key begins with its columns.

    On MariaDB and on MySQL before 8.0, the other key may be a fulltext key.
    """
    if not one.for_foreign_key and not other.for_foreign_key:
        return False
    if (one.fulltext or other.fulltext) and not dialect.mariadb and dialect.version >= (8, 0, 0):
        return False
    helper, wider = (one, other) if one.for_foreign_key else (other, one)
    if wider.for_foreign_key and len(helper.columns) > len(wider.columns):
        helper, wider = wider, helper
    return _parts(helper) == _parts(wider)[: len(helper.columns)]


def _parts(key: Key) -> list[tuple[str, int | None]]:
    prefixes = key.prefixes or (None,) * len(key.columns)
    return [(_fold(name), prefix) for name, prefix in zip(key.columns, prefixes, strict=True)]


def _named(key: Key, keys: Sequence[Key]) -> Key:
    """Returns the key with a name. A key without a name gets the name of its first column: `a`, `a_2`, `a_3`."""
    if key.name:
        return key
    name, number = key.columns[0], 2
    while _key(keys, name) is not None or _fold(name) == _fold(PRIMARY):
        name, number = f"{key.columns[0]}_{number}", number + 1
    return replace(key, name=name)


def _as_stored(key: Key, columns: Mapping[str, Column], dialect: Dialect) -> Key:
    """Returns the key with only those prefixes that are shorter than their columns, and with `unique` set.

    A unique key over prefixes does not count as `unique`, since it refuses some rows whose full column values differ. A
    primary key over prefixes counts as `unique`, since it identifies each row.
    """
    prefixes = tuple(_held_prefix(key, columns[name].type, prefix, dialect) for name, prefix in _parts(key))
    is_whole = not any(prefixes)
    is_hash = _is_too_long(replace(key, prefixes=prefixes), columns)
    return replace(
        key,
        descending=() if is_hash else key.descending,
        prefixes=() if is_whole else prefixes,
        unique=key.declared_unique and (is_whole or key.primary),
        unique_prefixes=key.declared_unique and not is_whole and not key.primary,
    )


def _held_prefix(key: Key, kind: ColumnType, prefix: int | None, dialect: Dialect) -> int | None:
    if key.fulltext or kind.kind not in _IN_PARTS:  # MySQL 5.6 accepts `int_column(1)`, which means the whole column
        return None
    is_open = kind.is_text and kind.charset is None
    if kind.kind in LOB_BYTES and dialect.mariadb and not key.declared_unique and not is_open:
        # MariaDB adds a missing prefix length, and shortens a prefix that a wider charset makes too long.
        most = min(LOB_BYTES[kind.kind], _MOST_BYTES // _width(kind))
        return most if prefix is None else min(prefix, most)
    size = bytes_in_key(kind)
    return None if prefix is None or (size is not None and prefix * _width(kind) >= size) else prefix


_MOST_BYTES = 3072
"""The largest number of bytes that one column may have in a key of an InnoDB table."""


def _width(kind: ColumnType) -> int:
    return bytes_per_character(kind.charset) if kind.charset else 1


def bytes_in_key(kind: ColumnType) -> int | None:
    """Returns the bytes that a whole column takes in a key; None if a key can only have a prefix of the column."""
    if kind.kind in _SIZED:
        return (kind.length or 0) * (bytes_per_character(kind.charset) if kind.charset else 1)
    if kind.kind in _TIMES:
        return _TIMES[kind.kind] + (kind.fsp + 1) // 2
    if kind.kind is Kind.DECIMAL:
        scale = kind.scale or 0
        return sum(digits // 9 * 4 + _DIGITS_BYTES[digits % 9] for digits in ((kind.precision or 10) - scale, scale))
    if kind.kind is Kind.BIT:
        return ((kind.length or 1) + 7) // 8
    if kind.kind is Kind.ENUM:
        return 1 if len(kind.labels) <= _MOST_LABELS_IN_BYTE else 2
    if kind.kind is Kind.SET:
        size = (len(kind.labels) + 7) // 8
        return size if size <= 4 else 8
    return _FIXED.get(kind.kind)
