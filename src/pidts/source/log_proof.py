"""Asks a server for the event at one place of its log, and for the GTIDs up to that place.

Both use their own connection and a dump that is ended as soon as it has answered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pidts.binlog import Event, EventType, GtidEvent, LogWalker, previous_gtids
from pidts.binlog.events import HEADER, is_artificial
from pidts.model import Halted, MySqlGtid, MySqlGtidSet, Position
from pidts.model.errors import Transient
from pidts.source.connection import ServerInfo, Session, SourceConfig, query
from pidts.source.dump import BinlogStream

_FIRST_EVENT = 4
_ANSWER_SECONDS = 60.0
_NOT_THERE = frozenset({"position-lost", "source-log-unreadable"})
_MOST_BYTES = 256 << 20
"""The bytes of a file that are read for its GTIDs; beyond them, the log's next file tells them in its own time."""
_TOLD_BY = frozenset(
    {EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.GTID, EventType.GTID_TAGGED}
)


def event_at(config: SourceConfig, place: Position, server_id: int | None = None) -> bytes | None:
    """Returns the raw event that begins at a place; None if there is none."""
    try:
        for raw in _events(config, place, server_id):
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
    """Returns the GTIDs executed up to a place; None if the server cannot tell them soon."""
    if server.is_mariadb:
        found = query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.offset))[0][0]
        return None if found is None else str(found)
    if not server.gtid_mode or place.offset > _MOST_BYTES:
        return None
    before: MySqlGtidSet | None = None
    intervals: dict[tuple[str, str], list[tuple[int, int]]] = {}
    walker = LogWalker(place.file)
    for raw in _events(config, Position(place.file, _FIRST_EVENT), server_id):
        if raw[4] not in _TOLD_BY:
            continue
        event = walker.feed(raw)
        if walker.file != place.file or (not event.is_artificial and event.offset >= place.offset):
            break
        if event.type == EventType.PREVIOUS_GTIDS:
            before = previous_gtids(event)
        elif event.type in {EventType.GTID, EventType.GTID_TAGGED}:
            _add(intervals, event)
    return None if before is None else str(before.union(MySqlGtidSet.of(intervals)))


def _add(intervals: dict[tuple[str, str], list[tuple[int, int]]], event: Event) -> None:
    gtid = MySqlGtid.parse(GtidEvent.parse(event).gtid)
    known = intervals.setdefault((gtid.uuid, gtid.tag), [])
    if known and known[-1][1] + 1 == gtid.number:
        known[-1] = (known[-1][0], gtid.number)
    else:
        known.append((gtid.number, gtid.number))


def _events(config: SourceConfig, start: Position, server_id: int | None) -> Iterator[bytes]:
    deadline = time.monotonic() + _ANSWER_SECONDS
    with BinlogStream(config, start, server_id=server_id, non_blocking=True) as stream:
        while not stream.ended:
            burst = stream.read_burst()
            if not burst and time.monotonic() > deadline:
                raise Transient("source-silent", f"the source does not send its log at {start}", where=config.where)
            yield from burst
