"""The encoding of a column in a TABLE_MAP event, without the column's SQL type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pidts.binlog.cursor import Cursor
from pidts.model.errors import DecodeError


class WireType(IntEnum):
    """Column types in row images."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_ONE_BYTE = frozenset(
    {
        WireType.FLOAT,
        WireType.DOUBLE,
        WireType.TIMESTAMP2,
        WireType.DATETIME2,
        WireType.TIME2,
        WireType.BLOB_COMPRESSED,
        WireType.VECTOR,
        WireType.JSON,
        WireType.TINY_BLOB,
        WireType.MEDIUM_BLOB,
        WireType.LONG_BLOB,
        WireType.BLOB,
        WireType.GEOMETRY,
    }
)
_LENGTH = frozenset({WireType.VARCHAR, WireType.VAR_STRING, WireType.VARCHAR_COMPRESSED})
_PAIR = frozenset({WireType.BIT, WireType.DECIMAL, WireType.STRING, WireType.ENUM, WireType.SET})


@dataclass(frozen=True, slots=True)
class Wire:
    """The encoding of one column.

    `size` is the column's length in bytes, the size of a blob's length field, or a decimal's precision. `scale` is a
    decimal's scale, or the number of digits in a fraction of a second.
    """

    type: WireType
    size: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"{self.type.name.lower()}({self.size},{self.scale})"


def read_wires(types: bytes, metadata: bytes) -> tuple[Wire, ...]:
    """Returns the encodings of all columns of one table."""
    cursor = Cursor(metadata, "a table map's column metadata")
    wires = tuple(_wire(kind, cursor) for kind in types)
    if cursor.left:
        raise DecodeError("bad-table-map", f"a table map has {cursor.left} bytes of column metadata too many")
    return wires


def _wire(number: int, cursor: Cursor) -> Wire:
    try:
        kind = WireType(number)
    except ValueError:
        raise DecodeError(
            "unknown-type",
            f"a table map has a column of type {number}, which is not known",
            todo="Leave the table out, and report the type",
        ) from None
    if kind in _ONE_BYTE:
        value = cursor.uint(1)
        fraction = kind in (WireType.TIMESTAMP2, WireType.DATETIME2, WireType.TIME2)
        return Wire(kind, scale=value) if fraction else Wire(kind, value)
    if kind in _LENGTH:
        return Wire(kind, cursor.uint(2))
    if kind not in _PAIR:
        return Wire(kind)
    first, second = cursor.take(2)
    if kind is WireType.DECIMAL:
        return Wire(kind, first, second)
    if kind is WireType.BIT:
        return Wire(kind, second * 8 + first)
    return _string(first, second)


def _string(first: int, second: int) -> Wire:
    """Parses the metadata of CHAR, ENUM and SET, which share the type STRING. The first byte is the real type.

    For a CHAR of more than 255 bytes, the first byte also has two bits of the length, inverted: CHAR(255) in utf8mb4 is
    CE FC.
    """
    if first & 0x30 != 0x30:
        return Wire(WireType.STRING, second | ((first & 0x30) ^ 0x30) << 4)
    if first in (WireType.ENUM, WireType.SET, WireType.STRING):
        return Wire(WireType(first), second)
    raise DecodeError(
        "unknown-type",
        f"a table map has a string column of type {first}, which is not known",
        todo="Leave the table out, and report the type",
    )
