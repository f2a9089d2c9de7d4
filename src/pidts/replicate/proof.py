"""Proves that a server's log is the one in the relay: it must have the relay's last event.

Names do not prove that. The counterexample: a virtual machine is set back to yesterday's snapshot, with the same UUID,
the same log file and, by the time it is asked, more bytes in it than were ever received; and the log after
the old position belongs to another history. An event's bytes have its time, its place and a checksum over its content.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.binlog.events import HEADER, HEADER_SIZE
from pidts.model import Extent, Position
from pidts.relay import Origin, RelayReader, RelayState
from pidts.replicate.resume import Server
from pidts.source import SourceConfig, event_at

_FAR = 2**32
"""A dump can be asked to start in the first 4 GiB of a file only."""
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last event that the relay has received of a log."""

    place: Position
    raw: bytes

    @property
    def end(self) -> int:
        """Returns the byte after it."""
        return self.place.offset + len(self.raw)


def last_event(reader: RelayReader, state: RelayState) -> LastEvent | None:
    """Returns the current log's last event; None if there is none, or it is too far in its file to ask for."""
    origin: Origin = state.origin
    entry = reader.find(state.lsn)
    if entry is None or not entry.extent.size or entry.transaction.lsn.change_no != origin.change_no:
        return None
    begin = entry.transaction.begin
    if begin.change_no != origin.change_no or begin.offset + entry.extent.size >= _FAR:
        return None
    raw = _last(reader, entry.extent)
    end, size = HEADER.unpack_from(raw)[4], len(raw)
    if end < size:
        return None
    return LastEvent(Position.of(origin.log_base, begin.log_index, end - size), raw)


def has_last_event(
    source: SourceConfig, reader: RelayReader, state: RelayState, server: Server, server_id: int | None
) -> bool | None:
    """Returns whether the server's log has the last event of the relay; None if that cannot be asked."""
    if not server.may_have_written(state.origin):
        return None
    last = last_event(reader, state)
    if last is None or last.place.file not in (sizes := dict(server.logs)):
        return None
    if last.end > sizes[last.place.file]:
        return False
    return event_at(source, last.place, server_id) == last.raw


def _last(reader: RelayReader, extent: Extent) -> bytes:
    """Returns the last event. Reads from header to header in pieces: a transaction may be larger than memory."""
    at, piece, first = extent.offset, b"", 0
    while True:
        if at + HEADER_SIZE > first + len(piece):
            first = at
            piece = reader.read(Extent(extent.segment, first, min(_PIECE, extent.end - first)))
        size = HEADER.unpack_from(piece, at - first)[3]
        if at + size >= extent.end:
            return reader.read(Extent(extent.segment, at, extent.end - at))
        at += size
