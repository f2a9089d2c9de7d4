"""Reads one value of an image from the log's bytes into the memory of its column, in compiled code.

If there is no room for a value, the loop stops before the value, and reports how much room it needs.
"""

from __future__ import annotations

from pidts.binlog.jit import copy as copy_bytes
from pidts.binlog.jit import inline, invoke, jit, load8, load32, load64, store8, store32, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.identifiers import LONGEST
from pidts.binlog.kernel.json_values import FULL, STRANGE
from pidts.binlog.kernel.numbers import little, read_number
from pidts.binlog.kernel.temporal import read_temporal

_LARGEST_TEXT = 2**31 - 1


@inline
def set_null(valid: int, row: int) -> None:
    """Clears a row's validity bit."""
    place = valid + (row >> 3)
    store8(place, load8(place) & ~(1 << (row & 7)))


@inline
def _more_text(call: int, column: int, place: int, needed: int) -> int:
    """Reports that a column has no room for a text, and returns the error for this.

    The column's address shows whether the column belongs to the before images or to the after images.
    """
    store64(call + at.SIDE, column)
    store64(call + at.PLACE, place)
    store64(call + at.NEEDED, needed)
    return at.TOO_MUCH if needed > _LARGEST_TEXT else at.MORE_TEXT


@inline
def _helped(call: int, document: int) -> int:
    """Returns the address of the entry with the text that plain code has made of a document; 0 if there is none."""
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
    """Reads a value whose bytes in Arrow differ from those in the log; returns FINE or an error."""
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
    """Reads a value of fixed size; returns FINE or an error. The event is known to have all its bytes."""
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
    """Reads a value with its length before it; returns FINE or an error. The event is known to have all its bytes."""
    cell = load64(column + at.CELLS) + 4 * row
    if code != at.PREFIXED:
        return _read_special(code, program, value, size, column, number, cell, table, call)
    used = load32(cell)
    if load64(column + at.ROOM) - used < size:
        return _more_text(call, column, number, used + size)
    copy_bytes(load64(column + at.TEXT) + used, value, size)
    store32(cell + 4, used + size)
    return at.FINE


@inline
def put_null(program: int, column: int, row: int) -> None:
    """Writes a NULL."""
    set_null(load64(column + at.VALID), row)
    if load64(program + at.CODE) >= at.FIRST_VARYING:
        cell = load64(column + at.CELLS) + 4 * row
        store32(cell + 4, load32(cell))


@inline
def read_value(
    data: int, place: int, end: int, program: int, column: int, number: int, row: int, table: int, call: int
) -> int:
    """Reads a value other than NULL; returns the place after it, or the error."""
    code, size = load64(program + at.CODE), load64(program + at.WIRE)
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
    stop: int = place + size
    return stop
