"""Decompresses zlib streams in compiled code. Python's `zlib` is the specification, and handles all other streams.

The rows of MariaDB's compressed events are such streams, mostly of a few hundred bytes. The result is used only if the
whole stream is valid, has the announced size, and has the right checksum.
"""

from __future__ import annotations

import numpy as np

from pidts.binlog.jit import copy, entry, inline, jit, load8, load16, load32, load64, store8, store32

_FAST_BITS = 9
_LONGEST = 15
_LITERALS, _DISTANCES = 288, 30
_END_OF_BLOCK = 256

# A table of codes: an entry for each value of the next nine bits, which has the length of the code and its symbol (0:
# the code is longer). For longer codes: how many codes there are of each length, and the symbols in the order of codes.
_COUNTS = 4 << _FAST_BITS
_SYMBOLS = _COUNTS + 4 * (_LONGEST + 1)
_TABLE = _SYMBOLS + 4 * _LITERALS

# The memory that `inflate` works in: whether the fixed tables are made, four tables, and lengths of codes.
_IS_MADE = 0
_FIXED_LITERALS = 8
_FIXED_DISTANCES = _FIXED_LITERALS + _TABLE
_OWN_LITERALS = _FIXED_DISTANCES + _TABLE
_OWN_DISTANCES = _OWN_LITERALS + _TABLE
_LENGTHS = _OWN_DISTANCES + _TABLE
_STARTS = _LENGTHS + 512
WORK = _STARTS + 4 * (_LONGEST + 1)
"""The size of this memory in bytes, which must be zero before its first use."""

MOST_TIMES = 1032
"""No stream decompresses to more than this many times its size."""
BAD = -1

_LENGTH_BASE = np.array(
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258],
    np.int64,
)
_LENGTH_BITS = np.array([0] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [0], np.int64)
_DISTANCE_BITS = np.array([0, 0, *(place // 2 for place in range(28))], np.int64)
_DISTANCE_BASE = np.concatenate([[1], 1 + np.cumsum(1 << _DISTANCE_BITS)[:-1]]).astype(np.int64)
_ORDER = np.array([16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15], np.int64)
_ADLER = 65521
_ADLER_RUN = 5552
"""The number of bytes that can be added before a sum has to be reduced."""


@jit
def _make(table: int, lengths: int, count: int, starts: int, longest_alone: int) -> bool:
    """Makes a table of codes from the length of each symbol's code; returns False if zlib does not accept the lengths.

    Codes may leave bits unused only if no code has more than `longest_alone` bits.
    """
    for number in range(_LONGEST + 1):
        store32(table + _COUNTS + 4 * number, 0)
    for number in range(1 << _FAST_BITS):
        store32(table + 4 * number, 0)
    longest = 0
    for symbol in range(count):
        length = load8(lengths + symbol)
        if length:
            place = table + _COUNTS + 4 * length
            store32(place, load32(place) + 1)
            longest = max(longest, length)
    left, start = 1, 0
    for length in range(1, _LONGEST + 1):
        left = 2 * left - load32(table + _COUNTS + 4 * length)
        if left < 0:
            return False
        store32(starts + 4 * length, start)
        start += load32(table + _COUNTS + 4 * length)
    if left > 0 and longest > longest_alone:
        return False
    for symbol in range(count):
        length = load8(lengths + symbol)
        if length:
            place = load32(starts + 4 * length)
            store32(table + _SYMBOLS + 4 * place, symbol)
            store32(starts + 4 * length, place + 1)
    code = place = 0
    for length in range(1, _FAST_BITS + 1):
        for _ in range(load32(table + _COUNTS + 4 * length)):
            turned, rest = 0, code
            for _bit in range(length):
                turned = turned << 1 | rest & 1
                rest >>= 1
            entry = load32(table + _SYMBOLS + 4 * place) << 4 | length
            while turned < 1 << _FAST_BITS:
                store32(table + 4 * turned, entry)
                turned += 1 << length
            code += 1
            place += 1
        code <<= 1
    return True


@jit
def _make_fixed(work: int) -> None:
    for symbol in range(_LITERALS):
        length = 8 if symbol < 144 or symbol > 279 else 9 if symbol < 256 else 7
        store8(work + _LENGTHS + symbol, length)
    _make(work + _FIXED_LITERALS, work + _LENGTHS, _LITERALS, work + _STARTS, 1)
    for symbol in range(32):
        store8(work + _LENGTHS + symbol, 5)
    _make(work + _FIXED_DISTANCES, work + _LENGTHS, 32, work + _STARTS, 1)
    store8(work + _IS_MADE, 1)


@inline
def _symbol(table: int, bits: int) -> int:
    """Returns the symbol that the next bits have, times 16, plus the length of its code; 0 if no code matches."""
    entry: int = load32(table + 4 * (bits & ((1 << _FAST_BITS) - 1)))
    return entry or _long_symbol(table, bits)


@jit
def _long_symbol(table: int, bits: int) -> int:
    code = first = index = 0
    for length in range(1, _LONGEST + 1):
        code |= bits & 1
        bits >>= 1
        count = load32(table + _COUNTS + 4 * length)
        if code - count < first:
            symbol: int = load32(table + _SYMBOLS + 4 * (index + code - first))
            return symbol << 4 | length
        index += count
        first = (first + count) << 1
        code <<= 1
    return 0


@inline
def _more(at: int, end: int, bits: int, count: int) -> tuple[int, int, int]:
    """Reads so many bytes that at least 49 bits are known.

    Returns the place in the stream, the known bits and their number. After the end of the stream, bits are 0 and `at`
    still increases.
    """
    if end - at >= 8:
        whole = (56 - count) >> 3
        bits |= (load64(at) & ((1 << (8 * whole)) - 1)) << count
        return at + whole, bits, count + 8 * whole
    while count <= 48:
        if at < end:
            bits |= load8(at) << count
        at += 1
        count += 8
    return at, bits, count


@jit
def _lengths(at: int, end: int, bits: int, count: int, work: int, total: int) -> tuple[int, int, int]:
    """Reads the lengths of a block's own codes.

    Returns what `_more` returns; the returned place in the stream is -1 if the lengths are wrong.
    """
    lengths = work + _LENGTHS
    number = 0
    while number < total:
        at, bits, count = _more(at, end, bits, count)
        entry = _symbol(work + _OWN_LITERALS, bits)
        if entry == 0 or at > end + 8:
            return BAD, 0, 0
        bits >>= entry & 15
        count -= entry & 15
        symbol = entry >> 4
        length, times = symbol, 1
        if symbol == 16:
            if number == 0:
                return BAD, 0, 0
            length, times = load8(lengths + number - 1), 3 + (bits & 3)
            bits >>= 2
            count -= 2
        elif symbol == 17:
            length, times = 0, 3 + (bits & 7)
            bits >>= 3
            count -= 3
        elif symbol == 18:
            length, times = 0, 11 + (bits & 127)
            bits >>= 7
            count -= 7
        if number + times > total:
            return BAD, 0, 0
        for _ in range(times):
            store8(lengths + number, length)
            number += 1
    return at, bits, count


@jit
def _own_tables(at: int, end: int, bits: int, count: int, work: int) -> tuple[int, int, int]:
    """Reads the tables of a block. Returns what `_more` returns; the place in the stream is -1 if they are wrong."""
    at, bits, count = _more(at, end, bits, count)
    literals, distances, codes = (bits & 31) + 257, (bits >> 5 & 31) + 1, (bits >> 10 & 15) + 4
    bits >>= 14
    count -= 14
    if literals > 286 or distances > _DISTANCES:
        return BAD, 0, 0
    lengths = work + _LENGTHS
    for number in range(19):
        store8(lengths + number, 0)
    for number in range(codes):
        at, bits, count = _more(at, end, bits, count)
        store8(lengths + _ORDER[number], bits & 7)
        bits >>= 3
        count -= 3
    if not _make(work + _OWN_LITERALS, lengths, 19, work + _STARTS, 0):
        return BAD, 0, 0
    at, bits, count = _lengths(at, end, bits, count, work, literals + distances)
    if at < 0 or load8(lengths + _END_OF_BLOCK) == 0:
        return BAD, 0, 0
    if not _make(work + _OWN_LITERALS, lengths, literals, work + _STARTS, 1):
        return BAD, 0, 0
    if not _make(work + _OWN_DISTANCES, lengths + literals, distances, work + _STARTS, 1):
        return BAD, 0, 0
    return at, bits, count


@jit
def _adler(at: int, size: int) -> int:
    low, high = 1, 0
    while size > 0:
        run = min(size, _ADLER_RUN)
        for _ in range(run):
            low += load8(at)
            high += low
            at += 1
        low %= _ADLER
        high %= _ADLER
        size -= run
    return high << 16 | low


@jit
def _codes(
    at: int, end: int, bits: int, count: int, literals: int, distances: int, target: int, written: int, size: int
) -> tuple[int, int, int, int]:
    """Decompresses the rest of a block; the returned place in the stream is -1 if the block is invalid or too long."""
    while True:
        at, bits, count = _more(at, end, bits, count)
        entry = _symbol(literals, bits)
        if entry == 0 or at > end + 8:
            return BAD, 0, 0, 0
        bits >>= entry & 15
        count -= entry & 15
        symbol = entry >> 4
        if symbol < _END_OF_BLOCK:
            if written >= size:
                return BAD, 0, 0, 0
            store8(target + written, symbol)
            written += 1
            continue
        if symbol == _END_OF_BLOCK:
            return at, bits, count, written
        symbol -= 257
        if symbol >= 29:
            return BAD, 0, 0, 0
        length = _LENGTH_BASE[symbol] + (bits & ((1 << _LENGTH_BITS[symbol]) - 1))
        bits >>= _LENGTH_BITS[symbol]
        count -= _LENGTH_BITS[symbol]
        entry = _symbol(distances, bits)
        symbol = entry >> 4
        if entry == 0 or symbol >= _DISTANCES:
            return BAD, 0, 0, 0
        bits >>= entry & 15
        count -= entry & 15
        distance = _DISTANCE_BASE[symbol] + (bits & ((1 << _DISTANCE_BITS[symbol]) - 1))
        bits >>= _DISTANCE_BITS[symbol]
        count -= _DISTANCE_BITS[symbol]
        if distance > written or length > size - written:
            return BAD, 0, 0, 0
        place = target + written
        if distance >= length:
            copy(place, place - distance, length)
        else:
            for number in range(length):
                store8(place + number, load8(place + number - distance))
        written += length


@entry
def inflate(at: int, end: int, target: int, size: int, work: int) -> int:
    """Decompresses the stream from `at` to `end`.

    Returns 1, or 0 if the stream is not valid, or does not decompress to exactly `size` bytes.
    """
    if end - at < 6 or load8(at) & 15 != 8 or load8(at) >> 4 > 7:
        return 0
    if (load8(at) << 8 | load8(at + 1)) % 31 or load8(at + 1) & 0x20:
        return 0
    at += 2
    bits = count = written = 0
    is_last = 0
    while is_last == 0:
        at, bits, count = _more(at, end, bits, count)
        is_last = bits & 1
        kind = bits >> 1 & 3
        bits >>= 3
        count -= 3
        if kind == 0:
            at -= count >> 3
            if end - at < 4:
                return 0
            length = load16(at)
            if length ^ 0xFFFF != load16(at + 2) or length > end - at - 4 or length > size - written:
                return 0
            copy(target + written, at + 4, length)
            written += length
            at += 4 + length
            bits = count = 0
            continue
        if kind == 1:
            if load8(work + _IS_MADE) == 0:
                _make_fixed(work)
            literals, distances = work + _FIXED_LITERALS, work + _FIXED_DISTANCES
        elif kind == 2:
            at, bits, count = _own_tables(at, end, bits, count, work)
            if at < 0:
                return 0
            literals, distances = work + _OWN_LITERALS, work + _OWN_DISTANCES
        else:
            return 0
        at, bits, count, written = _codes(at, end, bits, count, literals, distances, target, written, size)
        if at < 0:
            return 0
    at -= count >> 3
    if end - at < 4 or written != size:
        return 0
    stored = load8(at) << 24 | load8(at + 1) << 16 | load8(at + 2) << 8 | load8(at + 3)
    return 1 if _adler(target, size) == stored else 0
