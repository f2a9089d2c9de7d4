"""Dates and times: unambiguous constants, and the parts of a value.

A date is represented by its midnight in microseconds, so that dates and datetimes can be compared directly. Zero and
partial dates (`0000-00-00`, `2024-00-15`) are numbers far below all others. `in_order` sorts them as the servers do: by
year, month, day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import calendar
from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import NOW, Expr, Family, Rows, failed

DAY = 86_400_000_000
_UNREAL = calendar.days(0, 0, 0)
_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?\Z", re.ASCII
)
_WITH_OFFSET = re.compile(r"(\d{4}-.*:.*)([+-])(0\d|1[0-4]):([0-5]\d)\Z", re.ASCII)
"""A time with an offset in the form of MySQL 8.0.19 and later and TiDB: the offset's hours have two digits."""
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?\Z", re.ASCII)


def moment(text: str) -> int:
    """Returns the number that `calendar.microseconds` has for a constant like `2024-02-29` or `2024-02-29 12:00:00.5`.

    The constant may be the zero date.
    """
    found = _MOMENT.match(text)
    if found is None and _WITH_OFFSET.match(text):
        # If a text with an offset is compared with a column, MySQL ignores the offset, and TiDB applies it.
        raise NotSupportedError(
            f"{text!r} as a date: servers read its offset in different ways; write TIMESTAMP {text!r}"
        )
    if found is None:
        raise NotSupportedError(f"{text!r} as a date: write it as 'YYYY-MM-DD' or 'YYYY-MM-DD hh:mm:ss'")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    days = calendar.days(year, month, day)
    if (days < calendar.FIRST_REAL_DAY and (year, month, day) != (0, 0, 0)) or hour > 23 or minute > 59 or second > 59:
        raise NotSupportedError(f"{text!r} as a date, which no calendar has")
    fraction = int((found[7] or "").ljust(6, "0"))
    return calendar.microseconds(days, ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)


def time(text: str) -> int:
    """Returns the microseconds of a constant such as `-12:30:00.25`."""
    found = _TIME.match(text)
    if found is None:
        raise NotSupportedError(f"{text!r} as a time: write it as 'hh:mm:ss'")
    hour, minute, second = (int(part) for part in found.groups()[1:4])
    if hour > 838 or minute > 59 or second > 59:
        raise NotSupportedError(f"{text!r} as a time, which no server accepts")
    value = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[5] or "").ljust(6, "0"))
    return -value if found[1] else value


def timestamp(text: str, local: Callable[[pa.Array], pa.Array]) -> int:
    """Returns the value of `TIMESTAMP '2024-02-29 12:00:00+08:00'` in the task's time zone.

    Without an offset, the text is in this time zone already.
    """
    found = _WITH_OFFSET.match(text)
    if found is None:
        return moment(text)
    written = moment(found[1])
    minutes = int(found[3]) * 60 + int(found[4])
    allowed = minutes <= 14 * 60 if found[2] == "+" else 0 < minutes < 14 * 60
    if written < calendar.FIRST_REAL_MICROSECOND or not allowed:
        raise NotSupportedError(f"{text!r} as a date, which no server accepts")
    offset = minutes * 60_000_000
    utc = written - offset if found[2] == "+" else written + offset
    return int(local(pa.array([utc], pa.int64()))[0].as_py())


def constant(family: Family, text: str) -> Expr:
    """Converts a text constant to the family with which it is compared."""
    return _constant(family, moment(text) if family is Family.MOMENT else time(text))


def timestamp_literal(text: Expr) -> Expr:
    """Parses `TIMESTAMP '…'`. A time zone offset in the text is applied."""
    return _constant(Family.MOMENT, timestamp(text.constant, text.local))


def _constant(family: Family, value: int) -> Expr:
    scalar = pa.scalar(value, pa.int64())
    return Expr(family, lambda _: scalar, constant=value, nature="a date" if family is Family.MOMENT else "a time")


def all_real(values: Any) -> bool:
    """Whether all values are real dates."""
    least = values if isinstance(values, pa.Scalar) else pc.min(values)
    return not least.is_valid or least.as_py() >= calendar.FIRST_REAL_MICROSECOND


def real_only(run: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
    """Returns a function that raises for a zero or partial date, whose value depends on the server's SQL mode."""

    def checked(rows: Rows) -> Any:
        values = run(rows)
        if not all_real(values):
            raise failed(
                "an expression filter computes with a date that no calendar has (such as 0000-00-00): its value depends"
                " on the SQL mode"
            )
        return values

    return checked


def in_order(values: Any) -> Any:
    """Returns numbers that compare as the servers compare these dates, real or not."""
    if isinstance(values, pa.Scalar):
        return in_order(pa.array([values.as_py()], pa.int64()))[0]
    return pc.add(pc.multiply(_packed(values), DAY), _time_of_day(values))


def _days(values: pa.Array) -> np.ndarray[Any, Any]:
    days: np.ndarray[Any, Any] = np.floor_divide(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), DAY)
    return days


def _time_of_day(values: pa.Array) -> pa.Array:
    rest = np.mod(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), DAY)
    return _again(rest, values)


def _again(numbers: np.ndarray[Any, Any], values: pa.Array) -> pa.Array:
    """Returns the numbers as an Arrow array, with NULL where `values` has NULL."""
    return pc.if_else(values.is_valid(), pa.array(numbers.astype(np.int64)), pa.scalar(None, pa.int64()))


def _packed(values: pa.Array) -> pa.Array:
    """Returns year, month and day as one number: `(year * 16 + month) * 32 + day`."""
    days = _days(values)
    real = days >= calendar.FIRST_REAL_DAY
    known = np.where(real, days, 0).astype("datetime64[D]")
    months = known.astype("datetime64[M]")
    month_number = months.astype(np.int64)
    year, month = month_number // 12 + 1970, month_number % 12 + 1
    day = (known - months.astype("datetime64[D]")).astype(np.int64) + 1
    return _again(np.where(real, (year * 16 + month) * 32 + day, days - _UNREAL), values)


def _of_date(pick: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pick(_packed(values))


def _of_time(unit: int, count: int) -> Callable[[pa.Array], pa.Array]:
    def pick(values: pa.Array) -> pa.Array:
        part = pc.divide(_time_of_day(values), unit)
        return pc.subtract(part, pc.multiply(pc.divide(part, count), count))

    return pick


_month = _of_date(lambda packed: pc.bit_wise_and(pc.shift_right(packed, 5), 15))
PARTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "YEAR": _of_date(lambda packed: pc.shift_right(packed, 9)),
    "MONTH": _month,
    "DAY": _of_date(lambda packed: pc.bit_wise_and(packed, 31)),
    "DAYOFMONTH": _of_date(lambda packed: pc.bit_wise_and(packed, 31)),
    "QUARTER": lambda values: pc.divide(pc.add(_month(values), 2), 3),
    "HOUR": _of_time(3_600_000_000, 24),
    "MINUTE": _of_time(60_000_000, 60),
    "SECOND": _of_time(1_000_000, 60),
    "MICROSECOND": _of_time(1, 1_000_000),
}


def now(local: Callable[[pa.Array], pa.Array], name: str, fraction: Expr | None = None) -> Expr:
    """Returns the value of `NOW()` or a similar function: the time of the change.

    The log has this time only in whole seconds. So `fraction`, the wanted number of digits of a second, has no effect.
    """
    if fraction is not None and not (fraction.family is Family.INT and fraction.constant in range(7)):
        raise NotSupportedError(f"{name}() with anything but a constant number of digits from 0 to 6")
    return Expr(Family.MOMENT, lambda rows: local(rows[NOW]), nature=f"{name}()")


def today(local: Callable[[pa.Array], pa.Array], name: str) -> Expr:
    """Returns `CURDATE()`: the midnight before the time of the change."""

    def midnight(rows: Rows) -> Any:
        values = local(rows[NOW])
        return pc.subtract(values, _time_of_day(values))

    return Expr(Family.MOMENT, midnight, nature=f"{name}()")


_SECOND = 1_000_000
_SPANS = {"SECOND": _SECOND, "MINUTE": 60 * _SECOND, "HOUR": 3600 * _SECOND, "DAY": DAY, "WEEK": 7 * DAY}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_WHOLE = re.compile(r"-?[0-9]{1,18}\Z", re.ASCII)
_MOST_DAYS = 100 * 365
"""The longest interval, in days. No interval up to this length leads from the time of a change to an invalid date."""


def shifted(direction: int, expr: Expr, amount: Expr, unit: Expr) -> Expr:
    """Returns `NOW() ± INTERVAL 3 MONTH`. If the resulting month lacks this day, the result is the month's last day."""
    units = {**_SPANS, **{name: months * 31 * DAY for name, months in _MONTHS.items()}}
    given, name = amount.constant, unit.constant
    if isinstance(given, str) and _WHOLE.match(given):
        given = int(given)
    if name not in units:
        raise NotSupportedError(f"an INTERVAL in {name or 'no unit'}: the possible units are {', '.join(units)}")
    if not isinstance(given, int):
        raise NotSupportedError("an INTERVAL of anything but a constant whole number")
    if abs(given) * units[name] > _MOST_DAYS * DAY:
        raise NotSupportedError(f"an INTERVAL of {given} {name}: at most 100 years are possible")
    count, run = direction * given, expr.run

    def shift(rows: Rows) -> Any:
        values = run(rows)
        if name in _SPANS:
            return pc.add(values, pa.scalar(count * _SPANS[name], pa.int64()))
        return pc.add(pc.multiply(_months_later(values, count * _MONTHS[name]), DAY), _time_of_day(values))

    return Expr(Family.MOMENT, shift, nature="a date with an INTERVAL")


def _months_later(values: pa.Array, months: int) -> pa.Array:
    """Returns the days since 1970 for the same day of another month, or for that month's last day."""
    days = _days(values).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    place = days - month.astype("datetime64[D]")
    first, behind = ((month + offset).astype("datetime64[D]") for offset in (months, months + 1))
    last = behind - np.timedelta64(1, "D")
    return _again(np.minimum(first + place, last).astype(np.int64), values)


def part(name: str, expr: Expr) -> Expr:
    """Returns `YEAR(d)` and similar functions, for dates and datetimes."""
    _must_be_moment(name, expr)
    pick, run = PARTS[name], expr.run
    return Expr(Family.INT, lambda rows: pick(as_array(run(rows), rows)), 6, nature=f"{name}()")


def date_of(expr: Expr) -> Expr:
    """Returns `DATE(d)`."""
    _must_be_moment("DATE", expr)
    run = real_only(expr.run)

    def midnight(rows: Rows) -> Any:
        values = as_array(run(rows), rows)
        return pc.subtract(values, _time_of_day(values))

    return Expr(Family.MOMENT, midnight, nature="DATE()")


def _must_be_moment(name: str, expr: Expr) -> None:
    if expr.family is not Family.MOMENT:
        raise NotSupportedError(f"{name} of {expr.nature}; its argument must be a date or a datetime")


def as_array(values: Any, rows: Rows) -> pa.Array:
    """Returns the values as an array; a constant is repeated for each row."""
    if isinstance(values, pa.Scalar):
        return pa.repeat(values, len(next(iter(rows.values()), ())))
    return values
