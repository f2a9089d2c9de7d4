"""Computes a checksum of a target's rows in PostgreSQL as MySQL computes it; see `pidts.schema.row_digest`."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import Column, Kind, Table
from pidts.target.postgres.dialect import identifier, literal, qualified
from pidts.target.postgres.reader import inet_text, set_text
from pidts.target.postgres.session import PostgresSession
from pidts.target.postgres.shape import PgColumn, PgTable
from pidts.target.postgres.statements import found_column

_DIGITS, _BITS = 15, 60
_FRACTIONS = 6
_SECONDS = len("2024-02-29 12:34:56.")
_NO_TEXT = frozenset({Kind.FLOAT, Kind.DOUBLE, Kind.GEOMETRY, Kind.VECTOR})
"""Types that PostgreSQL does not print as MySQL does: floating point numbers, and types that consist of them."""


def row_sum(
    session: PostgresSession, table: Table, after_key: Sequence[object] | None, highest: Sequence[object] | None
) -> tuple[int, int] | None:
    """Returns the number and the checksum of the rows with keys above `after_key`, up to and including `highest`.

    Returns None if PostgreSQL does not print the values of a column as the source does.
    """
    shape = session.schema.shape(table.name)
    if shape is None or any(column.type.kind in _NO_TEXT for column in table.columns):
        return None
    values = [_value(column, found_column(shape, column.name)) for column in table.columns]
    row = " || '|' || ".join(values)
    number = f"('x' || left({_hash(row)}, {_DIGITS}))::bit({_BITS})::bigint"
    bounds = [] if after_key is None else [_bounded(table, shape, after_key, ">")]
    bounds += [] if highest is None else [_bounded(table, shape, highest, "<=")]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    sql = f"SELECT count(*), coalesce(sum({number}), 0) FROM {qualified(table.name)}{where}"
    rows, total = session.pipeline.now(sql).rows[0]
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
            return (
                f"{name}::text"
                if found.base == "date"
                else f"regexp_replace({name}::timestamp::text, ' 00:00:00$', '')"
            )
        case Kind.DATETIME | Kind.TIMESTAMP:
            return _moment(f"{name}::timestamp::text", kind.fsp)
        case Kind.TIME:
            return _clock(f"{name}::interval", kind.fsp)
        case Kind.SET if found.type == "text[]":
            return _hash(set_text(name))
        case Kind.INET4 | Kind.INET6 if found.base == "inet":
            return _hash(inet_text(name))
        case _ if found.base == "bytea":
            return f"encode(sha256({name}), 'hex')"
        case _:
            return _hash(f"{name}::text")


def _hash(text: str) -> str:
    return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


def _moment(text: str, digits: int) -> str:
    """Returns the text of a date with time, with as many digits of a second as the source shows.

    If the target's value has more digits or an era, they stay, so that its text differs from every value of the source.
    """
    if not digits:
        return text
    zeros = "0" * digits
    padded = f"rpad({text}, greatest({_SECONDS + digits}, length({text})), '0')"
    return f"CASE WHEN strpos({text}, '.') = 0 THEN {text} || '.{zeros}' ELSE {padded} END"


def _clock(name: str, digits: int) -> str:
    """Returns a text like `-838:59:59.000000`. If the target's value has more digits, they stay: the text differs."""
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
    fraction = f"lpad(({micros} % 1000000)::text, {_FRACTIONS}, '0')"
    known = f"'.' || left({fraction}, {digits})" if digits else "''"
    unknown = f"CASE WHEN {micros} % {10 ** (_FRACTIONS - digits)} = 0 THEN {known} ELSE '.' || {fraction} END"
    return f"({' || '.join(parts)} || {unknown})"


def _bounded(table: Table, shape: PgTable, key: Sequence[object], sign: str) -> str:
    names = ", ".join(map(identifier, table.identity))
    values = ", ".join(
        f"{literal(_constant(value))}::{found_column(shape, name).base}"
        for name, value in zip(table.identity, key, strict=True)
    )
    return f"({names}) {sign} ({values})"


def _constant(value: object) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
