"""Converts keys from JSON values to values for a target, and orders them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ColumnType, Kind, Table, calendar
from pidts.verify.compared_servers import Key

_WHOLE = frozenset({Kind.BIT, Kind.YEAR})
ORDERED = frozenset({Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.BINARY, Kind.VARBINARY, *_WHOLE})
"""The types, besides integers, that every server and `rank` order in the same way."""


def is_ordered(table: Table) -> bool:
    """Returns whether every server orders the keys of this table in the same way."""
    kinds = [table.column(name).type for name in table.identity]
    return all(kind.is_integer or kind.kind in ORDERED for kind in kinds)


def rank(table: Table, key: Key) -> tuple[Any, ...]:
    """Returns a value that sorts a key as every server does; only for tables for which `is_ordered` is true.

    Dates and times are texts of one width, and bytes are hexadecimal digits. So both are sorted correctly as texts.
    """
    kinds = [table.column(name).type.kind for name in table.identity]
    return tuple(Decimal(value) if kind is Kind.DECIMAL else value for kind, value in zip(kinds, key, strict=True))


def upto(table: Table, keys: pa.Table, end: Key) -> pa.Table:
    """Returns the keys up to and including `end`; only for tables for which `is_ordered` is true."""
    mask = None
    for name, value in reversed(list(zip(table.identity, native(table, end), strict=True))):
        values, last = keys.column(name), pa.scalar(value, keys.schema.field(name).type)
        below = pc.less_equal(values, last) if mask is None else pc.less(values, last)
        mask = below if mask is None else pc.or_(below, pc.and_(pc.equal(values, last), mask))
    return keys if mask is None else keys.filter(mask)


def native(table: Table, key: Key) -> list[Any]:
    """Returns the values of a key as Python or Arrow values."""
    kinds = [table.column(name).type for name in table.identity]
    return [_native(kind, value) for kind, value in zip(kinds, key, strict=True)]


def _native(kind: ColumnType, value: Any) -> Any:
    if kind.kind is Kind.DECIMAL:
        return Decimal(value)
    if kind.is_bytes:
        return bytes.fromhex(value)
    if kind.kind is Kind.TIME:
        hours, minutes, seconds = value.removeprefix("-").split(":")
        size = timedelta(hours=int(hours), minutes=int(minutes), microseconds=int(Decimal(seconds) * 1_000_000))
        return -size if value.startswith("-") else size
    if kind.kind not in {Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}:
        return value
    try:
        return date.fromisoformat(value) if kind.kind is Kind.DATE else datetime.fromisoformat(value)
    except ValueError:
        return _unreal(kind, value)


def _unreal(kind: ColumnType, text: str) -> pa.Scalar:
    """Returns a zero or partial date in its Arrow form."""
    day = calendar.days(int(text[0:4]), int(text[5:7]), int(text[8:10]))
    if kind.kind is Kind.DATE:
        return pa.array([day], pa.int32()).view(kind.arrow)[0]
    hours, minutes, seconds = text[11:].split(":")
    time_us = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
    return pa.array([calendar.microseconds(day, time_us)], pa.int64()).view(kind.arrow)[0]
