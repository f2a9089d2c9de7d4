"""Binary log events: their header, their types, and a log file's description of its own format.

Every event starts with 19 bytes: time, type, server id, size, position of the *next* event (32 bits, so it wraps in
files above 4 GiB) and flags.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum

from pidts.model.errors import DecodeError

HEADER = struct.Struct("<IBIIIH")
HEADER_SIZE = HEADER.size

FLAG_ARTIFICIAL = 0x20
"""The server's binlog dump thread made the event; it is not in the log file."""
FLAG_IGNORABLE = 0x80
"""A reader that does not know the type may continue."""

CHECKSUM_SIZE = 4
_VERSION_SIZE = 50
_FIXED_SIZE = 2 + _VERSION_SIZE + 4 + 1


class EventType(IntEnum):
    """Types of MySQL (up to 42) and MariaDB (from 160)."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


BOOKKEEPING = frozenset(
    {
        EventType.STOP,
        EventType.ROTATE,
        EventType.FORMAT_DESCRIPTION,
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.BEGIN_LOAD_QUERY,
        EventType.APPEND_BLOCK,
        EventType.DELETE_FILE,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.IGNORABLE,
        EventType.ROWS_QUERY,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.ANNOTATE_ROWS,
        EventType.BINLOG_CHECKPOINT,
        EventType.GTID_LIST,
        EventType.START_ENCRYPTION,
    }
)
"""Types that change no data by themselves."""


def type_name(number: int) -> str:
    """Returns the type's name, as messages show it; an unknown number stays a number."""
    try:
        return EventType(number).name
    except ValueError:
        return f"type {number}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event and its place."""

    type: int
    timestamp: int
    server_id: int
    flags: int
    size: int
    log_pos: int
    """The header's field, unchanged: the low 32 bits of the position of the byte after the event."""
    offset: int
    """The place of the event's first byte in the source's log file."""
    log_index: int
    """The number of the event's log file."""
    body: memoryview
    """The bytes after the header, without the checksum."""

    @property
    def end(self) -> int:
        """Returns the byte after the event."""
        return self.offset + self.size

    @property
    def may_be_ignored(self) -> bool:
        """Whether a reader may continue without handling the event."""
        return self.type in BOOKKEEPING or bool(self.flags & FLAG_IGNORABLE)

    @property
    def is_artificial(self) -> bool:
        """Whether the server made the event for this connection only, so that no log file contains it."""
        return is_artificial(self.type, self.flags, self.log_pos)


_REPEATED = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION})
"""If a server starts to send in the middle of a log file, the first events of these types have no position: the server
has read them at the file's beginning, or made them itself.
"""


def is_artificial(kind: int, flags: int, log_pos: int) -> bool:
    """Whether an event is in no log file: a heartbeat, or an event that the server's sending thread has made."""
    return (
        bool(flags & FLAG_ARTIFICIAL)
        or kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
        or (log_pos == 0 and kind in _REPEATED)
    )


@dataclass(frozen=True, slots=True)
class Format:
    """The first event of a log file: the server that wrote the file, and whether events carry a CRC32."""

    checksum: bool
    server_version: str
    is_mariadb: bool

    @classmethod
    def parse(cls, body: bytes | memoryview) -> Format:
        """Parses the FORMAT_DESCRIPTION event's body, without its checksum."""
        data = bytes(body)
        version = _server_version(data)
        algorithm = data[-1] if _knows_checksums(version) else 0
        if algorithm > 1:
            raise DecodeError("bad-format", f"the log's checksum algorithm {algorithm} is not known")
        return cls(checksum=algorithm == 1, server_version=version, is_mariadb="MariaDB" in version)

    @staticmethod
    def checksum_tail(body: bytes | memoryview) -> int:
        """Returns how many bytes at the end of a FORMAT_DESCRIPTION event's body are its checksum.

        The event has room for a checksum even if its algorithm byte says that the log has no checksums.
        """
        return CHECKSUM_SIZE if _knows_checksums(_server_version(bytes(body[: _FIXED_SIZE + 1]))) else 0


def _server_version(data: bytes) -> str:
    if len(data) <= _FIXED_SIZE:
        raise DecodeError("truncated", "the log's FORMAT_DESCRIPTION event is too short")
    if data[:2] != b"\x04\0" or data[_FIXED_SIZE - 1] != HEADER_SIZE:
        raise DecodeError("bad-format", "the log is not in version 4 of the binary log's format")
    return data[2 : 2 + _VERSION_SIZE].rstrip(b"\0").decode("ascii", "replace")


def _knows_checksums(version: str) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version, re.ASCII)[:3])
    return numbers >= ((5, 3) if "MariaDB" in version else (5, 6, 1))
