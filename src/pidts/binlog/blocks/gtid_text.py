"""Converts GTID events to text in compiled code. `GtidEvent` is the specification, and handles unusual events.

GTIDs with a tag are unusual: MySQL gives them only to sessions that have set a tag.
"""

from __future__ import annotations

from pidts.binlog.events import EventType
from pidts.binlog.jit import inline, jit, load8, load32, load64, store8
from pidts.binlog.kernel.writing import hex_digit

NO_GTID = -1
"""The functions return this in place of a length if the event is unusual."""
GTID_ROOM = 128

_LAST_NUMBER = 2**63 - 2
_UUID_SIZE = 16
# MariaDB's flags: standalone and DDL, which make an event unusual; group commit; prepared and completed XA
# transactions, whose name is in the event. The flags of a two-phase ALTER are in a second byte.
_EXTRAORDINARY, _GROUP_COMMIT, _XA, _TWO_PHASE = 1 | 32, 2, 64 | 128, 2 | 4 | 8


@inline
def _put_number(at: int, number: int) -> int:
    size = 1
    rest = number // 10
    while rest:
        size += 1
        rest //= 10
    for place in range(size - 1, -1, -1):
        store8(at + place, 48 + number % 10)
        number //= 10
    return at + size


@inline
def _put_byte(at: int, index: int, byte: int) -> int:
    """Writes one byte of a UUID, after a hyphen if one is needed; returns the address after it."""
    if index in {4, 6, 8, 10}:
        store8(at, 45)
        at += 1
    store8(at, hex_digit(byte >> 4))
    store8(at + 1, hex_digit(byte & 15))
    return at + 2


@jit
def _mysql(body: int, end: int, target: int) -> tuple[int, int]:
    if end - body < 25:
        return NO_GTID, 0
    number = load64(body + 17)
    if number <= 0 or number > _LAST_NUMBER:
        return NO_GTID, 0
    at = target
    for index in range(_UUID_SIZE):
        at = _put_byte(at, index, load8(body + 1 + index))
    store8(at, 58)
    return _put_number(at + 1, number) - target, number


@jit
def _mariadb(event: int, body: int, end: int, target: int) -> tuple[int, int]:
    if end - body < 13:
        return NO_GTID, 0
    number, flags = load64(body), load8(body + 12)
    extra = body + 13 + (8 if flags & _GROUP_COMMIT else 0)
    if flags & _XA:
        if end - extra < 6:
            return NO_GTID, 0
        extra += 6 + load8(extra + 4) + load8(extra + 5)
    if number < 0 or flags & _EXTRAORDINARY or extra > end or (extra < end and load8(extra) & _TWO_PHASE):
        return NO_GTID, 0
    at = _put_number(target, load32(body + 8))
    store8(at, 45)
    at = _put_number(at + 1, load32(event + 5))
    store8(at, 45)
    return _put_number(at + 1, number) - target, number


@jit
def gtid_text(event: int, body: int, end: int, target: int) -> tuple[int, int]:
    """Writes the GTID's text, at most `GTID_ROOM` bytes, and returns its length and the GTID's number."""
    kind = load8(event + 4)
    if kind == EventType.MARIADB_GTID:
        return _mariadb(event, body, end, target)
    if kind == EventType.GTID:
        return _mysql(body, end, target)
    return (NO_GTID, 0) if kind == EventType.GTID_TAGGED else (0, 0)


@inline
def before_number(at: int, size: int) -> int:
    """Returns the length of a GTID's text before its number."""
    while size and 48 <= load8(at + size - 1) <= 57:
        size -= 1
    return size
