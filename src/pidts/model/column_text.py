"""Converts durations and decimals to text, a whole Arrow column at a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_HOUR_US = 3_600_000_000
_MINUTE_US = 60_000_000
_SECOND_US = 1_000_000


def duration_text(column: pa.Array) -> pa.Array:
    """Returns durations as `[-]HHH:MM:SS.ffffff`, with at least two digits of hours."""
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
    """Returns decimals as plain digits. Arrow writes small values as `1E-8`, which MySQL reads as a float."""
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


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")
