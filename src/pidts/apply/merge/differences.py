"""Describes the differences between the structures of two tables with one target table, for messages.

The SQL text is not enough: `ADD j JSON` is the same text on MySQL and MariaDB, but MariaDB's JSON is a long text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pidts.model import Column, ColumnType, Key, Kind, Table
from pidts.schema import type_text
from pidts.shards.structures import differing

_NOTHING = "nothing"


def differences_text(here: Table, there: Table, names: Iterable[str] | None = None) -> str:
    """Returns each of `names` with its definitions in both tables; without `names`, everything that differs."""
    return ", ".join(_words(name, here, there) for name in (differing(here, there) if names is None else names))


def _words(name: str, here: Table, there: Table) -> str:
    what, _, bare = name.partition(" ")
    if what == "key":
        one, other = (_key(table, bare) for table in (here, there))
    elif what == "column":
        one, other = _of_columns(_column(here, bare), _column(there, bare))
    else:
        one, other = (_charset(table) if "character" in name else "" for table in (here, there))
    return name if one == other else f"{name} ({one} here, {other} there)"


def _of_columns(one: Column | None, other: Column | None) -> tuple[str, str]:
    """Returns a text for each of the two columns, with only the parts in which they differ."""
    if one is None or other is None:
        return _whole(one), _whole(other)
    pairs = [pair for pair in zip(_attributes(one), _attributes(other), strict=True) if pair[0] != pair[1]]
    here, there = (" ".join(said) for said in zip(*pairs, strict=True)) if pairs else ("", "")
    return here, there


def _whole(column: Column | None) -> str:
    return _type(column.type) if column is not None else _NOTHING


def _type(kind: ColumnType) -> str:
    """Returns the type without the width of integers: only some servers report it, and it changes no value."""
    is_wide = kind.is_integer and not (kind.kind is Kind.TINYINT and kind.length == 1)
    return type_text(replace(kind, length=None) if is_wide else kind)


def _attributes(column: Column) -> tuple[str, ...]:
    return (
        _type(column.type),
        "NULL" if column.nullable else "NOT NULL",
        f"DEFAULT {column.default}" if column.default is not None else "without a default",
        "AUTO_INCREMENT" if column.auto_increment else "without AUTO_INCREMENT",
        "generated" if column.generated else "not generated",
    )


def _column(table: Table, name: str) -> Column | None:
    return next((column for column in table.columns if column.name.lower() == name.lower()), None)


def _charset(table: Table) -> str:
    return " ".join(filter(None, (table.charset, table.collation))) or _NOTHING


def _key(table: Table, name: str) -> str:
    called = ((("primary" if key.primary else key.name.lower()), key) for key in table.keys)
    return next((_columns(key) for known, key in called if known == name), _NOTHING)


def _columns(key: Key) -> str:
    return f"{'unique ' if key.unique and not key.primary else ''}({', '.join(key.columns)})"
