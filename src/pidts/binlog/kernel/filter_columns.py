"""The compiled loop that reads the images of a row event and skips most of their columns.

The loop writes the columns that a filter uses to Arrow's memory, and notes where each row ends. So the rows that the
filter keeps can be found and read completely afterwards (`kept_rows`).
"""

from __future__ import annotations

from pidts.binlog.jit import entry, inline, jit, load8, load64, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.cells import put_null, read_value
from pidts.binlog.kernel.images import add_images, add_row, has_bit, make_ready, put_lsn, put_presence, take_back
from pidts.binlog.kernel.numbers import little
from pidts.model.event import Op

_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)


@inline
def _has_nulls(nulls: int, width: int) -> bool:
    """Whether at least one of the `width` bits at the address `nulls` is set."""
    for number in range(width >> 3):
        if load8(nulls + number):
            return True
    rest = width & 7
    return rest != 0 and load8(nulls + (width >> 3)) & ((1 << rest) - 1) != 0


@inline
def _behind_step(data: int, place: int, end: int, step: int) -> int:
    """Returns the first byte after the bytes that a step skips."""
    place += load64(step + at.LEAD)
    if place > end:
        return at.TORN
    if load64(step + at.STEP_KIND) == at.PASS_BEHIND_SIZE:
        size = load64(step + at.STEP_SIZE)
        if end - place < size:
            return at.TORN
        length = load8(data + place) if size == 1 else little(data + place, size)
        place += size
        if end - place < length:
            return at.TORN
        place += length
    return place


@jit
def _skim_partial(
    data: int,
    begin: int,
    end: int,
    present: int,
    bitmap: int,
    steps: int,
    program: int,
    columns: int,
    row: int,
    table: int,
    call: int,
) -> int:
    """Reads one image that has NULLs or lacks columns; here each step is one column."""
    place = begin + bitmap
    step = steps + 16
    bit = 0
    for number in range(load64(steps)):
        null = 1
        if present == 0 or has_bit(present, number):
            null = has_bit(data + begin, bit)
            bit += 1
        if load64(step + at.STEP_KIND) == at.LOOK:
            own, column = program + number * at.PROGRAM, columns + number * at.COLUMN
            if null:
                put_null(own, column, row)
            else:
                place = read_value(data, place, end, own, column, number, row, table, call)
        elif null == 0:
            place = _behind_step(data, place, end, step)
        if place < 0:
            return place
        step += at.STEP
    return place


@inline
def _skim_image(
    data: int,
    begin: int,
    end: int,
    width: int,
    present: int,
    bitmap: int,
    steps: int,
    program: int,
    columns: int,
    row: int,
    table: int,
    call: int,
) -> int:
    """Reads one image; returns the place after it, or the error."""
    place = begin + bitmap
    if place > end:
        return at.TORN
    if present or _has_nulls(data + begin, width):
        return _skim_partial(data, begin, end, present, bitmap, steps, program, columns, row, table, call)
    step = steps + 16 + at.STEP * load64(steps)
    for _ in range(load64(steps + 8)):
        place = _behind_step(data, place, end, step)
        if place < 0:
            return place
        if load64(step + at.STEP_KIND) == at.LOOK:
            number = load64(step + at.STEP_COLUMN)
            own, column = program + number * at.PROGRAM, columns + number * at.COLUMN
            place = read_value(data, place, end, own, column, number, row, table, call)
            if place < 0:
                return place
        step += at.STEP
    return place


@inline
def _note_event(table: int, data: int, begin: int, row: int, op: int, present: int, bitmaps: int, program: int) -> None:
    count = load64(table + at.EVENT_COUNT)
    event = load64(table + at.EVENTS) + at.EVENT * count
    store64(event + at.DATA, data)
    store64(event + at.BEGIN, begin)
    store64(event + at.FIRST, row)
    store64(event + at.OP, op)
    store64(event + at.PRESENT, present)
    store64(event + at.BITMAPS, bitmaps)
    store64(event + at.READ_BY, load64(program + at.FULL))
    store64(table + at.EVENT_COUNT, count + 1)


@inline
def _skim_row(
    table: int,
    program: int,
    steps: int,
    data: int,
    begin: int,
    end: int,
    op: int,
    present: int,
    bitmaps: int,
    row: int,
    call: int,
) -> int:
    """Reads the images of one row; returns the place after them, or the error."""
    width = load64(table + at.WIDTH)
    stop = begin
    if op != _INSERT:
        columns = load64(table + at.BEFORE)
        stop = _skim_image(data, stop, end, width, present, bitmaps >> 16, steps, program, columns, row, table, call)
        if stop < 0:
            return stop
    if op != _DELETE:
        columns = load64(table + at.AFTER)
        after = present + ((width + 7) >> 3) if present and op == _UPDATE else present
        stop = _skim_image(data, stop, end, width, after, bitmaps & 0xFFFF, steps, program, columns, row, table, call)
    return stop


@entry
def skim_rows(
    table: int, program: int, data: int, end: int, op: int, present: int, bitmaps: int, first: int, skip: int, call: int
) -> int:
    """Reads rows as `read_rows` does. If no filter reads columns for the operation, all columns are NULL here."""
    is_asked = load64(table + at.ASKED) >> op & 1
    steps = load64(load64(program + at.STEPS) + (at.LOOKING if is_asked else at.PASSING))
    capacity = load64(table + at.CAPACITY)
    begin, done = load64(call + at.AT), load64(call + at.DONE)
    row = load64(table + at.ROWS)
    while begin < end:
        if row >= capacity:
            return at.MORE_ROWS
        if is_asked:
            make_ready(table, program, op, row)
        stop = _skim_row(table, program, steps, data, begin, end, op, present, bitmaps, row, call)
        if stop < 0:
            return stop
        if stop == begin:
            return at.TORN
        if done >= skip:
            if done == skip:
                _note_event(table, data, begin, row, op, present, bitmaps, program)
            put_lsn(load64(table + at.LSNS) + at.LSN * row, call + at.PREFIX, first + done)
            put_presence(table, row, call)
            store32(load64(table + at.ENDS) + at.END * row, stop)
            if is_asked:
                add_images(table, op, row)
            add_row(table, op, row)
            row += 1
        elif is_asked:
            take_back(table, op, row)
        done += 1
        begin = stop
        store64(call + at.AT, begin)
        store64(call + at.DONE, done)
        store64(call + at.HELPS, 0)
    return at.FINE
