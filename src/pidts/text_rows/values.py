"""Converts a server's text to Arrow, column by column; without loss if the query selects `expression`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.values.strings import text_builder
from pidts.model import Column, ColumnType, Kind, TableName, calendar

Values = list[bytes | None]
_SHORT_YEAR = 2
_TIME = r"^(?P<sign>-?)(?P<hours>[0-9]+):(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?$"
_MOMENT = re.compile(rb"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")


def expression(column: str, kind: ColumnType) -> str:
    """Returns an expression whose text is exact: a FLOAT as a DOUBLE, since the server shows six digits of a FLOAT."""
    if kind.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return f"{column} * 1e0"  # `+ 0e0` would lose the sign of a negative zero.
    return f"{column} + 0" if kind.kind is Kind.BIT else column


def to_arrow(values: Values, table: TableName, column: Column) -> pa.Array:
    """Returns the values in the column's Arrow type. The text must be in the column's own charset, as in the log."""
    kind = column.type
    if kind.is_bytes:
        return pa.array(values, pa.binary())
    if kind.is_text:
        return text_builder(table, column, kind.charset or "utf8mb4")(values)
    if kind.kind in _MOMENTS:
        return _MOMENTS[kind.kind](values)
    text = pa.array(values, pa.string())
    if kind.kind is Kind.TIME:
        return _durations(text)
    if is_short_year(kind):
        return whole_years(text.cast(pa.int16()))
    return text if kind.arrow == pa.string() else cast_text(text, kind)


def cast_text(text: pa.Array, kind: ColumnType) -> pa.Array:
    """Converts the texts of numbers that Arrow can parse directly."""
    return text.cast(pa.float64()).cast(pa.float32()) if kind.kind is Kind.FLOAT else text.cast(kind.arrow)


def _dates(values: Values) -> pa.Array:
    return _calendar(values, pa.date32(), pa.int32(), calendar.FIRST_REAL_DAY, _day)


def _moments(values: Values) -> pa.Array:
    return _calendar(values, pa.timestamp("us"), pa.int64(), calendar.FIRST_REAL_MICROSECOND, _microsecond)


def _calendar(
    values: Values, kind: pa.DataType, number: pa.DataType, first: int, one: Callable[[bytes | None], int | None]
) -> pa.Array:
    """Converts dates or times; by Arrow only if all of them exist, since Arrow refuses or misreads all others."""
    with suppress(pa.ArrowInvalid):
        found = pa.array(values, pa.string()).cast(kind)
        least = pc.min(found.cast(number)).as_py()
        if least is None or least >= first:
            return found
    return pa.array(map(one, values), number).cast(kind)


def _instants(values: Values) -> pa.Array:
    return _moments(values).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))


_MOMENTS: dict[Kind, Callable[[Values], pa.Array]] = {
    Kind.DATE: _dates,
    Kind.DATETIME: _moments,
    Kind.TIMESTAMP: _instants,
}


def _day(value: bytes | None) -> int | None:
    """Returns the `days` value of a date; used for columns with a date that does not exist, which Arrow refuses."""
    if value is None:
        return None
    if not (match := _MOMENT.fullmatch(value)):
        raise pa.ArrowInvalid(f"not a date: {value!r}")
    year, month, day = map(int, match.groups()[:3])
    return calendar.days(year, month, day)


def _microsecond(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not (match := _MOMENT.fullmatch(value)):
        raise pa.ArrowInvalid(f"not a date and time: {value!r}")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or b"").ljust(6, b"0"))
    time_us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    return calendar.microseconds(calendar.days(year, month, day), time_us)


def is_short_year(kind: ColumnType) -> bool:
    """Whether this is the type YEAR(2) of old servers."""
    return kind.kind is Kind.YEAR and kind.length == _SHORT_YEAR


def whole_years(years: pa.Array) -> pa.Array:
    """Converts values of YEAR(2): the two digits mean a year from 1970 to 2069."""
    return pc.add(years, pc.if_else(pc.less(years, 70), pa.scalar(2000, pa.int16()), pa.scalar(1900, pa.int16())))


def _durations(text: pa.Array) -> pa.Array:
    """Parses times such as `-838:59:59.000000`; the sign applies to the whole value."""
    parts = pc.extract_regex(text, _TIME)
    if parts.null_count > text.null_count:
        bad = text.filter(pc.and_(text.is_valid(), parts.is_null()))[0].as_py()
        raise pa.ArrowInvalid(f"not a time: {bad!r}")
    names = ("hours", "minutes", "seconds")
    hours, minutes, seconds = (pc.struct_field(parts, name).cast(pa.int64()) for name in names)
    fraction = pc.utf8_rpad(pc.struct_field(parts, "fraction"), 6, "0").cast(pa.int64())
    whole = pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)
    amount = pc.add(pc.multiply(whole, 1_000_000), fraction)
    negative = pc.equal(pc.struct_field(parts, "sign"), "-")
    return pc.if_else(negative, pc.negate(amount), amount).cast(pa.duration("us"))
