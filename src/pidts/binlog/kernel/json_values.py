"""Writes scalars of MySQL's binary JSON as the same text that `pidts.binlog.values.json` makes.

Each function returns the place after its text, or one of the negative numbers below.
"""

from __future__ import annotations

import math

import numpy as np

from pidts.binlog.jit import as_double, inline, jit, load8, load16, load32, load64, store8
from pidts.binlog.jit import copy as copy_bytes
from pidts.binlog.kernel.numbers import group, limit_of
from pidts.binlog.kernel.writing import LONGEST_NUMBER, hex_digit, put_magnitude, put_number, put_word, utf8_end, word

BAD, FULL, STRANGE = -1, -2, -3
"""The errors: the bytes are no JSON; the text needs more room; only plain code can make the text of a number."""

_NULL, _TRUE, _FALSE = word("null"), word("true"), word("false")
_UNICODE, _ZERO, _MINUS_ZERO = word("\\u00"), word("0.0"), word("-0.0")
_BASE64, _TYPE = word('"base64:'), word("type")
_DIGITS64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_SHORT = np.zeros(128, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r"), (34, '"'), (92, "\\")):
    _SHORT[_code] = ord(_letter)
_EXTRA = np.zeros(256, np.int64)
_EXTRA[:32] = 5
_EXTRA[_SHORT.nonzero()] = 1
"""The number of bytes by which each byte of a string becomes longer when it is escaped."""

_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
_LONGEST_MOMENT = 64
_LONGEST_DECIMAL = 80
_LONGEST_DOUBLE = 40
_EXACT = 1e15
_POWERS = np.array([float(10**power) for power in range(23)])


@inline
def sized(data: int, at: int, size: int) -> tuple[int, int]:
    """Reads a length with seven bits in each byte; returns begin and end of the data after it.

    The end is BAD if the data is not completely in the document.
    """
    length = 0
    shift = 0
    while True:
        if at >= size:
            return at, BAD
        byte = load8(data + at)
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80 == 0:
            return (at, at + length) if at + length <= size else (at, BAD)
        if shift > 28:
            return at, BAD


@jit
def put_string(data: int, start: int, end: int, out: int, limit: int) -> int:
    """Writes a JSON string with the necessary escapes."""
    first, stop = data + start, data + end
    if utf8_end(first, stop) != stop:
        return BAD
    extra = 0
    for place in range(first, stop):
        extra += _EXTRA[load8(place)]
    if limit - out < stop - first + extra + 2:
        return FULL
    store8(out, 34)
    out += 1
    if extra == 0:
        copy_bytes(out, first, stop - first)
        out += stop - first
    else:
        for place in range(first, stop):
            byte = load8(place)
            if _EXTRA[byte] == 0:
                store8(out, byte)
                out += 1
            elif _EXTRA[byte] == 1:
                store8(out, 92)
                store8(out + 1, np.int64(_SHORT[byte]))
                out += 2
            else:
                put_word(out, _UNICODE, 4)
                store8(out + 4, hex_digit(byte >> 4))
                store8(out + 5, hex_digit(byte & 15))
                out += 6
    store8(out, 34)
    return out + 1


@inline
def put_integer(data: int, kind: int, at: int, size: int, out: int, limit: int) -> int:
    """Writes an integer of the types 5 to 10: 16, 32 or 64 bits, each signed or unsigned."""
    width = 2 << ((kind - 5) >> 1)
    if at + width > size:
        return BAD
    if limit - out <= LONGEST_NUMBER:
        return FULL
    if width == 2:
        value = load16(data + at)
    elif width == 4:
        value = load32(data + at)
    else:
        value = load64(data + at)
    if kind == 10:
        return put_magnitude(out, value, 1)
    if kind & 1 and width < 8 and value >> (8 * width - 1):
        value -= 1 << (8 * width)
    return put_number(out, value)


@inline
def put_literal(data: int, at: int, size: int, out: int, limit: int) -> int:
    """Writes null, true or false."""
    if at >= size:
        return BAD
    if limit - out < 5:
        return FULL
    value = load8(data + at)
    if value == 0:
        return put_word(out, _NULL, 4)
    if value == 1:
        return put_word(out, _TRUE, 4)
    return put_word(out, _FALSE, 5) if value == 2 else BAD


@jit
def put_double(data: int, at: int, size: int, out: int, limit: int) -> int:
    """Writes a double of up to fifteen digits, if a quotient or product of two exact numbers is equal to the double."""
    if at + 8 > size:
        return BAD
    if limit - out < _LONGEST_DOUBLE:
        return FULL
    bits = load64(data + at)
    value = as_double(bits)
    magnitude = abs(value)
    if magnitude == 0.0 or not math.isfinite(value):
        return put_word(out, _MINUS_ZERO, 4) if value == 0.0 and bits < 0 else put_word(out, _ZERO, 3)
    if bits < 0:
        store8(out, 45)
        out += 1
    digits, power = _shortest(magnitude)
    if digits == 0:
        return STRANGE
    while digits % 10 == 0:
        digits //= 10
        power += 1
    stop = put_magnitude(out, digits, 1)
    return _with_point(out, stop - out, stop - out + power)


@inline
def _shortest(value: float) -> tuple[int, int]:
    """Returns the value as digits and a power of ten; the digits are 0 if more than fifteen are needed."""
    if value < _EXACT and math.floor(value) == value:
        return int(value), 0
    if value >= _EXACT:
        for power in range(22, 0, -1):
            digits = np.rint(value / _POWERS[power])
            if 1.0 <= digits < _EXACT and digits * _POWERS[power] == value:
                return int(digits), power
        return 0, 0
    for power in range(1, 23):
        digits = np.rint(value * _POWERS[power])
        if digits >= _EXACT:
            break
        if digits >= 1.0 and digits / _POWERS[power] == value:
            return int(digits), -power
    return 0, 0


@inline
def _with_point(out: int, count: int, point: int) -> int:
    """Turns the `count` digits at `out` into the text of a number; returns the place after the text.

    The decimal point of the number follows the first `point` digits. Zeros or an exponent are added if needed.
    """
    if 0 < point < count:
        for place in range(count - 1, point - 1, -1):
            store8(out + place + 1, load8(out + place))
        store8(out + point, 46)
        return out + count + 1
    if -14 <= point <= 0:
        zeros = 2 - point
        for place in range(count - 1, -1, -1):
            store8(out + place + zeros, load8(out + place))
        for place in range(zeros):
            store8(out + place, 48)
        store8(out + 1, 46)
        return out + zeros + count
    if point <= 15 and point > 0:
        for place in range(count, point):
            store8(out + place, 48)
        store8(out + point, 46)
        store8(out + point + 1, 48)
        return out + point + 2
    if count > 1:
        for place in range(count - 1, 0, -1):
            store8(out + place + 1, load8(out + place))
        store8(out + 1, 46)
        count += 1
    store8(out + count, 101)
    return put_number(out + count + 1, point - 1)


@inline
def put_opaque(data: int, at: int, size: int, out: int, limit: int) -> int:
    """Writes a value of an SQL type that JSON does not have."""
    if at >= size:
        return BAD
    kind = load8(data + at)
    start, end = sized(data, at + 1, size)
    if end == BAD:
        return BAD
    if kind == _DECIMAL:
        return _put_decimal(data + start, end - start, out, limit)
    if end - start == 8 and (kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP)):
        return _put_moment(kind, load64(data + start), out, limit)
    return _put_base64(kind, data + start, end - start, out, limit)


@jit
def _put_base64(kind: int, data: int, size: int, out: int, limit: int) -> int:
    if limit - out < 18 + (size + 2) // 3 * 4:
        return FULL
    out = put_word(out, _BASE64, 8)
    out = put_word(out, _TYPE, 4)
    out = put_magnitude(out, kind, 1)
    store8(out, 58)
    out += 1
    for at in range(0, size, 3):
        left = size - at
        bits = load8(data + at) << 16
        if left > 1:
            bits |= load8(data + at + 1) << 8
        if left > 2:
            bits |= load8(data + at + 2)
        for place in range(4):
            letter = np.int64(_DIGITS64[bits >> (18 - 6 * place) & 63])
            store8(out + place, letter if place <= left else 61)
        out += 4
    store8(out, 34)
    return out + 1


@inline
def _digits_in(number: int, groups: int, first: int, last: int) -> int:
    """Returns the number of digits in one of a decimal's groups."""
    if number == 0 and first:
        return first
    return last if number == groups - 1 and last else 9


@jit
def _put_decimal(data: int, size: int, out: int, limit: int) -> int:
    """Writes the digits of all groups, removes leading zeros, and adds point and sign."""
    if size < 2:
        return BAD
    precision, scale = load8(data), load8(data + 1)
    if precision == 0 or precision > 65 or scale > precision:
        return BAD
    whole = precision - scale
    if limit - out < _LONGEST_DECIMAL:
        return FULL
    address = data + 2
    place = 0
    negative = size > 2 and load8(address) & 0x80 == 0
    flip = 0xFF if negative else 0
    digits = out + 2
    stop = digits
    zero = True
    groups = (whole + 8) // 9 + (scale + 8) // 9
    for number in range(groups):
        count = _digits_in(number, groups, whole % 9, scale % 9)
        width = (count + 1) >> 1 if count < 9 else 4
        if 2 + place + width > size:
            return BAD
        value = group(address, place, count, flip)
        if value >= limit_of(count):
            return BAD
        zero = zero and value == 0
        stop = put_magnitude(stop, value, count)
        place += width
    if 2 + place != size:
        return BAD
    first = digits
    point = stop - scale
    while first < point - 1 and load8(first) == 48:
        first += 1
    if negative and not zero:
        store8(out, 45)
        out += 1
    if first >= point:
        store8(out, 48)
        out += 1
    while first < point:
        store8(out, load8(first))
        out += 1
        first += 1
    if scale == 0:
        return out
    # The digits move one or two bytes to the left, so the first digit is moved first.
    return _put_fraction(point, scale, out)


@inline
def _put_fraction(digits: int, scale: int, out: int) -> int:
    digit = load8(digits)
    store8(out, 46)
    for place in range(scale):
        following = load8(digits + place + 1)
        store8(out + 1 + place, digit)
        digit = following
    return out + 1 + scale


@jit
def _put_moment(kind: int, packed: int, out: int, limit: int) -> int:
    """Writes a time, packed as in a row, but always with 24 bits for the microseconds."""
    if limit - out < _LONGEST_MOMENT:
        return FULL
    negative = packed < 0
    size = -packed if negative else packed
    microsecond = size & 0xFFFFFF
    seconds = size >> 24 & 0xFFFFFFFFFF
    minute, second = seconds >> 6 & 63, seconds & 63
    store8(out, 34)
    out += 1
    if kind == _TIME:
        if negative:
            store8(out, 45)
            out += 1
        out = put_magnitude(out, seconds >> 12 & 1023, 2)
    else:
        year_month = seconds >> 22
        out = put_magnitude(out, year_month // 13, 4)
        store8(out, 45)
        out = put_magnitude(out + 1, year_month % 13, 2)
        store8(out, 45)
        out = put_magnitude(out + 1, seconds >> 17 & 31, 2)
        if kind == _DATE:
            store8(out, 34)
            return out + 1
        store8(out, 32)
        out = put_magnitude(out + 1, seconds >> 12 & 31, 2)
    store8(out, 58)
    out = put_magnitude(out + 1, minute, 2)
    store8(out, 58)
    out = put_magnitude(out + 1, second, 2)
    store8(out, 46)
    out = put_magnitude(out + 1, microsecond, 6)
    store8(out, 34)
    return out + 1
