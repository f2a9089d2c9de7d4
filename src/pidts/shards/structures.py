"""Compares the structures of shards, and joins them to one structure that can store the rows of all shards.

Two structures are one *version* if the same statements may have made them. Differences between the notations of MySQL
and MariaDB do not count: the width of integers, each product's default collation, parentheses after CURRENT_TIMESTAMP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pidts.model import Column, ColumnType, Key, Kind, Table
from pidts.model.types import BLOBS, INTEGERS, TEXTS, WITH_FSP

_SIZED = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.VARBINARY, Kind.BIT})
"""Types whose values a longer column stores unchanged. BINARY is not among them: it pads a value with zeros."""
_CONSTANT = re.compile(
    r"""[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|0x[0-9a-f]+|0b[01]+|null|true|false
    |([bxn]|_\w+\s*)?'([^'\\]|''|\\.)*'|"([^"\\]|""|\\.)*\"""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)(\(\s*\))?", re.IGNORECASE)


def shared_object(table: Table) -> Table:
    """Returns the same object for all structures of shards that are the same in every field.

    Comparing an object with itself takes no time. Tables that are only equal by `==` are not shared: they may have
    different expressions and key prefixes, which decide how a later statement changes the target's table.
    """
    return _shared(table, repr(table))


@lru_cache(maxsize=64)
def _shared(table: Table, every_field: str) -> Table:  # noqa: ARG001 - a key
    return table


def for_each_structure(question: Callable[[Table], bool]) -> Callable[[Table], bool]:
    """Returns `question` with a cache of its answers: a thousand shards may share one structure."""
    found: dict[int, tuple[Table, bool]] = {}

    def answer(table: Table) -> bool:
        known = found.get(id(table))
        if known is None:
            known = found[id(table)] = table, question(table)
        return known[1]

    return answer


def same_version(one: Table, other: Table) -> bool:
    """Whether both structures are one version of a table. The tables' names do not count."""
    return one is other or _same_version(one, other)


def same_but_order(one: Table, other: Table) -> bool:
    """Whether both structures are one version of a table, apart from the order of columns."""
    return same_whole(one, other) and _charset(one) == _charset(other)


def same_whole(one: Table, other: Table) -> bool:
    """Whether both structures have the same columns and keys, apart from the order of columns."""
    return (set(map(_column, one.columns)), _keys(one)) == (set(map(_column, other.columns)), _keys(other))


def names_of(*tables: Table) -> frozenset[str]:
    """Returns the names of all columns of these tables."""
    if len(tables) == 1:
        return _names(tables[0])
    each = {id(table): table for table in tables}  # a thousand shards may share one object
    return frozenset[str]().union(*map(_names, each.values()))


def key_has(key: Key, names: Collection[str]) -> bool:
    """Whether the key contains one of these columns."""
    return any(column.lower() in names for column in key.columns)


def without(names: Collection[str], table: Table) -> Table:
    """Returns the table without these columns; its keys stay."""
    return replace(table, columns=tuple(column for column in table.columns if column.name.lower() not in names))


def without_kept_columns(table: Table, gone: Collection[str], like: Table) -> Table:
    """Returns the table without columns that were kept for other shards.

    A key over such a column is replaced by the key of the same name in `like`, which does not have the columns.
    """
    if not gone:
        return table
    theirs = {key.name.lower(): key for key in like.keys}
    keys = (theirs.get(key.name.lower()) if key_has(key, gone) else key for key in table.keys)
    return replace(without(gone, table), keys=tuple(key for key in keys if key is not None))


def with_kept(goal: Table, kept: Collection[Column], agreed: Table) -> Table:
    """Returns the goal with the columns that are kept, and with the unchanged keys over these columns."""
    names = {column.name.lower() for column in kept}
    keys = {key.name.lower(): key for key in agreed.keys if names & {name.lower() for name in key.columns}}
    changed = tuple(keys.pop(key.name.lower(), key) for key in goal.keys)
    return replace(goal, columns=(*goal.columns, *kept), keys=(*changed, *keys.values()))


def widened_like(table: Table, like: Table) -> Table:
    """Returns the table with the columns of `like` in place of its own columns of the same names."""
    theirs = {column.name.lower(): column for column in like.columns}
    pairs = ((column, theirs.get(column.name.lower(), column)) for column in table.columns)
    return replace(table, columns=tuple(one if _column(one) == _column(other) else other for one, other in pairs))


def indexed_like(table: Table, like: Table) -> tuple[Key, ...]:
    """Returns the primary key of `table`, and all other keys of `like`."""
    theirs = {_key(key): key for key in like.keys if not key.primary}
    mine = {_key(key): key for key in table.keys if key.primary or _key(key) in theirs}
    return (*mine.values(), *(key for said, key in theirs.items() if said not in mine))


def unchanged(before: Table, after: Table) -> frozenset[str]:
    """Returns the columns that are the same in both structures."""
    had = {column.name.lower(): _column(column) for column in before.columns}
    return frozenset(name for column in after.columns if had.get(name := column.name.lower()) == _column(column))


def differing(one: Table, other: Table) -> list[str]:
    """Returns, for messages, the names of the columns and keys that make the structures two versions."""
    mine, theirs = ({column.name.lower(): _column(column) for column in table.columns} for table in (one, other))
    names = [f"column {name}" for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    if not names and list(mine) != list(theirs):
        names.append("the order of columns")
    names += [f"key {name}" for name in sorted({str(key[0]) for key in _keys(one) ^ _keys(other)})]
    if _charset(one) != _charset(other):
        names.append("the default character set")
    return names


def clashing(before: Table, after: Table, into: Table) -> list[str]:
    """Returns the columns that a change makes different from the structure of the other shards, `into`."""
    had, there = ({column.name.lower(): column for column in table.columns} for table in (before, into))
    found = []
    for column in after.columns:
        name = column.name.lower()
        if name not in there or (name in had and _column(had[name]) == _column(there[name])):
            continue
        wider = _wider(column.type, there[name].type)
        if wider is None or _plain(wider) != _plain(there[name].type) or (column.nullable and not there[name].nullable):
            found.append(column.name)
    return found


def fits(table: Table, into: Table) -> bool:
    """Whether rows of `table` can be written to a table with the structure `into`."""
    return not misfitting(table, into)


def misfitting(
    table: Table, into: Table, takes: Callable[[ColumnType, ColumnType], bool] = lambda _there, _here: False
) -> list[str]:
    """Returns the reasons why rows of `table` cannot be written to a table with the structure `into`.

    A type accepts all values of a smaller type in its family. `takes` may accept further pairs of types.
    """
    there = {column.name.lower(): column for column in into.columns}
    found: list[str] = []
    for column in table.columns:
        other = there.pop(column.name.lower(), None)
        if other is None:
            found.append(f"column {column.name} is missing")
            continue
        wider = _wider(other.type, column.type)
        is_wider = wider is not None and _plain(wider) == _plain(other.type)
        if not is_wider and not takes(other.type, column.type):
            found.append(f"column {column.name} cannot hold all values")
        elif column.nullable and not other.nullable:
            found.append(f"column {column.name} does not allow NULL")
    if _identity(table) != _identity(into):
        found.append("rows have another key")
    return found + [f"column {one.name} needs a value" for one in there.values() if not is_fillable(one)]


def revalued(before: Table, after: Table, origins: Mapping[str, str | None], *, strict: bool) -> frozenset[str]:
    """Returns the columns whose existing values a change may alter, because they get fewer digits or do not fit.

    A server in strict mode refuses values that do not fit, but still cuts off trailing spaces of a text.
    """
    had = {column.name.lower(): column for column in before.columns}
    named = ((had.get(origins.get(now.name.lower(), now.name.lower()) or ""), now) for now in after.columns)
    return frozenset(now.name.lower() for was, now in named if was is not None and _revalues(was, now, strict=strict))


def _revalues(was: Column, now: Column, *, strict: bool) -> bool:
    if now.type.fsp < was.type.fsp or (now.type.scale or 0) < (was.type.scale or 0):
        return True
    if _wider(now.type, was.type) != now.type and (not strict or (was.type.is_text and not was.type.labels)):
        return True
    return not strict and was.nullable and not now.nullable


def taking_alike(one: Table, other: Table) -> frozenset[str]:
    """Returns the columns that accept the same values in both structures."""
    mine, theirs = (
        {column.name.lower(): (_plain(column.type), column.nullable) for column in table.columns}
        for table in (one, other)
    )
    return frozenset(name for name in mine if mine[name] == theirs.get(name))


def is_fillable(column: Column) -> bool:
    """Whether rows that lack the column get a known value in it."""
    return column.nullable or column.generated or is_constant(column.default)


def is_constant(default: str | None) -> bool:
    """Whether a default is a constant, whose value does not depend on the time. False if there is no default (None)."""
    return default is not None and _CONSTANT.fullmatch(default.strip()) is not None


def fills_alike(one: Column, other: Column, *, constant: bool) -> bool:
    """Whether existing rows get the same value in both columns.

    `constant`: equal defaults count as equal values only if they are constant: CURRENT_TIMESTAMP is not.
    """
    if _known(one.default) is None and _known(other.default) is None:
        return one.nullable == other.nullable
    return _known(one.default) == _known(other.default) and (is_constant(one.default) or not constant)


def refilled(before: Table, after: Table, origins: Mapping[str, str | None]) -> frozenset[str]:
    """Returns the columns whose new default differs from the value that existing rows got when they were added."""
    there = {column.name.lower(): column for column in before.columns}
    named = (
        (column, there.get(origins.get(column.name.lower(), column.name.lower()) or "")) for column in after.columns
    )
    return frozenset(
        column.name.lower() for column, was in named if was is not None and not fills_alike(was, column, constant=False)
    )


def joined(tables: Iterable[Table], like: Table | None = None) -> Table | None:
    """Returns a structure that can store the rows of every table; None if there is none.

    Columns are in the order of `like`, followed by other columns in the order of the tables. If some table allows NULL
    in a column, or lacks a column without a constant default, the result allows NULL in it. A unique key applies to all
    rows, so it is left out unless all tables have it. If the tables have different defaults, the default in `like` is
    used.
    """
    tables = list(tables)
    liked = {column.name.lower(): column for column in like.columns} if like is not None else {}
    if not tables or len({_identity(table) for table in tables}) > 1:
        return None
    columns: dict[str, Column] = {}
    for table in tables:
        for column in table.columns:
            name = column.name.lower()
            before = columns.get(name)
            merged = column if before is None else _both(before, column, liked.get(name, before))
            if merged is None:
                return None
            columns[name] = merged
    own = [{column.name.lower() for column in table.columns} for table in tables]
    for name, column in columns.items():
        if not is_fillable(column) and not all(name in names for names in own):
            columns[name] = replace(column, nullable=True)
    names = [name for name in liked if name in columns] + [name for name in columns if name not in liked]
    first = like or tables[0]
    return replace(first, columns=tuple(columns[name] for name in names), keys=_common_keys(tables, first.keys))


def _both(one: Column, other: Column, like: Column) -> Column | None:
    wider = _wider(one.type, other.type)
    if wider is None or one.generated != other.generated:
        return None
    default = one.default if _known(one.default) == _known(other.default) else like.default
    return replace(one, type=wider, nullable=one.nullable or other.nullable, default=default)


def _common_keys(tables: Sequence[Table], order: Sequence[Key]) -> tuple[Key, ...]:
    own = [{_key(key): key for key in table.keys} for table in tables]
    names: dict[tuple[object, ...], Key] = {}
    for keys in own:
        for said, key in keys.items():
            if not key.unique or all(said in others for others in own):
                names.setdefault(said, key)
    first = [said for said in map(_key, order) if said in names]
    return tuple(names[said] for said in dict.fromkeys([*first, *names]))


def _wider(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Returns the one of two types that can store all values of the other; None for different families."""
    mine, theirs = _plain(one), _plain(other)
    if mine == theirs:
        return one
    for family in (INTEGERS, TEXTS, BLOBS):
        if one.kind in family and other.kind in family:
            if _apart(mine, theirs):
                return None
            return max(one, other, key=lambda kind: family.index(kind.kind))
    if one.kind is not other.kind or _apart(mine, theirs):
        return None
    return _larger(one, other)


def _larger(one: ColumnType, other: ColumnType) -> ColumnType | None:
    kind = one.kind
    if kind in _SIZED:
        return max(one, other, key=lambda type_: type_.length or 1)
    if kind in WITH_FSP:
        return max(one, other, key=lambda type_: type_.fsp)
    if kind is Kind.DECIMAL:
        scale = max(one.scale or 0, other.scale or 0)
        digits = max((type_.precision or 10) - (type_.scale or 0) for type_ in (one, other))
        return replace(one, precision=digits + scale, scale=scale)
    if kind in {Kind.ENUM, Kind.SET}:
        shorter, longer = sorted((one, other), key=lambda type_: len(type_.labels))
        return longer if longer.labels[: len(shorter.labels)] == shorter.labels else None
    return None


def _apart(one: ColumnType, other: ColumnType) -> bool:
    return (one.unsigned, one.charset, one.collation) != (other.unsigned, other.charset, other.collation)


# A group of a thousand shards has few structures, and compares them a million times.
@lru_cache(maxsize=4096)
def _same_version(one: Table, other: Table) -> bool:
    return _version(one) == _version(other)


@lru_cache(maxsize=64)
def _version(table: Table) -> tuple[object, ...]:
    return tuple(map(_column, table.columns)), _keys(table), _charset(table)


@lru_cache(maxsize=64)
def _names(table: Table) -> frozenset[str]:
    return frozenset(column.name.lower() for column in table.columns)


def _column(column: Column) -> tuple[object, ...]:
    plain, default = _plain(column.type), _known(column.default)
    return column.name.lower(), plain, column.nullable, default, column.auto_increment, column.generated


def _known(text: str | None) -> str | None:
    """Returns a default in one form for both products: only one of them quotes numbers. None: no default, or NULL."""
    if text is None or text.upper() == "NULL":
        return None
    text = _NOW.sub("current_timestamp", text) if _NOW.match(text) else text
    return text[1:-1] if re.fullmatch(r"'[-+.\d]+'", text) else text


def _keys(table: Table) -> frozenset[tuple[object, ...]]:
    return frozenset(map(_key, table.keys))


def _key(key: Key) -> tuple[object, ...]:
    name = "" if key.primary else key.name.lower()
    return name or "primary", key.primary, key.unique, tuple(column.lower() for column in key.columns)


def _identity(table: Table) -> tuple[str, ...]:
    return tuple(column.lower() for column in table.identity)


def _plain(kind: ColumnType) -> ColumnType:
    if kind.kind in INTEGERS:
        return replace(kind, length=1 if kind.kind is Kind.TINYINT and kind.length == 1 else None)
    if kind.kind is Kind.JSON:
        return ColumnType(Kind.JSON)
    if kind.charset is not None:
        kind = replace(kind, charset=_named(kind.charset), collation=order_of(kind.collation))
    return replace(kind, precision=kind.precision or 10, scale=kind.scale or 0) if kind.kind is Kind.DECIMAL else kind


def _charset(table: Table) -> tuple[str, str]:
    return (_named(table.charset), order_of(table.collation)) if table.charset else ("", "")


def _named(charset: str) -> str:
    return "utf8mb3" if charset.lower() == "utf8" else charset.lower()


_ORDERS: Mapping[str, str] = {"bin": "bin", "binary": "bin", "cs": "cs", "ks": "cs"}


def order_of(collation: str | None) -> str:
    """Returns how a collation compares letters, by its name. Each product has another default collation."""
    name = (collation or "").lower()
    return "as" if name.endswith("_as_ci") else _ORDERS.get(name.rpartition("_")[2], "ci")
