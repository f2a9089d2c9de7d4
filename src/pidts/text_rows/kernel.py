"""The compiled loop over a result's rows: from what a server sends to cells of Arrow's arrays. See `cells`.

The code is in this file or in `pidts.binlog`: a change of any other file would not replace the kept machine code.
"""

from __future__ import annotations

from pidts.binlog.jit import copy, inline, jit, load8, load32, load64, store8, store16, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.temporal import days

# For each column: how its values are read, the size of its cells, and two numbers. For integers, the two numbers are
# the lowest and the highest value. For decimals, the first is the number of digits after the point, and the second is
# 10 ** (digits of the type - 1). If a decimal without its point has reached the second number, it has no room for
# another digit.
TEXT, WHOLE, LARGE, DECIMAL, DATE, MOMENT, TIME = range(7)
CODE, CELL, A, B, PROGRAM = 0, 8, 16, 24, 32

# Offsets in the state of the compiled loop, which has the loop's arguments and the place where the loop has stopped.
AT, END, ROWS, CAPACITY, WIDTH, CODES, COLUMNS, PLACE, NEEDED, VALUE = range(0, 80, 8)
WANTS_BYTES, IS_ODD, MORE_ROWS, MORE_TEXT, BAD_VALUE, TORN, FINE = range(1, 8)

_LONGEST_PACKET = 0xFFFFFF
_HIGHEST = (1 << 63) - 1
_LOWEST = -_HIGHEST - 1

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_BAD = -(1 << 40)
"""Stands for an invalid part of a date or a time: it is smaller than any valid part."""


@jit
def take(state: int) -> int:
    """Reads rows up to the first packet that is incomplete, is no row, or is the beginning of a longer row.

    Returns the reason why it stopped: `WANTS_BYTES`, `IS_ODD`, or a code of `take_row`.
    """
    begin, end = load64(state + AT), load64(state + END)
    while end - begin >= 4:
        size = load32(begin) & _LONGEST_PACKET
        if size == _LONGEST_PACKET:
            return IS_ODD
        row = begin + 4
        if size > end - row:
            break
        first = load8(row) if size else 0xFF
        if first == 0xFF or (first == 0xFE and size < 9):
            return IS_ODD
        code = take_row(state, row, row + size)
        if code != FINE:
            return code
        begin = row + size
        store64(state + AT, begin)
    return WANTS_BYTES


@jit
def take_row(state: int, begin: int, end: int) -> int:
    """Reads a row. Each value is its length, in one to nine bytes, followed by its bytes; 0xFB is NULL.

    Returns `FINE`, or the reason why the row was not added (`MORE_ROWS`, `BAD_VALUE`, …). After such a reason, the row
    may be tried again.
    """
    row, width = load64(state + ROWS), load64(state + WIDTH)
    if row >= load64(state + CAPACITY):
        return MORE_ROWS
    program, column = load64(state + CODES), load64(state + COLUMNS)
    for place in range(width):
        if begin >= end:
            return TORN
        size = load8(begin)
        begin += 1
        is_null = size == 251
        if is_null:
            size = 0
        elif size > 251:
            more = 2 if size == 252 else 3 if size == 253 else 8
            if end - begin < more:
                return TORN
            size = 0
            for byte in range(more):
                size |= load8(begin + byte) << (8 * byte)
            begin += more
        if size < 0 or size > end - begin:
            return TORN
        if is_null:
            valid = load64(column + at.VALID) + (row >> 3)
            store8(valid, load8(valid) & ~(1 << (row & 7)))
        cells, cell = load64(column + at.CELLS), load64(program + CELL)
        if cell == 0:
            used = load32(cells + 4 * row)
            if used + size > load64(column + at.ROOM):
                store64(state + PLACE, place)
                store64(state + NEEDED, used + size)
                return MORE_TEXT
            copy(load64(column + at.TEXT) + used, begin, size)
            store32(cells + 4 * row + 4, used + size)
        elif not is_null and not _put(program, begin, begin + size, cells + cell * row):
            store64(state + PLACE, place)
            store64(state + NEEDED, size)
            store64(state + VALUE, begin)
            return BAD_VALUE
        begin += size
        program += PROGRAM
        column += at.COLUMN
    if begin != end:
        return TORN
    store64(state + ROWS, row + 1)
    return FINE


@inline
def _put(program: int, begin: int, end: int, cell: int) -> bool:
    code = load64(program + CODE)
    if code == WHOLE:
        return _put_whole(begin, end, cell, load64(program + CELL), load64(program + A), load64(program + B))
    if code == LARGE:
        return _put_large(begin, end, cell)
    if code == DECIMAL:
        return _put_decimal(begin, end, cell, load64(program + A), load64(program + B))
    if code == DATE:
        if end - begin != 10:
            return False
        day = _day(begin)
        store32(cell, day)
        return day != _BAD
    if code == MOMENT:
        return _put_moment(begin, end, cell)
    return _put_time(begin, end, cell)


@jit
def _put_whole(begin: int, end: int, cell: int, size: int, lowest: int, highest: int) -> bool:
    is_negative = begin < end and load8(begin) == 45
    if is_negative:
        begin += 1
    while end - begin > 1 and load8(begin) == 48:  # ZEROFILL
        begin += 1
    if end - begin < 1 or end - begin > 19:
        return False
    value = 0
    while begin < end:
        digit = load8(begin) - 48
        if digit < 0 or digit > 9:
            return False
        value = value * 10 + digit
        begin += 1
    if value < 0 and not (is_negative and value == _LOWEST):
        return False
    if is_negative:
        value = -value
    if value < lowest or value > highest:
        return False
    if size == 8:
        store64(cell, value)
    elif size == 4:
        store32(cell, value)
    elif size == 2:
        store16(cell, value)
    else:
        store8(cell, value)
    return True


@jit
def _put_large(begin: int, end: int, cell: int) -> bool:
    """Writes a number up to 2^64 - 1 into a cell; returns False if the text is not such a number.

    The number's bits are correct, although they are computed with signed numbers.
    """
    while end - begin > 1 and load8(begin) == 48:
        begin += 1
    digits = end - begin
    if digits < 1 or digits > 20 or (digits == 20 and load8(begin) != 49):
        return False
    value = 0
    while begin < end:
        digit = load8(begin) - 48
        if digit < 0 or digit > 9:
            return False
        value = value * 10 + digit
        begin += 1
    if digits == 20 and value >= 0:  # From 10^19 to 2^64, the highest bit is set. Larger numbers lack it.
        return False
    store64(cell, value)
    return True


@jit
def _put_decimal(begin: int, end: int, cell: int, scale: int, tenth: int) -> bool:
    is_negative = begin < end and load8(begin) == 45
    if is_negative:
        begin += 1
    point = end - scale - 1 if scale else end
    if point <= begin:
        return False
    value = 0
    while begin < end:
        letter = load8(begin)
        if begin == point:
            if letter != 46:
                return False
        elif letter < 48 or letter > 57 or value >= tenth:
            return False
        else:
            value = value * 10 + letter - 48
        begin += 1
    if is_negative:
        value = -value
    store64(cell, value)
    store64(cell + 8, value >> 63)
    return True


@inline
def _two(begin: int) -> int:
    high, low = load8(begin) - 48, load8(begin + 1) - 48
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else _BAD


@inline
def _day(begin: int) -> int:
    """Returns the `days` value of a text such as `2024-02-29`; `_BAD` for other texts. The date need not be real."""
    year, month, day = _two(begin) * 100 + _two(begin + 2), _two(begin + 5), _two(begin + 8)
    if load8(begin + 4) != 45 or load8(begin + 7) != 45:
        return _BAD
    if year < 0 or month < 0 or month > 12 or day < 0 or day > 31:
        return _BAD
    return days(year, month, day)


@inline
def _fraction(begin: int, end: int) -> int:
    """Returns the microseconds of a fraction such as `.25`; 0 if there is no text, `_BAD` for any other text."""
    if begin == end:
        return 0
    if load8(begin) != 46 or end - begin < 2 or end - begin > 7:
        return _BAD
    value, unit = 0, _SECOND
    for place in range(begin + 1, end):
        digit = load8(place) - 48
        if digit < 0 or digit > 9:
            return _BAD
        value = value * 10 + digit
        unit //= 10
    return value * unit


@inline
def _clock(begin: int, end: int) -> int:
    """Returns the microseconds of minutes and seconds such as `:01:02.25`; `_BAD` for any other text."""
    if end - begin < 6 or load8(begin) != 58 or load8(begin + 3) != 58:
        return _BAD
    minute, second, fraction = _two(begin + 1), _two(begin + 4), _fraction(begin + 6, end)
    if minute < 0 or minute > 59 or second < 0 or second > 59 or fraction < 0:
        return _BAD
    return (minute * 60 + second) * _SECOND + fraction


@jit
def _put_moment(begin: int, end: int, cell: int) -> bool:
    if end - begin < 19:
        return False
    day, hour, rest = _day(begin), _two(begin + 11), _clock(begin + 13, end)
    if day == _BAD or load8(begin + 10) != 32 or hour < 0 or hour > 23 or rest < 0:
        return False
    store64(cell, day * _DAY + hour * 3600 * _SECOND + rest)
    return True


@jit
def _put_time(begin: int, end: int, cell: int) -> bool:
    """Writes a time such as `-838:59:59.0` in microseconds; False for other texts. The sign applies to all of it."""
    is_negative = begin < end and load8(begin) == 45
    if is_negative:
        begin += 1
    hours, digits = 0, 0
    while begin < end and load8(begin) != 58 and digits < 4:
        digit = load8(begin) - 48
        if digit < 0 or digit > 9:
            return False
        hours = hours * 10 + digit
        digits += 1
        begin += 1
    rest = _clock(begin, end)
    if digits == 0 or rest < 0:
        return False
    value = hours * 3600 * _SECOND + rest
    store64(cell, -value if is_negative else value)
    return True
