"""Checks by a result's column definitions whether the columns still are what the structure has.

Text that is read in another charset than it was written in is other text, without an error.
"""

from __future__ import annotations

from pidts.binlog.values.charsets import charset_of
from pidts.model import Column, Kind

_DETAILS = 13
"""Bytes behind the names: 0x0C, charset, length, type, flags, decimals and two bytes of nothing."""
_BINARY = 63
_UTF8 = frozenset({"utf8", "utf8mb3"})
_UNSIGNED = 32
_INTEGERS = {1: Kind.TINYINT, 2: Kind.SMALLINT, 9: Kind.MEDIUMINT, 3: Kind.INT, 8: Kind.BIGINT}
_NUMBERS = {Kind.DECIMAL: (246, 0), Kind.FLOAT: (5,), Kind.DOUBLE: (5,), Kind.YEAR: (13,)}
_MOMENTS = {Kind.DATE: (10, 14), Kind.TIME: (11, 19), Kind.DATETIME: (12, 18), Kind.TIMESTAMP: (7, 17)}
_TYPES = _NUMBERS | _MOMENTS
_STRINGS = frozenset({15, 242, *range(245, 256)} - {246})
"""Text and bytes of any size, ENUM and SET, JSON, geometries, vectors."""


def changed(column: Column, definition: bytes) -> str:
    """Returns what is different now; empty where nothing is."""
    details = definition[-_DETAILS:]
    charset, type_code = int.from_bytes(details[1:3], "little"), details[7]
    kind = column.type
    if kind.is_integer:
        is_unsigned = bool(int.from_bytes(details[8:10], "little") & _UNSIGNED)
        fits = _INTEGERS.get(type_code) is kind.kind and is_unsigned == kind.unsigned
    elif kind.kind is Kind.BIT:
        fits = type_code in _INTEGERS  # It was selected as a number.
    elif kind.kind in _TYPES:
        fits = type_code in _TYPES[kind.kind]
    else:
        fits = type_code in _STRINGS
        if fits and kind.is_text:
            found = charset_of(charset)
            if found is not None and _plain(found) != _plain(kind.charset or "utf8mb4"):
                return f"column {column.name} is no longer in {kind.charset}, but in {found}"
        if fits and kind.is_bytes and charset != _BINARY:
            return f"column {column.name} is no longer of type {kind.kind}, but text"
    return "" if fits else f"column {column.name} is no longer of type {kind.kind}"


def _plain(charset: str) -> str:
    return "utf8mb3" if charset in _UTF8 else charset
