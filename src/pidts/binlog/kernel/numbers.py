"""Reads numbers of fixed size: integers, floats, bits, years, decimals."""

from __future__ import annotations

from pidts.binlog.jit import copy as copy_bytes
from pidts.binlog.jit import inline, jit, load8, load16, load32, load64, store16, store32, store64
from pidts.binlog.kernel import layout as at

_GROUP_LIMIT = 10**9


@inline
def big(address: int, size: int) -> int:
    """Reads a number of up to eight bytes, the highest byte first."""
    value = 0
    for place in range(size):
        value = value << 8 | load8(address + place)
    return value


@inline
def little(address: int, size: int) -> int:
    """Reads a number of up to eight bytes, the lowest byte first."""
    value = 0
    if size == 1:
        value = load8(address)
    elif size == 2:
        value = load16(address)
    elif size == 4:
        value = load32(address)
    else:
        value = _few(address, size)
    return value


@inline
def _few(address: int, size: int) -> int:
    value = 0
    for place in range(size):
        value |= load8(address + place) << (8 * place)
    return value


@inline
def _bytes_of(digits: int) -> int:
    return (digits + 1) >> 1 if digits < 9 else 4


@inline
def limit_of(digits: int) -> int:
    """Returns the smallest number that has more than `digits` digits."""
    limit = 1
    for _ in range(digits):
        limit *= 10
    return limit


@inline
def group(address: int, place: int, digits: int, flip: int) -> int:
    """Returns one group of a decimal's digits. `flip` is 255 for negative numbers, whose bits are all inverted."""
    value = 0
    for byte in range(_bytes_of(digits)):
        found = load8(address + place + byte) ^ flip
        if place + byte == 0:
            found ^= 0x80
        value = value << 8 | found
    return value


@jit
def _small_decimal(address: int, first: int, groups: int, last: int, cell: int) -> int:
    """Reads a decimal of up to 18 digits, which fits into 64 bits."""
    negative = load8(address) & 0x80 == 0
    flip = 0xFF if negative else 0
    place = 0
    value = 0
    if first:
        value = group(address, 0, first, flip)
        if value >= limit_of(first):
            return at.BAD_VALUE
        place = _bytes_of(first)
    for _ in range(groups):
        found = group(address, place, 9, flip)
        if found >= _GROUP_LIMIT:
            return at.BAD_VALUE
        value = value * _GROUP_LIMIT + found
        place += 4
    if last:
        found = group(address, place, last, flip)
        limit = limit_of(last)
        if found >= limit:
            return at.BAD_VALUE
        value = value * limit + found
    if negative:
        value = -value
    store64(cell, value)
    store64(cell + 8, value >> 63)
    return at.FINE


@inline
def _append_group(cell: int, words: int, limit: int, found: int) -> int:
    """Multiplies the number in the cell (words of 32 bits) by `limit`, and adds `found`."""
    carry = found
    for word in range(words):
        place = cell + 4 * word
        product = load32(place) * limit + carry
        store32(place, product)
        carry = product >> 32
    return carry


@jit
def _decimal(address: int, first: int, groups: int, last: int, cell: int, size: int) -> int:
    negative = load8(address) & 0x80 == 0
    flip = 0xFF if negative else 0
    words = size >> 2
    for word in range(words):
        store32(cell + 4 * word, 0)
    place = 0
    if first:
        found = group(address, 0, first, flip)
        if found >= limit_of(first):
            return at.BAD_VALUE
        store32(cell, found)
        place = _bytes_of(first)
    for _ in range(groups):
        found = group(address, place, 9, flip)
        if found >= _GROUP_LIMIT:
            return at.BAD_VALUE
        _append_group(cell, words, _GROUP_LIMIT, found)
        place += 4
    if last:
        found = group(address, place, last, flip)
        limit = limit_of(last)
        if found >= limit:
            return at.BAD_VALUE
        _append_group(cell, words, limit, found)
    if negative:
        carry = 1
        for word in range(words):
            inverted = (load32(cell + 4 * word) ^ 0xFFFFFFFF) + carry
            store32(cell + 4 * word, inverted)
            carry = inverted >> 32
    return at.FINE


@jit
def read_number(code: int, program: int, address: int, cell: int) -> int:
    """Reads one value into its cell. The caller has checked that the event has all bytes of the value."""
    size = load64(program + at.WIRE)
    if code <= at.BYTES8:
        copy_bytes(cell, address, size)
    elif code == at.INT24:
        value = little(address, 3)
        store32(cell, value | 0xFF000000 if value & 0x800000 else value)
    elif code == at.UINT24:
        store32(cell, little(address, 3))
    elif code == at.YEAR:
        year = load8(address)
        store16(cell, year + 1900 if year else 0)
    elif code == at.BITS:
        store64(cell, big(address, size))
    elif code == at.WORD4:
        store32(cell, little(address, size))
    elif code == at.WORD8:
        store64(cell, little(address, size))
    else:
        first, groups, last = load64(program + at.A), load64(program + at.B), load64(program + at.C)
        if code == at.DECIMAL18:
            return _small_decimal(address, first, groups, last, cell)
        return _decimal(address, first, groups, last, cell, load64(program + at.CELL))
    return at.FINE
