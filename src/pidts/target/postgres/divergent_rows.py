"""Finds rows for which a schema change would have another effect on the target than on the source.

`doubts` yields conditions. Before anything is changed, PostgreSQL searches for rows that meet one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pidts.binlog.values.charsets import decoder, width
from pidts.model import Column, Halted, Table, Where
from pidts.model.advice import REPLACE, RESYNC
from pidts.schema import AlterTable
from pidts.target.difference import difference, recomputed, refuse_shortened, refuse_unfillable, shortened, unfillable
from pidts.target.postgres.dialect import identifier
from pidts.target.postgres.generated import computed, fills, made_plain
from pidts.target.postgres.shape import PgTable

_EVERYTHING = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030", "binary"})
_BASIC_PLANE = frozenset({"utf8", "utf8mb3", "ucs2"})
_ASCII = "\\u0001-\\u007f"


def doubts(
    statement: AlterTable, before: Table, after: Table, found: PgTable | None, executed_at: int
) -> Iterator[tuple[str, Halted]]:
    """Yields conditions, each with the error to raise if a row meets it. Columns have their names before the change."""
    for column, digits in shortened(statement, before, after):
        micros = f"extract(microseconds FROM {identifier(column)})::bigint"
        yield f"{micros} % {10 ** (6 - digits)} <> 0", refuse_shortened(column, before)
    for old, new in difference(statement, before, after).kept:
        if characters := _kept_characters(old, new):
            yield f"{identifier(old.name)} ~ '[^{characters}]'", _refuse_charset(old, new, before)
    filled = list(fills(statement, before, after, found))
    for fill in filled:
        yield fill.misfit, refuse_unfillable([fill.column.name], before)
    here = {column.name for column in found.columns if column.generated} if found is not None else set()
    here -= set(made_plain(statement, before, after, found))
    known = [*(fill.column.name for fill in filled), *computed(statement, before, after, found)]
    unknown = unfillable(statement, before, after, executed_at, [name.lower() for name in known])
    if unknown := unknown + [name for name in recomputed(statement, before, after) if name not in {*here, *unknown}]:
        yield "true", refuse_unfillable(unknown, before)


def _kept_characters(old: Column, new: Column) -> str | None:
    """Returns the new charset's characters as a regular expression's class.

    Returns None if the column cannot have a character that the new charset lacks. Without strict mode, the source
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
        f"column {old.name} may have characters that {new.type.charset} does not contain; the log does not "
        "show how the source converted them",
        where=Where(table=str(table.name)),
        todo=f"Change the column on the target: {REPLACE}. Then copy the table again: {RESYNC}",
    )
