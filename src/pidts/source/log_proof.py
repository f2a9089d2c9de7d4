"""Asks a server for the event at a place in its log, for the GTIDs up to that place, and for the events after it.

Each function uses a connection of its own, and ends the dump on this connection as soon as it has the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pidts.binlog import FILE_HEAD, EventType, GtidEvent, LogWalker, gtid_list, previous_gtids
from pidts.binlog.events import HEADER, is_artificial
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.model import Halted, MariaDbGtid, MariaDbGtidSet, MySqlGtidSet, Position
from pidts.model.errors import Transient
from pidts.model.gtid import GtidSet, parse_gtid
from pidts.source.connection import ServerInfo, Session, SourceConfig, query
from pidts.source.dump import BinlogStream

_ANSWER_SECONDS = 60.0
_NOT_THERE = frozenset({"position-lost", "source-log-unreadable"})
_MOST_BYTES = 256 << 20
"""At most this many bytes of a log file are read for the GTIDs at a place. At a later place, the GTIDs stay
unknown until the server begins its next file.
"""
_WITH_GTID = GTID_EVENTS - {EventType.ANONYMOUS_GTID}
_TOLD_BY = frozenset(
    {EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.GTID_LIST, *_WITH_GTID}
)


def event_at(config: SourceConfig, place: Position, server_id: int | None = None) -> bytes | None:
    """Returns the raw event that begins at a place; None if there is none."""
    try:
        for raw in log_events(config, place, server_id):
            _, kind, _, size, end, flags = HEADER.unpack_from(raw)
            if not is_artificial(kind, flags, end):
                return raw if (end - size) % 2**32 == place.offset else None
    except Halted as error:
        if error.code not in _NOT_THERE:
            raise
    return None


def gtids_before(
    config: SourceConfig, session: Session, server: ServerInfo, place: Position, server_id: int | None = None
) -> str | None:
    """Returns the GTIDs executed up to a place; None if finding them would take too long."""
    if server.is_mariadb:
        found = query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.offset))[0][0]
        if found is not None:
            return str(found)
        # The server's function fails if the file has an event larger than max_allowed_packet. In this case, the code
        # below reads the file.
    elif not server.gtid_mode:
        return None
    if place.offset > _MOST_BYTES:
        return None
    before: GtidSet | None = None
    executed = _ExecutedTransactions()
    walker = LogWalker(place.file)
    for raw in log_events(config, Position(place.file, FILE_HEAD), server_id):
        if raw[4] not in _TOLD_BY:
            continue
        event = walker.feed(raw)
        if walker.file != place.file or (not event.is_artificial and event.offset >= place.offset):
            break
        if event.type == EventType.PREVIOUS_GTIDS:
            before = previous_gtids(event)
        elif event.type == EventType.GTID_LIST:
            before = gtid_list(event)
        elif event.type in _WITH_GTID:
            executed.add(GtidEvent.parse(event).gtid)
    return None if before is None else executed.added_to(before)


class _ExecutedTransactions:
    """The GTIDs of a log file's transactions, in as little memory as a GTID set."""

    def __init__(self) -> None:
        self._intervals: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._last: dict[int, MariaDbGtid] = {}

    def add(self, text: str) -> None:
        gtid = parse_gtid(text)
        if isinstance(gtid, MariaDbGtid):
            self._last[gtid.domain] = gtid
            return
        known = self._intervals.setdefault((gtid.uuid, gtid.tag), [])
        if known and known[-1][1] + 1 == gtid.number:
            known[-1] = (known[-1][0], gtid.number)
        else:
            known.append((gtid.number, gtid.number))

    def added_to(self, before: GtidSet) -> str:
        if isinstance(before, MariaDbGtidSet):
            # For each domain, the last transaction in the log is taken, as the server's own function does.
            return str(MariaDbGtidSet.of(({at.domain: at for at in before.positions} | self._last).values()))
        return str(before.union(MySqlGtidSet.of(self._intervals)))


def log_events(
    config: SourceConfig, start: Position, server_id: int | None, *, patience: float = _ANSWER_SECONDS
) -> Iterator[bytes]:
    """Yields the raw events from a place up to the current end of the log.

    Raises if neither an event nor a part of a large event arrives for `patience` seconds. The stream raises sooner if
    the server is silent after its first events.
    """
    deadline = time.monotonic() + patience
    with BinlogStream(config, start, server_id=server_id, non_blocking=True) as stream:
        while not stream.ended:
            burst = stream.read_burst()
            if burst or not stream.whole_at:
                deadline = time.monotonic() + patience
            elif time.monotonic() > deadline:
                raise Transient(
                    "source-silent", f"the source does not send its log from {start} on", where=config.where
                )
            yield from burst
