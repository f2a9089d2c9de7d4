"""Decodes dates and times to the numbers that Arrow and `model.calendar` use."""

from __future__ import annotations

from pidts.binlog.jit import inline, jit, load8, load32, load64, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.numbers import big, little
from pidts.binlog.values.temporal import ZERO_TIMESTAMP
from pidts.model import calendar

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_LAST_YEAR = 9999
_LAST_HOUR = 838
_UNREAL = calendar.days(0, 0, 0)
_EPOCH_FROM_MARCH = 719_468
"""The days from the first of March of the year 0 to 1970."""
_NO_VALUE = -(1 << 63)
_THIRTY = (1 << 4) | (1 << 6) | (1 << 9) | (1 << 11)


@inline
def _is_real(year: int, month: int, day: int) -> bool:
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return False
    if day == 31:
        return month != 2 and not (_THIRTY >> month) & 1
    if month == 2 and day > 28:
        return day == 29 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return True


@inline
def days(year: int, month: int, day: int) -> int:
    """Returns the same as `calendar.days`."""
    if not _is_real(year, month, day):
        return _UNREAL + (year * 16 + month) * 32 + day
    # If years begin in March, the leap day is the last day of a year.
    if month <= 2:
        year -= 1
        month += 12
    era_days = year * 365 + year // 4 - year // 100 + year // 400
    return era_days + (153 * (month - 3) + 2) // 5 + day - 1 - _EPOCH_FROM_MARCH


@inline
def _datetime(year_month: int, day: int, hour: int, minute: int, second: int, microsecond: int) -> int:
    year, month = year_month // 13, year_month % 13
    if year > _LAST_YEAR or hour > 23 or minute > 59 or second > 59 or microsecond >= _SECOND:
        return _NO_VALUE
    return days(year, month, day) * _DAY + ((hour * 60 + minute) * 60 + second) * _SECOND + microsecond


@inline
def _duration(hour: int, minute: int, second: int, microsecond: int) -> int:
    if hour > _LAST_HOUR or minute > 59 or second > 59 or microsecond >= _SECOND:
        return _NO_VALUE
    return ((hour * 60 + minute) * 60 + second) * _SECOND + microsecond


@inline
def _instant(seconds: int, microsecond: int) -> int:
    if microsecond >= _SECOND:
        return _NO_VALUE
    if seconds == 0 and microsecond == 0:
        return ZERO_TIMESTAMP
    return seconds * _SECOND + microsecond


@inline
def _datetime2(address: int, size: int, unit: int) -> int:
    packed = big(address, 5)
    if packed < 1 << 39:
        return _NO_VALUE
    packed -= 1 << 39
    fraction = big(address + 5, size) * unit
    return _datetime(packed >> 22, packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63, fraction)


@inline
def _time2(address: int, size: int, unit: int) -> int:
    shift = 8 * size
    number = big(address, 3 + size) - (1 << (23 + shift))
    negative = number < 0
    if negative:
        number = -number
    packed = number >> shift
    value = _duration(packed >> 12, packed >> 6 & 63, packed & 63, (number & ((1 << shift) - 1)) * unit)
    return -value if negative and value != _NO_VALUE else value


@inline
def _old_time(address: int) -> int:
    number = little(address, 3)
    negative = number & 0x800000 != 0
    if negative:
        number = (1 << 24) - number
    value = _duration(number // 10_000, number // 100 % 100, number % 100, 0)
    return -value if negative and value != _NO_VALUE else value


@inline
def _old_datetime(address: int) -> int:
    number = load64(address)
    if number < 0:
        return _NO_VALUE
    date, time = number // _SECOND, number % _SECOND
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    if year > _LAST_YEAR or month > 12 or day > 31:
        return _NO_VALUE
    return _datetime(year * 13 + month, day, time // 10_000, time // 100 % 100, time % 100, 0)


@inline
def _fraction_time(address: int, size: int, zero: int, unit: int) -> int:
    value = (big(address, size) - zero) * unit
    limit = (_LAST_HOUR + 1) * 3600 * _SECOND
    return value if -limit < value < limit else _NO_VALUE


@inline
def _fraction_datetime(address: int, size: int, units: int, unit: int) -> int:
    number = big(address, size)
    if number < 0:
        return _NO_VALUE
    seconds, microsecond = number // units, number % units * unit
    hours = seconds // 3600
    date = hours // 24
    return _datetime(date // 32, date % 32, hours % 24, seconds // 60 % 60, seconds % 60, microsecond)


@jit
def read_temporal(code: int, program: int, address: int, cell: int) -> int:
    """Reads one value into its cell. The caller has checked that the event has all bytes of the value."""
    if code == at.DATE:
        packed = load8(address) | load8(address + 1) << 8 | load8(address + 2) << 16
        if packed >> 9 > _LAST_YEAR:
            return at.BAD_VALUE
        store32(cell, days(packed >> 9, packed >> 5 & 15, packed & 31))
        return at.FINE
    first, second = load64(program + at.A), load64(program + at.B)
    if code == at.DATETIME2:
        value = _datetime2(address, first, second)
    elif code == at.TIMESTAMP2:
        value = _instant(big(address, 4), big(address + 4, first) * second)
    elif code == at.TIME2:
        value = _time2(address, first, second)
    elif code == at.OLD_TIMESTAMP:
        value = _instant(load32(address), 0)
    elif code == at.OLD_DATETIME:
        value = _old_datetime(address)
    elif code == at.OLD_TIME:
        value = _old_time(address)
    elif code == at.FRACTION_TIMESTAMP:
        value = _instant(big(address, 4), big(address + 4, first) * second)
    elif code == at.FRACTION_DATETIME:
        value = _fraction_datetime(address, load64(program + at.WIRE), first, second)
    else:
        value = _fraction_time(address, load64(program + at.WIRE), first, second)
    if value == _NO_VALUE:
        return at.BAD_VALUE
    store64(cell, value)
    return at.FINE
