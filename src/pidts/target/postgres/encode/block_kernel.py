"""Makes rows in the format of COPY BINARY, field by field, in compiled code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pidts.binlog.jit import copy, inline, jit, load16, load32, load64, store16, store32, store64
from pidts.binlog.kernel.images import has_bit
from pidts.target.postgres.encode.binary import Fixed, Wire

# The description of a column for the compiled loop consists of five numbers. VALID: the address of the bitmap that
# shows which values are not NULL (0 if none is NULL). FIRST: the bit of the first value. SIZE: the length of each value
# (0 if the lengths differ). VALUES: the address of the values. OFFSETS: the address of the offsets at which they begin.
VALID, FIRST, SIZE, VALUES, OFFSETS = range(0, 40, 8)
FIELD = 40
_NULL = 0xFFFFFFFF
_BYTES = pa.large_binary()


def by_rows(columns: Sequence[tuple[pa.Array, Wire]]) -> memoryview:
    """Returns the bytes of the rows. Each column is a pair: its values, and the same values encoded for the target."""
    count = len(columns[0][0])
    fields = np.zeros((len(columns), FIELD // 8), np.int64)
    made = [_describe(field, *column) for field, column in zip(fields, columns, strict=True)]
    out = np.empty(count * (2 + 4 * len(columns)) + sum(size for size, _ in made), np.uint8)
    end = write(fields.ctypes.data, len(columns), count, out.ctypes.data)
    return out[: end - out.ctypes.data].data


def _describe(field: Fixed, data: pa.Array, written: Wire) -> tuple[int, object]:
    """Writes the description of a column into `field`.

    Returns the size of all its values in bytes, and an array (or None) that must exist until `write` has ended.
    """
    marked = data if isinstance(written, np.ndarray) else written
    if marked.null_count:
        field[[VALID // 8, FIRST // 8]] = marked.buffers()[0].address, marked.offset
    if isinstance(written, np.ndarray):
        cells = np.ascontiguousarray(written)
        field[[SIZE // 8, VALUES // 8]] = cells.itemsize, cells.ctypes.data
        return cells.nbytes, cells
    if written.type != _BYTES or len(written) != len(data):
        raise TypeError(f"a column of {len(data)} rows has {len(written)} encoded values of type {written.type}")
    _, offsets, values = written.buffers()
    places = np.frombuffer(offsets, np.int64)[written.offset :]
    field[[VALUES // 8, OFFSETS // 8]] = values.address if values else 0, places.ctypes.data
    return int(places[len(written)] - places[0]), None


@jit
def write(fields: int, width: int, count: int, out: int) -> int:
    """Writes all rows to `out`, which has room for them; returns the address where they end."""
    heading = _turned(width) >> 16
    for row in range(count):
        store16(out, heading)
        out += 2
        for place in range(width):
            out = _put(fields + FIELD * place, row, out)
    return out


@inline
def _put(field: int, row: int, out: int) -> int:
    """Writes one value after its length; returns the address where it ends."""
    valid = load64(field + VALID)
    if valid != 0 and has_bit(valid, load64(field + FIRST) + row) == 0:
        store32(out, _NULL)
        return out + 4
    begin, size = load64(field + VALUES), load64(field + SIZE)
    if size != 0:
        begin += row * size
    else:
        offsets = load64(field + OFFSETS) + 8 * row
        size = load64(offsets + 8) - load64(offsets)
        begin += load64(offsets)
    store32(out, _turned(size))
    out += 4
    if size == 8:
        store64(out, load64(begin))
    elif size == 4:
        store32(out, load32(begin))
    elif size == 2:
        store16(out, load16(begin))
    else:
        copy(out, begin, size)
    end: int = out + size
    return end


@inline
def _turned(number: int) -> int:
    """Returns a number whose four bytes are in reverse order."""
    return (number & 0xFF) << 24 | (number & 0xFF00) << 8 | (number >> 8) & 0xFF00 | (number >> 24) & 0xFF
