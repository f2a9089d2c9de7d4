"""Encodes rows as the row events of MariaDB's log, and as the BINLOG statement that executes them.

BINLOG is the statement by which `mariadb-binlog` replays a log. The server executes the events as a replica does: it
parses no values, and it looks for a row by its primary key. An event that updates or deletes a missing row, or inserts
an existing row, is an error. Then the whole statement has no effect.

A row of an update has two images: first only the key, then the whole row. Without a key, both images are whole rows.
"""

from __future__ import annotations

import binascii
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.events import HEADER, HEADER_SIZE, EventType
from pidts.model import TableName
from pidts.target.mysql.row_events.cells import Bytes, Cells, CellType, cells_of, fixed
from pidts.target.text import combined

_BYTES = pa.large_binary()
_TABLE_ID = (1).to_bytes(6, "little")
_STATEMENT_ENDS, _NO_FOREIGN_KEYS = 1, 2
_LAST_TYPE = 171
_POST_HEADERS = {
    EventType.START_V3: 56,
    EventType.QUERY: 13,
    EventType.ROTATE: 8,
    EventType.LOAD: 18,
    EventType.CREATE_FILE: 4,
    EventType.APPEND_BLOCK: 4,
    EventType.EXEC_LOAD: 4,
    EventType.DELETE_FILE: 4,
    EventType.NEW_LOAD: 18,
    EventType.FORMAT_DESCRIPTION: 57 + _LAST_TYPE,
    EventType.BEGIN_LOAD_QUERY: 4,
    EventType.EXECUTE_LOAD_QUERY: 26,
    EventType.TABLE_MAP: 8,
    EventType.WRITE_ROWS_V1: 8,
    EventType.UPDATE_ROWS_V1: 8,
    EventType.DELETE_ROWS_V1: 8,
    EventType.INCIDENT: 2,
}
"""The sizes of the fixed parts of events. The server reads events of other types only from files."""
_EMPTY = pa.scalar(b"", _BYTES)
_PART_ROWS = 4_000


class Unencoded(Exception):
    """Raised if a value cannot be encoded."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a table in the order of the target, with their encodings."""

    table: TableName
    names: tuple[str, ...]
    types: tuple[CellType, ...]
    nullable: tuple[bool, ...]
    key: tuple[int, ...]
    """The indexes of the primary key's columns, in ascending order, since images have the table's order."""

    def rows(self, rows: pa.Table, *, updates: bool) -> pa.Array | None:
        """Returns the images of rows as they are in an event that inserts or updates them.

        Returns None if a value cannot be encoded, or if a value is NULL in a column that cannot be NULL.
        """
        cells = self._cells(rows)
        if cells is None:
            return None
        before = [self._no_nulls, *(cell for place in self.key for cell in cells[place])]
        after = [self._nulls(rows), *(cell for each in cells for cell in each)]
        return _joined([*before, *after] if updates else after)

    def updates(self, before: pa.Table, after: pa.Table) -> pa.Array | None:
        """Returns the images of updates: for each row, all columns before the update, and all columns after it.

        Returns None in the same cases as `rows`.
        """
        old, new = self._cells(before), self._cells(after)
        if old is None or new is None:
            return None
        old_cells, new_cells = ([cell for each in cells for cell in each] for cells in (old, new))
        return _joined([self._nulls(before), *old_cells, self._nulls(after), *new_cells])

    def _cells(self, rows: pa.Table) -> list[Cells] | None:
        """Returns the cells of each column; None if a value cannot be encoded, or is NULL where it cannot be."""
        if any(rows[name].null_count and not can for name, can in zip(self.names, self.nullable, strict=True)):
            return None
        return cells_of(self.types, rows, self.names)

    def keys(self, keys: pa.Table) -> pa.Array | None:
        """Returns rows as images that delete them by their keys; None if a value is NULL or cannot be encoded."""
        cells: list[Cells] | None = cells_of(
            [self.types[place] for place in self.key], keys, [self.names[place] for place in self.key]
        )
        if cells is None or any(column.null_count for column in keys.columns):
            return None
        return _joined([self._no_nulls, *(cell for each in cells for cell in each)])

    def table_map(self) -> bytes:
        """Returns the event that declares the table's columns."""
        schema, name = self.table.schema.encode(), self.table.name.encode()
        metadata = b"".join(kind.metadata for kind in self.types)
        body = _TABLE_ID + b"\1\0" + bytes([len(schema)]) + schema + b"\0" + bytes([len(name)]) + name + b"\0"
        body += _length(len(self.types)) + bytes(kind.wire for kind in self.types) + _length(len(metadata)) + metadata
        can_be_null = [place for place, can in enumerate(self.nullable) if can]
        return _event(EventType.TABLE_MAP, body + _bits(can_be_null, len(self.types)))

    def head(self, kind: EventType) -> bytes:
        """Returns the bytes before the rows in an event of this type: they say which columns the images contain."""
        count = len(self.types)
        whole, key = _bits(range(count), count), _bits(self.key, count)
        present = {EventType.WRITE_ROWS_V1: whole, EventType.UPDATE_ROWS_V1: key + whole}.get(kind, key)
        return _length(count) + present

    @property
    def _no_nulls(self) -> pa.Scalar:
        """Returns the bitmap of a key, which has no NULL."""
        return pa.scalar(bytes((len(self.key) + 7) // 8), _BYTES)

    def _nulls(self, rows: pa.Table) -> pa.Array | pa.Scalar:
        """Returns the bitmap of the columns that are NULL in each row."""
        width = (len(self.names) + 7) // 8
        having = [(place, name) for place, name in enumerate(self.names) if rows[name].null_count]
        if not having:
            return pa.scalar(bytes(width), _BYTES)
        matrix: Bytes = np.zeros((rows.num_rows, width), np.uint8)
        for place, name in having:
            is_null = combined(rows[name]).is_null().to_numpy(zero_copy_only=False)
            matrix[:, place >> 3] |= is_null.astype(np.uint8) << (place & 7)
        return fixed(matrix)


def format_statement(server_version: str) -> bytes:
    """Returns the BINLOG statement with the events' format, which a session executes once, before any other BINLOG.

    The format event has no time of creation. With one, the event would say that a server has started, and would end an
    open transaction.
    """
    sizes = bytearray(_LAST_TYPE)
    for kind, size in _POST_HEADERS.items():
        sizes[kind - 1] = size & 0xFF
    version = server_version.encode()[:49]
    body = struct.pack("<H50sIB", 4, version, 0, HEADER_SIZE) + bytes(sizes) + b"\0" + bytes(4)
    return statement([_event(EventType.FORMAT_DESCRIPTION, body)])


def statement(events: Sequence[bytes]) -> bytes:
    """Returns the BINLOG statement that executes these events."""
    return b"BINLOG '" + binascii.b2a_base64(b"".join(events), newline=False) + b"'"


def portions(rows: pa.Table) -> list[pa.Table]:
    """Cuts rows into parts, each of which is encoded at once."""
    return [rows.slice(first, _PART_ROWS) for first in range(0, rows.num_rows, _PART_ROWS)]


def encoded(layout: RowLayout, kind: EventType, images: pa.Array | None, size: int) -> Iterator[bytes]:
    """Yields the statements of `row_statements`. Raises `Unencoded` if there are no images, or if one is too large."""
    made = None if images is None else row_statements(layout, kind, images, size)
    if made is None:
        raise Unencoded
    yield from made


def row_statements(layout: RowLayout, kind: EventType, rows: pa.Array, size: int) -> Iterator[bytes] | None:
    """Returns statements of up to `size` bytes that execute all rows; None if one row is larger."""
    head, table_map = layout.head(kind), layout.table_map()
    room = (size - 16) // 4 * 3 - len(table_map) - HEADER_SIZE - 8 - len(head) - 4
    if (pc.max(pc.binary_length(rows)).as_py() or 0) > room:
        return None
    return _statements(table_map, kind, head, rows, room)


def _statements(table_map: bytes, kind: EventType, head: bytes, rows: pa.Array, room: int) -> Iterator[bytes]:
    _, offsets, data = rows.buffers()
    places = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    text, first = memoryview(data), 0
    before = _TABLE_ID + struct.pack("<H", _STATEMENT_ENDS | _NO_FOREIGN_KEYS) + head
    while first < len(rows):
        last = int(np.searchsorted(places, places[first] + room, side="right")) - 1
        images = text[int(places[first]) : int(places[last])]
        yield statement([table_map, _event(kind, before, images)])
        first = last


def _event(kind: EventType, *parts: bytes | memoryview) -> bytes:
    size = HEADER_SIZE + sum(map(len, parts))
    return b"".join([HEADER.pack(int(time.time()), kind, 0, size, 0, 0), *parts])


def _joined(cells: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    return pc.binary_join_element_wise(*cells, _EMPTY, null_handling="replace", null_replacement=b"")


def _bits(places: Sequence[int] | range, count: int) -> bytes:
    return sum(1 << place for place in places).to_bytes((count + 7) // 8, "little")


def _length(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + number.to_bytes(2, "little")
