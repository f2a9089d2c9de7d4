"""Computes zlib's CRC32 in compiled code, for the checksums of events, which compiled code reads one by one.

If the processor can multiply without carries, sixteen bytes at a time are folded onto later bytes: they are multiplied
by a power of x modulo the polynomial, and combined with the later bytes by XOR. This product contributes to the CRC-32
at the later place what the bytes contribute at their own place. The last bytes and short data are computed with tables,
in steps of eight bytes.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from pidts.binlog.jit import CARRYLESS, address, carryless, inline, jit, load8, load64

_wide: Any = np.int64

_POLYNOMIAL = 0xEDB88320
_ALL = 0xFFFFFFFF
_SHORTEST_FOLD = 64
_WORTH_A_CALL = 16384


def _tables() -> Any:
    """Returns what each value of a byte contributes to the CRC-32: one table each for 0 to 7 bytes that follow it."""
    rows = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        rows[0, byte] = value
    for row in range(1, 8):
        rows[row] = rows[row - 1] >> 8 ^ rows[0, rows[row - 1] & 0xFF]
    return rows.reshape(-1)


def _power(exponent: int) -> int:
    """Returns x to this power modulo the polynomial, with its bits in the order of the data."""
    value = 1 << 31
    for _ in range(exponent):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value << 1


_TABLES = _tables()
_FAR_LOW, _FAR_HIGH = _power(4 * 128 + 32), _power(4 * 128 - 32)
_NEAR_LOW, _NEAR_HIGH = _power(128 + 32), _power(128 - 32)


@inline
def _step(word: int) -> int:
    """Returns the CRC-32 after eight more bytes. In `word`, the first four are already combined with the CRC-32."""
    found: int = (
        _wide(_TABLES[1792 + (word & 0xFF)])
        ^ _wide(_TABLES[1536 + (word >> 8 & 0xFF)])
        ^ _wide(_TABLES[1280 + (word >> 16 & 0xFF)])
        ^ _wide(_TABLES[1024 + (word >> 24 & 0xFF)])
        ^ _wide(_TABLES[768 + (word >> 32 & 0xFF)])
        ^ _wide(_TABLES[512 + (word >> 40 & 0xFF)])
        ^ _wide(_TABLES[256 + (word >> 48 & 0xFF)])
        ^ _wide(_TABLES[word >> 56 & 0xFF])
    )
    return found


@inline
def _by_tables(at: int, end: int, state: int) -> int:
    while end - at >= 8:
        state = _step(load64(at) ^ state)
        at += 8
    while at < end:
        state = state >> 8 ^ _wide(_TABLES[(state ^ load8(at)) & 0xFF])
        at += 1
    return state


@inline
def _fold(low: int, high: int, by_low: int, by_high: int, at: int) -> tuple[int, int]:
    first_low, first_high = carryless(low, by_low)
    second_low, second_high = carryless(high, by_high)
    return first_low ^ second_low ^ load64(at), first_high ^ second_high ^ load64(at + 8)


@jit
def _folded(at: int, end: int, state: int) -> int:
    """Folds four times sixteen bytes at a time, since several independent multiplications take the time of one."""
    low, high = load64(at) ^ state, load64(at + 8)
    at += 16
    if end - at >= 112:
        low1, high1 = load64(at), load64(at + 8)
        low2, high2 = load64(at + 16), load64(at + 24)
        low3, high3 = load64(at + 32), load64(at + 40)
        at += 48
        while end - at >= 64:
            low, high = _fold(low, high, _FAR_LOW, _FAR_HIGH, at)
            low1, high1 = _fold(low1, high1, _FAR_LOW, _FAR_HIGH, at + 16)
            low2, high2 = _fold(low2, high2, _FAR_LOW, _FAR_HIGH, at + 32)
            low3, high3 = _fold(low3, high3, _FAR_LOW, _FAR_HIGH, at + 48)
            at += 64
        for other_low, other_high in ((low1, high1), (low2, high2), (low3, high3)):
            first_low, first_high = carryless(low, _NEAR_LOW)
            second_low, second_high = carryless(high, _NEAR_HIGH)
            low, high = first_low ^ second_low ^ other_low, first_high ^ second_high ^ other_high
    while end - at >= 16:
        low, high = _fold(low, high, _NEAR_LOW, _NEAR_HIGH, at)
        at += 16
    return _by_tables(at, end, _step(_step(low) ^ high))


@jit
def _sliced(at: int, end: int, state: int) -> int:
    return _by_tables(at, end, state)


_long = _folded if CARRYLESS else _sliced


@jit
def crc32_at(at: int, size: int, start: int) -> int:
    """Returns the CRC-32 of `size` bytes at an address. `start`: the CRC-32 of the bytes before, 0 at the beginning."""
    state = start ^ _ALL
    end = at + size
    state = _by_tables(at, end, state) if size < _SHORTEST_FOLD else _long(at, end, state)
    return state ^ _ALL


def crc32(data: bytes | memoryview, start: int = 0) -> int:
    """Returns the same as `zlib.crc32`, which is slower for few bytes because of the call."""
    if not CARRYLESS or len(data) < _WORTH_A_CALL:
        return zlib.crc32(data, start)
    return int(crc32_at(address(data), len(data), start))
