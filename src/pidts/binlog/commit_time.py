"""The time of a commit to the microsecond, which MySQL 8.0 and later write into the event that begins a transaction.

Events of MariaDB and of earlier MySQL versions have whole seconds only.
"""

from __future__ import annotations

from typing import Final

from pidts.binlog.cursor import Cursor
from pidts.binlog.events import HEADER_SIZE, EventType
from pidts.binlog.gtid_events import varlen
from pidts.model.errors import DecodeError

COMMIT_TIME_EVENTS: Final = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED})
_TYPE_AT, _SIZE_AT = 4, 9
_LOGICAL_CLOCK_AT = HEADER_SIZE + 1 + 16 + 8
_TIME_AT = _LOGICAL_CLOCK_AT + 1 + 8 + 8
_TIME_SIZE, _LOGICAL_CLOCK = 7, 2
_HAS_ORIGINAL: Final = 1 << 55
_MILLION: Final = 1e6
_UUID_FIELD, _TAG_FIELD, _TIME_FIELD = 1, 3, 6


def commit_time(raw: bytes | memoryview) -> float | None:
    """Returns when the server committed the transaction that begins with this event, in seconds since 1970.

    Returns None if the event does not have this time. `raw` begins with the event, and may continue after it. In a
    replica's log, a transaction from the replica's source has the time of the commit on the replica.
    """
    kind = raw[_TYPE_AT]
    if kind == EventType.GTID_TAGGED:
        return _tagged(raw)
    if kind not in COMMIT_TIME_EVENTS:
        return None
    size = int.from_bytes(raw[_SIZE_AT : _SIZE_AT + 4], "little")
    if size < _TIME_AT + _TIME_SIZE or len(raw) < _TIME_AT + _TIME_SIZE or raw[_LOGICAL_CLOCK_AT] != _LOGICAL_CLOCK:
        return None
    found = int.from_bytes(raw[_TIME_AT : _TIME_AT + _TIME_SIZE], "little") & ~_HAS_ORIGINAL
    return found / _MILLION or None


def _tagged(raw: bytes | memoryview) -> float | None:
    size = int.from_bytes(raw[_SIZE_AT : _SIZE_AT + 4], "little")
    cursor = Cursor(bytes(raw[HEADER_SIZE:size]), "a GTID_TAGGED event")
    try:
        for _ in range(3):
            varlen(cursor)
        while cursor.left and (field := varlen(cursor)) <= _TIME_FIELD:
            if field == _UUID_FIELD:
                for _ in range(16):
                    varlen(cursor)
            elif field == _TAG_FIELD:
                cursor.take(varlen(cursor))
            else:
                value = varlen(cursor)
                if field == _TIME_FIELD:
                    return value / _MILLION
    except DecodeError:
        return None  # Other code refuses malformed events. This time is only for measuring.
    return None
