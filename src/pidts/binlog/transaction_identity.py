"""Finds the identity of a transaction in its first event. The identity is the same in the log of a replica.

With GTIDs, the identity is the GTID; MariaDB always has a GTID. Without GTIDs, MySQL 8.0.1 and later log the server on
which the transaction began, and the microsecond of the commit there. Earlier versions log no identity.
"""

from __future__ import annotations

from pidts.binlog.events import HEADER, HEADER_SIZE, Event, EventType
from pidts.binlog.gtid_events import GTID_EVENTS, GtidEvent

Identity = tuple[int, str]
"""The id of the server on which the transaction began, and the transaction's GTID or commit time there."""

_FIRST_TIME = 1 + 16 + 8 + 1 + 8 + 8
"""The byte of the commit time in MySQL's event: after flags, GTID and the two logical clocks."""
_TIME_BYTES = 7
_HAS_ORIGINAL = 1 << 55
"""If this bit of the commit time is set, the original commit time follows."""


def begins_transaction(raw: bytes | memoryview) -> bool:
    """Whether a raw event is the first one of a transaction that may have an identity."""
    return raw[4] in GTID_EVENTS


def identity_of(raw: bytes | memoryview) -> Identity | None:
    """Returns the identity of the transaction that begins with this event; None if the event has none."""
    timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(raw)
    body = memoryview(raw)[HEADER_SIZE:]
    if kind != EventType.ANONYMOUS_GTID:
        gtid = GtidEvent.parse(Event(kind, timestamp, server_id, flags, size, log_pos, 0, 0, body)).gtid
        return (server_id, gtid) if gtid else None
    time = _number(body, _FIRST_TIME)
    if time & _HAS_ORIGINAL:
        time = _number(body, _FIRST_TIME + _TIME_BYTES)
    return (server_id, str(time)) if time else None


def _number(body: memoryview, at: int) -> int:
    """Reads the 7-byte time that begins at byte `at` of an event's body; 0 if the body is too short for it.

    The body may end with a checksum. A checksum is shorter than a time, so it is never read as one.
    """
    if len(body) < at + _TIME_BYTES:
        return 0
    return int.from_bytes(body[at : at + _TIME_BYTES], "little")
