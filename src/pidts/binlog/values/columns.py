"""Chooses the reader and the builder of a column; the only module that knows all families of types."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from pidts.binlog.values import decimals, identifiers, json, labels, numbers, strings, temporal
from pidts.binlog.values.image import Build, MakeReader, mismatch
from pidts.binlog.wire import Wire, WireType
from pidts.model.table import Column, Table, TableName
from pidts.model.types import IDENTIFIERS, LABELED, Kind

_NUMBERS = frozenset(
    {Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.BIT, Kind.YEAR}
)
_TEMPORALS = frozenset({Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP})


def reader(table: TableName, column: Column, wire: Wire) -> MakeReader:
    """Returns the reader of a column by its encoding in the log; raises `DecodeError` if the type does not fit."""
    make = _reader(column, wire)
    if make is None:
        raise mismatch(table, column, wire)
    return make


def _reader(column: Column, wire: Wire) -> MakeReader | None:
    kind = column.type.kind
    if kind in _NUMBERS:
        return numbers.reader(column.type, wire)
    if kind is Kind.DECIMAL:
        return decimals.reader(column.type, wire)
    if kind in _TEMPORALS:
        return temporal.reader(column.type, wire)
    if kind in LABELED:
        return labels.reader(column.type, wire)
    if kind in IDENTIFIERS:
        return identifiers.reader(column.type, wire)
    if kind is Kind.JSON and wire.type is WireType.JSON and wire.size in {1, 2, 3, 4}:
        return strings.converted(wire.size, lambda document: json.text(document).encode())
    return strings.reader(column, wire)


def builders(table: Table) -> list[Build]:
    """Returns the builders of every column of a table, in order."""
    return [_builder(table.name, column) for column in table.columns]


def _builder(table: TableName, column: Column) -> Build:
    kind, arrow = column.type.kind, column.type.arrow
    if kind in _NUMBERS:
        return partial(pa.array, type=arrow)
    if kind is Kind.DECIMAL:
        return partial(decimals.build, arrow)
    if kind is Kind.DATE:
        return partial(temporal.build_date, arrow)
    if kind is Kind.DATETIME:
        return partial(temporal.build_datetime, arrow)
    if kind in _TEMPORALS:
        return partial(temporal.build_microseconds, arrow)
    if kind in LABELED:
        return labels.builder(table, column)
    if column.type.is_bytes:
        return partial(pa.array, type=arrow)
    # JSON, UUID and INET values became UTF-8 when they were read; MariaDB's JSON is UTF-8 text anyway.
    return strings.text_builder(table, column, (column.type.charset or "utf8mb4") if column.type.is_text else "utf8mb4")
