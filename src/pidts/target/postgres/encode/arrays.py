"""Converts Arrow columns to binary array parameters, which `unnest` turns into rows.

The server reads binary arrays several times faster than text. A temporary table would leave a file that every COMMIT
has to truncate; arrays leave none. A statement with arrays is the same for one row and for ten thousand.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.adapt import Buffer, Dumper, PyFormat
from psycopg.pq import Format

_EPOCH_DAYS = 10_957
_EPOCH_MICROS = _EPOCH_DAYS * 86_400_000_000
"""PostgreSQL counts from 2000-01-01."""
_NULL = b"\xff\xff\xff\xff"
_FEW = 256
"""The number of values below which a loop is faster than a few calls of Arrow."""


class Element(Enum):
    """The type of an array's elements: its name, its oid, its array's oid, and the form of its numbers."""

    INT2 = ("smallint", 21, 1005, ">i2")
    INT4 = ("integer", 23, 1007, ">i4")
    INT8 = ("bigint", 20, 1016, ">i8")
    FLOAT4 = ("real", 700, 1021, ">f4")
    FLOAT8 = ("double precision", 701, 1022, ">f8")
    DATE = ("date", 1082, 1182, ">i4")
    TIMESTAMP = ("timestamp without time zone", 1114, 1115, ">i8")
    TIMESTAMPTZ = ("timestamp with time zone", 1184, 1185, ">i8")
    INTERVAL = ("interval", 1186, 1187, [("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])
    TEXT = ("text", 25, 1009, None)
    BYTEA = ("bytea", 17, 1001, None)

    def __init__(self, sql: str, oid: int, array_oid: int, layout: Any) -> None:
        self.sql, self.oid, self.array_oid, self.layout = sql, oid, array_oid, layout


@dataclass(frozen=True, slots=True)
class Parameter:
    """An array in the server's own format."""

    oid: int
    data: bytes


class _ParameterDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Parameter) -> Buffer | None:
        return obj.data

    def get_key(self, obj: Parameter, format: PyFormat) -> Any:  # noqa: A002, ARG002 - the driver's names
        return (Parameter, obj.oid)

    def upgrade(self, obj: Parameter, format: PyFormat) -> Dumper:  # noqa: A002, ARG002 - the driver's names
        made = _ParameterDumper(Parameter, None)
        made.oid = obj.oid
        return made


def register(connection: psycopg.Connection) -> None:
    """Lets the connection take `Parameter`s."""
    connection.adapters.register_dumper(Parameter, _ParameterDumper)


def parameter(column: pa.Array, element: Element) -> Parameter:
    """Returns all values of a column as one parameter, NULLs included."""
    if not len(column):
        return Parameter(element.array_oid, struct.pack(">iii", 0, 0, element.oid))
    body = _variable(column) if element.layout is None else _fixed(column, element)
    header = struct.pack(">iiIii", 1, int(column.null_count > 0), element.oid, len(column), 1)
    return Parameter(element.array_oid, header + body)


def _variable(column: pa.Array) -> bytes:
    """Writes the length of each value, then the value."""
    if len(column) < _FEW:
        return b"".join(map(behind_length, column.to_pylist()))
    data = column.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(data), -1)
    sizes = np.asarray(lengths).astype(">i4")
    prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    values = pc.fill_null(data, b"") if data.null_count else data
    joined = pc.binary_join_element_wise(prefixes.cast(pa.large_binary()), values, pa.scalar(b"", pa.large_binary()))
    return _bytes_of(joined)


def behind_length(value: str | bytes | None) -> bytes:
    """Writes the length of a value, then the value, as in PostgreSQL's binary formats; NULL is a negative length."""
    if value is None:
        return _NULL
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(4) + data


def _bytes_of(joined: pa.LargeBinaryArray) -> bytes:
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return bytes(memoryview(data)[int(places[0]) : int(places[-1])]) if data else b""


def _fixed(column: pa.Array, element: Element) -> bytes:
    found = numbers(column, element)
    made = np.empty(len(column), [("size", ">i4"), ("value", element.layout)])
    made["size"] = made.dtype["value"].itemsize
    if element is Element.INTERVAL:
        made["value"]["micros"], made["value"]["days"], made["value"]["months"] = found, 0, 0
    else:
        made["value"] = found
    if not column.null_count:
        return made.tobytes()
    null = np.asarray(column.is_null())
    made["size"][null] = -1
    kept = np.ones((len(column), made.dtype.itemsize), np.bool_)
    kept[null, 4:] = False
    return made.view(np.uint8).reshape(kept.shape)[kept].tobytes()


def buffer_numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """Returns the numbers in an array's buffer. For a NULL, the number has no meaning."""
    width = column.type.bit_width // 8
    if pa.types.is_floating(column.type):
        kind = f"<f{width}"
    else:
        kind = f"<u{width}" if pa.types.is_unsigned_integer(column.type) else f"<i{width}"
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def numbers(column: pa.Array, element: Element) -> np.ndarray[Any, Any]:
    """Returns the values as PostgreSQL counts them: dates and timestamps from its own epoch."""
    if element is Element.DATE:
        return buffer_numbers(column) - _EPOCH_DAYS
    return (
        buffer_numbers(column) - _EPOCH_MICROS
        if element in (Element.TIMESTAMP, Element.TIMESTAMPTZ)
        else buffer_numbers(column)
    )
