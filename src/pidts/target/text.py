"""Converts Arrow columns to text, a whole column at a time, for both SQL dialects."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import calendar


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns a column as one array, since functions that read buffers cannot read chunks."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def text_of(values: pa.Array) -> memoryview:
    """Returns all bytes of large strings or binaries, one after the other."""
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return memoryview(data)[int(places[0]) : int(places[-1])] if data is not None else memoryview(b"")


def exact_float_text(column: pa.Array) -> pa.Array:
    """Returns the texts of doubles, with enough digits. Without their exponent, servers would read them as decimals."""
    text = column.cast(pa.float64()).cast(pa.string())
    return pc.if_else(pc.match_substring(text, "e"), text, pc.binary_join_element_wise(text, "e0", ""))


def hex_text(column: pa.Array, prefix: str = "") -> pa.Array:
    """Returns two hexadecimal digits for each byte."""
    column = column.cast(pa.large_binary())
    if len(column) == 0:
        return pa.array([], pa.large_string())
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = int(places[0]), int(places[-1])
    digits = binascii.hexlify(memoryview(data)[first:last]) if last > first else b""
    text = pa.LargeStringArray.from_buffers(len(column), pa.py_buffer((places - first) * 2), pa.py_buffer(digits))
    if prefix:
        text = pc.binary_join_element_wise(pa.scalar(prefix, text.type), text, pa.scalar("", text.type))
    return pc.if_else(column.is_valid(), text, None)


def vector_text(column: pa.Array, opening: str, closing: str) -> pa.Array:
    """Returns vectors, which are bytes of 32-bit floats, as lists of numbers in brackets."""
    column = column.cast(pa.large_binary())
    if len(column) == 0:
        return pa.array([], pa.string())
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    numbers = (
        np.frombuffer(memoryview(data)[int(places[0]) : int(places[-1])], "<f4") if data else np.zeros(0, np.float32)
    )
    texts = pa.array(numbers).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array((places - places[0]) // 4, pa.int32()), texts)
    joined = pc.binary_join_element_wise(opening, pc.binary_join(lists, ","), closing, "")
    return pc.if_else(column.is_valid(), joined, None)


def unreal(column: pa.Array) -> pa.Array | None:
    """Returns a mask of the zero and partial dates in a column of dates or timestamps; None if there are none."""
    if pa.types.is_date(column.type):
        mask = pc.less(column.cast(pa.int32()), calendar.FIRST_REAL_DAY)
    else:
        mask = pc.less(column.cast(pa.int64()), calendar.FIRST_REAL_MICROSECOND)
    return mask if pc.any(mask).as_py() else None


def moment_text(column: pa.Array) -> pa.Array:
    """Returns dates and times as `YYYY-MM-DD[ HH:MM:SS.ffffff]`; zero and partial dates as MySQL shows them."""
    is_date = pa.types.is_date(column.type)
    numbers = column.cast(pa.int32() if is_date else pa.int64())
    mask = unreal(column)
    if not is_date:
        column = column.cast(pa.timestamp("us"))
    if mask is None:
        return column.cast(pa.string())
    real = pc.if_else(mask, pa.scalar(None, column.type), column).cast(pa.string())
    odd = [calendar.text(value, is_date=is_date) for value in numbers.filter(mask).to_pylist()]
    return pc.replace_with_mask(real, pc.fill_null(mask, pa.scalar(value=False)), pa.array(odd, pa.string()))
