"""Opens a relay, however its last writer ended: cuts off incomplete ends of files, and finds where to continue.

Recovery reads only the last segment, unless a reader has found damage and requested a cut (`refetch`). Every earlier
segment was complete and flushed before its successor was created. A cut loses nothing: the writer continues after the
last remaining entry, so the source sends all events after this entry again, with the same Lsns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import structlog

from pidts.binlog.xa import PreparedEventGroups
from pidts.model import LogEntry, Lsn, Position, PreparedExtent
from pidts.relay.folder import MAGIC, Folder
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.refetch import announce_beginning, cut_back, cut_file
from pidts.relay.segments.index import (
    GtidsLearned,
    Origin,
    decode,
    decode_entry,
    entry_end,
    entry_gtid,
    entry_key,
    entry_xa,
    is_damaged,
    payloads,
    position_of,
)
from pidts.relay.segments.index_rebuild import restore

_EVENT_SIZE_AT = 9
_EVENT_HEADER = 19
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.relay")

Undecided = PreparedEventGroups[PreparedExtent]
"""XA transactions that were prepared and neither committed nor rolled back, keyed by their names.

Their events stay where they were received. The index shows which transactions are undecided. Each segment's header
names the transactions that are undecided at the segment's start. Each entry names the transaction that it prepares,
commits or rolls back. So neither a restart nor a reader needs the index of an earlier segment. An entry that commits a
transaction also names the place of the rows.
"""


@dataclass(frozen=True, slots=True)
class RelayState:
    """The end of a relay, from which the replicator continues."""

    lsn: Lsn
    """The Lsn of the last entry."""
    origin: Origin
    gtid_set: str | None
    """The GTIDs executed up to `lsn`; None if they are not known."""
    format_event: bytes
    """The FORMAT_DESCRIPTION event of the last segment."""
    segment: int
    start: Lsn
    """The Lsn of the last entry before the last segment; equals `lsn` while that segment is empty."""

    @property
    def position(self) -> Position | None:
        """Returns the position in the current server's log from which to continue; None if none of this log arrived."""
        return position_of(self.lsn, self.origin)


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """The repaired last segment."""

    state: RelayState
    gtids: ExecutedGtids
    undecided: Undecided
    log_bytes: int
    index_bytes: int


def recover(folder: Folder, *, restores: bool = False) -> RecoveredSegment | None:
    """Cuts the relay back if a cut was requested, and repairs the last segment.

    Returns None if no segment is complete. Then the relay begins anew, and its readers notice this. With `restores`,
    lost entries are computed again from their events (`pidts.relay.segments.index_rebuild`).
    """
    cut_back(folder)
    numbers = folder.numbers()
    while numbers:
        found = _last(folder, numbers[-1], restores=restores)
        if found is not None:
            _remove_newer(folder, numbers[-1])
            return found
        folder.remove(numbers.pop())
    _remove_newer(folder, 0)
    announce_beginning(folder)
    return None


def read_format(log: Path) -> bytes | None:
    """Returns the FORMAT_DESCRIPTION event at the beginning of an events file; None if it is missing or incomplete."""
    with log.open("rb") as file:
        begin = file.read(len(MAGIC) + _EVENT_HEADER)
        if len(begin) < len(MAGIC) + _EVENT_HEADER or not begin.startswith(MAGIC):
            return None
        event = begin[len(MAGIC) :]
        (size,) = struct.unpack_from("<I", event, _EVENT_SIZE_AT)
        event += file.read(size - _EVENT_HEADER)
        return event if len(event) == size else None


def settled(undecided: Undecided, entry: LogEntry) -> LogEntry:
    """Returns the entry; if it commits a prepared XA transaction, with the transaction's rows and their place."""
    what, extent = entry.transaction, entry.extent
    if what.xa is None:
        return entry
    place = PreparedExtent(extent.segment, extent.offset, extent.size, what.begin)
    transaction, prepared = undecided.settle(what, place)
    return LogEntry(transaction, extent, prepared)


def _last(folder: Folder, number: int, *, restores: bool) -> RecoveredSegment | None:
    index, log = folder.index(number), folder.log(number)
    data = index.read_bytes()
    header = folder.header(number)
    if header is None:
        if is_damaged(data):
            raise folder.corrupt(number, "the index's header is damaged")
        return None
    format_event = read_format(log) if log.exists() else None
    if format_event is None:
        if any(entry_key(payload) is not None for _, payload in payloads(data)):
            raise folder.corrupt(number, f"the events file {log.name} is missing or has no head")
        return None
    head = len(MAGIC) + len(format_event)
    log_size = log.stat().st_size
    gtids, undecided = ExecutedGtids(header.gtid_set), Undecided(header.prepared)
    lsn, log_end, index_end = header.start, head, 0
    last = None
    for after, payload in payloads(data):
        key = entry_key(payload)
        if key is not None:
            if entry_end(payload) > log_size:
                break
            last, lsn, log_end = payload, Lsn(*key), entry_end(payload)
            gtids.add(entry_gtid(payload))
            if (entry := entry_xa(payload, number)) is not None:
                settled(undecided, entry)
        else:
            record = decode(payload)
            if isinstance(record, GtidsLearned):
                gtids.learn(record.gtid_set)
        index_end = after
    damaged, index_cut = is_damaged(data[index_end:]), len(data) - index_end
    cut_file(index, index_end)
    if restores and last is not None and log_end < log_size:
        restored, index_end = restore(folder, decode_entry(last, number, header.start), header.origin, format_event)
        for transaction in (entry.transaction for entry in restored):
            lsn = transaction.lsn
            gtids.add(transaction.gtid)
        log_end = restored[-1].extent.end if restored else log_end
    if index_cut or log_end < log_size:
        cut = {"index_bytes": index_cut, "log_bytes": log_size - log_end}
        _logger.info(
            "the end of the relay is incomplete or damaged, and is removed; this log is received again",
            source=folder.source_id,
            segment=number,
            lsn=str(lsn),
            damaged=damaged,
            **cut,
        )
    cut_file(log, log_end)
    state = RelayState(lsn, header.origin, None, format_event, number, header.start)
    return RecoveredSegment(state, gtids, undecided, log_end, index_end)


def _remove_newer(folder: Folder, number: int) -> None:
    for found, path in folder.logs():
        if found > number:
            path.unlink()
    folder.sync()
