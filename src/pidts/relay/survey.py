"""What a source's relay consists of, segment by segment: its place in the log, its times, its GTIDs, its sizes.

Whole indexes are gone through, but only their first and last entries are decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pidts.model import LogEntry, Lsn, Position
from pidts.relay.folder import Folder
from pidts.relay.index import Header, decode_entry, entry_gtid, entry_key, payloads, position_of


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """One segment."""

    number: int
    start: Lsn
    """Its entries come after this one."""
    end: Lsn
    """Its last entry; `start` while it is empty."""
    position: Position | None
    """`end` as the source names it."""
    entries: int
    first_gtid: str
    last_gtid: str
    """Empty where no transaction has one."""
    first_time: int
    last_time: int
    """When the source executed them, in seconds since 1970 UTC; 0 where there is nothing yet."""
    log_bytes: int
    index_bytes: int


def survey(relay: Path | str, source_id: str) -> list[SegmentSurvey]:
    """All segments, oldest first."""
    folder = Folder.of(relay, source_id)
    found = []
    for number in folder.numbers():
        try:
            header = folder.header(number)
            if header is not None:
                found.append(_surveyed(folder, header))
        except FileNotFoundError:  # purged meanwhile
            continue
    return found


def source_ids(relay: Path) -> list[str]:
    """The sources that have a relay in a directory."""
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
        log_bytes=folder.log(header.segment).stat().st_size,
        index_bytes=len(data),
    )


def _decoded(payload: bytes | None, header: Header) -> LogEntry | None:
    return decode_entry(payload, header.segment, header.start) if payload else None
