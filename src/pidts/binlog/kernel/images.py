"""The compiled loop over the images of a row event: `rows.Binding` in machine code.

Rows are written where they end up in Arrow's own layout. Both sides of a table have a place for every row; what an
operation does not have, an insert its before image, is made NULL before the next image of that side is written. When a
row does not fit, the loop stops at its first byte and says what it needs.
"""

from __future__ import annotations

from pidts.binlog.jit import copy as copy_bytes
from pidts.binlog.jit import entry, inline, jit, load8, load32, load64, store8, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.cells import put_null, read_value, set_null
from pidts.binlog.kernel.numbers import little
from pidts.model.event import Op

_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)


@inline
def _has_bit(bits: int, number: int) -> int:
    found: int = load8(bits + (number >> 3)) >> (number & 7) & 1
    return found


@jit
def _nulls(program: int, columns: int, width: int, first: int, end: int) -> None:
    """Rows without an image."""
    for number in range(width):
        column = columns + number * at.COLUMN
        cell = load64(program + number * at.PROGRAM + at.CELL)
        if cell == at.PASSED_OVER:
            continue
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
        if cell == 0:
            cells = load64(column + at.CELLS)
            behind = load32(cells + 4 * first)
            for place in range(first, end):
                store32(cells + 4 * place + 4, behind)


@jit
def set_valid(columns: int, width: int, first: int, end: int) -> None:
    """Rows that are taken back leave the bits as they were."""
    for number in range(width):
        valid = load64(columns + number * at.COLUMN + at.VALID)
        for row in range(first, end):
            place = valid + (row >> 3)
            store8(place, load8(place) | 1 << (row & 7))


@jit
def fill(table: int, program: int, rows: int) -> None:
    """Makes both sides as long as the table."""
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
    """One image into one row; the place behind it, or what went wrong. `present` is 0 where it has all columns."""
    nulls = data + begin
    place = begin + bitmap
    if place > end:
        return at.TORN
    bit = 0
    for number in range(width):
        column = columns + number * at.COLUMN
        null = 1
        if present == 0 or _has_bit(present, number):
            null = _has_bit(nulls, bit)
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
def _has_nulls(nulls: int, width: int) -> bool:
    """Whether one of so many bits is set."""
    for number in range(width >> 3):
        if load8(nulls + number):
            return True
    rest = width & 7
    return rest != 0 and load8(nulls + (width >> 3)) & ((1 << rest) - 1) != 0


@jit
def _skim_image(
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
    """As `_read_image`, of an image of which most is passed over."""
    nulls = data + begin
    place = begin + bitmap
    if place > end:
        return at.TORN
    step = load64(program + at.STEPS)
    count, fewer = load64(step), load64(step + 8)
    step += 16
    is_full = present == 0 and not _has_nulls(nulls, width)
    if is_full:
        step += at.STEP * count
        count = fewer
    bit = 0
    for number in range(count):
        kind, size = load64(step + at.STEP_KIND), load64(step + at.STEP_SIZE)
        null = 0
        if not is_full:
            null = 1
            if present == 0 or _has_bit(present, number):
                null = _has_bit(nulls, bit)
                bit += 1
        if kind == at.LOOK:
            place_of = load64(step + at.STEP_COLUMN)
            own, column = program + place_of * at.PROGRAM, columns + place_of * at.COLUMN
            if null:
                put_null(own, column, row)
            else:
                place = read_value(data, place, end, own, column, place_of, row, table, call)
                if place < 0:
                    return place
        elif null == 0:
            if end - place < size:
                return at.TORN
            if kind == at.PASS_BEHIND_SIZE:
                length = load8(data + place) if size == 1 else little(data + place, size)
                if end - place - size < length:
                    return at.TORN
                place += length
            place += size
        step += at.STEP
    return place


@inline
def _put_lsn(table: int, row: int, prefix: int, ordinal: int) -> None:
    lsn = load64(table + at.LSNS) + at.LSN * row
    store64(lsn, load64(prefix))
    store64(lsn + 8, load64(prefix + 8))
    for place in range(4):
        store8(lsn + 16 + place, ordinal >> (24 - 8 * place))


@inline
def _make_ready(table: int, program: int, side: int, filled: int, row: int) -> None:
    """This side has an image again."""
    if load64(table + filled) < row:
        _nulls(program, load64(table + side), load64(table + at.WIDTH), load64(table + filled), row)
        store64(table + filled, row)


@inline
def _take_image(
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
    """As the program wants it: all of it, or some of its columns."""
    if load64(program + at.FULL):
        return _skim_image(data, begin, end, width, present, bitmap, program, columns, row, table, call)
    return _read_image(data, begin, end, width, present, bitmap, program, columns, row, table, call)


@inline
def _read_row(
    table: int, program: int, data: int, begin: int, end: int, op: int, present: int, bitmaps: int, row: int, call: int
) -> int:
    """The images of one row; the place behind them, or what went wrong."""
    width = load64(table + at.WIDTH)
    behind = begin
    if op != _INSERT:
        before = load64(table + at.BEFORE)
        _make_ready(table, program, at.BEFORE, at.BEFORE_FILLED, row)
        behind = _take_image(data, behind, end, width, present, bitmaps >> 16, program, before, row, table, call)
        if behind < 0:
            return behind
    if op != _DELETE:
        after = load64(table + at.AFTER)
        if present and op == _UPDATE:
            present += (width + 7) >> 3
        _make_ready(table, program, at.AFTER, at.AFTER_FILLED, row)
        behind = _take_image(data, behind, end, width, present, bitmaps & 0xFFFF, program, after, row, table, call)
    return behind


@inline
def _add_row(table: int, row: int, op: int) -> None:
    """It is all there."""
    store8(load64(table + at.OPS) + row, op)
    if op != _INSERT:
        store64(table + at.BEFORE_FILLED, row + 1)
    if op != _DELETE:
        store64(table + at.AFTER_FILLED, row + 1)
    store64(table + at.ROWS, row + 1)


@inline
def _note_stand(table: int, row: int, start: int, size: int, present: int, bitmaps: int, program: int) -> None:
    stand = load64(table + at.STANDS) + at.STAND * row
    store64(stand + at.START, start)
    store64(stand + at.LENGTH, size)
    store64(stand + at.PRESENT, present)
    store64(stand + at.BITMAPS, bitmaps)
    store64(stand + at.READ_BY, load64(program + at.FULL))


@entry
def read_rows(
    table: int, program: int, data: int, end: int, op: int, present: int, bitmaps: int, first: int, skip: int, call: int
) -> int:
    """Rows from `call.AT` to the end, of which the first `skip` of the event are passed over.

    `present` is where the event tells which columns its images have, or 0; `bitmaps` are the bytes that NULLs take in a
    before image, times 65,536, and in an after image.
    """
    width = load64(table + at.WIDTH)
    capacity = load64(table + at.CAPACITY)
    begin, done = load64(call + at.AT), load64(call + at.DONE)
    row = load64(table + at.ROWS)
    while begin < end:
        if row >= capacity:
            return at.MORE_ROWS
        behind = _read_row(table, program, data, begin, end, op, present, bitmaps, row, call)
        if behind < 0:
            return behind
        if behind == begin:
            return at.TORN
        if done < skip:
            # The next row comes to the same place.
            if op != _INSERT:
                set_valid(load64(table + at.BEFORE), width, row, row + 1)
            if op != _DELETE:
                set_valid(load64(table + at.AFTER), width, row, row + 1)
        else:
            _put_lsn(table, row, call + at.PREFIX, first + done)
            if load64(program + at.FULL):
                _note_stand(table, row, data + begin, behind - begin, present, bitmaps, program)
            _add_row(table, row, op)
            row += 1
        done += 1
        begin = behind
        store64(call + at.AT, begin)
        store64(call + at.DONE, done)
        store64(call + at.HELPS, 0)
    return at.FINE


@entry
def read_again(table: int, skimmed: int, rows: int, count: int, call: int) -> int:
    """All columns of rows of which some were passed over: `rows` are their numbers in that table's memory."""
    done = load64(call + at.DONE)
    while done < count:
        row = load64(table + at.ROWS)
        if row >= load64(table + at.CAPACITY):
            return at.MORE_ROWS
        number = load64(rows + 8 * done)
        stand = load64(skimmed + at.STANDS) + at.STAND * number
        data, end = load64(stand + at.START), load64(stand + at.LENGTH)
        op = load8(load64(skimmed + at.OPS) + number)
        present, bitmaps, program = load64(stand + at.PRESENT), load64(stand + at.BITMAPS), load64(stand + at.READ_BY)
        behind = _read_row(table, program, data, 0, end, op, present, bitmaps, row, call)
        if behind < 0:
            return behind
        copy_bytes(load64(table + at.LSNS) + at.LSN * row, load64(skimmed + at.LSNS) + at.LSN * number, at.LSN)
        _add_row(table, row, op)
        done += 1
        store64(call + at.DONE, done)
        store64(call + at.HELPS, 0)
    return at.FINE
