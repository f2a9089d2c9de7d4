"""Describes the segments of a source's relay: place in the log, times, GTIDs and sizes.

A survey scans whole indexes, but decodes only the first and the last entry of each index.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from pidts.model import LogEntry, Lsn, Position
from pidts.relay.folder import Folder, list_segments
from pidts.relay.reader import RelayReader
from pidts.relay.segments.index import Header, decode_entry, entry_gtid, entry_key, payloads, position_of


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """A segment with its places in the log, its times, its GTIDs and its sizes."""

    number: int
    start: Lsn
    """The Lsn after which the segment's entries begin."""
    end: Lsn
    """The end of the segment's last entry; `start` while the segment is empty."""
    position: Position | None
    """The place `end` as file and offset in the source's log; None if it is not known."""
    entries: int
    first_gtid: str
    last_gtid: str
    """The first and the last GTID in the segment; empty if no transaction has one."""
    first_time: int
    last_time: int
    """When the source executed the first and the last entry, in seconds since 1970 UTC; 0 if there is none."""
    log_bytes: int
    index_bytes: int


def survey(relay: Path | str, source_id: str) -> list[SegmentSurvey]:
    """Returns all segments, oldest first."""
    folder = Folder.of(relay, source_id)
    found = []
    for header in folder.headers():
        with suppress(FileNotFoundError):  # purged meanwhile
            found.append(_surveyed(folder, header))
    return found


def measure(relay: Path | str, source_id: str) -> Callable[[Lsn], int]:
    """Returns a function that counts the bytes of log after a place in the current relay.

    The function counts back from a segment's end. A relay that was continued by GTID has a segment that lacks bytes at
    the beginning of the server's file, so counting from the segment's beginning would be wrong.
    """
    found = list_segments(relay, source_id)
    with closing(RelayReader(relay, source_id)) as reader:
        received = reader.received
    # If all segments were removed meanwhile, `received` has an Lsn although `found` is empty.
    ends = [*(following.start for following in found[1:]), received] if found else []

    def bytes_after(lsn: Lsn) -> int:
        count = 0
        for segment, end in zip(found, ends, strict=True):
            if end is None or end <= lsn:
                continue
            is_within = segment.start < lsn and (end.change_no, end.log_index) == (lsn.change_no, lsn.log_index)
            count += min(segment.log_bytes, end.offset - lsn.offset) if is_within else segment.log_bytes
        return count

    return bytes_after


def source_ids(relay: Path) -> list[str]:
    """Returns the ids of the sources that have a relay in a directory."""
    return sorted({path.parent.name for path in relay.glob("*/*.index")})


def _surveyed(folder: Folder, header: Header) -> SegmentSurvey:
    data = folder.index(header.segment).read_bytes()
    first = last = None
    entries, gtids = 0, ["", ""]
    for _, payload in payloads(data):
        if entry_key(payload) is None:
            continue
        entries += 1
        first, last = first or payload, payload
        if gtid := entry_gtid(payload):
            gtids = [gtids[0] or gtid, gtid]
    one, other = _decoded(first, header), _decoded(last, header)
    end = other.transaction.lsn if other else header.start
    return SegmentSurvey(
        number=header.segment,
        start=header.start,
        end=end,
        position=position_of(end, header.origin),
        entries=entries,
        first_gtid=gtids[0],
        last_gtid=gtids[1],
        first_time=one.transaction.timestamp if one else 0,
        last_time=other.transaction.timestamp if other else 0,
        log_bytes=folder.log_bytes(header.segment),
        index_bytes=len(data),
    )


def _decoded(payload: bytes | None, header: Header) -> LogEntry | None:
    return decode_entry(payload, header.segment, header.start) if payload else None
