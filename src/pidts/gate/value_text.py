"""Writes column values as a MySQL server prints them, a whole Arrow column at a time.

A session that reads the column with SELECT gets the same text, except for these types:

- BINARY, VARBINARY, BLOB, GEOMETRY and VECTOR are upper-case hexadecimal digits, as `HEX(column)` prints them;
- BIT is a decimal number, as `column + 0` prints it;
- TIMESTAMP is printed in the task's time zone, whatever time zone the reader's session has;
- integers of a ZEROFILL column are printed without the zeros before the number.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ColumnType, Kind
from pidts.model.column_text import decimal_text, duration_text
from pidts.target.text import combined, hex_text, moment_text, unreal

TEXT = pa.large_string()

_MICROSECOND_DIGITS = 6
_FLOAT_DIGITS, _DOUBLE_DIGITS = 6, 17
_LARGEST_POINT, _SMALLEST_POINT = 15, -14
"""The server writes an exponent if the decimal point is outside of these places."""


def printed(kind: ColumnType, values: pa.Array | pa.ChunkedArray, zone: str = "+00:00") -> pa.Array:
    """Returns each value as text; a NULL stays a missing value."""
    data = combined(values)
    if kind.is_bytes:
        return pc.ascii_upper(hex_text(data)).cast(TEXT)
    match kind.kind:
        case Kind.DECIMAL:
            return decimal_text(data).cast(TEXT)
        case Kind.FLOAT | Kind.DOUBLE:
            return _float_text(kind, data)
        case Kind.YEAR:
            return pc.utf8_lpad(data.cast(pa.string()), 4, "0").cast(TEXT)
        case Kind.DATE:
            return moment_text(data).cast(TEXT)
        case Kind.DATETIME:
            return _with_fraction(moment_text(data), kind.fsp)
        case Kind.TIMESTAMP:
            return _with_fraction(moment_text(_in_zone(data, zone)), kind.fsp)
        case Kind.TIME:
            return _with_fraction(duration_text(data), kind.fsp)
    return data.cast(TEXT)


def _with_fraction(text: pa.Array, digits: int) -> pa.Array:
    """Keeps `digits` of the six digits after the seconds. Without digits, the decimal point is removed, too."""
    if digits < _MICROSECOND_DIGITS:
        text = pc.utf8_slice_codeunits(text, 0, digits - _MICROSECOND_DIGITS - (not digits))
    return text.cast(TEXT)


def _in_zone(moments: pa.Array, zone: str) -> pa.Array:
    """Returns the local times in a time zone; `0000-00-00` is no point in time, and is not changed."""
    plain = moments.cast(pa.timestamp("us"))
    if zone in ("+00:00", "UTC"):
        return plain
    zero = unreal(moments)
    real = moments if zero is None else pc.if_else(zero, pa.scalar(None, moments.type), moments)
    local = pc.local_timestamp(real.cast(pa.timestamp("us", zone))).cast(pa.timestamp("us"))
    return local if zero is None else pc.if_else(zero, plain, local)


def _float_text(kind: ColumnType, data: pa.Array) -> pa.Array:
    """Returns the texts that the server prints for these floats.

    Arrow and the server print a number in the same way, unless Arrow's text has an exponent or too many digits for a
    FLOAT.
    """
    if kind.scale is not None:
        return _mapped(data, np.ones(len(data), bool), lambda value: f"{value:.{kind.scale}f}")
    text = data.cast(TEXT)
    odd = pc.match_substring(text, "e")
    if kind.kind is Kind.FLOAT:
        odd = pc.or_(odd, pc.greater(pc.utf8_length(text), _FLOAT_DIGITS))
    mask = pc.fill_null(odd, fill_value=False).to_numpy(zero_copy_only=False)
    if not mask.any():
        return text
    digits = _FLOAT_DIGITS if kind.kind is Kind.FLOAT else _DOUBLE_DIGITS
    rewritten = _mapped(data, mask, lambda value: _general(value, digits))
    return pc.if_else(pa.array(mask), rewritten, text)


def _mapped(data: pa.Array, mask: np.ndarray, write: object) -> pa.Array:
    """Returns the text that `write` makes of each value that `mask` selects; for all others, a missing value."""
    values = data.to_pylist()
    texts = [write(value) if chosen and value is not None else None for value, chosen in zip(values, mask, strict=True)]  # type: ignore[operator]
    return pa.array(texts, TEXT)


def _general(value: float, most: int) -> str:
    """Returns the shortest text that is read as this value, with at most `most` digits, in the servers' form."""
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, point = _digits(repr(abs(value)) if most == _DOUBLE_DIGITS else f"{abs(value):.{most - 1}e}")
    sign = "-" if value < 0 else ""
    if not _SMALLEST_POINT <= point <= _LARGEST_POINT:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _digits(text: str) -> tuple[str, int]:
    """Returns the significant digits of a number's text, and how many of them are before the decimal point."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", point
