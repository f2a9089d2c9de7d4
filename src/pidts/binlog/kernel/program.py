"""Chooses how the compiled loop reads each column. `pidts.binlog.values.columns` makes this choice for plain code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from pidts.binlog.kernel import layout as at
from pidts.binlog.wire import Wire, WireType
from pidts.model.table import Column, Table
from pidts.model.types import ColumnType, Kind

Instruction = tuple[int, int, int, int, int]
"""The code, the size in bytes of a value in the log or of its length field, and three parameters of the code."""

_COPIED = {1: at.BYTES1, 2: at.BYTES2, 4: at.BYTES4, 8: at.BYTES8}
_IDENTIFIERS = {Kind.UUID: (at.UUID, 16), Kind.INET4: (at.INET4, 4), Kind.INET6: (at.INET6, 16)}
_PREFIXED_BY_SIZE = frozenset(
    {WireType.BLOB, WireType.TINY_BLOB, WireType.MEDIUM_BLOB, WireType.LONG_BLOB, WireType.GEOMETRY, WireType.VECTOR}
)
_COMPRESSED = frozenset({WireType.BLOB_COMPRESSED, WireType.VARCHAR_COMPRESSED})
_TIME2, _DATETIME2, _TIMESTAMP2 = (3, 5, 4)
_FRACTION_TIME = (3, 4, 4, 5, 5, 5, 6)
_FRACTION_DATETIME = (8, 6, 6, 7, 7, 7, 8)
_FRACTION = (0, 1, 1, 2, 2, 3, 3)
_LAST_HOUR = 838
_LONGEST_SHORT = 255
_LEFTOVER = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LARGEST_SMALL_DECIMAL = 18


def cell_size(kind: ColumnType) -> int:
    """Returns the size in bytes of a value in the column's array, not in the log; 0 if the size varies.

    An ENUM or SET has the size of the number that stands for its labels.
    """
    if kind.kind in (Kind.ENUM, Kind.SET):
        return 4 if kind.kind is Kind.ENUM else 8
    arrow = kind.arrow
    return 0 if pa.types.is_string(arrow) or pa.types.is_binary(arrow) else int(arrow.bit_width) // 8


def instruction(column: Column, wire: Wire) -> Instruction | None:
    """Returns the instruction for a column's encoding in the log; None if only plain code can read the column."""
    kind = column.type.kind
    if wire.type in _COMPRESSED:
        return None
    if kind in _IDENTIFIERS:
        code, size = _IDENTIFIERS[kind]
        return code, 1, size, 0, 0
    if kind in (Kind.ENUM, Kind.SET):
        return (at.WORD4 if kind is Kind.ENUM else at.WORD8), wire.size, 0, 0, 0
    if kind is Kind.DECIMAL:
        return _decimal(wire)
    if kind in (Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        return _temporal(column, wire)
    if kind is Kind.MEDIUMINT:
        return (at.UINT24 if column.type.unsigned else at.INT24), 3, 0, 0, 0
    if kind is Kind.YEAR:
        return at.YEAR, 1, 0, 0, 0
    if kind is Kind.BIT:
        return at.BITS, (wire.size + 7) // 8, 0, 0, 0
    if column.type.is_integer or kind in (Kind.FLOAT, Kind.DOUBLE):
        size = column.type.arrow.byte_width
        return _COPIED[size], size, 0, 0, 0
    if wire.type is WireType.JSON:
        return at.JSON, wire.size, 0, 0, 0
    if wire.type in _PREFIXED_BY_SIZE:
        return at.PREFIXED, wire.size, 0, 0, 0
    prefix = 1 if wire.size <= _LONGEST_SHORT else 2
    if kind is Kind.BINARY:
        return at.PADDED, prefix, 1 if column.type.length is None else column.type.length, 0, 0
    return at.PREFIXED, prefix, 0, 0, 0


def program(columns: Sequence[Column], wires: Sequence[Wire]) -> Any:
    """Returns the instructions for all columns as one array; None if only plain code can read the table."""
    rows = np.zeros((max(len(wires), 1), at.PROGRAM // 8), np.int64)
    for place, (column, wire) in enumerate(zip(columns, wires, strict=True)):
        found = instruction(column, wire)
        if found is None:
            return None
        code, size, *numbers = found
        rows[place, [at.CODE // 8, at.WIRE // 8, at.CELL // 8]] = code, size, cell_size(column.type)
        rows[place, at.A // 8 : at.A // 8 + 3] = numbers
    return rows


@lru_cache(maxsize=256)
def known_program(table: Table, wires: tuple[Wire, ...]) -> Any:
    """Returns the same as `program`, cached: all slices with this table share one array, which no caller may change."""
    return program(table.columns, wires)


def _decimal(wire: Wire) -> Instruction:
    """Returns a DECIMAL's instruction: digits of the first group, number of full groups, digits of the last group."""
    whole, scale = wire.size - wire.scale, wire.scale
    first, last = whole % 9, scale % 9
    groups = whole // 9 + scale // 9
    size = _LEFTOVER[first] + 4 * groups + _LEFTOVER[last]
    if wire.size <= _LARGEST_SMALL_DECIMAL:
        return at.DECIMAL18, size, first, groups, last
    return at.DECIMAL, size, first, groups, last


def _temporal(column: Column, wire: Wire) -> Instruction:
    """Returns the instruction for a date or a time.

    In the newer encodings, two parameters describe the fraction of a second: the number of its bytes, and the number of
    microseconds in its unit. MariaDB's own encodings have other parameters.
    """
    digits = column.type.fsp
    size = (digits + 1) // 2
    unit = 10 ** (6 - 2 * size)
    rest: int = 10 ** (6 - digits)
    match wire.type:
        case WireType.DATE:
            return at.DATE, 3, 0, 0, 0
        case WireType.TIME2:
            return at.TIME2, _TIME2 + size, size, unit, 0
        case WireType.DATETIME2:
            return at.DATETIME2, _DATETIME2 + size, size, unit, 0
        case WireType.TIMESTAMP2:
            return at.TIMESTAMP2, _TIMESTAMP2 + size, size, unit, 0
        case WireType.TIME if digits:
            zero = (_LAST_HOUR + 1) * 3600 * 10**digits
            return at.FRACTION_TIME, _FRACTION_TIME[digits], zero, rest, 0
        case WireType.DATETIME if digits:
            return at.FRACTION_DATETIME, _FRACTION_DATETIME[digits], 10**digits, rest, 0
        case WireType.TIMESTAMP if digits:
            return at.FRACTION_TIMESTAMP, 4 + _FRACTION[digits], _FRACTION[digits], rest, 0
        case WireType.TIME:
            return at.OLD_TIME, 3, 0, 0, 0
        case WireType.DATETIME:
            return at.OLD_DATETIME, 8, 0, 0, 0
    return at.OLD_TIMESTAMP, 4, 0, 0, 0
