"""Writes text to memory: numbers, padded numbers, fixed words. Callers have made sure that there is room."""

from __future__ import annotations

import numpy as np

from pidts.binlog.jit import inline, jit, load8, store8

LONGEST_NUMBER = 20
"""The most digits that a number of 64 bits may have."""

_TEN = np.uint64(10)


@jit
def put_magnitude(at: int, magnitude: int, width: int) -> int:
    """Writes an unsigned 64-bit number with at least `width` digits. Returns the address after it."""
    number = np.uint64(magnitude)
    digits = 1
    rest = number // _TEN
    while rest != np.uint64(0):
        digits += 1
        rest //= _TEN
    digits = max(digits, width)
    place = at + digits
    for _ in range(digits):
        place -= 1
        quotient = number // _TEN
        store8(place, 48 + np.int64(number - quotient * _TEN))
        number = quotient
    return at + digits


@inline
def put_number(at: int, value: int) -> int:
    """Writes a signed number. Returns the address after it."""
    if value < 0:
        store8(at, 45)
        return put_magnitude(at + 1, -value, 1)
    return put_magnitude(at, value, 1)


@inline
def put_word(at: int, letters: int, size: int) -> int:
    """Writes up to eight ASCII letters, packed into a number by `word`."""
    for place in range(size):
        store8(at + place, letters >> (8 * place))
    return at + size


def word(text: str) -> int:
    """Packs ASCII letters into one number, for `put_word`."""
    return int.from_bytes(text.encode("ascii"), "little")


@inline
def hex_digit(value: int) -> int:
    """Returns the ASCII code of one of sixteen digits."""
    return 48 + value if value < 10 else 87 + value


@jit
def utf8_end(at: int, end: int) -> int:
    """Returns the address of the first byte that is not valid UTF-8, or `end`."""
    while at < end:
        first = load8(at)
        if first < 0x80:
            at += 1
            continue
        if 0xC2 <= first <= 0xDF:
            size = 2
        elif 0xE0 <= first <= 0xEF:
            size = 3
        elif 0xF0 <= first <= 0xF4:
            size = 4
        else:
            return at
        if end - at < size:
            return at
        second = load8(at + 1)
        low, high = 0x80, 0xBF
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
        elif first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
        if second < low or second > high:
            return at
        for place in range(2, size):
            if load8(at + place) & 0xC0 != 0x80:
                return at
        at += size
    return end
