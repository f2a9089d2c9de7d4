"""Counts the bytes of a column that a key holds; they decide whether a part of a key is the whole column."""

from __future__ import annotations

from pidts.model.types import ColumnType, Kind
from pidts.schema.charsets import bytes_per_character

_FIXED = {
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.MEDIUMINT: 3,
    Kind.INT: 4,
    Kind.BIGINT: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.YEAR: 1,
    Kind.DATE: 3,
    Kind.UUID: 16,
    Kind.INET4: 4,
    Kind.INET6: 16,
}
_TIMES = {Kind.TIME: 3, Kind.TIMESTAMP: 4, Kind.DATETIME: 5}
_SIZED = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY})
_DIGITS_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MOST_LABELS_IN_BYTE = 255


def bytes_in_key(kind: ColumnType) -> int | None:
    """The bytes of a whole column; None for a type of which a key never holds all."""
    if kind.kind in _SIZED:
        return (kind.length or 0) * (bytes_per_character(kind.charset) if kind.charset else 1)
    if kind.kind in _TIMES:
        return _TIMES[kind.kind] + (kind.fsp + 1) // 2
    if kind.kind is Kind.DECIMAL:
        scale = kind.scale or 0
        return sum(digits // 9 * 4 + _DIGITS_BYTES[digits % 9] for digits in ((kind.precision or 10) - scale, scale))
    if kind.kind is Kind.BIT:
        return ((kind.length or 1) + 7) // 8
    if kind.kind is Kind.ENUM:
        return 1 if len(kind.labels) <= _MOST_LABELS_IN_BYTE else 2
    if kind.kind is Kind.SET:
        size = (len(kind.labels) + 7) // 8
        return size if size <= 4 else 8
    return _FIXED.get(kind.kind)
