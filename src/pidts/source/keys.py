"""Key values between a copy's chunks: from Arrow to JSON for the checkpoint, and from JSON to SQL for the next chunk.

The server compares them, by the column's own collation and type; nothing of that is done again here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pidts.model import Column, ColumnType, Halted, Kind, Table, Where, calendar
from pidts.source.structures import quoted

_TIMES = frozenset({Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP})
_SECOND = 1_000_000
_NO_KEYS = frozenset({Kind.JSON, Kind.GEOMETRY, Kind.VECTOR, Kind.UUID, Kind.INET4, Kind.INET6})


def last_key(rows: pa.Table, table: Table) -> list[Any] | None:
    """The identity of the last row as JSON values; None where there is no row."""
    if not rows.num_rows:
        return None
    return [_to_json(rows.column(name)[-1], table.column(name).type) for name in table.identity]


def after(table: Table, key: Sequence[Any]) -> str:
    """`a >= x AND (a > x OR (a = x AND b > y))`: the rows behind a key, in a form that uses the key's index."""
    columns = [table.column(name) for name in table.identity]
    names = [quoted(column.name) for column in columns]
    literals = [literal(value, column, table) for value, column in zip(key, columns, strict=True)]
    behind = f"{names[-1]} > {literals[-1]}"
    for name, value in zip(reversed(names[:-1]), reversed(literals[:-1]), strict=True):
        behind = f"{name} > {value} OR ({name} = {value} AND ({behind}))"
    return behind if len(names) == 1 else f"{names[0]} >= {literals[0]} AND ({behind})"


def literal(value: Any, column: Column, table: Table) -> str:
    """A JSON value as SQL of the column's type."""
    kind = column.type
    if kind.is_integer or kind.kind in {Kind.BIT, Kind.YEAR}:
        return str(int(value))
    if kind.kind is Kind.DECIMAL:
        return str(value)
    if kind.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return f"{float(value)!r}" if "e" in repr(float(value)) else f"{float(value)!r}e0"
    if kind.kind in _TIMES:
        return f"'{value}'"
    if kind.kind is Kind.ENUM:
        # Rows come in the order of the labels' numbers, and only numbers compare like that. An empty text that is no
        # label is what an invalid value became; its number is 0.
        return str(kind.labels.index(value) + 1 if value in kind.labels else 0)
    if kind.kind is Kind.SET:
        chosen = set(value.split(","))
        return str(sum(1 << number for number, label in enumerate(kind.labels) if label in chosen))
    if kind.kind in _NO_KEYS:
        what = f"column {column.name} of type {kind.kind} cannot be paged by"
        raise Halted("unsupported-key", what, where=Where(table=str(table.name)))
    if kind.is_bytes:
        return f"X'{value}'"
    # The column's collation wins over a literal's; hexadecimal needs no escapes in any SQL mode.
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
