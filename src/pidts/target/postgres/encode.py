"""Arrow columns to what COPY reads, for the type that the target's column really has."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from pidts.model import Column, Halted, Kind, Table, Where
from pidts.target.postgres.dialect import identifier
from pidts.target.postgres.shape import PgColumn
from pidts.target.text import combined, duration_text, hex_text, unreal, vector_text

_DATED = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
_CSV = pa_csv.WriteOptions(include_header=False, quoting_style="needed")

UnrealDates = Callable[[Table, str, int], None]
"""Is told how many zero or partial dates of a column became NULL."""


def stage_type(column: Column, target: PgColumn) -> str:
    """The type of the staging table's column: the target's own, unless its text form is not what COPY can be given."""
    if column.type.kind is Kind.BIT and target.type.startswith("bit"):
        return "bigint"
    if column.type.kind is Kind.SET and target.type == "text[]":
        return "text"
    return target.type


def stage_value(column: Column, target: PgColumn) -> str:
    """From the staging table's column `s.c` to the target's value."""
    name = f"s.{identifier(column.name)}"
    if column.type.kind is Kind.BIT and target.type.startswith("bit"):
        return f"{name}::bit({column.type.length or 1})"
    if column.type.kind is Kind.SET and target.type == "text[]":
        return f"string_to_array({name}, ',')"
    return name


def encode(
    column: Column, values: pa.ChunkedArray | pa.Array, target: PgColumn, table: Table, on_unreal: UnrealDates
) -> pa.Array:
    """Strings are quoted by the CSV writer and NULL is not, so that '' stays ''."""
    data = combined(values)
    kind = column.type.kind
    if kind is Kind.BIT and target.type.startswith("bit"):
        return data.view(pa.int64())
    if kind is Kind.TIME:
        return duration_text(data)
    if kind in _DATED:
        return _without_unreal(column, data, table, on_unreal)
    if kind is Kind.VECTOR and target.type != "bytea":
        return vector_text(data, "{", "}") if target.type.endswith("[]") else vector_text(data, "[", "]")
    if column.type.is_bytes:
        return hex_text(data, "\\x")
    return data


def _without_unreal(column: Column, data: pa.Array, table: Table, on_unreal: UnrealDates) -> pa.Array:
    mask = unreal(data)
    if mask is None:
        return data
    if column.name in table.identity:
        raise Halted(
            "zero-date-in-key",
            f"column {column.name} holds a zero or partial date, and rows are found by it; PostgreSQL has none",
            where=Where(table=str(table.name)),
            todo="Change the value on the source, or leave the table out",
        )
    on_unreal(table, column.name, pc.sum(mask).as_py())
    return pc.if_else(mask, pa.scalar(None, data.type), data)


def to_csv(columns: list[pa.Array], names: list[str]) -> pa.Buffer:
    """One COPY's worth."""
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(pa.table(columns, names=names), sink, _CSV)
    return sink.getvalue()


def nul_in_text(table: Table, rows: pa.Table) -> Halted | None:
    """The row and column that make PostgreSQL refuse a batch with "invalid byte sequence: 0x00"."""
    for name in rows.column_names:
        column = table.column(name)
        values = combined(rows[name])
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            continue
        pattern = "\\u0000" if column.type.kind is Kind.JSON else "\0"
        hits = pc.indices_nonzero(pc.fill_null(pc.match_substring(values, pattern), pa.scalar(value=False)))
        if len(hits):
            row = hits[0].as_py()
            key = ", ".join(f"{key}={rows[key][row].as_py()!r}" for key in table.identity if key in rows.column_names)
            return Halted(
                "nul-in-text",
                f"column {name} holds NUL, which PostgreSQL cannot have in text ({len(hits)} rows of this batch)",
                where=Where(table=str(table.name), key=key),
                todo="Take the NUL out on the source, or make the column binary",
            )
    return None
