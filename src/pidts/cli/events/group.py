"""The raw events of one transaction, collected until its end. A large transaction is collected on disk.

Rollbacks to a savepoint are noted while the events arrive. So at the end of the transaction, the rows that were rolled
back are known, and a large transaction can be decoded piece by piece.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from weakref import finalize

from pidts.binlog.compressed import payload_events
from pidts.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, Event, EventType, Format
from pidts.binlog.gtid_events import GTID_EVENTS, GtidEvent
from pidts.binlog.rows_event import ROW_EVENTS
from pidts.binlog.statements import Control, Query
from pidts.binlog.table_map import table_id
from pidts.model import DecodeError, Lsn

_STATEMENTS = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})
_IN_MEMORY = 8 << 20
_CHUNK = 8 << 20
_WRAP = 2**32
_LOG_POS = slice(13, 17)


@dataclass(frozen=True, slots=True)
class EventChunk:
    """Raw events that can be decoded without other events."""

    raw: bytes
    offset: int
    """The byte of the log file where these events begin."""
    times: dict[int, int]
    """For the low 32 bits of each event's byte in the log file, the time at which the source executed the event."""


@dataclass(frozen=True, slots=True)
class OtherStatement:
    """A statement in a transaction, other than BEGIN, COMMIT, SAVEPOINT and ROLLBACK."""

    lsn: Lsn
    query: Query
    timestamp: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class TransactionEvents:
    """The events of one transaction, in log order."""

    file: str
    format: Format
    change_no: int
    statements: list[OtherStatement] = field(default_factory=list)
    _raw: SpooledTemporaryFile[bytes] = field(default_factory=lambda: SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
    _size: int = 0
    _begin: int = -1
    _savepoints: dict[str, int] = field(default_factory=dict)
    _undone: list[tuple[int, int]] = field(default_factory=list)
    """The ranges of bytes in `_raw` that the source rolled back, in order, without overlap."""
    _silent: bool = False
    """Whether the last GTID event begins or rolls back a two-phase ALTER of MariaDB, whose statement is not shown."""

    def __post_init__(self) -> None:
        # When this object is not used any more, the space on disk is freed.
        finalize(self, self._raw.close)

    def add(self, raw: bytes | memoryview, event: Event) -> None:
        """Adds the next event."""
        at = self._size
        self._raw.write(raw)
        self._size += len(raw)
        if self._begin < 0:
            self._begin = event.offset
        if event.type == EventType.TRANSACTION_PAYLOAD:
            for place, inner in payload_events(event):
                self._look_at(inner, place, at, inside=True)
        else:
            self._look_at(event, 0, at, inside=False)

    @property
    def place(self) -> str:
        """The position at which the transaction begins, as file:offset."""
        return f"{self.file}:{self._begin}"

    def chunks(self, *, whole: bool) -> Iterator[EventChunk]:
        """Yields the transaction's events, except those that the source rolled back.

        With `whole`, each chunk begins with a copy of the transaction's first event. Rows need the TABLE_MAP before
        them, so each further chunk also begins with copies of all TABLE_MAPs so far.
        """
        maps: dict[int, bytes] = {}
        first = b""
        parts: list[bytes] = []
        times: dict[int, int] = {}
        offset, size = self._begin, 0
        for at, raw in self._events():
            first = first or raw
            kind = raw[4]
            here = int.from_bytes(raw[_LOG_POS], "little") - len(raw)
            if size >= _CHUNK and kind in ROW_EVENTS:
                yield EventChunk(b"".join(parts), offset, times)
                again = list(maps.values())
                parts = ([first] if whole else []) + again
                times, size = {}, 0
                before = sum(map(len, again))
                offset = self._begin if whole else self._full(here) - before
            if kind == EventType.TABLE_MAP:
                maps[table_id(raw[HEADER_SIZE:])] = self._without_place(raw)
            if not self._is_undone(at):
                parts.append(raw)
                size += len(raw)
                times[here % _WRAP] = int.from_bytes(raw[:4], "little")
        yield EventChunk(b"".join(parts), offset, times)

    def _look_at(self, event: Event, place: int, at: int, *, inside: bool) -> None:
        if event.type in GTID_EVENTS:
            gtid = GtidEvent.parse(event)
            self._silent = gtid.start_alter or gtid.rollback_alter
        if event.type not in _STATEMENTS:
            return
        query = Query.parse(event)
        if query.control is Control.NONE and not self._silent:
            lsn = Lsn(self.change_no, event.log_index, event.offset, place)
            self.statements.append(OtherStatement(lsn, query, event.timestamp))
        if inside:
            # A compressed transaction is decoded as a whole. The decoder then applies its rollbacks to savepoints.
            return
        if query.control is Control.SAVEPOINT:
            self._savepoints[query.savepoint] = at
        elif query.control is Control.ROLLBACK_TO:
            if query.savepoint not in self._savepoints:
                raise DecodeError("no-savepoint", f"the log rolls back to {query.savepoint}, which it has not set")
            self._take_back(self._savepoints[query.savepoint], self._size)
        elif query.control is Control.ROLLBACK:
            self._take_back(0, at)

    def _take_back(self, begin: int, end: int) -> None:
        self._undone = [(first, last) for first, last in self._undone if first < begin]
        self._undone.append((begin, end))

    def _is_undone(self, at: int) -> bool:
        place = bisect_right(self._undone, (at, self._size)) - 1
        return place >= 0 and at < self._undone[place][1]

    def _events(self) -> Iterator[tuple[int, bytes]]:
        self._raw.seek(0)
        at = 0
        while head := self._raw.read(HEADER_SIZE):
            raw = head + self._raw.read(int.from_bytes(head[9:13], "little") - HEADER_SIZE)
            yield at, raw
            at += len(raw)

    def _full(self, low: int) -> int:
        """Returns the byte of the log file from its low 32 bits, which an event header contains."""
        return self._begin + (low - self._begin) % _WRAP

    def _without_place(self, raw: bytes) -> bytes:
        """Returns a TABLE_MAP with position 0: the copy may be far away from the original in the log file."""
        moved = raw[:13] + bytes(4) + raw[17:]
        if not self.format.checksum:
            return moved
        sealed = moved[:-CHECKSUM_SIZE]
        return sealed + zlib.crc32(sealed).to_bytes(CHECKSUM_SIZE, "little")
