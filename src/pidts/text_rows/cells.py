"""Collects a result's rows: compiled code writes them directly into the memory of Arrow's arrays.

Numbers, dates and times are converted directly to Arrow's form. Text is collected in its charset, and decoded a whole
column at a time. Other values (doubles, decimals of more than 18 digits) are converted from their text.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np
import pyarrow as pa

from pidts.binlog.jit import address
from pidts.binlog.kernel import texts
from pidts.binlog.kernel.buffers import ImageBuffers
from pidts.model import Column, ColumnType, Halted, Kind, StructureChanged, Table, Where
from pidts.text_rows import kernel
from pidts.text_rows.values import cast_text, is_short_year, whole_years

_FIRST_ROWS = 1024
_FIRST_TEXT = 1 << 16
_GROWTH = 4
"""The factor by which memory grows. It is large, since memory that is not written yet costs nothing, but written memory
has to be moved at each growth.
"""
_LARGEST_DECIMAL = 18
_SHOWN = 40
_LARGEST_TEXT = 2**31 - 1


class ReceivedBytes(Protocol):
    """The bytes of an answer that have arrived and have not been used yet."""

    @property
    def here(self) -> memoryview:
        """Returns the bytes."""

    def skip(self, size: int) -> None:
        """Drops this many bytes."""


class Cells:
    """The rows of a result that have arrived so far."""

    def __init__(self, table: Table, where: Where) -> None:
        self.size = 0
        self._table, self._where = table, where
        programs = [_program(column.type) for column in table.columns]
        self._cells = [cell for _, cell, _, _ in programs]
        self._programs = np.array(programs, np.int64)
        self._state = np.zeros(10, np.int64)
        self._ahead = _FIRST_ROWS
        self._begin()

    def take_all(self, reader: ReceivedBytes) -> bool:
        """Adds every complete row that has arrived; returns True if the next packet has to be read by the caller.

        Such a packet is the end of the rows, an error, or the beginning of a row that is longer than a packet.
        """
        here = reader.here
        begin = address(here)
        state = self._state
        state[kernel.AT // 8], state[kernel.END // 8] = begin, begin + len(here)
        while (code := kernel.take(address(state))) not in (kernel.WANTS_BYTES, kernel.IS_ODD):
            self._help(code)
        taken = int(state[kernel.AT // 8]) - begin
        here.release()
        reader.skip(taken)
        self.size += taken
        return bool(code == kernel.IS_ODD)

    def take_row(self, row: bytes) -> None:
        """Adds one row of any size."""
        begin = address(row)
        while (code := kernel.take_row(address(self._state), begin, begin + len(row))) != kernel.FINE:
            self._help(code)
        self.size += len(row)

    def table(self) -> pa.Table:
        """Returns all rows that were added so far. Rows that are added later do not change this table."""
        rows = self._rows
        columns = self._table.columns
        buffers = self._side.buffers(rows)
        arrays = [self._array(column, rows, own) for column, own in zip(columns, buffers, strict=True)]
        self._ahead = max(rows, _FIRST_ROWS)
        self._begin()
        return pa.Table.from_arrays(arrays, schema=self._table.arrow)

    @property
    def _rows(self) -> int:
        return int(self._state[kernel.ROWS // 8])

    def _begin(self) -> None:
        self.size = 0
        self._side = ImageBuffers(self._cells)
        self._side.resize(0, self._ahead)
        state = self._state
        state[[kernel.ROWS // 8, kernel.CAPACITY // 8, kernel.WIDTH // 8]] = 0, self._ahead, len(self._cells)
        state[[kernel.CODES // 8, kernel.COLUMNS // 8]] = address(self._programs), address(self._side.columns)

    def _help(self, code: int) -> None:
        state, rows = self._state, self._rows
        place, needed = int(state[kernel.PLACE // 8]), int(state[kernel.NEEDED // 8])
        if code == kernel.MORE_ROWS:
            capacity = 2 * int(state[kernel.CAPACITY // 8])
            self._side.resize(rows, capacity)
            state[kernel.CAPACITY // 8] = capacity
        elif code == kernel.MORE_TEXT and needed <= _LARGEST_TEXT:
            used = self._side.used(place, rows)
            self._side.more_text(place, max(needed, _FIRST_TEXT), used, int(used * _GROWTH))
        elif code == kernel.BAD_VALUE:
            shown = ctypes.string_at(int(state[kernel.VALUE // 8]), min(needed, _SHOWN))
            raise self._misfit(self._table.columns[place], repr(shown))
        else:
            what = "a row of the answer does not contain one value for each column"
            raise Halted("source-refused", what, where=self._where, todo="Connect to the server itself, not to a proxy")

    def _misfit(self, column: Column, why: object) -> StructureChanged:
        what = f"column {column.name} has a value that a column of type {column.type.kind} cannot have: {why}"
        return StructureChanged("structure-changed", what, where=self._where)

    def _array(self, column: Column, rows: int, buffers: list[pa.Buffer]) -> pa.Array:
        kind = column.type
        arrow = kind.arrow
        if len(buffers) == 2:
            array = pa.Array.from_buffers(arrow, rows, buffers)
            return whole_years(array) if is_short_year(kind) else array
        if pa.types.is_binary(arrow):
            return pa.Array.from_buffers(arrow, rows, buffers)
        if pa.types.is_string(arrow):
            return texts.text(self._table.name, column, rows, buffers)
        try:
            return cast_text(pa.Array.from_buffers(pa.binary(), rows, buffers).cast(pa.string()), kind)
        except pa.ArrowInvalid as error:
            raise self._misfit(column, error) from error


def _program(kind: ColumnType) -> tuple[int, int, int, int]:
    if kind.kind is Kind.BIT or (kind.kind is Kind.BIGINT and kind.unsigned):
        return kernel.LARGE, 8, 0, 0
    if kind.is_integer or kind.kind is Kind.YEAR:
        bits = kind.arrow.bit_width
        lowest, highest = (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return kernel.WHOLE, bits // 8, lowest, highest
    if kind.kind is Kind.DECIMAL and (kind.precision or 10) <= _LARGEST_DECIMAL:
        return kernel.DECIMAL, 16, kind.scale or 0, 10 ** ((kind.precision or 10) - 1)
    if kind.kind is Kind.DATE:
        return kernel.DATE, 4, 0, 0
    if kind.kind in {Kind.DATETIME, Kind.TIMESTAMP}:
        return kernel.MOMENT, 8, 0, 0
    return (kernel.TIME, 8, 0, 0) if kind.kind is Kind.TIME else (kernel.TEXT, 0, 0, 0)
