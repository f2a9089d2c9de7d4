"""The sum of a target's rows, computed by PostgreSQL as MySQL computes it; see `pidts.schema.row_digest`."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import Column, Kind, Table
from pidts.target.postgres.dialect import identifier, literal, qualified
from pidts.target.postgres.session import PostgresSession
from pidts.target.postgres.shape import PgColumn, PgTable, read_shape
from pidts.target.postgres.statements import found_column

_DIGITS, _BITS = 15, 60
_FRACTIONS = 6
_NO_TEXT = frozenset({Kind.FLOAT, Kind.DOUBLE, Kind.GEOMETRY, Kind.VECTOR})
"""PostgreSQL writes floating point numbers in another way."""


def row_sum(
    session: PostgresSession, table: Table, behind: Sequence[object] | None, highest: Sequence[object] | None
) -> tuple[int, int] | None:
    """Number and sum of the rows behind one key and not behind another; None where a column has no common text."""
    shape = read_shape(lambda sql, values: session.exchange.now(sql, values).rows, table.name)
    if shape is None or any(column.type.kind in _NO_TEXT for column in table.columns):
        return None
    values = [_value(column, found_column(shape, column.name)) for column in table.columns]
    row = " || '|' || ".join(values)
    number = f"('x' || left({_hash(row)}, {_DIGITS}))::bit({_BITS})::bigint"
    bounds = [] if behind is None else [_bounded(table, shape, behind, ">")]
    bounds += [] if highest is None else [_bounded(table, shape, highest, "<=")]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    sql = f"SELECT count(*), coalesce(sum({number}), 0) FROM {qualified(table.name)}{where}"
    rows, total = session.exchange.now(sql).rows[0]
    return int(rows), int(total)


def _value(column: Column, found: PgColumn) -> str:
    name = identifier(column.name)
    return f"CASE WHEN {name} IS NULL THEN '-' ELSE {_text(column, found, name)} END"


def _text(column: Column, found: PgColumn, name: str) -> str:
    kind = column.type
    if kind.is_integer or kind.kind in {Kind.YEAR, Kind.DECIMAL}:
        return f"{name}::integer::text" if found.base == "boolean" else f"{name}::text"
    match kind.kind:
        case Kind.BIT:
            return f"{name}::integer::text" if found.base == "boolean" else f"{name}::bigint::text"
        case Kind.DATE:
            return f"to_char({name}, 'YYYY-MM-DD')"
        case Kind.DATETIME | Kind.TIMESTAMP:
            return f"to_char({name}, 'YYYY-MM-DD HH24:MI:SS')" + _fraction(name, kind.fsp)
        case Kind.TIME:
            return _clock(name, kind.fsp)
        case Kind.SET if found.type == "text[]":
            return _hash(f"array_to_string({name}, ',')")
        case Kind.INET4 | Kind.INET6 if found.base == "inet":
            return _hash(f"host({name})")
        case _ if found.base == "bytea":
            return f"encode(sha256({name}), 'hex')"
        case _:
            return _hash(f"{name}::text")


def _hash(text: str) -> str:
    return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


def _fraction(name: str, digits: int) -> str:
    return f" || '.' || left(to_char({name}, 'US'), {min(digits, _FRACTIONS)})" if digits else ""


def _clock(name: str, digits: int) -> str:
    """`-838:59:59.000000`."""
    micros = f"abs(extract(epoch from {name}) * 1000000)::bigint"
    hours = f"({micros} / 3600000000)::text"
    parts = (
        f"CASE WHEN {name} < interval '0' THEN '-' ELSE '' END",
        f"lpad({hours}, greatest(2, length({hours})), '0')",
        "':'",
        f"lpad(({micros} / 60000000 % 60)::text, 2, '0')",
        "':'",
        f"lpad(({micros} / 1000000 % 60)::text, 2, '0')",
    )
    fraction = f" || '.' || left(lpad(({micros} % 1000000)::text, 6, '0'), {digits})" if digits else ""
    return f"({' || '.join(parts)}{fraction})"


def _bounded(table: Table, shape: PgTable, key: Sequence[object], sign: str) -> str:
    names = ", ".join(map(identifier, table.identity))
    values = ", ".join(
        f"{literal(_constant(value))}::{found_column(shape, name).base}"
        for name, value in zip(table.identity, key, strict=True)
    )
    return f"({names}) {sign} ({values})"


def _constant(value: object) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
