"""Chooses how the values of a column are sent, by the type that the target's column really has.

Values are sent in binary form if the two types agree. Integers go into any integer column, bytes into `bytea`.
Floating-point numbers, dates and times go only into columns of their own type. All other values are sent as text, which
the server reads like a literal of the column's type. No value is ever cut off: casts are to types without a length, and
the server checks the length when it stores the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind, Table, Where, calendar
from pidts.model.advice import RESYNC
from pidts.model.column_text import duration_text
from pidts.model.errors import plain_value, plural
from pidts.model.types import DATED
from pidts.target.postgres.encode.arrays import Element, Parameter, buffer_numbers, parameter
from pidts.target.postgres.encode.geometry import ewkb_text
from pidts.target.postgres.shape import PgColumn
from pidts.target.text import combined, hex_text, unreal, vector_text

_INTEGERS = {
    pa.int8(): Element.INT2,
    pa.uint8(): Element.INT2,
    pa.int16(): Element.INT2,
    pa.uint16(): Element.INT4,
    pa.int32(): Element.INT4,
    pa.uint32(): Element.INT8,
    pa.int64(): Element.INT8,
}
_INTEGER_TARGETS = frozenset({"smallint", "integer", "bigint"})
_SAME = {
    Kind.FLOAT: Element.FLOAT4,
    Kind.DOUBLE: Element.FLOAT8,
    Kind.DATE: Element.DATE,
    Kind.DATETIME: Element.TIMESTAMP,
    Kind.TIMESTAMP: Element.TIMESTAMPTZ,
    Kind.TIME: Element.INTERVAL,
}

UnrealDates = Callable[[Table, str, int], None]
"""A function that gets the number of a column's zero or partial dates that became NULL."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which one column's values are sent."""

    column: Column
    target: PgColumn
    element: Element

    def value(self, name: str) -> str:
        """Returns SQL that converts the array element `name` to a value of the target's column."""
        base = self.target.base
        if self.column.type.kind is Kind.BIT and self.target.type.startswith("bit"):
            return f"{name}::bigint::bit({self.column.type.length or 1})"
        if self.column.type.kind is Kind.SET and base == "text[]":
            return f"string_to_array({name}, ',')"
        return name if base == self.element.sql else f"{name}::{base}"

    def parameter(self, values: pa.ChunkedArray | pa.Array, table: Table, on_unreal: UnrealDates) -> Parameter:
        """Returns a column of some rows as an array parameter."""
        data = self.real(values, table, on_unreal)
        return parameter(
            data if self.element is not Element.TEXT else text(self.column, self.target, data), self.element
        )

    def real(self, values: pa.ChunkedArray | pa.Array, table: Table, on_unreal: UnrealDates) -> pa.Array:
        """Returns the values with NULL in place of zero and partial dates."""
        data = combined(values)
        return _without_unreal(self.column, data, table, on_unreal) if self.column.type.kind in DATED else data


def form(column: Column, target: PgColumn) -> Form:
    """Returns the form of a column: binary if its type is the same on source and target."""
    return Form(column, target, _element(column, target.base))


def _element(column: Column, base: str) -> Element:
    kind = column.type.kind
    if kind in _SAME:
        same = _SAME[kind]
        return same if same.sql == base else Element.TEXT
    if base in _INTEGER_TARGETS:
        return _INTEGERS.get(column.type.arrow, Element.TEXT)
    return Element.BYTEA if base == "bytea" and column.type.is_bytes else Element.TEXT


def text(column: Column, target: PgColumn, data: pa.Array) -> pa.Array:
    """Returns the values as the text of literals of the target's type."""
    kind = column.type.kind
    if kind is Kind.TIME:
        return duration_text(data)
    if kind is Kind.VECTOR and target.type != "bytea":
        return vector_text(data, "{", "}") if target.type.endswith("[]") else vector_text(data, "[", "]")
    if kind is Kind.GEOMETRY and target.is_geometry:
        return ewkb_text(column.name, data)
    if column.type.is_bytes:
        return hex_text(data, "\\x")
    if kind is Kind.BIT and target.type.startswith("bit"):
        data = data.view(pa.int64())
    return data if pa.types.is_string(data.type) or pa.types.is_large_string(data.type) else data.cast(pa.string())


def zero_date_in_key(table: Table, column: str) -> Halted:
    """Returns the error for a key with a zero or partial date."""
    return Halted(
        "zero-date-in-key",
        f"column {column} is part of the key and holds a zero or partial date, which PostgreSQL cannot store",
        where=Where(table=str(table.name)),
        todo=f"Correct the value on the source, then copy the table again: {RESYNC}; or leave the table out",
    )


def _without_unreal(column: Column, data: pa.Array, table: Table, on_unreal: UnrealDates) -> pa.Array:
    first = calendar.FIRST_REAL_DAY if column.type.kind is Kind.DATE else calendar.FIRST_REAL_MICROSECOND
    if not len(data) or buffer_numbers(data).min() >= first:
        return data
    mask = unreal(data)
    if mask is None:
        return data
    if column.name in table.identity:
        raise zero_date_in_key(table, column.name)
    on_unreal(table, column.name, pc.sum(mask).as_py())
    return pc.if_else(mask, pa.scalar(None, data.type), data)


def nul_in_text(table: Table, rows: pa.Table) -> Halted | None:
    """Returns an error that names the row and column of a NUL character; None if no value contains NUL."""
    for name in rows.column_names:
        column = table.column(name)
        values = combined(rows[name])
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            continue
        pattern = "\\u0000" if column.type.kind is Kind.JSON else "\0"
        hits = pc.indices_nonzero(pc.fill_null(pc.match_substring(values, pattern), pa.scalar(value=False)))
        if len(hits):
            key = shown_key(table, rows, hits[0].as_py())
            rows_of_batch = f"{plural('row', len(hits))} of this batch"
            return Halted(
                "nul-in-text",
                f"column {name} contains NUL, which PostgreSQL cannot store in text ({rows_of_batch})",
                where=Where(table=str(table.name), key=key),
                todo=f"Remove NUL on the source, or make the column binary. The log still contains the old row, so "
                f"the task can get past this row only if the whole table is copied again: {RESYNC}. Or leave the table "
                "out (ignore-tables)",
            )
    return None


def shown_key(table: Table, rows: pa.Table, place: int) -> str:
    """Returns the key of one of the rows, for a message."""
    return ", ".join(
        f"{key}={plain_value(rows[key][place].as_py())}" for key in table.identity if key in rows.column_names
    )
