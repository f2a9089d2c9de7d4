"""Converts MariaDB's UUID, INET4 and INET6 to text, as the plain code in `pidts.binlog.values.identifiers` does."""

from __future__ import annotations

from pidts.binlog.jit import entry, inline, load8, store8
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.writing import hex_digit, put_magnitude

LONGEST = 45


@inline
def _byte(address: int, place: int, size: int) -> int:
    """Returns one byte of the value; 0 if the log does not contain it: servers leave out zeros at the end."""
    return load8(address + place) if place < size else 0


@inline
def _uuid(address: int, size: int, out: int) -> int:
    for place in range(16):
        if place in (4, 6, 8, 10):
            store8(out, 45)
            out += 1
        value = _byte(address, place, size)
        store8(out, hex_digit(value >> 4))
        store8(out + 1, hex_digit(value & 15))
        out += 2
    return out


@inline
def _dotted(address: int, first: int, size: int, out: int) -> int:
    for place in range(4):
        if place:
            store8(out, 46)
            out += 1
        out = put_magnitude(out, _byte(address, first + place, size), 1)
    return out


@inline
def _group(address: int, number: int, size: int) -> int:
    return _byte(address, 2 * number, size) << 8 | _byte(address, 2 * number + 1, size)


@inline
def _put_hex(out: int, value: int) -> int:
    started = False
    for shift in (12, 8, 4, 0):
        digit = value >> shift & 15
        if digit or started or shift == 0:
            store8(out, hex_digit(digit))
            out += 1
            started = True
    return out


@inline
def _longest_zeros(address: int, size: int) -> tuple[int, int]:
    """Returns where the longest sequence of zero groups starts (the first of equally long ones), and its length."""
    best, best_count = 0, 0
    for start in range(8):
        count = 0
        while start + count < 8 and _group(address, start + count, size) == 0:
            count += 1
        if count > best_count:
            best, best_count = start, count
    return best, best_count


@inline
def _inet6(address: int, size: int, out: int) -> int:
    start, count = _longest_zeros(address, size)
    fifth, sixth = _group(address, 5, size), _group(address, 6, size)
    if start == 0 and count >= 5 and (fifth == 0xFFFF or (fifth == 0 and sixth != 0)):
        store8(out, 58)
        store8(out + 1, 58)
        out += 2
        if fifth:
            for _ in range(4):
                store8(out, 102)
                out += 1
            store8(out, 58)
            out += 1
        return _dotted(address, 12, size, out)
    for number in range(8):
        if count and start <= number < start + count:
            if number == start:
                store8(out, 58)
                store8(out + 1, 58)
                out += 2
            continue
        if number and (number != start + count or not count):
            store8(out, 58)
            out += 1
        out = _put_hex(out, _group(address, number, size))
    return out


@entry
def put_identifier(code: int, address: int, size: int, out: int) -> int:
    """Writes a value as text, from its first `size` bytes; returns the address after the text."""
    if code == at.UUID:
        return _uuid(address, size, out)
    if code == at.INET4:
        return _dotted(address, 0, size, out)
    return _inet6(address, size, out)
