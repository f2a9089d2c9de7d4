"""The memory into which the compiled loop writes the rows of one table, and from which Arrow reads them.

The before images have one block of memory for everything of fixed size, and one block for each column with values of
varying size. The after images have the same. A block that is too small is doubled. Arrow uses the blocks without a
copy. Only if there are few rows, Arrow gets a copy, and the blocks are used again: making new blocks takes longer.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from pidts.binlog.jit import address
from pidts.binlog.kernel import images
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.presence import Presences
from pidts.binlog.kernel.program import cell_size
from pidts.model.event import Op
from pidts.model.table import Table

_FIRST_ROWS = 64
_FIRST_TEXT = 1024
_LARGEST_ROOM = 16 << 10
"""The largest room, in bytes, that one column's values get while their size is not known."""
_FEW = 64
"""Up to this many rows are counted in Python, which is faster than NumPy for so few."""
_ALIGNED = 64
_END = _NUMBER = 4
_OF_ROWS = [field // 8 for field in (at.ROWS, at.BEFORE_FILLED, at.AFTER_FILLED, at.SIZE, at.IS_PARTIAL)]
"""The indexes, in a table's state, of the numbers that describe its present rows."""
_TEXT_END = struct.Struct("<i")
_LARGEST_TEXT = 2**31 - 1
"""The largest number of bytes of text in one column: Arrow stores the ends of values in 32 bits."""


class ImageBuffers:
    """The before images or the after images of a table's rows."""

    __slots__ = ("_block", "_cells", "_rooms", "_texts", "columns")

    def __init__(self, cells: Collection[int]) -> None:
        self._cells = tuple(cells)
        self.columns = np.zeros((max(len(cells), 1), at.COLUMN // 8), np.int64)
        self._block = np.zeros(0, np.uint8)
        self._texts: dict[int, Any] = {}
        self._rooms: dict[int, int] = {}
        """The room that the values of some columns needed before the last `clear`."""

    def resize(self, rows: int, capacity: int) -> None:
        """Makes room for more rows, and moves the existing rows."""
        if capacity == _FIRST_ROWS and not rows and self._cells:
            self._begin()
            return
        bits = _aligned((capacity + 7) // 8)
        sizes = [_aligned(_bytes(cell, capacity)) for cell in self._cells]
        block = np.zeros(len(sizes) * bits + sum(sizes), np.uint8)
        block[: len(sizes) * bits] = 0xFF
        old, start, base = self._block, address(self._block), address(block)
        place = len(sizes) * bits
        for number, (size, cell) in enumerate(zip(sizes, self._cells, strict=True)):
            column = self.columns[number]
            if rows:
                valid, cells = int(column[0]) - start, int(column[1]) - start
                used, kept = (rows + 7) // 8, _bytes(cell, rows)
                block[number * bits : number * bits + used] = old[valid : valid + used]
                block[place : place + kept] = old[cells : cells + kept]
            column[0], column[1] = base + number * bits, base + place
            place += size
        self._block = block

    def _begin(self) -> None:
        """Makes room for the first rows. Values of varying size get as much room as in the last batch."""
        block, places = _first_block(self._cells)
        self._block = block.copy()
        self.columns[:, :2] = places + address(self._block)
        for place, room in self._rooms.items():
            self._take_text(place, np.empty(room, np.uint8))

    def _take_text(self, place: int, text: Any) -> None:
        self._texts[place] = text
        self.columns[place, at.TEXT // 8 :] = address(text), len(text)

    def more_text(self, place: int, needed: int, used: int, expected: int) -> None:
        """Makes room for more bytes of one column."""
        old = self._texts.get(place)
        wanted = max(needed, _FIRST_TEXT, 2 * (0 if old is None else len(old)), expected)
        text = np.empty(min(wanted, _LARGEST_TEXT), np.uint8)
        if old is not None:
            text[:used] = old[:used]
        self._take_text(place, text)

    def begin_again(self) -> None:
        """Resets the blocks to their contents before the first row. They must have room for `_FIRST_ROWS` rows."""
        self._block[:] = _first_block(self._cells)[0]
        for place in [place for place, text in self._texts.items() if len(text) > _LARGEST_ROOM]:
            del self._texts[place]
            self.columns[place, at.TEXT // 8 :] = 0

    def clear(self) -> None:
        """Releases the blocks."""
        self._rooms = {place: min(len(text), _LARGEST_ROOM) for place, text in self._texts.items()}
        self.columns[:] = 0
        self._block = _NOTHING
        self._texts = {}

    def used(self, place: int, rows: int) -> int:
        """Returns how many bytes of text the first rows of a column have."""
        return self._used(int(self.columns[place, at.CELLS // 8]) - address(self._block), rows)

    def _used(self, ends: int, rows: int) -> int:
        found: int = _TEXT_END.unpack_from(self._block.data, ends + _END * rows)[0]
        return found

    def buffers(self, rows: int, *, copied: bool = False) -> list[list[pa.Buffer]]:
        """Returns each column's Arrow buffers: validity, values or offsets, text. With `copied`, they are copies."""
        block, found = pa.py_buffer(self._block.copy() if copied else self._block), []
        begins = (self.columns[:, :2] - address(self._block)).tolist()
        for place, ((valid, cells), cell) in enumerate(zip(begins, self._cells, strict=False)):
            column = [block.slice(valid, (rows + 7) // 8), block.slice(cells, _bytes(cell, rows))]
            if not cell:
                text, used = self._texts.get(place, _NO_TEXT), self._used(cells, rows)
                column.append(pa.py_buffer(text[:used].copy() if copied and used else text).slice(0, used))
            found.append(column)
        return found


class Memory:
    """The before images and the after images of a table's rows, the rows' operations, and their Lsns."""

    __slots__ = (
        "_frames",
        "_layout",
        "after",
        "before",
        "lsns",
        "ops",
        "presence_numbers",
        "presences",
        "state",
        "width",
    )

    def __init__(self, table: Table) -> None:
        """Makes the memory without rows."""
        cells = [cell_size(column.type) for column in table.columns]
        self.width = len(cells)
        self.before, self.after = ImageBuffers(cells), ImageBuffers(cells)
        self.state = np.zeros(at.TABLE // 8, np.int64)
        self._layout = np.zeros((max(len(cells), 1), at.PROGRAM // 8), np.int64)
        self._layout[: len(cells), at.CELL // 8] = cells
        self._frames = np.zeros(at.DEPTH * at.FRAME, np.uint8)
        self.lsns = self.ops = np.zeros(0, np.uint8)
        self.state[at.WIDTH // 8] = len(cells)
        self.state[at.BEFORE // 8] = address(self.before.columns)
        self.state[at.AFTER // 8] = address(self.after.columns)
        self.state[at.SCRATCH // 8] = address(self._frames)
        self.presence_numbers = _NOTHING
        """The number of each row's column presence, in 32 bits each."""
        self.presences = Presences(self.state, len(cells))

    @property
    def rows(self) -> int:
        """Returns the number of rows."""
        return int(self.state[at.ROWS // 8])

    @property
    def is_copied(self) -> bool:
        """Whether a batch gets a copy of the rows, so that the next rows can be written to the same memory."""
        return bool(self.width and self.state[at.CAPACITY // 8] == _FIRST_ROWS and self.size <= _LARGEST_ROOM)

    def count(self, op: Op) -> int:
        """Returns the number of rows with this operation."""
        ops = self.ops[: self.rows]
        return ops.tobytes().count(int(op)) if len(ops) <= _FEW else int(np.count_nonzero(ops == op))

    def more_rows(self, ahead: float) -> None:
        """Makes room for twice as many rows, or for the expected number if that is larger."""
        self.make_room(max(_FIRST_ROWS, 2 * int(self.state[at.CAPACITY // 8]), int(self.rows * ahead)))

    def make_room(self, capacity: int) -> None:
        """Makes room for this many rows."""
        state, rows = self.state, self.rows
        self.lsns, self.ops = _grown(self.lsns, at.LSN, rows, capacity), _grown(self.ops, 1, rows, capacity)
        self.before.resize(int(state[at.BEFORE_FILLED // 8]), capacity)
        self.after.resize(int(state[at.AFTER_FILLED // 8]), capacity)
        state[at.CAPACITY // 8] = capacity
        state[at.LSNS // 8], state[at.OPS // 8] = address(self.lsns), address(self.ops)
        self.presence_numbers = _grown(self.presence_numbers, _NUMBER, rows, capacity)
        state[at.PRESENCES // 8] = address(self.presence_numbers)

    def more_text(self, column: int, place: int, needed: int, ahead: float, most: int) -> None:
        """Makes room for a value of the column at this address, and for the values of the expected rows.

        The size of the expected values is estimated separately for before and after images: the first image of one kind
        may come long after the first of the other kind.
        """
        is_before = address(self.before.columns) <= column < address(self.before.columns) + self.before.columns.nbytes
        side, filled = (self.before, at.BEFORE_FILLED) if is_before else (self.after, at.AFTER_FILLED)
        images_so_far = 1 + self.rows - self.count(Op.INSERT if is_before else Op.DELETE)
        images_more = max(self.rows, 1) * (ahead - 1)
        expected = needed + int(min(needed / images_so_far * images_more, most))
        side.more_text(place, needed, side.used(place, int(self.state[filled // 8])), expected)

    @property
    def size(self) -> int:
        """Returns the size in bytes of all images so far."""
        return int(self.state[at.SIZE // 8])

    def add_size(self, size: int) -> None:
        """Adds the bytes of further images to `size`."""
        self.state[at.SIZE // 8] += size

    def clear(self) -> None:
        """Begins again, with new memory if the written memory belongs to a batch now."""
        if self.is_copied:
            self.before.begin_again()
            self.after.begin_again()
            self.state[_OF_ROWS] = 0
            return
        self.before.clear()
        self.after.clear()
        self.lsns = self.ops = self.presence_numbers = _NOTHING
        self.state[_OF_ROWS] = self.state[at.CAPACITY // 8] = 0

    def partial(self) -> pa.Array | None:
        """Returns the column `partial` of the rows; None if all images have all columns."""
        if not self.state[at.IS_PARTIAL // 8]:
            return None
        return self.presences.partial(self.presence_numbers[: _NUMBER * self.rows].view(np.int32))

    def fill(self) -> None:
        """Gives the before and the after images an entry for each row: NULL if its operation lacks such an image."""
        images.fill(address(self.state), address(self._layout), self.rows)

    def back_to(self, rows: int) -> None:
        """Drops all rows after the first `rows`."""
        for side, filled in ((self.before, at.BEFORE_FILLED // 8), (self.after, at.AFTER_FILLED // 8)):
            written = int(self.state[filled])
            if written > rows:
                images.set_valid(address(side.columns), self.width, rows, written)
                self.state[filled] = rows
        self.state[at.ROWS // 8] = rows


_NOTHING = np.zeros(0, np.uint8)
_NO_TEXT = np.zeros(1, np.uint8)
"""An address for empty buffers, since Arrow needs one."""


@lru_cache(maxsize=256)
def _first_block(cells: tuple[int, ...]) -> tuple[Any, Any]:
    """Returns a block for `_FIRST_ROWS` rows, and the places of each column's validity bits and values in the block.

    No caller may change the arrays, which are cached.
    """
    bits = _aligned((_FIRST_ROWS + 7) // 8)
    sizes = [_aligned(_bytes(cell, _FIRST_ROWS)) for cell in cells]
    begin = len(sizes) * bits
    block = np.zeros(begin + sum(sizes), np.uint8)
    block[:begin] = 0xFF
    values = begin + np.cumsum([0, *sizes[:-1]], dtype=np.int64)
    return block, np.stack([bits * np.arange(len(sizes)), values], axis=1)


def _aligned(size: int) -> int:
    return (size + _ALIGNED - 1) // _ALIGNED * _ALIGNED


def _bytes(cell: int, rows: int) -> int:
    """Returns how many bytes a column's values, or their ends, take."""
    return cell * rows if cell else _END * (rows + 1)


def _grown(old: Any, size: int, used: int, capacity: int) -> Any:
    """Returns an array with room for `capacity` items of `size` bytes, and with the used items of the old array."""
    new = np.empty(size * capacity, np.uint8)
    new[: size * used] = old[: size * used]
    return new
