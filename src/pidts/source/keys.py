"""Converts key values between a copy's chunks: Arrow to JSON for the checkpoint, JSON to SQL for the next chunk.

The server compares keys by the column's own collation and type. This module never compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pidts.model import Column, ColumnType, Halted, Kind, Table, Where, calendar
from pidts.model.types import LABELED
from pidts.source.structures import quoted
from pidts.text_rows.values import expression

_TIMES = frozenset({Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP})
_SECOND = 1_000_000
_NO_KEYS = frozenset({Kind.JSON, Kind.GEOMETRY, Kind.VECTOR})
_PLAIN_TEXT = {
    Kind.UUID: re.compile(r"[0-9a-fA-F-]{32,36}"),
    Kind.INET4: re.compile(r"[0-9.]{7,15}"),
    Kind.INET6: re.compile(r"[0-9a-fA-F:.]{2,45}"),
}


def last_key(rows: pa.Table, table: Table) -> list[Any] | None:
    """Returns the identity of the last row as JSON values; None if there is no row."""
    if not rows.num_rows:
        return None
    return [_to_json(rows.column(name)[-1], table.column(name).type) for name in table.identity]


def all_keys(rows: pa.Table, table: Table) -> Iterator[list[Any]]:
    """Yields the identity of each row as JSON values."""
    kinds = [table.column(name).type for name in table.identity]
    for values in zip(*(rows.column(name) for name in table.identity), strict=True):
        yield [_to_json(value, kind) for value, kind in zip(values, kinds, strict=True)]


def key_table(table: Table) -> Table:
    """Returns the table with only the columns of its identity, for reading the keys at which ranges end.

    ENUM and SET values are read as numbers, since servers compare them as numbers. Their text would be ambiguous: the
    invalid value of an ENUM, number 0, has the same text as an empty label.
    """
    number = ColumnType(Kind.BIT, length=64)
    columns = (table.column(name) for name in table.identity)
    asked = (replace(column, type=number) if column.type.kind in LABELED else column for column in columns)
    return replace(table, columns=tuple(asked))


def key_expression(column: Column) -> str:
    """Returns the expression to select for a column of `key_table`."""
    if column.type.kind in LABELED:
        return f"CAST({quoted(column.name)} AS UNSIGNED)"
    return expression(quoted(column.name), column.type)


def after(table: Table, key: Sequence[Any]) -> str:
    """Returns the condition for rows above a key, `a >= x AND (a > x OR (a = x AND b > y))`, which can use an index."""
    return _bounded(table, key, ">", "")


def upto(table: Table, key: Sequence[Any]) -> str:
    """Returns the condition for rows up to and including a key, in the same form as `after`."""
    return _bounded(table, key, "<", "=")


def same(table: Table, keys: Sequence[Sequence[Any]]) -> str:
    """Returns the condition for rows with one of these keys; empty if no row can have one of them."""
    columns = [table.column(name) for name in table.identity]
    names = [_compared(column) for column in columns]
    found = [
        [_literals(value, column, table) for value, column in zip(key, columns, strict=True)]
        for key in keys
        if all(_is_possible(value, column.type) for value, column in zip(key, columns, strict=True))
    ]
    if not found:
        return ""
    if len(names) == 1:
        return f"{names[0]} IN ({', '.join(values[0] for values in found)})"
    rows = (" AND ".join(f"{name} IN ({value})" for name, value in zip(names, values, strict=True)) for values in found)
    return " OR ".join(f"({row})" for row in rows)


def _bounded(table: Table, key: Sequence[Any], sign: str, last: str) -> str:
    columns = [table.column(name) for name in table.identity]
    names = [_compared(column) for column in columns]
    literals = [literal(value, column, table) for value, column in zip(key, columns, strict=True)]
    behind = f"{names[-1]} {sign}{last} {literals[-1]}"
    for name, value in zip(reversed(names[:-1]), reversed(literals[:-1]), strict=True):
        behind = f"{name} {sign} {value} OR ({name} = {value} AND ({behind}))"
    return behind if len(names) == 1 else f"{names[0]} {sign}= {literals[0]} AND ({behind})"


def _compared(column: Column) -> str:
    """Returns the expression by which keys are compared: for a SET, a cast to an unsigned number.

    Servers sort a SET as an unsigned number, but without the cast, they compare it as a signed number. The two orders
    differ for a SET with 64 labels.
    """
    return key_expression(column) if column.type.kind is Kind.SET else quoted(column.name)


def _literals(value: Any, column: Column, table: Table) -> str:
    """Returns SQL literals, separated by commas, for all values of the column whose text is `value`.

    An ENUM's empty label and its invalid value, number 0, have the same text.
    """
    number = literal(value, column, table)
    return f"0, {number}" if column.type.kind is Kind.ENUM and value == "" else number


def _is_possible(value: Any, kind: ColumnType) -> bool:
    """Whether the column can have this value. To a server, an unknown label equals the invalid value."""
    if value is None:
        return False
    if kind.kind is Kind.ENUM and isinstance(value, str):
        return value in kind.labels or not value
    if kind.kind is Kind.SET and isinstance(value, str):
        return not value or set(value.split(",")) <= set(kind.labels)
    return kind.kind not in _PLAIN_TEXT or bool(_PLAIN_TEXT[kind.kind].fullmatch(value))


def literal(value: Any, column: Column, table: Table) -> str:
    """Returns a JSON value as SQL of the column's type."""
    kind = column.type
    if kind.is_integer or kind.kind in {Kind.BIT, Kind.YEAR}:
        return str(int(value))
    if kind.kind is Kind.DECIMAL:
        return str(value)
    if kind.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return f"{float(value)!r}" if "e" in repr(float(value)) else f"{float(value)!r}e0"
    if kind.kind in _TIMES:
        return f"'{value}'"
    if kind.kind in LABELED and not isinstance(value, str):
        return str(int(value))
    if kind.kind is Kind.ENUM:
        # Servers sort rows by the labels' numbers, so keys are compared as numbers. If an empty text is not a label, it
        # is the invalid value, whose number is 0.
        return str(kind.labels.index(value) + 1 if value in kind.labels else 0)
    if kind.kind is Kind.SET:
        chosen = set(value.split(","))
        return str(sum(1 << number for number, label in enumerate(kind.labels) if label in chosen))
    if kind.kind in _PLAIN_TEXT and _PLAIN_TEXT[kind.kind].fullmatch(value):
        return f"'{value}'"
    if kind.kind in _NO_KEYS or kind.kind in _PLAIN_TEXT:
        what = f"rows cannot be read in chunks by column {column.name} of type {kind.kind}"
        raise Halted(
            "unsupported-key",
            what,
            where=Where(table=str(table.name)),
            todo="Give the table another primary key, or leave the table out",
        )
    if kind.is_bytes:
        return f"X'{value}'"
    # The column's collation takes precedence over the literal's. Hexadecimal digits need no escapes in any SQL mode.
    return f"_utf8mb4 X'{value.encode().hex()}'"


def _to_json(value: pa.Scalar, kind: ColumnType) -> Any:
    if kind.kind is Kind.DECIMAL:
        return format(value.as_py(), "f")
    if kind.kind is Kind.FLOAT or kind.kind is Kind.DOUBLE:
        number = float(value.as_py())
        return 0.0 if math.copysign(1.0, number) < 0 and number == 0 else number
    if kind.kind is Kind.DATE:
        return _date(value.cast(pa.int32()).as_py())
    if kind.kind in {Kind.DATETIME, Kind.TIMESTAMP}:
        day, time_us = calendar.split(value.cast(pa.int64()).as_py())
        return f"{_date(day)} {_clock(time_us)}"
    if kind.kind is Kind.TIME:
        amount = value.cast(pa.int64()).as_py()
        return f"{'-' if amount < 0 else ''}{_clock(abs(amount))}"
    return value.as_py().hex() if kind.is_bytes else value.as_py()


def _date(day: int) -> str:
    return "{:04}-{:02}-{:02}".format(*calendar.fields(day))


def _clock(amount: int) -> str:
    seconds, fraction = divmod(amount, _SECOND)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
