"""Row events: the images of inserted, updated and deleted rows of one table.

An event tells which columns its images hold (all of them, or we refuse) and then has the images back to back. An image
is a bitmap of its NULLs and the values of the other columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog import columns
from pidts.binlog.compressed import inflate
from pidts.binlog.cursor import Cursor
from pidts.binlog.events import Event, EventType, type_name
from pidts.binlog.image import Append, Read
from pidts.binlog.table_map import TableMap
from pidts.model.batch import ChangeBatch, change_schema
from pidts.model.errors import DecodeError, Halted, Where
from pidts.model.event import Op
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

_OPS = {
    EventType.WRITE_ROWS_V1: Op.INSERT,
    EventType.UPDATE_ROWS_V1: Op.UPDATE,
    EventType.DELETE_ROWS_V1: Op.DELETE,
    EventType.WRITE_ROWS: Op.INSERT,
    EventType.UPDATE_ROWS: Op.UPDATE,
    EventType.DELETE_ROWS: Op.DELETE,
    EventType.WRITE_ROWS_COMPRESSED_V1: Op.INSERT,
    EventType.UPDATE_ROWS_COMPRESSED_V1: Op.UPDATE,
    EventType.DELETE_ROWS_COMPRESSED_V1: Op.DELETE,
    EventType.WRITE_ROWS_COMPRESSED: Op.INSERT,
    EventType.UPDATE_ROWS_COMPRESSED: Op.UPDATE,
    EventType.DELETE_ROWS_COMPRESSED: Op.DELETE,
}
ROW_EVENTS = frozenset(_OPS) | {EventType.PARTIAL_UPDATE_ROWS}

_VERSION_2 = frozenset(
    {
        EventType.WRITE_ROWS,
        EventType.UPDATE_ROWS,
        EventType.DELETE_ROWS,
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    }
)
_COMPRESSED = frozenset(
    {
        EventType.WRITE_ROWS_COMPRESSED_V1,
        EventType.UPDATE_ROWS_COMPRESSED_V1,
        EventType.DELETE_ROWS_COMPRESSED_V1,
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    }
)
_STATEMENT_END = 1
_PREFIX = struct.Struct(">IIQ")
_ROW = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """A row event taken apart, its images still bytes."""

    table_id: int
    ends_statement: bool
    op: Op
    width: int
    images: bytes

    @classmethod
    def parse(cls, event: Event) -> RowsEvent:
        """From any version; images that lack columns are refused."""
        if event.type not in _OPS:
            raise partial_image(f"{type_name(event.type)} is in the log")
        kind = EventType(event.type)
        cursor = Cursor(event.body, "a row event")
        table_id, flags = cursor.uint(6), cursor.uint(2)
        if kind in _VERSION_2:
            cursor.take(cursor.uint(2) - 2)
        width = cursor.packed()
        for _ in range(2 if _OPS[kind] is Op.UPDATE else 1):
            present = int.from_bytes(cursor.take((width + 7) // 8), "little") & _ones(width)
            if present != _ones(width):
                raise partial_image(f"an image has {present.bit_count()} of {width} columns")
        images = cursor.rest()
        if kind in _COMPRESSED:
            images = inflate(images, "a compressed row event")
        return cls(table_id, bool(flags & _STATEMENT_END), _OPS[kind], width, images)


class _Images:
    """The before or the after images of one table: a list per column, which readers append to."""

    __slots__ = ("count", "values")

    def __init__(self, width: int) -> None:
        self.values: list[list[Any]] = [[] for _ in range(width)]
        self.count = 0

    def truncate(self, count: int) -> None:
        for values in self.values:
            del values[count:]
        self.count = count


class TableRows:
    """Decoded rows of one table, on their way into one `ChangeBatch`."""

    __slots__ = ("_builders", "after", "before", "lsns", "ops", "size", "table")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before = _Images(len(table.columns))
        self.after = _Images(len(table.columns))
        self.ops = bytearray()
        self.lsns: list[bytes] = []
        self.size = 0
        self._builders = columns.builders(table)

    def mark(self) -> tuple[int, int, int]:
        """A point to which `back_to` can return."""
        return len(self.ops), self.before.count, self.after.count

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forgets the rows since a mark: the source has rolled them back."""
        rows, before, after = mark
        del self.ops[rows:], self.lsns[rows:]
        self.before.truncate(before)
        self.after.truncate(after)

    def take(self) -> ChangeBatch:
        """The rows so far as one batch; a new one begins."""
        ops = pa.Array.from_buffers(pa.int8(), len(self.ops), [None, pa.py_buffer(bytes(self.ops))])
        lsns = pa.Array.from_buffers(pa.binary(Lsn.SIZE), len(self.lsns), [None, pa.py_buffer(b"".join(self.lsns))])
        before = self._struct(self.before, pc.not_equal(ops, int(Op.INSERT)))
        after = self._struct(self.after, pc.not_equal(ops, int(Op.DELETE)))
        rows = pa.RecordBatch.from_arrays([lsns, ops, before, after], schema=change_schema(self.table))
        self.back_to((0, 0, 0))
        self.size = 0
        return ChangeBatch(self.table, rows)

    def _struct(self, images: _Images, present: pa.Array) -> pa.Array:
        """One struct a row; images are dense, rows without one are null."""
        fields = list(self.table.arrow)
        dense = [build(values) for build, values in zip(self._builders, images.values, strict=True)]
        if images.count == len(present):
            return pa.StructArray.from_arrays(dense, fields=fields)
        running = pc.subtract(pc.cumulative_sum(pc.cast(present, pa.int64())), 1)
        places = pc.if_else(present, running, pa.scalar(None, pa.int64()))
        return pa.StructArray.from_arrays(
            [array.take(places) for array in dense], fields=fields, mask=pc.invert(present)
        )


class Binding:
    """One TABLE_MAP event bound to the table it maps: decodes row events of that table id."""

    __slots__ = ("_readers", "_width", "rows")

    def __init__(self, table_map: TableMap, rows: TableRows) -> None:
        table = rows.table
        if len(table_map.wires) != len(table.columns):
            raise DecodeError(
                "structure-mismatch",
                f"the known structure has {len(table.columns)} columns, the log {len(table_map.wires)}",
                where=Where(table=str(table.name)),
                todo="The table was changed in a way that the log does not tell (sql_log_bin=0?); copy it again",
            )
        makers = [
            columns.reader(table.name, column, wire)
            for column, wire in zip(table.columns, table_map.wires, strict=True)
        ]
        self.rows = rows
        self._width = len(makers)
        self._readers = {
            id(images): [make(values.append) for make, values in zip(makers, images.values, strict=True)]
            for images in (rows.before, rows.after)
        }

    def decode(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        """Appends the event's rows, numbered from `first`; the first `skip` are read and dropped."""
        rows = self.rows
        if event.width != self._width:
            raise DecodeError(
                "structure-mismatch",
                f"a row event has {event.width} columns, its table map {self._width}",
                where=Where(table=str(rows.table.name)),
            )
        sides = {Op.INSERT: (rows.after,), Op.DELETE: (rows.before,), Op.UPDATE: (rows.before, rows.after)}[event.op]
        readers = [self._readers[id(side)] for side in sides]
        values = [side.values for side in sides]
        mark = rows.mark()
        try:
            if skip:
                event = self._drop(event, readers, values, skip)
                rows.back_to(mark)
            count, end = _read_images(event.images, 0, readers, values, None)
        except (struct.error, IndexError) as error:
            raise _torn(rows.table.name) from error
        if end != len(event.images):
            raise _torn(rows.table.name)
        for side in sides:
            side.count += count
        rows.ops += bytes([event.op]) * count
        prefix, number = _PREFIX.pack(first.change_no, first.log_index, first.offset), first.row + skip
        pack = _ROW.pack
        rows.lsns += [prefix + pack(row) for row in range(number, number + count)]
        rows.size += len(event.images)

    def _drop(self, event: RowsEvent, readers: list[list[Read]], values: list[list[list[Any]]], skip: int) -> RowsEvent:
        _, at = _read_images(event.images, 0, readers, values, skip)
        if at > len(event.images):
            raise _torn(self.rows.table.name)
        return RowsEvent(event.table_id, event.ends_statement, event.op, event.width, event.images[at:])


def _read_images(
    data: bytes, at: int, readers: list[list[Read]], values: list[list[list[Any]]], limit: int | None
) -> tuple[int, int]:
    """Reads rows up to the end or the limit; how many, and the place behind them.

    That place lies behind the end of `data` where a value claimed more bytes than there are.
    """
    width = len(readers[0])
    bitmap, ones, end = (width + 7) // 8, _ones(width), len(data)
    sides = [(reads, _guarded(reads, side)) for reads, side in zip(readers, values, strict=True)]
    number: Callable[..., int] = int.from_bytes
    count = 0
    while at < end and count != limit:
        for reads, guarded in sides:
            behind = at + bitmap
            nulls = number(data[at:behind], "little") & ones
            at = behind
            if nulls:
                for bit, read, append in guarded:
                    if nulls & bit:
                        append(None)
                    else:
                        at = read(data, at)
            else:
                for read in reads:
                    at = read(data, at)
        count += 1
    return count, at


def _guarded(reads: list[Read], side: list[list[Any]]) -> list[tuple[int, Read, Append]]:
    """Each reader with its bit among the NULLs."""
    columns_of_side = enumerate(zip(reads, side, strict=True))
    return [(1 << place, read, values.append) for place, (read, values) in columns_of_side]


def partial_image(what: str) -> Halted:
    """An image that does not show the whole row."""
    return Halted(
        "partial-row-image",
        f"{what}, so rows are not told in full",
        todo="Run SET GLOBAL binlog_row_image=FULL, binlog_row_value_options='' (MySQL) on the source, let its "
        "sessions reconnect, and copy the table again",
    )


def _torn(table: TableName) -> DecodeError:
    return DecodeError("truncated", "a row event ends within a row", where=Where(table=str(table)))


def _ones(width: int) -> int:
    return (1 << width) - 1
