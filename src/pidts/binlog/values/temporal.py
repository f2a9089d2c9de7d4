"""Reads dates and times in three encodings: of MySQL 5.6 and later, of earlier MySQL versions, and MariaDB's own.

For a date, a reader appends `year * 512 + month * 32 + day` to the column's list. For a datetime, it appends this
number times 2**37, plus the microseconds of the day. Zero and partial dates (`0000-00-00`, `2024-00-15`) are ordinary
numbers here. Every distinct day is converted only once.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pidts.binlog.values.image import MakeReader, fixed_number
from pidts.binlog.wire import Wire, WireType
from pidts.model import calendar
from pidts.model.errors import DecodeError, Halted
from pidts.model.types import ColumnType, Kind

_SECOND = 1_000_000
_MICROSECOND_BITS = 37
_MICROSECONDS = (1 << _MICROSECOND_BITS) - 1
_LAST_YEAR = 9999
_LAST_HOUR = 838

UNKNOWN_DIGITS = -1
"""The `fsp` of columns in MariaDB's own encoding: the log lacks the number of a fraction's digits, without which the
values cannot be read.
"""

ZERO_TIMESTAMP = calendar.microseconds(calendar.days(0, 0, 0), 0)

# MariaDB's own encoding of fractions (mysql56_temporal_format=OFF): the number of bytes, by the digits of the fraction.
_MARIADB_TIME = (3, 4, 4, 5, 5, 5, 6)
_MARIADB_DATETIME = (8, 6, 6, 7, 7, 7, 8)
_MARIADB_FRACTION = (0, 1, 1, 2, 2, 3, 3)


def reader(kind: ColumnType, wire: Wire) -> MakeReader | None:
    """Returns the reader of a date or time; None if the encoding in the log does not fit the type."""
    if kind.fsp == UNKNOWN_DIGITS:
        raise Halted(
            "unknown-precision",
            f"a {kind.kind} column is in MariaDB's own encoding (mysql56_temporal_format=OFF), and the log lacks the "
            "number of digits of its fraction",
            todo="Give the table's structure (schema-from), or rewrite the table on the source: SET GLOBAL "
            "mysql56_temporal_format=ON; ALTER TABLE ... FORCE",
        )
    fits = wire.scale == kind.fsp
    match (kind.kind, wire.type):
        case (Kind.DATE, WireType.DATE):
            return _date
        case (Kind.TIME, WireType.TIME2) if fits:
            return _time2(kind.fsp)
        case (Kind.DATETIME, WireType.DATETIME2) if fits:
            return _datetime2(kind.fsp)
        case (Kind.TIMESTAMP, WireType.TIMESTAMP2) if fits:
            return _timestamp2(kind.fsp)
        case (Kind.TIME, WireType.TIME):
            return _mariadb_time(kind.fsp) if kind.fsp else fixed_number(3, _old_time)
        case (Kind.DATETIME, WireType.DATETIME):
            return _mariadb_datetime(kind.fsp) if kind.fsp else _old_datetime
        case (Kind.TIMESTAMP, WireType.TIMESTAMP):
            return _mariadb_timestamp(kind.fsp)
    return None


def build_date(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Returns days since 1970."""
    known = _days(values)
    return pa.array([None if value is None else known[value] for value in values], pa.int32()).cast(kind)


def build_datetime(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Returns microseconds from 1970-01-01 00:00 to the value, without time zones: a DATETIME has none."""
    known = {day: days * 86_400 * _SECOND for day, days in _days(_day_parts(values)).items()}
    return pa.array(
        [None if value is None else known[value >> _MICROSECOND_BITS] + (value & _MICROSECONDS) for value in values],
        pa.int64(),
    ).cast(kind)


def build_microseconds(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Returns durations and timestamps; the values are microseconds already."""
    return pa.array(values, pa.int64()).cast(kind)


def _day_parts(values: list[Any]) -> set[int]:
    return {value >> _MICROSECOND_BITS for value in values if value is not None}


def _days(packed: list[Any] | set[int]) -> dict[int, int]:
    return {value: calendar.days(value >> 9, value >> 5 & 15, value & 31) for value in set(packed) - {None}}


def _datetime(year_month: int, day: int, hour: int, minute: int, second: int, microsecond: int) -> int:
    """Returns a datetime as one number; `year_month` is year * 13 + month, as in all encodings but the oldest."""
    if hour > 23 or minute > 59 or second > 59 or microsecond >= _SECOND:
        raise DecodeError("bad-date", f"{hour}:{minute}:{second}.{microsecond:06} is not a time of day")
    date = _real_year(year_month // 13 << 9 | year_month % 13 << 5 | day)
    return date << _MICROSECOND_BITS | ((hour * 60 + minute) * 60 + second) * _SECOND + microsecond


def _real_year(date: int) -> int:
    if date >> 9 > _LAST_YEAR:
        raise DecodeError("bad-date", f"year {date >> 9} is not possible")
    return date


def _duration(hour: int, minute: int, second: int, microsecond: int) -> int:
    if hour > _LAST_HOUR or minute > 59 or second > 59 or microsecond >= _SECOND:
        raise DecodeError("bad-time", f"{hour}:{minute}:{second}.{microsecond:06} is not a time")
    return ((hour * 60 + minute) * 60 + second) * _SECOND + microsecond


def _fraction(digits: int) -> tuple[int, int]:
    """Returns the number of bytes of a fraction, and the factor that makes microseconds from its number."""
    size = (digits + 1) // 2
    return size, 10 ** (6 - 2 * size)


_date = fixed_number(3, _real_year)


def _datetime2(digits: int) -> MakeReader:
    size, unit = _fraction(digits)
    shift, mask = 8 * size, (1 << 8 * size) - 1

    def convert(number: int) -> int:
        packed = number >> shift
        if packed < 1 << 39:
            raise DecodeError("bad-date", "a datetime is before the year 0")
        packed -= 1 << 39
        return _datetime(
            packed >> 22, packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63, (number & mask) * unit
        )

    return fixed_number(5 + size, convert, big=True)


def _time2(digits: int) -> MakeReader:
    """Returns a reader for a time that is one signed integer together with its fraction."""
    size, unit = _fraction(digits)
    shift, mask = 8 * size, (1 << 8 * size) - 1
    zero = 1 << 23 + shift

    def convert(number: int) -> int:
        signed = number - zero
        packed = abs(signed) >> shift
        value = _duration(packed >> 12, packed >> 6 & 63, packed & 63, (abs(signed) & mask) * unit)
        return -value if signed < 0 else value

    return fixed_number(3 + size, convert, big=True)


def _timestamp2(digits: int) -> MakeReader:
    size, unit = _fraction(digits)
    return _instants(size, unit)


def _instants(size: int, unit: int) -> MakeReader:
    """Returns a reader for seconds since 1970, and `size` bytes of a fraction in units of `unit` microseconds."""
    shift, mask = 8 * size, (1 << 8 * size) - 1
    return fixed_number(4 + size, lambda number: _instant(number >> shift, (number & mask) * unit), big=True)


def _instant(seconds: int, microsecond: int) -> int:
    if microsecond >= _SECOND:
        raise DecodeError("bad-time", f"{microsecond} microseconds are more than a second")
    return seconds * _SECOND + microsecond if seconds or microsecond else ZERO_TIMESTAMP


def _from_digits(number: int) -> int:
    """Reads YYYYMMDDhhmmss from one decimal number."""
    day, time = divmod(number, 1_000_000)
    year_month, day = divmod(day, 100)
    year, month = divmod(year_month, 100)
    if month > 12 or day > 31:
        raise DecodeError("bad-date", f"{number} is not a datetime")
    return _datetime(year * 13 + month, day, time // 10_000, time // 100 % 100, time % 100, 0)


_old_datetime = fixed_number(8, _from_digits)


def _old_time(number: int) -> int:
    """Reads HHMMSS from one signed decimal number."""
    signed = number - (number >> 23 << 24)
    size = abs(signed)
    value = _duration(size // 10_000, size // 100 % 100, size % 100, 0)
    return -value if signed < 0 else value


def _mariadb_time(digits: int) -> MakeReader:
    unit: int = 10 ** (6 - digits)
    zero = (_LAST_HOUR + 1) * 3600 * _SECOND // unit

    def convert(number: int) -> int:
        value = (number - zero) * unit
        if abs(value) >= (_LAST_HOUR + 1) * 3600 * _SECOND:
            raise DecodeError("bad-time", f"{value} microseconds are more than 838 hours")
        return value

    return fixed_number(_MARIADB_TIME[digits], convert, big=True)


def _mariadb_datetime(digits: int) -> MakeReader:
    unit = 10 ** (6 - digits)

    def convert(number: int) -> int:
        seconds, microsecond = divmod(number * unit, _SECOND)
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        days, hour = divmod(hours, 24)
        year_month, day = divmod(days, 32)
        return _datetime(year_month, day, hour, minute, second, microsecond)

    return fixed_number(_MARIADB_DATETIME[digits], convert, big=True)


def _mariadb_timestamp(digits: int) -> MakeReader:
    if not digits:
        return fixed_number(4, lambda number: _instant(number, 0))
    return _instants(_MARIADB_FRACTION[digits], 10 ** (6 - digits))
