"""Reads the images of inserted, updated and deleted rows of one table, which become a `ChangeBatch`.

An image is a bitmap with a bit for each of its columns (1: NULL), followed by the values of the columns that are not
NULL.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.rows_event import RowsEvent, all_columns
from pidts.binlog.table_map import TableMap
from pidts.binlog.values import columns, partial_json
from pidts.binlog.values.image import ImageColumn, MakeReader, Read
from pidts.model.advice import REJOIN, RESYNC
from pidts.model.batch import ChangeBatch
from pidts.model.early_filter import EarlyFilter
from pidts.model.errors import DecodeError, Halted, Where
from pidts.model.event import Op
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

_PREFIX = struct.Struct(">IIQ")
_ROW = struct.Struct(">I")
_FULL_IMAGES = (
    "Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, then copy the table again: "
    f"{RESYNC}"
)


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
    """Decoded rows of one table, which will become one `ChangeBatch`."""

    __slots__ = ("_builders", "after", "before", "lsns", "ops", "partial", "size", "table")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before = _Images(len(table.columns))
        self.after = _Images(len(table.columns))
        self.ops = bytearray()
        self.lsns: list[bytes] = []
        self.partial: list[bytes | None] = []
        self.size = 0
        self._builders = columns.builders(table)

    def __len__(self) -> int:
        return len(self.ops)

    def bind(self, table_map: TableMap) -> Binding:
        """Returns the reader of the row events after a TABLE_MAP event."""
        return Binding(table_map, self)

    def counts(self) -> tuple[int, int, int]:
        """Returns the numbers of rows, before images and after images so far, for `back_to`."""
        return len(self.ops), self.before.count, self.after.count

    def back_to(self, counts: tuple[int, int, int]) -> None:
        """Drops the rows after these counts, which the source has rolled back."""
        rows, before, after = counts
        del self.ops[rows:], self.lsns[rows:], self.partial[rows:]
        self.before.truncate(before)
        self.after.truncate(after)

    def take(self, early_filter: EarlyFilter | None = None) -> ChangeBatch:
        """Returns the rows so far as one batch, except rows that an early filter leaves out; a new batch begins."""
        ops = pa.Array.from_buffers(pa.int8(), len(self.ops), [None, pa.py_buffer(bytes(self.ops))])
        lsns = pa.Array.from_buffers(pa.binary(Lsn.SIZE), len(self.lsns), [None, pa.py_buffer(b"".join(self.lsns))])
        before = self._struct(self.before, pc.not_equal(ops, int(Op.INSERT)))
        after = self._struct(self.after, pc.not_equal(ops, int(Op.DELETE)))
        batch = ChangeBatch.of(self.table, lsns, ops, before, after, pa.array(self.partial, pa.binary()))
        self.back_to((0, 0, 0))
        self.size = 0
        return batch if early_filter is None else early_filter.of(batch)

    def _struct(self, images: _Images, present: pa.Array) -> pa.Array:
        """Returns one struct per row; rows without an image are null."""
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
    """Decodes the row events that have the table id of one TABLE_MAP event."""

    __slots__ = ("_documents", "_readers", "rows")

    def __init__(self, table_map: TableMap, rows: TableRows) -> None:
        makers = check_structure(rows.table, table_map)
        self.rows = rows
        self._readers = {
            id(images): [make(values.append) for make, values in zip(makers, images.values, strict=True)]
            for images in (rows.before, rows.after)
        }
        self._documents = partial_json.documents(table_map.wires)

    def decode(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        """Appends the event's rows, numbered from `first`; the first `skip` rows are read and dropped."""
        rows = self.rows
        check_event(rows.table, event)
        counts = rows.counts()
        try:
            if skip:
                _, at = self._read(event, skip)
                rows.back_to(counts)
                if at > len(event.images):
                    raise IndexError  # noqa: TRY301 - as any other reading past the end
                event = replace(event, images=event.images[at:])
            count, end = self._read(event, None)
        except (struct.error, IndexError) as error:
            raise _torn(rows.table.name) from error
        if end != len(event.images):
            raise _torn(rows.table.name)
        for side in self._sides(event.op):
            side.count += count
        rows.ops += bytes([event.op]) * count
        prefix, number = _PREFIX.pack(first.change_no, first.log_index, first.offset), first.row + skip
        pack = _ROW.pack
        rows.lsns += [prefix + pack(row) for row in range(number, number + count)]
        rows.partial += [event.partial] * count
        rows.size += len(event.images)

    def _sides(self, op: Op) -> tuple[_Images, ...]:
        rows = self.rows
        return {Op.INSERT: (rows.after,), Op.DELETE: (rows.before,), Op.UPDATE: (rows.before, rows.after)}[op]

    def _read(self, event: RowsEvent, limit: int | None) -> tuple[int, int]:
        """Appends up to `limit` rows; returns their number, and the place after them.

        If a value is longer than the remaining bytes, the returned place is after the end of the images.
        """
        sides = [
            _ImageReader(self._readers[id(images)], images.values, bits)
            for images, bits in zip(self._sides(event.op), event.present, strict=True)
        ]
        data, at, count = event.images, 0, 0
        if event.has_diffs:
            before, after = sides
            while at < len(data) and count != limit:
                old, at = partial_json.before_image(data, at, before.columns, self._documents)
                at = partial_json.after_image(self.rows.table.name, data, at, after.columns, self._documents, old)
                count += 1
            before.fill(count)
            after.fill(count)
            return count, at
        end = len(data)
        while at < end and count != limit:
            for side in sides:
                at = side.read(data, at)
            count += 1
        for side in sides:
            side.fill(count)
        return count, at


class _ImageReader:
    """Reads the before or the after images of one event."""

    __slots__ = ("absent", "bitmap", "columns", "ones", "reads")

    def __init__(self, readers: list[Read], values: list[list[Any]], present: int) -> None:
        columns_of_side = list(enumerate(zip(readers, values, strict=True)))
        present_columns = [
            (place, read, column.append) for place, (read, column) in columns_of_side if present >> place & 1
        ]
        self.columns = [ImageColumn(1 << bit, *column) for bit, column in enumerate(present_columns)]
        self.reads = [read for _, read, _ in present_columns]
        self.absent = [column for place, (_, column) in columns_of_side if not present >> place & 1]
        self.bitmap, self.ones = (len(present_columns) + 7) // 8, all_columns(len(present_columns))

    def read(self, data: bytes, at: int) -> int:
        """Appends one image; returns the place after it."""
        stop = at + self.bitmap
        nulls = int.from_bytes(data[at:stop], "little") & self.ones
        at = stop
        if nulls:
            for column in self.columns:
                if nulls & column.bit:
                    column.append(None)
                else:
                    at = column.read(data, at)
        else:
            for read in self.reads:
                at = read(data, at)
        return at

    def fill(self, count: int) -> None:
        """Adds `count` NULLs for each column that the images lack."""
        for column in self.absent:
            column.extend([None] * count)


def check_structure(table: Table, table_map: TableMap) -> list[MakeReader]:
    """Returns a reader for each column. Raises if the known structure does not fit the table map."""
    if len(table_map.wires) != len(table.columns):
        raise DecodeError(
            "structure-mismatch",
            f"the known structure has {len(table.columns)} columns, and the log has {len(table_map.wires)}",
            where=Where(table=str(table.name)),
            todo=f"The source has altered the table, and did not log the statement (sql_log_bin=0?): {REJOIN}",
        )
    return [
        columns.reader(table.name, column, wire) for column, wire in zip(table.columns, table_map.wires, strict=True)
    ]


def check_event(table: Table, event: RowsEvent) -> None:
    """Checks a row event against its table, before its images are read."""
    width = len(table.columns)
    if event.width != width:
        raise DecodeError(
            "structure-mismatch",
            f"a row event has {event.width} columns, and the known structure has {width}",
            where=Where(table=str(table.name)),
            todo=f"The source has altered the table, and did not log the statement (sql_log_bin=0?): {REJOIN}",
        )
    if not any(event.present):
        what, where = "a row event has none of its table's columns", Where(table=str(table.name))
        raise Halted("partial-row-image", what, where=where, todo=_FULL_IMAGES)


def _torn(table: TableName) -> DecodeError:
    return DecodeError("truncated", "a row event ends within a row", where=Where(table=str(table)))
