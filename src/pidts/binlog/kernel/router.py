"""Reads the events of a slice in compiled code, which calls no Python code for ordinary events.

The function `route` reads ordinary transactions: they end with XID or COMMIT, and their tables and the column presences
of their images are already known. `route` stops before any other event, and adds none of its rows. If `route` stops
within an event because a row is malformed, the caller drops the rows of this event. In both cases, `LogWalker` and
`RowDecoder` then read the event. These classes are the reference: `route` must return the same rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pidts.binlog.blocks.ordinary import (
    C_BEGIN,
    C_NONE,
    LAST_OFFSET,
    MAPS,
    NOTHING,
    OTHER,
    ROWS,
    STARTS,
    STATEMENT,
    control_of,
    place,
    roles_of,
    same,
    xa_of,
)
from pidts.binlog.crc import crc32_at
from pidts.binlog.event_group_places import LARGEST
from pidts.binlog.events import CHECKSUM_SIZE, FLAG_ARTIFICIAL, HEADER_SIZE, EventType
from pidts.binlog.jit import inline, invoke, jit, load8, load16, load32, load64, store8, store64
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.inflate import MOST_TIMES, inflate
from pidts.binlog.kernel.presence import known_presence
from pidts.model.event import Op

# The reasons why `route` stopped. DONE: all events are read. HAND_OVER: the reference has to read the next event.
# MAKE_ROOM: a table's images have as many bytes as the caller allows (`LIMIT`). The results of `read_rows` are further
# reasons. Functions that handle an event return a reason or `_GO_ON`.
DONE, HAND_OVER, MAKE_ROOM = 0, 1, 2
_GO_ON = 3
"""The event is read, and `route` continues."""
MORE_ARENA = 4
"""The next event's images need `NEEDED` bytes of memory after decompression, which is more than there is."""
PACKED = 5
"""The next event is a compressed transaction, which is not decompressed yet."""

# The state is an array of numbers with the following indexes.
(AT, OFFSET, CHECKSUMS, CAREFUL, MAP_SERIAL, SERIAL, ENTRIES, MASK) = range(8)
(LIMIT, AFTER, PREFIX, PAYLOAD, CHARSETS, RESUME, TOUCHED, TOUCHED_COUNT) = range(8, 16)
(CLEARED, UNMAPPED, TABLE, ROWS_BEFORE, LAST, READ_ROWS, BASE) = range(16, 23)
# For compressed events: the memory into which images are decompressed, the arguments `done` and `uncompress` of
# `inflate`, and the images of the event that is being read.
(ARENA, ARENA_ROOM, NEEDED, DONE_SIZE, UNCOMPRESS, INFLATED, INFLATED_SIZE) = range(23, 30)
# For MySQL's compressed transactions that are already decompressed: the address of `UnpackedTransactions.entries`, the
# number of these entries, and the index of the next entry. Then: whether `route` is inside a compressed transaction,
# the address and the size of the transaction's events, and the next byte in them.
(UNPACKED, UNPACKED_COUNT, UNPACKED_NEXT, INSIDE, INNER, INNER_SIZE, INNER_AT) = range(30, 37)
# For event groups that have prepared XA transactions: the entries of the groups, the number of entries, and the next
# entry. An entry has three numbers: the byte of the block at which the group begins, a byte of the log file at or
# before the group's first event, and the byte of the event that commits the group. Then, for the present group: the
# byte of the log file at which its first event begins (-1: not known yet), the byte at which its commit event begins
# (-1: there are no groups), and the next free number (`EventGroupPlaces`).
(GROUPS, GROUP_COUNT, GROUP_NEXT, GROUP, COMMIT, PLACES_END) = range(37, 43)
STATE_SIZE = 43
LARGEST_INFLATED = 1 << 26
"""Up to this many bytes of images are decompressed in compiled code. Compiled code needs memory for all bytes that the
event announces. Python's `zlib` needs memory only for bytes that exist, so it decompresses larger images.
"""
_PACKS, _PREPARES = 7, 8
"""The roles of two events: a compressed transaction, and the end of a group that prepares an XA transaction."""

# The entry of a known table map has these numbers: the table id; the address and the size of the table map's body; the
# table (0: not wanted) and its program (0: not compiled). The last two are the serial number (`MAP_SERIAL`) of
# the transaction in which the table map last occurred, and the number of the table map.
(E_ID, E_BODY, E_SIZE, E_TABLE, E_PROGRAM, E_MAPPED, E_NUMBER) = range(7)
ENTRY = 8
_ENTRY_BYTES = 8 * ENTRY
_UNPACKED_BYTES = _GROUP_BYTES = 24
_NO_PAYLOAD = -1

_UPDATE = int(Op.UPDATE)
_OPS, _IS_V2, _IS_COMPRESSED = (np.zeros(256, np.uint8) for _ in range(3))
_FIRST_V1 = EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_COMPRESSED_V1
_FIRST_V2 = EventType.WRITE_ROWS, EventType.WRITE_ROWS_COMPRESSED
for _first in (*_FIRST_V1, *_FIRST_V2):
    _OPS[_first : _first + 3] = Op.INSERT, Op.UPDATE, Op.DELETE
    _IS_V2[_first : _first + 3] = _first in _FIRST_V2
    _IS_COMPRESSED[_first : _first + 3] = "COMPRESSED" in _first.name
_ROLES = roles_of([kind for first in (*_FIRST_V1, *_FIRST_V2) for kind in range(first, first + 3)])
_ROLES[EventType.TRANSACTION_PAYLOAD], _ROLES[EventType.XA_PREPARE] = _PACKS, _PREPARES


@inline
def slot_of(table_id: int) -> int:
    """Returns the slot at which the search for a table's entries begins."""
    return table_id ^ table_id >> 7


@inline
def _table_id(body: int) -> int:
    number: int = load32(body) | load16(body + 4) << 32
    return number


@jit
def _mapped(state: Any, table_id: int) -> int:
    """Returns the entry of the table map that has this id in the present transaction; 0 if there is none."""
    slot = slot_of(table_id) & state[MASK]
    while True:
        entry: int = state[ENTRIES] + slot * _ENTRY_BYTES
        if load64(entry + 8 * E_BODY) == 0:
            return 0
        if load64(entry + 8 * E_ID) == table_id and load64(entry + 8 * E_MAPPED) == state[MAP_SERIAL]:
            return entry
        slot = slot + 1 & state[MASK]


@jit
def _map(state: Any, body: int, size: int) -> int:
    """Reads a table map. A known table map with the same bytes becomes the only current table map with this id."""
    if size < 8:
        return HAND_OVER
    table_id = _table_id(body)
    slot = slot_of(table_id) & state[MASK]
    found = HAND_OVER
    while True:
        entry = state[ENTRIES] + slot * _ENTRY_BYTES
        known = load64(entry + 8 * E_BODY)
        if known == 0:
            return found
        if load64(entry + 8 * E_ID) == table_id:
            if load64(entry + 8 * E_SIZE) == size and same(known, body, size):
                store64(entry + 8 * E_MAPPED, state[MAP_SERIAL])
                found = _GO_ON
            elif load64(entry + 8 * E_MAPPED) == state[MAP_SERIAL]:
                store64(entry + 8 * E_MAPPED, 0)
        slot = slot + 1 & state[MASK]


@inline
def _all_present(bits: int, width: int) -> bool:
    """Whether the first `width` bits are set."""
    whole = width >> 3
    for number in range(whole):
        if load8(bits + number) != 0xFF:
            return False
    rest = (1 << (width & 7)) - 1
    return rest == 0 or load8(bits + whole) & rest == rest


@inline
def _bitmaps_at(body: int, end: int, kind: int, width: int) -> int:
    """Returns the address of a row event's bitmaps of columns; 0 if the event is malformed."""
    place_ = body + 8
    if _IS_V2[kind]:
        if end - place_ < 2 or load16(place_) < 2:
            return 0
        place_ += load16(place_)
    if end - place_ < 3:
        return 0
    count = load8(place_)
    place_ += 1
    if count > 250:
        if count != 252:
            return 0
        count = load16(place_)
        place_ += 2
    images = 2 if np.int64(_OPS[kind]) == _UPDATE else 1
    if count != width or width == 0 or end - place_ < images * ((width + 7) >> 3):
        return 0
    return place_


@inline
def _touch(state: Any, table: int) -> None:
    """Notes how many rows the table had before the open transaction, unless this is noted already."""
    if load64(table + at.TOUCHED) != state[SERIAL]:
        store64(table + at.TOUCHED, state[SERIAL])
        store64(table + at.ROWS_BEFORE, load64(table + at.ROWS))
        store64(state[TOUCHED] + 8 * state[TOUCHED_COUNT], load64(table + at.NUMBER))
        state[TOUCHED_COUNT] += 1


@inline
def _begin_event(state: Any, table: int, presence: int, offset: int, call: int) -> None:
    state[ROWS_BEFORE] = load64(table + at.ROWS)
    state[TABLE] = load64(table + at.NUMBER)
    store64(call + at.AT, 0)
    store64(call + at.DONE, 0)
    store64(call + at.HELPS, 0)
    store64(call + at.PREFIX, state[PREFIX])
    store64(call + at.PRESENCE, presence)
    for number in range(8):
        store8(call + at.PREFIX + 8 + number, offset >> (56 - 8 * number))
    _touch(state, table)


@jit
def _announced_size(place_: int, end: int) -> int:
    """Returns the announced size of decompressed images; -1 if the bytes before the zlib stream are malformed."""
    head = load8(place_) if place_ < end else 0
    count = head & 7
    if head & 0xF8 != 0x80 or count == 0 or count > 4 or end - place_ <= count:
        return -1
    size = 0
    for number in range(count):
        size = size << 8 | load8(place_ + 1 + number)
    return size


@inline
def _inflate(state: Any, place_: int, end: int) -> int:
    """Decompresses the images of MariaDB's compressed event; `compressed.inflate` is the reference."""
    size = _announced_size(place_, end)
    if size < 0:
        return HAND_OVER
    place_ += 1 + (load8(place_) & 7)
    if size > MOST_TIMES * (end - place_) or size > LARGEST_INFLATED:
        return HAND_OVER
    if size > state[ARENA_ROOM]:
        state[NEEDED] = size
        return MORE_ARENA
    target = state[ARENA]
    if not inflate(state[UNCOMPRESS], place_, end, target, size, state[DONE_SIZE]):
        return HAND_OVER
    state[INFLATED], state[INFLATED_SIZE] = target, size
    return _GO_ON


@jit
def _rows(state: Any, body: int, end: int, kind: int, offset: int, first: int, call: int) -> int:
    if end - body < 8:
        return HAND_OVER
    entry = _mapped(state, _table_id(body))
    if entry == 0:
        return HAND_OVER
    table, program = load64(entry + 8 * E_TABLE), load64(entry + 8 * E_PROGRAM)
    if table == 0 or load64(table + at.UNWANTED) >> np.int64(_OPS[kind]) & 1:
        return _GO_ON
    if offset <= state[AFTER]:
        return _GO_ON if offset < state[AFTER] else HAND_OVER
    if program == 0 or load64(table + at.PLAIN) != 0:
        return HAND_OVER
    width = load64(table + at.WIDTH)
    bits = _bitmaps_at(body, end, kind, width)
    if bits == 0:
        return HAND_OVER
    bitmap, op = (width + 7) >> 3, np.int64(_OPS[kind])
    count = 2 if op == _UPDATE else 1
    bitmaps, present, presence = bitmap << 16 | bitmap, 0, 0
    if not (_all_present(bits, width) and _all_present(bits + (count - 1) * bitmap, width)):
        slot = known_presence(table, bits, width, count)
        if slot == 0:
            return HAND_OVER
        bitmaps, present = load64(slot + at.NULL_BYTES), load64(slot + at.KEY)
        presence = load64(slot + at.PRESENCE_NUMBER)
        store64(table + at.IS_PARTIAL, 1)
    images = bits + count * bitmap
    size = end - images
    if _IS_COMPRESSED[kind]:
        if not state[RESUME]:
            found = _inflate(state, images, end)
            if found != _GO_ON:
                return found
        images, size = state[INFLATED], state[INFLATED_SIZE]
    if not state[RESUME]:
        _begin_event(state, table, presence, offset, call)
    state[RESUME] = 0
    result: int = invoke(state[READ_ROWS], table, program, images, size, op, present, bitmaps, first, 0, call)
    if result != at.FINE:
        return result
    store64(table + at.SIZE, load64(table + at.SIZE) + size)
    return MAKE_ROOM if load64(table + at.SIZE) >= state[LIMIT] else _GO_ON


@inline
def _begin(state: Any) -> None:
    state[SERIAL] += 1
    state[TOUCHED_COUNT] = 0
    state[CLEARED] = 1


@inline
def _end(state: Any) -> None:
    _begin(state)
    state[MAP_SERIAL] += 1
    state[UNMAPPED] = 1


@inline
def _transaction(state: Any, role: Any, body: int, end: int) -> int:
    """Handles an event that begins or ends a transaction."""
    if state[CAREFUL]:
        return HAND_OVER
    if role == STATEMENT:
        control = control_of(body, end, state[CHARSETS])
        # 75 is the letter K: of BEGIN, COMMIT and ROLLBACK, only ROLLBACK ends with it.
        if control == C_NONE:
            return _GO_ON if xa_of(body, end, state[CHARSETS]) else HAND_OVER
        if load8(end - 1) == 75:
            return HAND_OVER
        if control == C_BEGIN:
            _begin(state)
        else:
            _end(state)
    elif role == STARTS:
        _begin(state)
    elif role == _PREPARES and state[COMMIT] < 0:
        return HAND_OVER  # The group's rows are dropped, unless the event commits in one phase.
    else:
        _end(state)
    return _GO_ON


@inline
def _begin_group(state: Any, here: int) -> None:
    """If a group begins at byte `here` of the block, makes it the present group."""
    entry = state[GROUPS] + _GROUP_BYTES * state[GROUP_NEXT]
    if load64(entry) == here:
        state[OFFSET], state[COMMIT], state[GROUP] = load64(entry + 8), load64(entry + 16), -1
        state[GROUP_NEXT] += 1


@inline
def _go_inside(state: Any, here: int, offset: int) -> int:
    """Goes to the events of the compressed transaction at byte `here` of the block."""
    if offset == state[AFTER]:
        return HAND_OVER  # Only rows after a place inside this transaction are wanted.
    while state[UNPACKED_NEXT] < state[UNPACKED_COUNT]:
        entry = state[UNPACKED] + _UNPACKED_BYTES * state[UNPACKED_NEXT]
        if load64(entry) > here:
            return HAND_OVER
        state[UNPACKED_NEXT] += 1
        if load64(entry) == here:
            state[INSIDE], state[INNER], state[INNER_SIZE] = 1, load64(entry + 8), load64(entry + 16)
            state[INNER_AT], state[PAYLOAD], state[BASE] = 0, offset, 0
            return _GO_ON
    return PACKED


@inline
def _is_in_order(state: Any, event: int, size: int, offset: int, tail: int) -> bool:
    """Whether an event is in the log file, after the event before it, and has the right checksum."""
    if load16(event + 17) & FLAG_ARTIFICIAL or offset < state[OFFSET] or offset + size >= LAST_OFFSET:
        return False
    if tail == 0 or state[RESUME]:
        return True
    return bool(crc32_at(event, size - CHECKSUM_SIZE, 0) == load32(event + size - CHECKSUM_SIZE))


@jit
def _inflated_size(body: int, end: int, kind: int) -> int:
    """Returns the announced size of an event's images after decompression; -1 if the event is malformed.

    The result is 0 if the images are not compressed. `rows_event.inflated_size` is the reference.
    """
    if not _IS_COMPRESSED[kind]:
        return 0
    place_ = body + 8
    if _IS_V2[kind]:
        if end - place_ < 2 or load16(place_) < 2:
            return -1
        place_ += load16(place_)
    if end - place_ < 3:
        return -1
    width = load8(place_)
    place_ += 1
    if width > 250:
        if width != 252:
            return -1
        width = load16(place_)
        place_ += 2
    images = 2 if np.int64(_OPS[kind]) == _UPDATE else 1
    place_ += images * ((width + 7) >> 3)
    if place_ >= end:
        return -1
    return _announced_size(place_, end)


@inline
def _group_event(state: Any, role: Any, kind: int, size: int, offset: int, body: int, stop: int, call: int) -> int:
    """Reads one event of a group that has prepared an XA transaction; `EventGroupPlaces` defines the event's number."""
    if state[GROUP] < 0:
        state[GROUP], state[PLACES_END] = offset, 0
    first = offset - state[GROUP]
    first = max(first, state[PLACES_END])
    end = first + size
    if role == ROWS:
        inflated = _inflated_size(body, stop, kind)
        if inflated < 0:
            return HAND_OVER
        if inflated > size:
            end = first + inflated
        if end > LARGEST:
            return HAND_OVER
        result = _rows(state, body, stop, kind, state[COMMIT], first, call)
    elif role == MAPS:
        result = _map(state, body, stop - body)
    elif role == NOTHING:
        result = _GO_ON
    elif role == _PACKS:
        result = HAND_OVER
    else:
        result = _transaction(state, role, body, stop)
    if result in (_GO_ON, MAKE_ROOM):
        state[PLACES_END] = end
    return result


@jit
def _step(state: Any, event: int, left: int, here: int, call: int) -> int:
    """Reads one event, which has at most `left` bytes."""
    payload = state[PAYLOAD]
    tail = CHECKSUM_SIZE if state[CHECKSUMS] and payload < 0 else 0
    if state[GROUP_NEXT] < state[GROUP_COUNT]:
        _begin_group(state, here)
    if left < HEADER_SIZE:
        return HAND_OVER
    size, kind = load32(event + 9), load8(event + 4)
    role = np.int64(_ROLES[kind])
    if role == OTHER or size < HEADER_SIZE + tail or size > left:
        return HAND_OVER
    offset = payload
    if payload < 0:
        offset = place(state[OFFSET], load32(event + 13), size)
        if not _is_in_order(state, event, size, offset, tail):
            return HAND_OVER
    state[LAST] = offset
    body, stop = event + HEADER_SIZE, event + size - tail
    if state[COMMIT] >= 0:
        return _group_event(state, role, kind, size, offset, body, stop, call)
    if role == ROWS:
        return _rows(state, body, stop, kind, offset, here + state[BASE] if payload >= 0 else 0, call)
    if role == MAPS:
        return _map(state, body, stop - body)
    if role == NOTHING:
        return _GO_ON
    if role == _PACKS:
        return _go_inside(state, here, offset) if payload < 0 else HAND_OVER
    return _transaction(state, role, body, stop)


@jit
def route(state: Any, block: int, end: int, call: int) -> int:
    """Reads events of a block. Returns why `route` stopped; `AT` is then the first byte that was not read.

    If `route` stopped inside a compressed transaction, `AT` is the first byte of this transaction's event.
    """
    while True:
        if state[INSIDE]:
            while state[INNER_AT] < state[INNER_SIZE]:
                event = state[INNER] + state[INNER_AT]
                result = _step(state, event, state[INNER_SIZE] - state[INNER_AT], state[INNER_AT], call)
                if result not in (_GO_ON, MAKE_ROOM):
                    return result
                state[INNER_AT] += load32(event + 9)
                if result == MAKE_ROOM:
                    return MAKE_ROOM
            size = load32(block + state[AT] + 9)
            state[OFFSET], state[PAYLOAD], state[INSIDE] = state[PAYLOAD] + size, _NO_PAYLOAD, 0
            state[AT] += size
        if state[AT] >= end:
            return DONE
        event = block + state[AT]
        result = _step(state, event, end - state[AT], state[AT], call)
        if result not in (_GO_ON, MAKE_ROOM):
            return result
        if state[INSIDE]:
            continue
        size = load32(event + 9)
        state[AT] += size
        if state[PAYLOAD] < 0:
            state[OFFSET] = state[LAST] + size
        if result == MAKE_ROOM:
            return MAKE_ROOM
