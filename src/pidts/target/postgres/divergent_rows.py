"""Finds rows for which a schema change would have another effect on the target than on the source.

`doubts` yields SQL conditions. Before the schema change, PostgreSQL searches for rows that meet one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pidts.binlog.values.charsets import decoder, width
from pidts.model import Column, ColumnType, Halted, Kind, Table, Where
from pidts.model.advice import REPLACE, RESYNC
from pidts.model.types import FRACTIONS, INTEGER_BITS, LOB_BYTES
from pidts.schema import AlterTable
from pidts.schema.statement_time import StatementTime
from pidts.target.difference import (
    difference,
    recomputed,
    refuse_rounded,
    refuse_shortened,
    refuse_unfillable,
    refuse_unknown,
    rounded,
    shortened,
    unfillable,
    zero_filled,
)
from pidts.target.postgres.convert import loses_digits, with_digits
from pidts.target.postgres.dialect import identifier
from pidts.target.postgres.generated import computed, fills, made_plain
from pidts.target.postgres.shape import PgTable

_EVERYTHING = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030", "binary"})
_BASIC_PLANE = frozenset({"utf8", "utf8mb3", "ucs2"})
_ASCII = "\\u0001-\\u007f"
_LAST_YEAR = 2155


def doubts(
    statement: AlterTable, before: Table, after: Table, found: PgTable | None, executed_at: StatementTime
) -> Iterator[tuple[str, Halted]]:
    """Yields conditions, each with the error to raise if a row meets it. Columns have their names before the change."""
    for old, new in shortened(statement, before, after):
        yield (
            _shortened_otherwise(statement, identifier(old.name), old.type, new.type),
            refuse_shortened(old.name, before),
        )
    for floating, kind in rounded(statement, before, after):
        value, power = f"{identifier(floating.name)}::double precision", f"1e{kind.scale}::double precision"
        made = f"floor({value}) + round(({value} - floor({value})) * {power}) / {power}"
        cast = "real" if kind.kind is Kind.FLOAT else "double precision"
        yield f"({made})::{cast} <> {value}", refuse_rounded(floating.name, kind.scale or 0, before)
    for old, new in difference(statement, before, after).kept:
        if characters := _kept_characters(old, new):
            yield f"{identifier(old.name)} ~ '[^{characters}]'", _refuse_charset(old, new, before)
        if not (old.generated or new.generated) and (cut := _cut(identifier(old.name), old.type, new.type)):
            yield cut, refuse_unknown(old.name, before)
    for column in zero_filled(statement, before, after):
        yield f"{identifier(column)} IS NOT NULL", refuse_unknown(column, before)
    filled = list(fills(statement, before, after, found))
    for fill in filled:
        yield fill.misfit, refuse_unfillable([fill.column.name], before)
    here = {column.name for column in found.columns if column.generated} if found is not None else set()
    here -= set(made_plain(statement, before, after, found))
    known = [*(fill.column.name for fill in filled), *computed(statement, before, after, found)]
    unknown = unfillable(statement, before, after, executed_at, [name.lower() for name in known])
    if unknown := unknown + [name for name in recomputed(statement, before, after) if name not in {*here, *unknown}]:
        yield "true", refuse_unfillable(unknown, before)


def _shortened_otherwise(statement: AlterTable, name: str, old: ColumnType, new: ColumnType) -> str:
    """Returns the condition that a value loses digits of a second in a way that only the source knows."""
    if statement.cuts_fractions is None or not loses_digits(old, new):
        return f"extract(microseconds FROM {name})::bigint % {10 ** (6 - new.fsp)} <> 0"
    if statement.cuts_fractions:
        return "false"
    # Without strict mode, the source replaces a value that is rounded up beyond its type's limit.
    made = with_digits(name, new.fsp, cuts=False)
    match new.kind:
        case Kind.TIME:
            return f"{made} NOT BETWEEN interval '-838:59:59' AND interval '838:59:59'"
        case Kind.TIMESTAMP:
            return f"{made} IN ('2038-01-19 03:14:08+00', '2106-02-07 06:28:16+00')"
        case _:
            return f"{made} = '10000-01-01'"


def _cut(name: str, old: ColumnType, new: ColumnType) -> str | None:
    """Returns the condition for a value that the new type cannot store; None if it can store all values.

    Without strict mode, the source silently cuts such a value: 300 becomes 127, the largest TINYINT. PostgreSQL's type
    may be able to store the value: a TINYINT is a smallint on PostgreSQL, and bytea has no length.
    """
    if old == new or old.chosen or new.chosen:
        return None
    if new.kind in INTEGER_BITS:
        return _cut_number(name, old, new)
    if new.kind in FRACTIONS and new.unsigned and not old.unsigned and (old.is_integer or old.kind in FRACTIONS):
        return f"{name} < 0"
    most = LOB_BYTES.get(new.kind) or new.length
    if most is None or new.kind in (Kind.VARCHAR, Kind.CHAR):  # PostgreSQL cuts these texts as the source does
        return None
    if old.is_text and new.is_text and new.kind in LOB_BYTES:
        is_utf8 = (new.charset or "").startswith("utf8")
        size = f"octet_length({name})" if is_utf8 else f"char_length({name}) * {_width(new)}"
        return f"{size} > {most}" if _most_bytes(old, new) > most else None
    sized = {Kind.BINARY, Kind.VARBINARY, *LOB_BYTES}
    if old.is_bytes and new.is_bytes and {old.kind, new.kind} <= sized and _most_bytes(old, new) > most:
        return f"octet_length({name}) > {most}"
    return None


def _cut_number(name: str, old: ColumnType, new: ColumnType) -> str | None:
    least, most = _range(new)
    if old.kind is Kind.DECIMAL:
        return f"round({name}) NOT BETWEEN {least} AND {most}"
    if old.kind not in (*INTEGER_BITS, Kind.BIT, Kind.YEAR):
        return None
    had = _range(old)
    if least <= had[0] and had[1] <= most:
        return None
    return f"{name}{'::bigint' if old.kind is Kind.BIT else ''} NOT BETWEEN {least} AND {most}"


def _range(kind: ColumnType) -> tuple[int, int]:
    """Returns the smallest and the largest number of a type of whole numbers."""
    if kind.kind is Kind.BIT:
        return 0, 2 ** (kind.length or 1) - 1
    if kind.kind is Kind.YEAR:
        return 0, _LAST_YEAR
    bits = INTEGER_BITS[kind.kind]
    return (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _most_bytes(old: ColumnType, new: ColumnType) -> int:
    """Returns a number of bytes that no value of the old type exceeds after its conversion to the new type."""
    if old.labels:
        return 0
    most = LOB_BYTES.get(old.kind) or old.length or 0
    is_same = old.is_bytes or (old.kind in LOB_BYTES and old.charset == new.charset)
    return most if is_same else most * _width(new)


def _width(kind: ColumnType) -> int:
    return width(kind.charset) if kind.charset else 4


def _kept_characters(old: Column, new: Column) -> str | None:
    """Returns the new charset's characters as they are written in the brackets of a regular expression.

    Returns None if the column cannot contain a character that the new charset lacks. Without strict mode, the source
    silently replaces such a character with a question mark.
    """
    had, has = old.type.charset, new.type.charset
    if had is None or has is None or had == has or has in _EVERYTHING or old.type.labels or new.type.labels:
        return None
    if has in _BASIC_PLANE:
        return None if had in _BASIC_PLANE or had not in _EVERYTHING else "\\u0001-\\uffff"
    return _ASCII if width(has) > 1 else _characters(has)


@cache
def _characters(charset: str) -> str:
    """Returns the characters of a charset that has one byte per character."""
    decode = decoder(charset)
    found = set()
    for byte in range(128, 256):
        try:
            found.add(decode(bytes([byte])))
        except UnicodeDecodeError:
            continue
    return _ASCII + "".join(f"\\u{ord(character):04x}" for character in sorted(found))


def _refuse_charset(old: Column, new: Column, table: Table) -> Halted:
    return Halted(
        "ddl-not-translatable",
        f"column {old.name} may contain characters that {new.type.charset} lacks; the log does not "
        "show how the source converted them",
        where=Where(table=str(table.name)),
        todo=f"Change the column on the target: {REPLACE}. Then copy the table again: {RESYNC}",
    )
