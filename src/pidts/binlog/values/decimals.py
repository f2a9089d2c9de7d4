"""Reads DECIMAL: groups of nine digits in four bytes, big-endian, from the decimal point outwards.

The first bit is inverted, so that bytes sort like numbers; in a negative number, all bits are inverted. A group of
fewer digits, at either end, has fewer bytes. Values are passed as unscaled integers (12.34 as 1234): these are exact,
and quick to convert for Arrow.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pidts.binlog.values.image import MakeReader, fixed
from pidts.binlog.wire import Wire, WireType
from pidts.model.errors import DecodeError
from pidts.model.types import ColumnType

_GROUP = 9
_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LARGEST_PRECISION = 65


def reader(kind: ColumnType, wire: Wire) -> MakeReader | None:
    """Returns the reader of a decimal; None if the encoding in the log does not fit the type."""
    declared = ((kind.precision or 10), (kind.scale or 0))
    if wire.type is not WireType.DECIMAL or (wire.size, wire.scale) != declared:
        return None
    size, groups = layout(wire.size, wire.scale)
    return fixed(size, lambda raw: unscaled(raw, groups))


def layout(precision: int, scale: int) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """Returns the size in bytes; and for each group its first byte, its end, and the number above its largest value."""
    if not 0 < precision <= _LARGEST_PRECISION or scale > precision:
        raise DecodeError("bad-decimal", f"no server has the type DECIMAL({precision},{scale})")
    whole = precision - scale
    digits = [whole % _GROUP] + [_GROUP] * (whole // _GROUP) + [_GROUP] * (scale // _GROUP) + [scale % _GROUP]
    at = 0
    groups = []
    for count in digits:
        if count:
            groups.append((at, at + _BYTES[count], 10**count))
            at += _BYTES[count]
    return at, tuple(groups)


def unscaled(raw: bytes, groups: tuple[tuple[int, int, int], ...]) -> int:
    """Returns the number without its decimal point."""
    positive = raw[0] & 0x80
    flipped = bytearray(raw)
    flipped[0] ^= 0x80
    if not positive:
        flipped = bytearray(byte ^ 0xFF for byte in flipped)
    value = 0
    for start, end, limit in groups:
        group = int.from_bytes(flipped[start:end], "big")
        if group >= limit:
            raise DecodeError("bad-decimal", f"bytes {raw.hex()} are not a decimal")
        value = value * limit + group
    return value if positive else -value


def build(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Returns integers of 16 or 32 bytes and a bitmap, in Arrow's memory layout."""
    size = kind.byte_width
    empty = bytes(size)
    data = b"".join([empty if value is None else value.to_bytes(size, "little", signed=True) for value in values])
    present = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(data)])
