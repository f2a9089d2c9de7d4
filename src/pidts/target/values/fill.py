"""Fills the columns of a row of the in-memory target that its writer gave no value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pidts.model import Column, ColumnType, Kind
from pidts.target.literals import Bytes, Number, Text, parse_default


def fill(column: Column) -> Any:
    """Returns the value of a column that a row's writer does not name."""
    parsed = parse_default(column.default)
    kind = column.type.arrow
    if isinstance(parsed, Text | Number):
        value = (
            pa.scalar(parsed.value).cast(kind)
            if not pa.types.is_binary(kind)
            else pa.scalar(parsed.value.encode(), kind)
        )
        return _number(value)
    if isinstance(parsed, Bytes):
        return parsed.value if pa.types.is_binary(kind) else parsed.value.decode()
    if column.nullable:
        return None
    return _implicit(column.type)


def _implicit(kind: ColumnType) -> Any:
    if kind.kind is Kind.ENUM:
        return kind.labels[0] if kind.labels else ""
    if pa.types.is_string(kind.arrow):
        return ""
    if pa.types.is_binary(kind.arrow):
        return b""
    return _number(pa.scalar(0, pa.int64()).cast(kind.arrow))


def _number(value: pa.Scalar) -> Any:
    return pa.array([value], value.type).view(plain(value.type)).to_pylist()[0]


def plain(kind: pa.DataType) -> pa.DataType:
    """The number that a date, time or timestamp is held as."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) else kind
