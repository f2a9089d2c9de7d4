"""Finds ordinary transactions in a block of events, in compiled code, and makes a line of numbers for each of them.

Nearly all transactions of a log are ordinary: a GTID, perhaps BEGIN, table maps, row events, and XID or COMMIT at the
end. The function `scan` stops before any other event, and before a malformed event. The open transaction and the
results are then as they were before this event, which `LogWalker` and `TransactionScanner` handle. These classes are
the specification: `scan` must find the same transactions.

On request, the scan also reads the steps of XA transactions. Such a step is an event group that ends with XA_PREPARE,
or an event group with only `XA COMMIT` or `XA ROLLBACK`.

The scan's state is one array of numbers, which is kept from block to block: a transaction may begin in one block and
end in a later block. The scan reads only memory of the block, and writes only within the bounds in the state.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import numpy as np

from pidts.binlog.blocks.gtid_text import NO_GTID, gtid_text
from pidts.binlog.crc import crc32_at
from pidts.binlog.events import CHECKSUM_SIZE, FLAG_ARTIFICIAL, HEADER_SIZE, EventType
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.binlog.jit import copy, inline, jit, load8, load16, load32, load64, store8, store32, store64
from pidts.binlog.kernel.writing import hex_digit, put_number
from pidts.binlog.rows_event import ROW_EVENTS
from pidts.binlog.statements import FIXED_VARIABLES
from pidts.binlog.values import charsets
from pidts.model.errors import Halted

# The reasons why the scan stops. Functions that read an event return a reason; DONE means that the scan continues.
DONE, HAND_OVER, UNKNOWN_TABLE, FULL, SEGMENT_FULL, PACKED = range(6)

# The state is an array of numbers with the following indexes. First: the position in the log.
(OFFSET, TIMESTAMP, PREVIOUS, CHECKSUMS, EVENTS, STOPPED, LIMIT) = range(7)
# The open transaction.
(OPEN, BEGIN, EXPLICIT, ROW_COUNT, GTID_SIZE, GTID_NUMBER, TABLE_COUNT, SERIAL) = range(7, 15)
# Addresses for the open transaction: its GTID, the numbers of its tables, and for each known table the serial number of
# the last transaction that had it. For the known tables: a hash table with their numbers, its mask, their names and the
# ends of the names. Then the address of the charsets (`plain_charsets`).
(GTID, TABLES, MET, SLOTS, SLOT_MASK, NAMES, NAME_ENDS, CHARSETS) = range(15, 23)
# The results are in three arrays. For each array: its address, the size of its used part, and its size.
(LINES, LINE_COUNT, LINE_ROOM, TEXTS, TEXT_SIZE, TEXT_ROOM, LISTS, LIST_SIZE, LIST_ROOM) = range(23, 32)
# For MySQL's compressed transactions that are already decompressed: the address of `UnpackedTransactions.entries`, the
# number of these entries, and the index of the next entry. Then the place of an unknown table's event inside a
# compressed transaction (-1: the event is outside), and the number of table maps in the last compressed transaction.
(UNPACKED, UNPACKED_COUNT, UNPACKED_NEXT, INNER_AT, INNER_MAPS) = range(32, 37)
# Whether steps of XA transactions are read, and the number of steps in the results.
(STEPS, STEP_COUNT) = range(37, 39)
STATE_SIZE = 39

# The line of a transaction is an array of numbers. These are the indexes of the numbers in it.
(L_BEGIN, L_END, L_BLOCK_END, L_TIMESTAMP, L_ROWS, L_GTID, L_GTID_SIZE, L_NUMBER, L_TABLES, L_TABLE_COUNT) = range(10)
# For a step of an XA transaction: the kind of step (`XaStep`; 0: no step), the byte of the log file at which the step's
# last event begins, and the size of the XA transaction's name. In the texts, the name follows the GTID.
(L_STEP, L_AT, L_XID_SIZE) = range(10, 13)
LINE = 13

LAST_OFFSET = 10**12
_WRAP = 2**32

OTHER, STARTS, STATEMENT, ROWS, MAPS, ENDS, NOTHING, PACKS, PREPARES = range(9)
_ENDED, _UNUSUAL = -1, -2
"""Results of `_statement`: the statement ends a transaction; the statement is not part of an ordinary transaction."""
_XID_ROOM = 512
"""Even the longest name of an XA transaction has fewer bytes. The scan does not read a longer statement."""
_LONGEST_PART = 64


def roles_of(row_events: Collection[int]) -> Any:
    """Returns the role that each type of event has in an ordinary transaction; `row_events` are the types with rows."""
    roles = np.full(256, OTHER, np.uint8)
    roles[list(GTID_EVENTS)] = STARTS
    roles[EventType.QUERY] = STATEMENT
    roles[list(row_events)] = ROWS
    roles[EventType.TABLE_MAP] = MAPS
    roles[EventType.XID] = ENDS
    roles[[EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.IGNORABLE, EventType.ROWS_QUERY]] = NOTHING
    roles[[EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE, EventType.ANNOTATE_ROWS]] = NOTHING
    return roles


def _fixed_variables() -> Any:
    sizes = np.full(256, -1, np.int16)
    for code, size in FIXED_VARIABLES.items():
        sizes[code] = size
    return sizes


@cache
def plain_charsets() -> Any:
    """Returns, for each collation id, whether ASCII words have their ASCII bytes in its charset."""
    plain = np.ones(65536, np.uint8)
    for collation in range(4096):
        charset = charsets.charset_of(collation)
        if charset not in (None, "binary"):
            try:
                plain[collation] = charsets.decoder(charset)(b"BEGINCOMMITROLLBACK") == "BEGINCOMMITROLLBACK"
            except (Halted, UnicodeDecodeError):
                plain[collation] = 0
    return plain


_ROLES = roles_of(ROW_EVENTS)
_ROLES[EventType.TRANSACTION_PAYLOAD], _ROLES[EventType.XA_PREPARE] = PACKS, PREPARES
_SIZES = _fixed_variables()
_BEGI, _COMM, _IT = (int.from_bytes(word, "little") for word in (b"BEGI", b"COMM", b"IT"))
_ROLLBACK = int.from_bytes(b"ROLLBACK", "little")
_STAR, _END, _ROLL, _BACK = (int.from_bytes(word, "little") for word in (b"STAR", b"END ", b"ROLL", b"BACK"))
_XA = int.from_bytes(b"XA", "little")
_HEX = int.from_bytes(b"X'", "little")
_SPACE, _COMMA = 32, 44
C_NONE, C_BEGIN, C_END = range(3)
XA_NONE, XA_PREPARE, XA_COMMIT, XA_ROLLBACK, XA_START, XA_END = range(6)
"""The kinds of XA statements, and XA_PREPARE, which is an event. XA_PREPARE, XA_COMMIT and XA_ROLLBACK have the numbers
of `XaStep`.
"""


@jit
def _variables(at: int, end: int) -> int:  # noqa: C901 - one branch per setting
    """Returns the client's collation from a statement's session settings; -1 if the settings are cut off."""
    collation = 0
    while at < end:
        code = load8(at)
        at += 1
        if code == 1:
            at += 8
        elif code in {2, 5, 6}:
            if at >= end:
                return -1
            at += 1 + load8(at) + (code == 2)
        elif code == 4:
            if end - at < 6:
                return -1
            collation = load16(at)
            at += 6
        elif code == 11:
            for _ in range(2):
                if at >= end:
                    return -1
                at += 1 + load8(at)
        elif code == 12:
            if at >= end:
                return -1
            count = load8(at)
            at += 1
            for _ in range(count if count < 254 else 0):
                while at < end and load8(at) != 0:
                    at += 1
                at += 1
        elif _SIZES[code] >= 0:
            at += _SIZES[code]
        else:
            return collation
        if at > end:
            return -1
    return collation


@jit
def control_of(body: int, end: int, plain: int) -> int:
    """Returns the kind of a statement: C_BEGIN for BEGIN, C_END for COMMIT and ROLLBACK, C_NONE for all others."""
    if end - body < 14:
        return C_NONE
    variables = body + 13
    stop = variables + load16(body + 11)
    text = stop + load8(body + 8) + 1
    size = end - text
    if size == 5:
        found = C_BEGIN if load32(text) == _BEGI and load8(text + 4) == 78 else C_NONE
    elif size == 6:
        found = C_END if load32(text) == _COMM and load16(text + 4) == _IT else C_NONE
    elif size == 8:
        found = C_END if load64(text) == _ROLLBACK else C_NONE
    else:
        return C_NONE
    if found == C_NONE or load8(text - 1) != 0:
        return C_NONE
    collation = _variables(variables, stop)
    return found if collation >= 0 and load8(plain + collation) else C_NONE


@inline
def _behind_hex(at: int, end: int) -> int:
    """Returns the address after the hexadecimal text (X'6f6e65') at `at`; `end` + 1 if there is none at `at`."""
    if end - at < 3 or load16(at) != _HEX:
        return end + 1
    place_ = at + 2
    while place_ < end and _is_hex_digit(load8(place_)):
        place_ += 1
    return place_ + 1 if place_ < end and load8(place_) == 39 and (place_ - at) & 1 == 0 else end + 1


@inline
def _is_hex_digit(letter: int) -> bool:
    return 48 <= letter <= 57 or 65 <= letter <= 70 or 97 <= letter <= 102


@jit
def _is_xid(at: int, end: int) -> bool:
    """Whether a text is the name of an XA transaction in the form in which servers log it."""
    at = _behind_hex(at, end)
    if end - at < 2 or load8(at) != _COMMA:
        return False
    at = _behind_hex(at + 1, end)
    if end - at < 2 or load8(at) != _COMMA:
        return False
    for place_ in range(at + 1, end):  # noqa: SIM110 - compiled code has no generators
        if load8(place_) < 48 or load8(place_) > 57:
            return False
    return True


@jit
def xa_of(body: int, end: int, plain: int) -> int:
    """Returns the kind of an XA statement; XA_NONE for any other statement."""
    if end - body < 14:
        return XA_NONE
    variables = body + 13
    stop = variables + load16(body + 11)
    text = stop + load8(body + 8) + 1
    if end - text < 12 or end - text > _XID_ROOM:
        return XA_NONE
    if load8(text - 1) != 0 or load16(text) != _XA or load8(text + 2) != _SPACE:
        return XA_NONE
    word = load32(text + 3)
    size, found = 0, XA_NONE
    if word == _END:
        size, found = 3, XA_END
    elif word == _STAR and load8(text + 7) == 84:
        size, found = 5, XA_START
    elif word == _COMM and load16(text + 7) == _IT:
        size, found = 6, XA_COMMIT
    elif word == _ROLL and load32(text + 7) == _BACK:
        size, found = 8, XA_ROLLBACK
    if size == 0 or load8(text + 3 + size) != _SPACE or not _is_xid(text + 4 + size, end):
        return XA_NONE
    collation = _variables(variables, stop)
    return found if collation >= 0 and load8(plain + collation) else XA_NONE


@jit
def _prepare_of(body: int, end: int) -> int:
    """Returns 1 if an XA_PREPARE event prepares, 0 if it commits in one phase, and -1 if it is malformed."""
    if end - body < 13:
        return -1
    first, second = load32(body + 5), load32(body + 9)
    if first > _LONGEST_PART or second > _LONGEST_PART or end - body < 13 + first + second:
        return -1
    return 0 if load8(body) else 1


@inline
def _put_part(at: int, part: int, size: int) -> int:
    """Writes the text of a part of an XA transaction's name, and a comma; returns the address after them."""
    store8(at, 88)
    store8(at + 1, 39)
    at += 2
    for place_ in range(size):
        byte = load8(part + place_)
        store8(at, hex_digit(byte >> 4))
        store8(at + 1, hex_digit(byte & 15))
        at += 2
    store8(at, 39)
    store8(at + 1, _COMMA)
    return at + 2


@jit
def _put_prepared_xid(at: int, body: int) -> int:
    """Writes the text of the name in an XA_PREPARE event, as `XaPrepare` does; returns the text's size."""
    first, second = load32(body + 5), load32(body + 9)
    stop = _put_part(_put_part(at, body + 13, first), body + 13 + first, second)
    return put_number(stop, load32(body + 1)) - at


@jit
def _put_xid(at: int, body: int, end: int, verb_size: int) -> int:
    """Writes the text of the name in an XA statement, as `XaStatement` does; returns the text's size."""
    text = body + 13 + load16(body + 11) + load8(body + 8) + 1 + 3 + verb_size + 1
    digits = end
    while load8(digits - 1) != _COMMA:
        digits -= 1
    number = 0
    for place_ in range(digits, end):
        number = number * 10 + load8(place_) - 48
    for place_ in range(digits - text):
        letter = load8(text + place_)
        store8(at + place_, letter + 32 if 65 <= letter <= 70 else letter)
    return put_number(at + (digits - text), number & (_WRAP - 1)) - at


@inline
def key_size(names: int, end: int) -> int:
    """Returns the size of a table map's two names, with their lengths and end bytes; 0 if they are malformed."""
    if end - names < 4:
        return 0
    schema: int = load8(names)
    if schema > 250 or end - names < schema + 4 or load8(names + 1 + schema) != 0:
        return 0
    table: int = load8(names + schema + 2)
    size = schema + table + 4
    if table > 250 or end - names < size or load8(names + size - 1) != 0:
        return 0
    return size


@jit
def hash_of(at: int, size: int) -> int:
    """Returns a hash of a table's names."""
    value = size
    end = at + size
    while end - at >= 8:
        value = (value ^ load64(at)) * 0x2545F4914F6CDD1D
        value ^= value >> 29
        at += 8
    while at < end:
        value = (value ^ load8(at)) * 0x100000001B3
        at += 1
    return value ^ value >> 32


@jit
def same(left: int, right: int, size: int) -> bool:
    """Whether two pieces of memory have the same bytes."""
    end = left + size
    while end - left >= 8:
        if load64(left) != load64(right):
            return False
        left += 8
        right += 8
    while left < end:
        if load8(left) != load8(right):
            return False
        left += 1
        right += 1
    return True


@jit
def lookup(state: Any, names: int, size: int) -> int:
    """Returns the number of the table with these names; -1 if it has not occurred yet."""
    mask, slots, ends = state[SLOT_MASK], state[SLOTS], state[NAME_ENDS]
    slot = hash_of(names, size) & mask
    while True:
        number: int = load32(slots + 4 * slot) - 1
        if number < 0:
            return -1
        begin = load64(ends + 8 * number)
        if load64(ends + 8 * number + 8) - begin == size and same(state[NAMES] + begin, names, size):
            return number
        slot = slot + 1 & mask


@inline
def _open(state: Any, offset: int, explicit: int) -> None:
    state[OPEN], state[BEGIN], state[EXPLICIT] = 1, offset, explicit
    state[ROW_COUNT] = state[TABLE_COUNT] = 0
    state[SERIAL] += 1


@inline
def _has_room(state: Any, more_tables: int) -> bool:
    return bool(
        state[LINE_COUNT] < state[LINE_ROOM]
        and state[TEXT_ROOM] - state[TEXT_SIZE] >= state[GTID_SIZE] + _XID_ROOM
        and state[LIST_ROOM] - state[LIST_SIZE] >= state[TABLE_COUNT] + more_tables
    )


@inline
def _meet(state: Any, number: int) -> None:
    """Adds a table to the open transaction, unless the transaction already has it."""
    if load64(state[MET] + 8 * number) != state[SERIAL]:
        store64(state[MET] + 8 * number, state[SERIAL])
        store32(state[TABLES] + 4 * state[TABLE_COUNT], number)
        state[TABLE_COUNT] += 1


@inline
def _unpacked_at(state: Any, at: int) -> int:
    """Returns the entry of the compressed transaction at byte `at` of the block; 0 if it is not decompressed yet."""
    while state[UNPACKED_NEXT] < state[UNPACKED_COUNT]:
        entry: int = state[UNPACKED] + 24 * state[UNPACKED_NEXT]
        if load64(entry) >= at:
            return entry if load64(entry) == at else 0
        state[UNPACKED_NEXT] += 1
    return 0


@jit
def _inner(state: Any, begin: int, size: int) -> int:
    """Checks the events of a compressed transaction, which only the last event may end. Does not change the open one.

    Returns DONE, or the reason why the scan stops.
    """
    at = maps = 0
    while at < size:
        event = begin + at
        if size - at < HEADER_SIZE or load32(event + 9) < HEADER_SIZE or load32(event + 9) > size - at:
            return HAND_OVER
        length, role = load32(event + 9), _ROLES[load8(event + 4)]
        ends = False
        if role == STATEMENT:
            control = control_of(event + HEADER_SIZE, event + length, state[CHARSETS])
            ends = control == C_END
            if control == C_NONE:
                return HAND_OVER
        elif role == MAPS:
            names = key_size(event + HEADER_SIZE + 8, event + length)
            if names == 0:
                return HAND_OVER
            if lookup(state, event + HEADER_SIZE + 8, names) < 0:
                state[INNER_AT] = at
                return UNKNOWN_TABLE
            maps += 1
        elif role == ENDS:
            ends = True
        elif role not in (ROWS, NOTHING):
            return HAND_OVER
        at += length
        if ends != (at == size):
            return HAND_OVER
    state[INNER_MAPS] = maps
    return DONE if size else HAND_OVER


@jit
def _take_inner(state: Any, begin: int, size: int) -> None:
    """Adds the events of a compressed transaction, which `_inner` has checked, to the open transaction."""
    at = 0
    while at < size:
        event = begin + at
        role = _ROLES[load8(event + 4)]
        length = load32(event + 9)
        if role == ROWS:
            state[ROW_COUNT] += 1
        elif role == MAPS:
            names = event + HEADER_SIZE + 8
            _meet(state, lookup(state, names, key_size(names, event + length)))
        elif role == STATEMENT and at + length < size:
            state[EXPLICIT] = 1
        at += length


@jit
def _packed(state: Any, at: int, end: int) -> int:
    """Reads the compressed transaction at byte `at` of the block, which ends at byte `end` of the log file.

    Returns DONE, or the reason why the scan stops.
    """
    entry = _unpacked_at(state, at)
    if entry == 0:
        return PACKED
    found = _inner(state, load64(entry + 8), load64(entry + 16))
    if found != DONE:
        return found
    if end <= state[PREVIOUS]:
        return HAND_OVER
    if not _has_room(state, state[INNER_MAPS]):
        return FULL
    _take_inner(state, load64(entry + 8), load64(entry + 16))
    return DONE


@inline
def _close(state: Any, at: int, end: int, block_end: int, step: int, xid_size: int) -> None:
    """Writes the line of the open transaction, whose last event begins at byte `at` of the log file.

    If the transaction is a step of an XA transaction, the name's text is already written, after the GTID's text.
    """
    line = state[LINES] + state[LINE_COUNT] * (LINE * 8)
    store64(line + 8 * L_BEGIN, state[BEGIN])
    store64(line + 8 * L_END, end)
    store64(line + 8 * L_BLOCK_END, block_end)
    store64(line + 8 * L_TIMESTAMP, state[TIMESTAMP])
    store64(line + 8 * L_ROWS, state[ROW_COUNT])
    store64(line + 8 * L_GTID, state[TEXT_SIZE])
    store64(line + 8 * L_GTID_SIZE, state[GTID_SIZE])
    store64(line + 8 * L_NUMBER, state[GTID_NUMBER])
    store64(line + 8 * L_TABLES, state[LIST_SIZE])
    store64(line + 8 * L_TABLE_COUNT, state[TABLE_COUNT])
    store64(line + 8 * L_STEP, step)
    store64(line + 8 * L_AT, at)
    store64(line + 8 * L_XID_SIZE, xid_size)
    copy(state[TEXTS] + state[TEXT_SIZE], state[GTID], state[GTID_SIZE])
    copy(state[LISTS] + 4 * state[LIST_SIZE], state[TABLES], 4 * state[TABLE_COUNT])
    state[LINE_COUNT] += 1
    state[STEP_COUNT] += step != XA_NONE
    state[TEXT_SIZE] += state[GTID_SIZE] + xid_size
    state[LIST_SIZE] += state[TABLE_COUNT]
    state[PREVIOUS] = end
    state[OPEN] = 0


@inline
def place(expected: int, log_pos: int, size: int) -> int:
    """Returns the byte at which an event begins. `log_pos` is the low 32 bits of the place after the event."""
    if log_pos == 0:
        return expected
    ahead = (log_pos - size - expected) & (_WRAP - 1)
    return expected + (ahead if ahead < _WRAP // 2 else ahead - _WRAP)


@inline
def _statement(state: Any, offset: int, body: int, end: int) -> int:
    """Handles a statement. Returns XA_NONE if the transaction continues, and `_ENDED` if it ends.

    For the statements XA COMMIT and XA ROLLBACK, returns XA_COMMIT and XA_ROLLBACK. For a statement that the scan does
    not handle, returns `_UNUSUAL`.
    """
    control = control_of(body, end, state[CHARSETS])
    xa = xa_of(body, end, state[CHARSETS]) if control == C_NONE else XA_NONE
    if (control == C_NONE and xa == XA_NONE) or ((control == C_END or xa != XA_NONE) and not state[OPEN]):
        return _UNUSUAL
    if xa in (XA_COMMIT, XA_ROLLBACK):
        return _UNUSUAL if not state[STEPS] or state[TABLE_COUNT] or state[ROW_COUNT] else xa
    if control == C_END:
        return _ENDED
    if xa != XA_END:
        if not state[OPEN]:
            state[GTID_SIZE] = state[GTID_NUMBER] = 0
            _open(state, offset, 1)
        state[EXPLICIT] = 1
    return XA_NONE


@inline
def _put_name(state: Any, step: int, body: int, end: int) -> int:
    """Writes the name of an XA transaction after the place of the GTID's text, and returns the name's size."""
    text = state[TEXTS] + state[TEXT_SIZE] + state[GTID_SIZE]
    if step == XA_NONE:
        return 0
    if step == XA_PREPARE:
        return _put_prepared_xid(text, body)
    return _put_xid(text, body, end, 6 if step == XA_COMMIT else 8)


@jit
def scan(state: Any, block: int, at: int, end: int) -> int:  # noqa: C901 - one branch per role
    """Reads events of a block from byte `at` on; returns why it stopped (`STOPPED` has the byte of the next event)."""
    tail = CHECKSUM_SIZE if state[CHECKSUMS] else 0
    state[INNER_AT] = -1
    while at < end:
        state[STOPPED] = at
        event = block + at
        if end - at < HEADER_SIZE:
            return HAND_OVER
        size = load32(event + 9)
        role = _ROLES[load8(event + 4)]
        if role == OTHER or size < HEADER_SIZE + tail or size > end - at or load16(event + 17) & FLAG_ARTIFICIAL:
            return HAND_OVER
        offset = place(state[OFFSET], load32(event + 13), size)
        if offset < state[OFFSET] or offset + size >= LAST_OFFSET:
            return HAND_OVER
        if tail and crc32_at(event, size - CHECKSUM_SIZE, 0) != load32(event + size - CHECKSUM_SIZE):
            return HAND_OVER
        body, stop = event + HEADER_SIZE, event + size - tail
        ends, step = False, XA_NONE
        if role == STARTS:
            if state[OPEN]:
                return HAND_OVER
            length, number = gtid_text(event, body, stop, state[GTID])
            if length == NO_GTID:
                return HAND_OVER
            state[GTID_SIZE], state[GTID_NUMBER] = length, number
            _open(state, offset, 1 if load8(event + 4) == EventType.MARIADB_GTID else 0)
        elif role == STATEMENT:
            step = _statement(state, offset, body, stop)
            if step == _UNUSUAL:
                return HAND_OVER
            ends = step != XA_NONE
        elif not state[OPEN]:
            return HAND_OVER
        elif role == ROWS:
            state[ROW_COUNT] += 1
        elif role == MAPS:
            names = key_size(body + 8, stop)
            if names == 0:
                return HAND_OVER
            number = lookup(state, body + 8, names)
            if number < 0:
                return UNKNOWN_TABLE
            _meet(state, number)
        elif role == PACKS:
            found = _packed(state, at, offset + size)
            if found != DONE:
                return found
            ends = True
        elif role == PREPARES:
            step = _prepare_of(body, stop)
            if step < 0 or not state[STEPS]:
                return HAND_OVER
            ends = True
        elif role == ENDS:
            ends = True
        if ends:
            if offset + size <= state[PREVIOUS]:
                return HAND_OVER
            if not _has_room(state, 0):
                return FULL
        timestamp = load32(event)
        if timestamp:
            state[TIMESTAMP] = timestamp
        at += size
        state[OFFSET] = offset + size
        state[EVENTS] += 1
        if ends:
            step = XA_NONE if step == _ENDED else step
            _close(state, offset, offset + size, at, step, _put_name(state, step, body, stop))
            if at >= state[LIMIT]:
                state[STOPPED] = at
                return SEGMENT_FULL
    state[STOPPED] = at
    return DONE
