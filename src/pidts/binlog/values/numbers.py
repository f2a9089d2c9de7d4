"""Integers, floats, bits and years."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from pidts.binlog.image import Append, MakeReader, Read
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
    """Returns the reader of a number; None where the form does not fit the type."""
    if kind.kind in _INTEGERS:
        expected, code = _INTEGERS[kind.kind]
        return _fixed(code.upper() if kind.unsigned else code) if wire.type is expected else None
    if kind.kind is Kind.MEDIUMINT:
        return _medium(signed=not kind.unsigned) if wire.type is WireType.INT24 else None
    if kind.kind in _FLOATS:
        expected, size, code = _FLOATS[kind.kind]
        return _fixed(code) if wire.type is expected and wire.size == size else None
    if kind.kind is Kind.YEAR:
        return _year if wire.type is WireType.YEAR else None
    if kind.kind is Kind.BIT and wire.type is WireType.BIT and wire.size == (kind.length or 1) <= 64:
        return _bits((wire.size + 7) // 8)
    return None


def build(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """The values are what Arrow wants already."""
    return pa.array(values, kind)


def _fixed(code: str) -> MakeReader:
    unpack, size = struct.Struct(code).unpack_from, struct.calcsize(code)

    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            append(unpack(data, at)[0])
            return at + size

        return read

    return make


def _medium(*, signed: bool) -> MakeReader:
    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            append(int.from_bytes(data[at : at + 3], "little", signed=signed))
            return at + 3

        return read

    return make


def _bits(size: int) -> MakeReader:
    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            append(int.from_bytes(data[at : at + size], "big"))
            return at + size

        return read

    return make


def _year(append: Append) -> Read:
    def read(data: bytes, at: int) -> int:
        year = data[at]
        append(year + 1900 if year else 0)
        return at + 1

    return read
