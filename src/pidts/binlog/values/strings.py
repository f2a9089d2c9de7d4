"""Reads text and bytes: fixed and variable length, blobs, geometries, vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pidts.binlog.compressed import inflate_value
from pidts.binlog.values import charsets
from pidts.binlog.values.image import Append, Build, MakeReader, Read
from pidts.binlog.wire import Wire, WireType
from pidts.model.advice import RESYNC
from pidts.model.errors import Halted, Where
from pidts.model.table import Column, TableName
from pidts.model.types import UNKNOWN_CHARSET, Kind

_BLOBS = frozenset({WireType.BLOB, WireType.TINY_BLOB, WireType.MEDIUM_BLOB, WireType.LONG_BLOB})
_BLOB_KINDS = {
    Kind.TINYTEXT: 1,
    Kind.TINYBLOB: 1,
    Kind.TEXT: 2,
    Kind.BLOB: 2,
    Kind.MEDIUMTEXT: 3,
    Kind.MEDIUMBLOB: 3,
    Kind.LONGTEXT: 4,
    Kind.LONGBLOB: 4,
    Kind.JSON: 4,
}
_VARYING = frozenset({WireType.VARCHAR, WireType.VAR_STRING})
_SIZED = frozenset({(Kind.GEOMETRY, WireType.GEOMETRY), (Kind.VECTOR, WireType.VECTOR)})
_LONGEST_SHORT = 255


def reader(column: Column, wire: Wire) -> MakeReader | None:
    """Returns the reader of a text or of bytes; None if the encoding in the log does not fit the type."""
    kind = column.type.kind
    if kind in _BLOB_KINDS and wire.size == _BLOB_KINDS[kind]:
        if wire.type in _BLOBS:
            return _prefixed(wire.size)
        return converted(wire.size, inflate_value) if wire.type is WireType.BLOB_COMPRESSED else None
    if kind in (Kind.CHAR, Kind.BINARY) and wire.type is WireType.STRING:
        if kind is Kind.CHAR:
            return _prefixed(_prefix(wire))
        length = 1 if column.type.length is None else column.type.length
        return converted(_prefix(wire), lambda value: value.ljust(length, b"\0"))  # the log omits zeros at the end
    if kind in (Kind.VARCHAR, Kind.VARBINARY):
        if wire.type in _VARYING:
            return _prefixed(_prefix(wire))
        return converted(_prefix(wire), inflate_value) if wire.type is WireType.VARCHAR_COMPRESSED else None
    if (kind, wire.type) in _SIZED and wire.size in {1, 2, 3, 4}:
        return _prefixed(wire.size)
    return _prefixed(_prefix(wire)) if kind is Kind.VECTOR and wire.type in _VARYING else None


def text_builder(table: TableName, column: Column, charset: str) -> Build:
    """Returns a builder that decodes text. Bytes that are not text in the charset stop the task."""
    if charset == UNKNOWN_CHARSET:
        return _unreadable(table, column)
    decode = charsets.decoder(charset)

    def build_utf8(values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return build_decoded(values)

    def build_decoded(values: list[Any]) -> pa.Array:
        try:
            return pa.array([None if value is None else decode(value) for value in values], pa.string())
        except UnicodeDecodeError as error:
            raise undecodable(table, column, charset, error) from error
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end].encode("unicode_escape").decode()
            what = f"column {column.name} has a value with an unpaired surrogate, which is half of a character: {found}"
            raise Halted(
                "undecodable-text",
                what,
                where=Where(table=str(table)),
                todo=f"Correct the value on the source, then copy the table again: {RESYNC}; or leave the table out",
            ) from error

    return build_utf8 if charset in charsets.UTF8 else build_decoded


def _unreadable(table: TableName, column: Column) -> Build:
    """Returns a builder that accepts only NULL and the empty text, which are the same in every charset."""

    def build(values: list[Any]) -> pa.Array:
        if any(values):
            raise Halted(
                "unknown-charset",
                f"column {column.name} inherits its charset from its database, whose charset is not in the log",
                where=Where(table=str(table)),
                todo=(
                    "Leave the table out. If you read the log without a task, you can give the structure with "
                    "schema-from (a server, or CREATE DATABASE with its charset). With binlog_row_metadata=FULL on the "
                    "source, later events have the charset"
                ),
            )
        return pa.array([None if value is None else "" for value in values], pa.string())

    return build


def undecodable(table: TableName, column: Column, charset: str, error: UnicodeDecodeError) -> Halted:
    """Returns the error for a text column with bytes that are not text in the column's charset."""
    around = error.object[max(0, error.start - 8) : error.end + 8]
    return Halted(
        "undecodable-text",
        f"column {column.name} has bytes that are not valid {charset} text: byte {error.start} of a value; "
        f"the bytes around it are {around.hex()}",
        where=Where(table=str(table)),
        todo=f"Correct the value on the source, or make the column binary; then copy the table again: {RESYNC}",
    )


def _prefix(wire: Wire) -> int:
    return 1 if wire.size <= _LONGEST_SHORT else 2


def _prefixed(size: int) -> MakeReader:
    if size == 1:
        return _short

    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            start = at + size
            end = start + int.from_bytes(data[at:start], "little")
            append(data[start:end])
            return end

        return read

    return make


def _short(append: Append) -> Read:
    def read(data: bytes, at: int) -> int:
        start = at + 1
        end = start + data[at]
        append(data[start:end])
        return end

    return read


def converted(size: int, convert: Callable[[bytes], Any]) -> MakeReader:
    """Returns a function that makes readers for values that are stored after their lengths; see `image.fixed`.

    If the row image ends within a value, this value is not converted. The returned place is then after the image's end.
    """

    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            start = at + size
            end = start + int.from_bytes(data[at:start], "little")
            append(convert(data[start:end]) if end <= len(data) else b"")
            return end

        return read

    return make
