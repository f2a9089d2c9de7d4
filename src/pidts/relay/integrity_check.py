"""Reads every byte of a relay, and reports the places where bytes differ from the bytes that were written.

In the index, the check verifies each record's checksums. It also verifies that the entries follow each other without a
gap, and that they cover all events. In the events, it verifies each event's size and place, and its CRC32 if the source
writes checksums.

The last segment may be growing, so anything after its last complete entry is ignored.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pidts.binlog import LogWalker, iter_raw
from pidts.model import DecodeError, Halted, LogEntry, Lsn
from pidts.relay.folder import MAGIC, Folder
from pidts.relay.recovery import read_format
from pidts.relay.segments.index import Header, decode_entry, entry_key, is_damaged, payloads


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place in a file of the relay."""

    file: str
    segment: int
    byte: int
    what: str


def broken(relay: Path | str, source_id: str) -> Iterator[Damage]:
    """Yields the damage found: for each segment at most one place in the index, and one place in the events."""
    folder = Folder.of(relay, source_id)
    previous: Header | None = None
    end: Lsn | None = None
    numbers = folder.numbers()
    for number in numbers:
        index = str(folder.index(number))
        try:
            header = folder.header(number)
        except FileNotFoundError:  # purged meanwhile
            continue
        except Halted as error:
            yield Damage(index, number, 0, error.what)
            previous, end = None, None
            continue
        if header is None:
            if number != numbers[-1] or is_damaged(folder.index(number).read_bytes()):
                yield Damage(index, number, 0, "the index has no complete header")
            continue
        if previous is not None and number != previous.segment + 1:
            yield Damage(
                index, previous.segment + 1, 0, "this segment is missing, but segments before and after it exist"
            )
        elif end is not None and header.start != end:
            what = f"the segment begins after {header.start}, but the previous segment ends at {end}"
            yield Damage(index, number, 0, what)
        entries: list[LogEntry] = []
        finding = _check_index(folder, header, entries, is_last=number == numbers[-1])
        if isinstance(finding, Damage):
            yield finding
        previous, end = header, finding if isinstance(finding, Lsn) else None
        if (damage := _check_events(folder, header, entries)) is not None:
            yield damage


def _check_index(folder: Folder, header: Header, entries: list[LogEntry], *, is_last: bool) -> Damage | Lsn:
    """Returns the last Lsn of an intact index, or the damage."""
    path = folder.index(header.segment)
    data = path.read_bytes()
    place, last = 0, header.start
    for after, payload in payloads(data):
        if entry_key(payload) is not None:
            entry = decode_entry(payload, header.segment, last)
            if entry.transaction.prev_lsn != last:
                what = f"the entry after {last} names {entry.transaction.prev_lsn} as the end of the previous entry"
                return Damage(str(path), header.segment, place, what)
            if entries and entry.extent.offset != entries[-1].extent.end:
                what = f"the events of {entry.transaction.lsn} do not begin where the events before them end"
                return Damage(str(path), header.segment, place, what)
            entries.append(entry)
            last = entry.transaction.lsn
        place = after
    if place < len(data) and (not is_last or is_damaged(data[place:])):
        return Damage(str(path), header.segment, place, "the record here is damaged")
    return last


def _check_events(folder: Folder, header: Header, entries: list[LogEntry]) -> Damage | None:
    path = folder.log(header.segment)
    number = header.segment
    try:
        event = read_format(path)
        size = path.stat().st_size
    except FileNotFoundError:
        return Damage(str(path), number, 0, "the events file is missing")
    if event is None:
        return Damage(str(path), number, 0, "the events file has no head")
    walker = LogWalker()
    place = len(MAGIC)
    try:
        walker.feed(event)
    except DecodeError as error:
        return Damage(str(path), number, place, f"[{error.code}] {error.what}")
    if not entries:
        return None
    place += len(event)
    if entries[0].extent.offset != place:
        return Damage(
            str(path), number, place, "the first entry does not begin directly after the head of the events file"
        )
    if entries[-1].extent.end > size:
        return Damage(str(path), number, size, f"the events file ends before byte {entries[-1].extent.end}")
    begin = entries[0].transaction.begin
    file = begin.position(header.origin.log_base).file if header.origin.log_base else ""
    walker = LogWalker(file, begin.offset, walker.format)
    with path.open("rb") as log, mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for entry in entries:
            place = entry.extent.offset
            try:
                for raw in iter_raw(data[place : entry.extent.end]):
                    walker.feed(raw)
                    place += len(raw)
            except DecodeError as error:
                return Damage(str(path), number, place, f"[{error.code}] {error.what}")
    return None
