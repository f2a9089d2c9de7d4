"""Reads integers, floats, bits and years."""

from __future__ import annotations

import struct
from functools import partial

from pidts.binlog.values.image import Append, MakeReader, Read, fixed, fixed_number
from pidts.binlog.wire import Wire, WireType
from pidts.model.types import ColumnType, Kind

_INTEGERS = {
    Kind.TINYINT: (WireType.TINY, "<b"),
    Kind.SMALLINT: (WireType.SHORT, "<h"),
    Kind.INT: (WireType.LONG, "<i"),
    Kind.BIGINT: (WireType.LONGLONG, "<q"),
}
_FLOATS = {Kind.FLOAT: (WireType.FLOAT, 4, "<f"), Kind.DOUBLE: (WireType.DOUBLE, 8, "<d")}


def reader(kind: ColumnType, wire: Wire) -> MakeReader | None:
    """Returns the reader of a number; None if the encoding in the log does not fit the type."""
    if kind.kind in _INTEGERS:
        expected, code = _INTEGERS[kind.kind]
        return _fixed(code.upper() if kind.unsigned else code) if wire.type is expected else None
    if kind.kind is Kind.MEDIUMINT:
        medium = partial(int.from_bytes, byteorder="little", signed=not kind.unsigned)
        return fixed(3, medium) if wire.type is WireType.INT24 else None
    if kind.kind in _FLOATS:
        expected, size, code = _FLOATS[kind.kind]
        return _fixed(code) if wire.type is expected and wire.size == size else None
    if kind.kind is Kind.YEAR:
        return fixed_number(1, lambda year: year + 1900 if year else 0) if wire.type is WireType.YEAR else None
    if kind.kind is Kind.BIT and wire.type is WireType.BIT and wire.size == (kind.length or 1) <= 64:
        return fixed_number((wire.size + 7) // 8, big=True)
    return None


def _fixed(code: str) -> MakeReader:
    unpack, size = struct.Struct(code).unpack_from, struct.calcsize(code)

    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            append(unpack(data, at)[0])
            return at + size

        return read

    return make
