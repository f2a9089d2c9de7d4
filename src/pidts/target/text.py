"""Arrow columns to text, a whole column at a time; what both SQL dialects share."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import calendar

_HOUR_US = 3_600_000_000
_MINUTE_US = 60_000_000
_SECOND_US = 1_000_000


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns one array; kernels over buffers want no chunks."""
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


def duration_text(column: pa.Array) -> pa.Array:
    """`[-]HHH:MM:SS.ffffff`, at least two digits of hours."""
    value = column.cast(pa.int64())
    size = pc.abs(value)
    hours = pc.divide(size, _HOUR_US)
    left = pc.subtract(size, pc.multiply(hours, _HOUR_US))
    minutes = pc.divide(left, _MINUTE_US)
    left = pc.subtract(left, pc.multiply(minutes, _MINUTE_US))
    seconds = pc.divide(left, _SECOND_US)
    micros = pc.subtract(left, pc.multiply(seconds, _SECOND_US))
    sign = pc.if_else(pc.less(value, 0), "-", "")
    clock = pc.binary_join_element_wise(_digits(hours, 2), _digits(minutes, 2), _digits(seconds, 2), ":")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, clock, ""), _digits(micros, 6), ".")


def decimal_text(column: pa.Array) -> pa.Array:
    """Plain digits. Arrow itself writes small values as `1E-8`, which MySQL reads as a float."""
    scale = column.type.scale
    text = column.cast(pa.string())
    if scale == 0 or not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    kind = pa.decimal128 if isinstance(column.type, pa.Decimal128Type) else pa.decimal256
    whole = pa.Array.from_buffers(
        kind(column.type.precision, 0), len(column), column.buffers(), column.null_count, column.offset
    ).cast(pa.string())
    negative = pc.starts_with(whole, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    plain = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale), "."
    )
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), plain, "")


def exact_float_text(column: pa.Array) -> pa.Array:
    """Writes enough digits for a double, with an exponent, so that no server takes it for a decimal."""
    text = column.cast(pa.float64()).cast(pa.string())
    return pc.if_else(pc.match_substring(text, "e"), text, pc.binary_join_element_wise(text, "e0", ""))


def hex_text(column: pa.Array, prefix: str = "") -> pa.Array:
    """Two hexadecimal digits a byte."""
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
    """Bytes of 32-bit floats as a bracketed list."""
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
    """Marks the values of a date or timestamp column that no calendar has; None where all are real."""
    if pa.types.is_date(column.type):
        mask = pc.less(column.cast(pa.int32()), calendar.FIRST_REAL_DAY)
    else:
        mask = pc.less(column.cast(pa.int64()), calendar.FIRST_REAL_MICROSECOND)
    return mask if pc.any(mask).as_py() else None


def moment_text(column: pa.Array) -> pa.Array:
    """`YYYY-MM-DD[ HH:MM:SS.ffffff]`, zero and partial dates as the server shows them."""
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


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")
