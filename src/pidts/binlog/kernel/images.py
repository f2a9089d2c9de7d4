"""The compiled loop over the images of a row event: `rows.Binding` in machine code.

Rows are written to their final place in Arrow's layout. The before images have a place for every row, and so have the
after images. An insert has no before image, and a delete has no after image. Before the loop writes an image, it sets
the places of earlier missing images of the same kind to NULL. If there is no room for a row, the loop stops at the
row's first byte, and reports how much room the row needs.
"""

from __future__ import annotations

from pidts.binlog.jit import entry, inline, jit, load8, load32, load64, store8, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.cells import put_null, read_value, set_null
from pidts.model.event import Op

_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)


@inline
def has_bit(bits: int, number: int) -> int:
    """Returns one of many bits; bit 0 is the lowest bit of the first byte."""
    found: int = load8(bits + (number >> 3)) >> (number & 7) & 1
    return found


@jit
def _nulls(program: int, columns: int, width: int, first: int, end: int) -> None:
    """Sets rows without an image to NULL."""
    for number in range(width):
        column = columns + number * at.COLUMN
        cell = load64(program + number * at.PROGRAM + at.CELL)
        valid = load64(column + at.VALID)
        row = first
        while row < end and row & 7:
            set_null(valid, row)
            row += 1
        while end - row >= 8:
            store8(valid + (row >> 3), 0)
            row += 8
        while row < end:
            set_null(valid, row)
            row += 1
        if cell == 0 and first < end:  # A table without rows may have no memory yet.
            cells = load64(column + at.CELLS)
            stop = load32(cells + 4 * first)
            for place in range(first, end):
                store32(cells + 4 * place + 4, stop)


@jit
def set_valid(columns: int, width: int, first: int, end: int) -> None:
    """Sets the validity bits of dropped rows to 1 again: NULLs have cleared some bits, and later rows expect 1."""
    for number in range(width):
        valid = load64(columns + number * at.COLUMN + at.VALID)
        for row in range(first, end):
            place = valid + (row >> 3)
            store8(place, load8(place) | 1 << (row & 7))


@jit
def fill(table: int, program: int, rows: int) -> None:
    """Writes NULL for the before images that inserts lack, and for the after images that deletes lack."""
    width = load64(table + at.WIDTH)
    _nulls(program, load64(table + at.BEFORE), width, load64(table + at.BEFORE_FILLED), rows)
    _nulls(program, load64(table + at.AFTER), width, load64(table + at.AFTER_FILLED), rows)
    store64(table + at.BEFORE_FILLED, rows)
    store64(table + at.AFTER_FILLED, rows)


@jit
def _read_image(
    data: int,
    begin: int,
    end: int,
    width: int,
    present: int,
    bitmap: int,
    program: int,
    columns: int,
    row: int,
    table: int,
    call: int,
) -> int:
    """Reads one image; returns the place after it, or an error. `present`: its bitmap of columns; 0: all columns."""
    nulls = data + begin
    place = begin + bitmap
    if place > end:
        return at.TORN
    bit = 0
    for number in range(width):
        column = columns + number * at.COLUMN
        null = 1
        if present == 0 or has_bit(present, number):
            null = has_bit(nulls, bit)
            bit += 1
        if null:
            put_null(program, column, row)
        else:
            place = read_value(data, place, end, program, column, number, row, table, call)
            if place < 0:
                return place
        program += at.PROGRAM
    return place


@inline
def put_lsn(lsn: int, prefix: int, ordinal: int) -> None:
    """Writes the Lsn of one row of an event."""
    store64(lsn, load64(prefix))
    store64(lsn + 8, load64(prefix + 8))
    swapped = (ordinal & 0xFF) << 24 | (ordinal & 0xFF00) << 8 | ordinal >> 8 & 0xFF00 | ordinal >> 24 & 0xFF
    store32(lsn + 16, swapped)


@inline
def make_ready(table: int, program: int, op: int, row: int) -> None:
    """Before an image is written, sets the places of earlier rows without such an image to NULL."""
    if op != _INSERT and load64(table + at.BEFORE_FILLED) < row:
        _nulls(program, load64(table + at.BEFORE), load64(table + at.WIDTH), load64(table + at.BEFORE_FILLED), row)
        store64(table + at.BEFORE_FILLED, row)
    if op != _DELETE and load64(table + at.AFTER_FILLED) < row:
        _nulls(program, load64(table + at.AFTER), load64(table + at.WIDTH), load64(table + at.AFTER_FILLED), row)
        store64(table + at.AFTER_FILLED, row)


@inline
def _read_row(
    table: int, program: int, data: int, begin: int, end: int, op: int, present: int, bitmaps: int, row: int, call: int
) -> int:
    """Reads the images of one row; returns the place after them, or the error."""
    width = load64(table + at.WIDTH)
    make_ready(table, program, op, row)
    stop = begin
    if op != _INSERT:
        before = load64(table + at.BEFORE)
        stop = _read_image(data, stop, end, width, present, bitmaps >> 16, program, before, row, table, call)
        if stop < 0:
            return stop
    if op != _DELETE:
        after = load64(table + at.AFTER)
        if present and op == _UPDATE:
            present += (width + 7) >> 3
        stop = _read_image(data, stop, end, width, present, bitmaps & 0xFFFF, program, after, row, table, call)
    return stop


@inline
def take_back(table: int, op: int, row: int) -> None:
    """Drops the row that was just read, so that the next row gets its place."""
    width = load64(table + at.WIDTH)
    if op != _INSERT:
        set_valid(load64(table + at.BEFORE), width, row, row + 1)
    if op != _DELETE:
        set_valid(load64(table + at.AFTER), width, row, row + 1)


@inline
def add_images(table: int, op: int, row: int) -> None:
    """Notes that the images of a row are written."""
    if op != _INSERT:
        store64(table + at.BEFORE_FILLED, row + 1)
    if op != _DELETE:
        store64(table + at.AFTER_FILLED, row + 1)


@inline
def put_presence(table: int, row: int, call: int) -> None:
    """Writes the number of the row's column presence."""
    store32(load64(table + at.PRESENCES) + 4 * row, load64(call + at.PRESENCE))


@inline
def add_row(table: int, op: int, row: int) -> None:
    """Adds a row after its images and its Lsn have been written: stores its operation, and counts the row."""
    store8(load64(table + at.OPS) + row, op)
    store64(table + at.ROWS, row + 1)


@entry
def read_rows(
    table: int, program: int, data: int, end: int, op: int, present: int, bitmaps: int, first: int, skip: int, call: int
) -> int:
    """Reads rows from `call.AT` to the end, without the first `skip` rows of the event.

    Returns FINE, or the reason why the loop stopped.

    `present` is the address of the bitmaps that say which columns the event's images have; 0 if they have all columns.
    `bitmaps` is b * 65,536 + a, where b and a are the numbers of bytes for NULL bits in a before and in an after image.
    """
    capacity = load64(table + at.CAPACITY)
    begin, done = load64(call + at.AT), load64(call + at.DONE)
    row = load64(table + at.ROWS)
    while begin < end:
        if row >= capacity:
            return at.MORE_ROWS
        stop = _read_row(table, program, data, begin, end, op, present, bitmaps, row, call)
        if stop < 0:
            return stop
        if stop == begin:
            return at.TORN
        if done < skip:
            take_back(table, op, row)
        else:
            put_lsn(load64(table + at.LSNS) + at.LSN * row, call + at.PREFIX, first + done)
            put_presence(table, row, call)
            add_images(table, op, row)
            add_row(table, op, row)
            row += 1
        done += 1
        begin = stop
        store64(call + at.AT, begin)
        store64(call + at.DONE, done)
        store64(call + at.HELPS, 0)
    return at.FINE
