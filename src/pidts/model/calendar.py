"""Zero and partial dates, which MySQL stores, but no calendar has: `0000-00-00`, `2024-00-15`, also `2023-02-31`.

Such a date is in the same Arrow column as real dates, as a number far below the numbers of all real dates. So one
comparison shows a writer whether a column has such dates.
"""

from __future__ import annotations

from datetime import date

_EPOCH = date(1970, 1, 1).toordinal()

FIRST_REAL_DAY = date(1, 1, 1).toordinal() - _EPOCH
"""The first real day, in days since 1970; lower `date32` values are zero and partial dates."""

FIRST_REAL_MICROSECOND = FIRST_REAL_DAY * 86_400_000_000
"""The first real day, in microseconds since 1970; lower timestamps have zero and partial dates."""

_UNREAL_DAYS = -(2**25)
_DAY_US = 86_400_000_000


def days(year: int, month: int, day: int) -> int:
    """Returns the `date32` value of a date that the server stores, real or not."""
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return _UNREAL_DAYS + (year * 16 + month) * 32 + day


def fields(value: int) -> tuple[int, int, int]:
    """Returns year, month and day."""
    if value >= FIRST_REAL_DAY:
        real = date.fromordinal(value + _EPOCH)
        return real.year, real.month, real.day
    packed = value - _UNREAL_DAYS
    return packed // 512, packed // 32 % 16, packed % 32


def microseconds(day: int, time_us: int) -> int:
    """Returns the timestamp value for a `days` value and a time of that day.

    Zero and partial dates have `days` values near -2^25. In microseconds, these fit into 64 bits.
    """
    return day * _DAY_US + time_us


def split(value: int) -> tuple[int, int]:
    """Returns a timestamp's `days` value and its microseconds in that day."""
    return divmod(value, _DAY_US)


def text(value: int, *, is_date: bool) -> str:
    """Returns a `days` value as `YYYY-MM-DD`, or a timestamp as `YYYY-MM-DD hh:mm:ss.ffffff`."""
    day, time = (value, 0) if is_date else split(value)
    year, month, dom = fields(day)
    shown = f"{year:04}-{month:02}-{dom:02}"
    if is_date:
        return shown
    seconds, micros = divmod(time, 1_000_000)
    return f"{shown} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
