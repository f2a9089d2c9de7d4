"""The compiled loop over the images of a row event: `rows.Binding` in machine code.

Rows are written where they end up in Arrow's own layout. Both sides of a table have a place for every row; what an
operation does not have, an insert its before image, is made NULL before the next image of that side is written. When a
row does not fit, the loop stops at its first byte and says what it needs.
"""

from __future__ import annotations

from pidts.binlog.jit import copy as copy_bytes
from pidts.binlog.jit import entry, inline, invoke, jit, load8, load32, load64, store8, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.identifiers import LONGEST
from pidts.binlog.kernel.json_values import FULL, STRANGE
from pidts.binlog.kernel.numbers import little, read_number
from pidts.binlog.kernel.temporal import read_temporal
from pidts.model.event import Op

_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)
_LARGEST_TEXT = 2**31 - 1


@inline
def _has_bit(bits: int, number: int) -> int:
    found: int = load8(bits + (number >> 3)) >> (number & 7) & 1
    return found


@inline
def _set_null(valid: int, row: int) -> None:
    place = valid + (row >> 3)
    store8(place, load8(place) & ~(1 << (row & 7)))


@jit
def _nulls(program: int, columns: int, width: int, first: int, end: int) -> None:
    """Rows without an image."""
    for number in range(width):
        column = columns + number * at.COLUMN
        valid = load64(column + at.VALID)
        row = first
        while row < end and row & 7:
            _set_null(valid, row)
            row += 1
        while end - row >= 8:
            store8(valid + (row >> 3), 0)
            row += 8
        while row < end:
            _set_null(valid, row)
            row += 1
        if load64(program + number * at.PROGRAM + at.CELL) == 0:
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


@inline
def _more_text(call: int, column: int, place: int, needed: int) -> int:
    """The caller knows the side by the column's address."""
    store64(call + at.SIDE, column)
    store64(call + at.PLACE, place)
    store64(call + at.NEEDED, needed)
    return at.TOO_MUCH if needed > _LARGEST_TEXT else at.MORE_TEXT


@inline
def _helped(call: int, document: int) -> int:
    """Where plain code has put what it knows of a document; 0 where it has not been asked."""
    for number in range(load64(call + at.HELPS)):
        found: int = load64(call + at.HELP) + 24 * number
        if load64(found) == document:
            return found
    return 0


@jit
def _read_json(document: int, size: int, column: int, place: int, cell: int, table: int, call: int) -> int:
    text, room, used = load64(column + at.TEXT), load64(column + at.ROOM), load32(cell)
    if load64(call + at.HELPS):
        answer = _helped(call, document)
        if answer:
            length = load64(answer + 16)
            if room - used < length:
                return _more_text(call, column, place, used + length)
            copy_bytes(text + used, load64(answer + 8), length)
            store32(cell + 4, used + length)
            return at.FINE
    end = invoke(load64(call + at.JSON_CODE), document, size, text + used, text + room, load64(table + at.SCRATCH))
    if end == FULL:
        return _more_text(call, column, place, room + size + 64)
    if end == STRANGE:
        store64(call + at.SIDE, document)
        store64(call + at.NEEDED, size)
        return at.WANTS_HELP
    if end < 0:
        return at.BAD_VALUE
    store32(cell + 4, end - text)
    return at.FINE


@jit
def _read_special(
    code: int, program: int, value: int, size: int, column: int, place: int, cell: int, table: int, call: int
) -> int:
    """Values whose bytes in Arrow are not those on the wire."""
    if code == at.JSON:
        return _read_json(value, size, column, place, cell, table, call)
    text, room, used = load64(column + at.TEXT), load64(column + at.ROOM), load32(cell)
    if code == at.PADDED:
        length = max(size, load64(program + at.A))
        if room - used < length:
            return _more_text(call, column, place, used + length)
        copy_bytes(text + used, value, size)
        for rest in range(size, length):
            store8(text + used + rest, 0)
        store32(cell + 4, used + length)
        return at.FINE
    if room - used < LONGEST:
        return _more_text(call, column, place, used + LONGEST)
    end = invoke(load64(call + at.IDENTIFIER_CODE), code, value, min(size, load64(program + at.A)), text + used)
    store32(cell + 4, end - text)
    return at.FINE


@inline
def _read_fixed(code: int, program: int, value: int, column: int, row: int) -> int:
    """A value of fixed size, all of which is there."""
    cell = load64(column + at.CELLS) + load64(program + at.CELL) * row
    if code == at.BYTES4:
        store32(cell, load32(value))
        return at.FINE
    if code == at.BYTES8:
        store64(cell, load64(value))
        return at.FINE
    if code < at.FIRST_TEMPORAL:
        return read_number(code, program, value, cell)
    return read_temporal(code, program, value, cell)


@inline
def _read_varying(
    code: int, program: int, value: int, size: int, column: int, number: int, row: int, table: int, call: int
) -> int:
    """A value behind its length, all of which is there."""
    cell = load64(column + at.CELLS) + 4 * row
    if code != at.PREFIXED:
        return _read_special(code, program, value, size, column, number, cell, table, call)
    used = load32(cell)
    if load64(column + at.ROOM) - used < size:
        return _more_text(call, column, number, used + size)
    copy_bytes(load64(column + at.TEXT) + used, value, size)
    store32(cell + 4, used + size)
    return at.FINE


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
        code = load64(program + at.CODE)
        null = 1
        if present == 0 or _has_bit(present, number):
            null = _has_bit(nulls, bit)
            bit += 1
        if null:
            _set_null(load64(column + at.VALID), row)
            if code >= at.FIRST_VARYING:
                cell = load64(column + at.CELLS) + 4 * row
                store32(cell + 4, load32(cell))
        else:
            size = load64(program + at.WIRE)
            if end - place < size:
                return at.TORN
            if code < at.FIRST_VARYING:
                result = _read_fixed(code, program, data + place, column, row)
            else:
                prefix = size
                size = little(data + place, prefix)
                place += prefix
                if end - place < size:
                    return at.TORN
                result = _read_varying(code, program, data + place, size, column, number, row, table, call)
            if result != at.FINE:
                return result
            place += size
        program += at.PROGRAM
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


@entry
def read_rows(
    table: int, program: int, data: int, end: int, op: int, present: int, bitmaps: int, first: int, skip: int, call: int
) -> int:
    """Rows from `call.AT` to the end, of which the first `skip` of the event are passed over.

    `present` is where the event tells which columns its images have, or 0; `bitmaps` are the bytes that NULLs take in a
    before image, times 65,536, and in an after image.
    """
    width = load64(table + at.WIDTH)
    before, after = load64(table + at.BEFORE), load64(table + at.AFTER)
    present_after = present + ((width + 7) >> 3) if present and op == _UPDATE else present
    bitmap_before, bitmap_after = bitmaps >> 16, bitmaps & 0xFFFF
    capacity = load64(table + at.CAPACITY)
    ops = load64(table + at.OPS)
    begin, done = load64(call + at.AT), load64(call + at.DONE)
    row = load64(table + at.ROWS)
    while begin < end:
        if row >= capacity:
            return at.MORE_ROWS
        behind = begin
        if op != _INSERT:
            _make_ready(table, program, at.BEFORE, at.BEFORE_FILLED, row)
            behind = _read_image(data, behind, end, width, present, bitmap_before, program, before, row, table, call)
            if behind < 0:
                return behind
        if op != _DELETE:
            _make_ready(table, program, at.AFTER, at.AFTER_FILLED, row)
            behind = _read_image(
                data, behind, end, width, present_after, bitmap_after, program, after, row, table, call
            )
            if behind < 0:
                return behind
        if behind == begin:
            return at.TORN
        if done < skip:
            # The next row comes to the same place.
            if op != _INSERT:
                set_valid(before, width, row, row + 1)
            if op != _DELETE:
                set_valid(after, width, row, row + 1)
        else:
            _put_lsn(table, row, call + at.PREFIX, first + done)
            store8(ops + row, op)
            if op != _INSERT:
                store64(table + at.BEFORE_FILLED, row + 1)
            if op != _DELETE:
                store64(table + at.AFTER_FILLED, row + 1)
            row += 1
            store64(table + at.ROWS, row)
        done += 1
        begin = behind
        store64(call + at.AT, begin)
        store64(call + at.DONE, done)
        store64(call + at.HELPS, 0)
    return at.FINE
