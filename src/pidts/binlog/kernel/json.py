"""Converts MySQL's binary JSON to text in compiled code, as `pidts.binlog.values.json` does, but without recursion."""

from __future__ import annotations

from pidts.binlog.jit import entry, inline, jit, load8, load16, load32, load64, store8, store64
from pidts.binlog.kernel.json_values import (
    BAD,
    FULL,
    put_double,
    put_integer,
    put_literal,
    put_opaque,
    put_string,
    sized,
)
from pidts.binlog.kernel.layout import DEPTH, FRAME
from pidts.binlog.kernel.writing import put_word, word

_NULL = word("null")
_START, _NUMBER, _COUNT, _KEYS, _ENTRIES, _LARGE = 0, 8, 16, 24, 32, 40
_NOT_KEYED = -1


@inline
def _uint(address: int, large: int) -> int:
    found: int = load32(address) if large else load16(address)
    return found


@inline
def _is_inline(kind: int, large: int) -> bool:
    """Whether a value is stored in the container's table of entries, not after it."""
    return kind in (4, 5, 6) or (large == 1 and kind in (7, 8))


@inline
def _open(data: int, start: int, size: int, kind: int, frame: int) -> bool:
    """Stores a container's header in a frame of the stack; returns False if the sizes in the header are impossible."""
    large = kind & 1
    width = 4 if large else 2
    keys = start + 2 * width
    if keys > size:
        return False
    count, end = _uint(data + start, large), start + _uint(data + start + width, large)
    entries = keys + (count * (width + 2) if kind < 2 else 0)
    if end > size or entries + count * (width + 1) > end:
        return False
    store64(frame + _START, start)
    store64(frame + _NUMBER, 0)
    store64(frame + _COUNT, count)
    store64(frame + _KEYS, keys if kind < 2 else _NOT_KEYED)
    store64(frame + _ENTRIES, entries)
    store64(frame + _LARGE, large)
    return True


@jit
def _put_key(data: int, size: int, frame: int, number: int, out: int, limit: int) -> int:
    large = load64(frame + _LARGE)
    width = 4 if large else 2
    key = load64(frame + _KEYS) + number * (width + 2)
    first = load64(frame + _START) + _uint(data + key, large)
    end = first + load16(data + key + width)
    if end > size:
        return BAD
    out = put_string(data, first, end, out, limit)
    if out < 0:
        return out
    if limit - out < 2:
        return FULL
    store8(out, 58)
    store8(out + 1, 32)
    return out + 2


@jit
def _put_scalar(data: int, kind: int, at: int, size: int, out: int, limit: int) -> int:
    if 5 <= kind <= 10:
        return put_integer(data, kind, at, size, out, limit)
    if kind == 12:
        start, end = sized(data, at, size)
        return BAD if end == BAD else put_string(data, start, end, out, limit)
    if kind == 4:
        return put_literal(data, at, size, out, limit)
    if kind == 11:
        return put_double(data, at, size, out, limit)
    if kind == 15:
        return put_opaque(data, at, size, out, limit)
    return BAD


@entry
def put_json(data: int, size: int, out: int, limit: int, frames: int) -> int:
    """Writes the text of a document; returns the place after the text, or an error of `json_values`.

    The number of values is limited, since containers in malformed bytes may contain each other.
    """
    if size == 0:
        return put_word(out, _NULL, 4) if limit - out >= 4 else FULL
    kind, at, top, budget = load8(data), 1, 0, size
    while True:
        budget -= 1
        if top >= DEPTH or budget < 0:
            return BAD
        if kind <= 3:
            if not _open(data, at, size, kind, frames + top * FRAME):
                return BAD
            if out >= limit:
                return FULL
            store8(out, 123 if kind < 2 else 91)
            out += 1
            top += 1
        else:
            out = _put_scalar(data, kind, at, size, out, limit)
            if out < 0:
                return out
        # Closes the innermost containers that have no more members, up to a container with a next member.
        while True:
            if top == 0:
                return out
            if limit - out < 2:
                return FULL
            frame = frames + (top - 1) * FRAME
            number, keyed = load64(frame + _NUMBER), load64(frame + _KEYS) != _NOT_KEYED
            if number < load64(frame + _COUNT):
                break
            store8(out, 125 if keyed else 93)
            out += 1
            top -= 1
        if number:
            store8(out, 44)
            store8(out + 1, 32)
            out += 2
        if keyed:
            out = _put_key(data, size, frame, number, out, limit)
            if out < 0:
                return out
        large = load64(frame + _LARGE)
        entry = load64(frame + _ENTRIES) + number * (5 if large else 3)
        kind = load8(data + entry)
        at = entry + 1 if _is_inline(kind, large) else load64(frame + _START) + _uint(data + entry + 1, large)
        store64(frame + _NUMBER, number + 1)
