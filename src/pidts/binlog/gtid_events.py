"""Events that identify transactions: GTIDs of both kinds of servers, and the sets at the beginning of a log file."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pidts.binlog.cursor import Cursor
from pidts.binlog.events import Event, EventType
from pidts.model.errors import DecodeError
from pidts.model.gtid import MariaDbGtid, MariaDbGtidSet, MySqlGtid, MySqlGtidSet

_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
_START_ALTER, _ROLLBACK_ALTER = 2, 8

_FLAGS_FIELD, _UUID_FIELD, _NUMBER_FIELD, _TAG_FIELD = 0, 1, 2, 3

GTID_EVENTS = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})


@dataclass(frozen=True, slots=True)
class GtidEvent:
    """The first event of a transaction; `gtid` is empty if the server assigns no GTIDs."""

    gtid: str
    standalone: bool = False
    """MariaDB: the next statement is the whole transaction, and no COMMIT follows."""
    start_alter: bool = False
    """MariaDB: an ALTER has begun and may still fail; the log repeats the statement when the ALTER has ended."""
    rollback_alter: bool = False

    @classmethod
    def parse(cls, event: Event) -> GtidEvent:
        """Parses an event of any of the four types of GTID events."""
        try:
            if event.type == EventType.MARIADB_GTID:
                return _mariadb(event)
            if event.type == EventType.GTID_TAGGED:
                return cls(_tagged(event))
            if event.type == EventType.GTID:
                cursor = Cursor(event.body, "a GTID event")
                cursor.take(1)
                return cls(str(MySqlGtid(str(uuid.UUID(bytes=cursor.take(16))), "", cursor.uint(8))))
        except ValueError as error:
            raise DecodeError("bad-gtid", str(error)) from error
        return cls("")


def previous_gtids(event: Event) -> MySqlGtidSet:
    """Returns all transactions in the log files before this one, from a PREVIOUS_GTIDS event.

    The highest byte of the count shows the format. In the format with tags, the count begins one byte higher.
    """
    cursor = Cursor(event.body, "a PREVIOUS_GTIDS event")
    head = cursor.uint(8)
    tagged = head >> 56 == 1
    if head >> 56 > 1:
        raise DecodeError("bad-gtid", f"a PREVIOUS_GTIDS event has format {head >> 56}, which is not known")
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for _ in range(head >> 8 & 0xFFFFFFFFFFFF if tagged else head):
        source = str(uuid.UUID(bytes=cursor.take(16)))
        tag = _ascii(cursor.take(varlen(cursor))) if tagged else ""
        for _ in range(cursor.uint(8)):
            first, stop = cursor.uint(8), cursor.uint(8)
            if not 0 < first < stop:
                raise DecodeError("bad-gtid", f"a PREVIOUS_GTIDS event has the impossible interval {first}-{stop - 1}")
            found.setdefault((source, tag), []).append((first, stop - 1))
    return MySqlGtidSet.of(found)


def gtid_list(event: Event) -> MariaDbGtidSet:
    """Returns the last GTID of each domain in the log files before this one, from a GTID_LIST event."""
    cursor = Cursor(event.body, "a GTID_LIST event")
    gtids: dict[int, MariaDbGtid] = {}
    for _ in range(cursor.uint(4) & 0xFFFFFFF):
        gtid = MariaDbGtid(cursor.uint(4), cursor.uint(4), cursor.uint(8))
        # The event lists a GTID for each domain and server. The last GTID of a domain in this list is the newest.
        gtids[gtid.domain] = gtid
    return MariaDbGtidSet.of(gtids.values())


def _mariadb(event: Event) -> GtidEvent:
    cursor = Cursor(event.body, "a GTID event")
    sequence, domain, flags = cursor.uint(8), cursor.uint(4), cursor.uint(1)
    if flags & _GROUP_COMMIT:
        cursor.take(8)
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        cursor.take(4)
        cursor.take(cursor.uint(1) + cursor.uint(1))
    extra = cursor.uint(1) if cursor.left else 0
    return GtidEvent(
        gtid=str(MariaDbGtid(domain, event.server_id, sequence)),
        standalone=bool(flags & _STANDALONE),
        start_alter=bool(extra & _START_ALTER),
        rollback_alter=bool(extra & _ROLLBACK_ALTER),
    )


def _tagged(event: Event) -> str:
    """Parses a self-describing message: version, size, last mandatory field, then (field id, value) pairs.

    Field ids ascend. The four needed fields come first; the others are not read.
    """
    cursor = Cursor(event.body, "a GTID_TAGGED event")
    version = varlen(cursor)
    if version != 1:
        raise DecodeError("bad-gtid", f"a GTID_TAGGED event has format {version}, which is not known")
    varlen(cursor)
    varlen(cursor)
    source, tag, number = b"", "", 0
    while cursor.left and (field := varlen(cursor)) <= _TAG_FIELD:
        if field == _FLAGS_FIELD:
            varlen(cursor)
        elif field == _UUID_FIELD:
            source = bytes(varlen(cursor) for _ in range(16))
        elif field == _NUMBER_FIELD:
            number = _signed(varlen(cursor))
        else:
            tag = _ascii(cursor.take(varlen(cursor)))
    return str(MySqlGtid(str(uuid.UUID(bytes=source)), tag, number))


def varlen(cursor: Cursor) -> int:
    """Reads a number of 1 to 9 bytes: the trailing 1 bits of the first byte count the bytes that follow."""
    first = cursor.uint(1)
    more = 0
    while first >> more & 1:
        more += 1
    rest = cursor.uint(more)
    # If eight bytes follow, the first byte has no bit for the value.
    return rest if more == 8 else first >> (more + 1) | rest << (7 - more)


def _signed(value: int) -> int:
    return ~(value >> 1) if value & 1 else value >> 1


def _ascii(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise DecodeError("bad-gtid", f"a GTID's tag is not ASCII: {raw.hex()}") from error
