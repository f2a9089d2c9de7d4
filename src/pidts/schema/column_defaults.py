"""Finds the value that a column has in an inserted row if the INSERT does not name the column.

Under `binlog_row_image=MINIMAL` an INSERT logs the columns that its statement names and the columns that the server
computes. The server computes auto_increment, stored generated columns, and defaults that are an expression or the
current time (seen on MySQL 5.6, 9.7 and MariaDB 10.11). So if the log leaves out a column, the column has a constant
default or no default. If a left-out column is NOT NULL and has no default, a session without strict mode has stored the
type's zero value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation

import pyarrow as pa

from pidts.model import Column, Kind, calendar
from pidts.schema.literals import BytesLiteral, CurrentTime, Expression, Number, TextLiteral, parse_default
from pidts.schema.stored_default import stored_default

_MOMENT = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?)?")
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_ZERO_MOMENT = "0000-00-00 00:00:00"
_MOMENTS = (Kind.DATETIME, Kind.TIMESTAMP)
_DIGITS = Context(prec=80)


def default_value(column: Column) -> pa.Array | None:
    """Returns the value as an array of length one; None if it is not known.

    The value is not known, for example, if the column is auto_increment, or if its default is an expression or the
    current time. But an INSERT logs such values (see above).
    """
    parsed = parse_default(column.default)
    if column.generated or column.auto_increment or isinstance(parsed, (CurrentTime, Expression)):
        return None
    if parsed is None:
        return pa.nulls(1, column.type.arrow) if column.nullable else _zero(column)
    stored = parse_default(stored_default(column.default, column.type))
    try:
        return None if stored is None or isinstance(stored, (CurrentTime, Expression)) else _constant(column, stored)
    except (ValueError, InvalidOperation, OverflowError, pa.ArrowInvalid):
        return None


def _zero(column: Column) -> pa.Array | None:
    kind = column.type.kind
    if kind is Kind.ENUM:
        return pa.array(column.type.labels[:1], pa.string())
    if kind in (Kind.JSON, Kind.GEOMETRY, Kind.VECTOR, Kind.UUID, Kind.INET4, Kind.INET6):
        return None
    if kind is Kind.DATE or kind in _MOMENTS:
        return _constant(column, TextLiteral(_ZERO_MOMENT))
    if kind is Kind.TIME:
        return _constant(column, TextLiteral("00:00:00"))
    if column.type.is_bytes or kind is Kind.BIT:
        return _constant(column, BytesLiteral(b""))
    return _constant(column, TextLiteral("") if column.type.is_text else Number("0"))


def _constant(column: Column, value: TextLiteral | BytesLiteral | Number) -> pa.Array | None:
    """Returns the value of a default, which has the form that `stored_default` returns; None if it is not known."""
    kind, arrow = column.type.kind, column.type.arrow
    if isinstance(value, BytesLiteral):
        if kind is Kind.BIT:
            return pa.array([int.from_bytes(value.value)], arrow)
        width = (column.type.length or 1) if kind is Kind.BINARY else 0
        return pa.array([value.value.ljust(width, b"\0")], arrow)
    text = value.value
    if kind is Kind.TIMESTAMP and not text.startswith("0000-00-00"):
        return None  # MySQL's catalog shows the default in the time zone in which it was declared
    if parse := _PARSERS.get(kind):
        storage = pa.int32() if kind is Kind.DATE else pa.int64()
        return pa.array([parse(text)], storage).view(arrow)
    if column.type.is_integer or kind is Kind.YEAR:
        return pa.array([int(Decimal(text).to_integral_value())], arrow)
    if kind is Kind.DECIMAL:
        return pa.array([Decimal(text).quantize(Decimal(1).scaleb(-(column.type.scale or 0)), context=_DIGITS)], arrow)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return pa.array([float(text)], arrow)
    if kind is Kind.CHAR:
        text = text.rstrip(" ")
    return pa.array([text], arrow) if column.type.is_text else None


def _day(text: str) -> int:
    found = _MOMENT.fullmatch(text)
    if not found:
        raise ValueError(text)
    return calendar.days(int(found[1]), int(found[2]), int(found[3]))


def _moment(text: str) -> int:
    found = _MOMENT.fullmatch(text)
    if not found:
        raise ValueError(text)
    hour, minute, second = (int(found[place] or 0) for place in (4, 5, 6))
    time_us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[7] or "").ljust(6, "0"))
    return calendar.microseconds(_day(text), time_us)


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(text)
    amount = ((int(found[2]) * 60 + int(found[3])) * 60 + int(found[4])) * 1_000_000
    amount += int((found[5] or "").ljust(6, "0"))
    return -amount if found[1] else amount


_PARSERS: dict[Kind, Callable[[str], int]] = {
    Kind.DATE: _day,
    Kind.DATETIME: _moment,
    Kind.TIMESTAMP: _moment,
    Kind.TIME: _time,
}
