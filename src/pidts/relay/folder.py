"""The folder of one source's relay: how its files are named, listed and purged.

A segment has two files: `000000007.log` has the events and is an ordinary binary log (`mariadb-binlog` can read it),
`000000007.index` says which bytes belong to which transaction. A segment exists once its index has a complete header.
If an XA transaction was prepared in a purged segment, and is undecided at the beginning of the first remaining segment,
the events file of the purged segment stays: it contains the transaction's rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from pidts.durable_folder import sync_folder
from pidts.model import ConfigError, Halted, Lsn, Where
from pidts.plan.continuity import Discontinuity
from pidts.relay.segments.index import Header, OtherVersionError, decode, payloads

MAGIC: Final = b"\xfebin"
_INDEX_NAME = re.compile(r"([0-9]{9})\.index", re.ASCII)
_SOURCE_ID = re.compile(r"\w[\w.@ -]{0,99}")
_HEADER_READ = 64 << 10


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a relay, with the place before its first entry."""

    number: int
    start: Lsn
    """The Lsn after which the segment's entries begin."""
    log_bytes: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder that contains the relay files of one source."""

    path: Path
    source_id: str

    @classmethod
    def of(cls, relay: Path | str, source_id: str) -> Folder:
        """Returns the source's folder in the relay's directory."""
        if not _SOURCE_ID.fullmatch(source_id):
            todo = "Use letters, digits, '_', '-', '.', '@' and spaces only."
            raise ConfigError("bad-source-id", f"{source_id!r} cannot be the name of a folder", todo=todo)
        return cls(Path(relay) / source_id, source_id)

    def log(self, segment: int) -> Path:
        """Returns the path of a segment's events."""
        return _file(self.path, segment, "log")

    def index(self, segment: int) -> Path:
        """Returns the path of a segment's index."""
        return _file(self.path, segment, "index")

    def log_bytes(self, segment: int) -> int:
        """Returns the size of a segment's events; 0 if the file is missing: a reader raises the error for this."""
        try:
            return self.log(segment).stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def lock(self) -> Path:
        """Returns the path of the single writer's lock file."""
        return self.path / "lock"

    @property
    def status(self) -> Path:
        """Returns the path of the file in which the replicator reports its state."""
        return self.path / "status.json"

    def remove(self, segment: int) -> None:
        """Removes a segment, the index first: no entry may name bytes that are missing."""
        self.index(segment).unlink(missing_ok=True)
        self.log(segment).unlink(missing_ok=True)

    def logs(self) -> Iterator[tuple[int, Path]]:
        """Yields number and path of each events file, in no order. Some of these segments may have no index."""
        return ((int(path.stem), path) for path in self.path.glob("*.log") if path.stem.isdigit())

    def headers(self) -> Iterator[Header]:
        """Yields the complete headers of all segments, oldest first, without segments that are purged meanwhile."""
        for number in self.numbers():
            with suppress(FileNotFoundError):
                if (header := self.header(number)) is not None:
                    yield header

    @property
    def changed(self) -> int:
        """Returns when a file last appeared in or disappeared from the folder, in nanoseconds; 0 without a folder."""
        try:
            return os.stat(self.path).st_mtime_ns  # noqa: PTH116 - in every poll of every reader
        except FileNotFoundError:
            return 0

    def numbers(self) -> list[int]:
        """Returns the segments that have an index file, in order."""
        try:
            names = os.listdir(self.path)  # noqa: PTH208 - a path for each name costs more than to list them
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for name in names if (match := _INDEX_NAME.fullmatch(name)))

    def header(self, segment: int) -> Header | None:
        """Returns a segment's first record; None while the record is incomplete; FileNotFoundError: it was purged."""
        with self.index(segment).open("rb") as file:
            data = file.read(_HEADER_READ)
            first = next(payloads(data), None)
            if first is None and len(data) == _HEADER_READ:
                data += file.read()
                first = next(payloads(data), None)
        if first is None:
            return None
        try:
            record = decode(first[1])
        except OtherVersionError as error:
            raise Halted(
                "relay-other-version",
                f"another version of PiDTS wrote this relay in a different format ({error})",
                where=self.where(segment),
                todo="Empty this folder: it is filled again from the target's checkpoint, if the source still has its "
                "log from there. Otherwise continue with the version that wrote the relay",
            ) from error
        except ValueError as error:
            raise self.corrupt(segment, f"the index does not begin with a header of this version ({error})") from error
        if not isinstance(record, Header) or record.segment != segment:
            raise self.corrupt(segment, "the index does not begin with the header of this segment")
        if record.source_id != self.source_id:
            what = f"this relay was written for source {record.source_id!r}"
            raise Halted("relay-of-other-source", what, where=self.where(segment), todo="Check the relay's directory.")
        return record

    def referred_to(self, segment: int) -> frozenset[int]:
        """Returns the earlier segments with events to which this segment or a later one may still refer."""
        header = self.header(segment)
        return frozenset(group.place.segment for group in header.prepared) if header is not None else frozenset()

    def where(self, segment: int) -> Where:
        """Returns the source and the index file of a segment, for errors about the segment."""
        return Where(source=self.source_id, file=str(self.index(segment)))

    def corrupt(self, segment: int, what: str) -> Discontinuity:
        """Returns the error for bytes that differ from the bytes that were written."""
        todo = "Look at the disk; then empty this folder and start again from the target's checkpoint."
        return Discontinuity("relay-corrupt", what, where=self.where(segment), todo=todo)

    def damaged(self, segment: int, place: int) -> Discontinuity:
        """Returns the error for a damaged index record. In the last segment, the next writer repairs the record."""
        error = self.corrupt(segment, f"the record at byte {place} of the index is damaged")
        if segment != self.numbers()[-1]:
            return error
        todo = (
            "Start the replicator again: it removes the damaged part and receives those events again. "
            f"If this does not help: {error.todo}"
        )
        return Discontinuity(error.code, error.what, where=error.where, todo=todo)

    def purged(self, what: str) -> Halted:
        """Returns the error for log that a purge has removed."""
        todo = (
            "If the source still has this log, empty the folder and start again. Otherwise see "
            "docs/operate/log-purged.md"
        )
        return Halted("relay-purged", what, where=Where(source=self.source_id, file=str(self.path)), todo=todo)

    def sync(self) -> None:
        """Makes the creation and the removal of files durable."""
        sync_folder(self.path)


@lru_cache(maxsize=256)
def _file(folder: Path, segment: int, kind: str) -> Path:
    """Returns the path of a segment's file, cached: readers need it several times for each batch."""
    return folder / f"{segment:09}.{kind}"


def list_segments(relay: Path | str, source_id: str) -> list[Segment]:
    """Returns the segments of a source's relay, oldest first."""
    folder = Folder.of(relay, source_id)
    found = []
    for header in folder.headers():
        number = header.segment
        with suppress(FileNotFoundError):  # A purge removes the index first, so events without an index are ignored.
            log_bytes = folder.log_bytes(number)
            found.append(Segment(number, header.start, log_bytes, folder.index(number).stat().st_size))
    return found


def purge(relay: Path | str, source_id: str, before: Lsn) -> list[Segment]:
    """Removes the segments that a task at `before` no longer needs, and returns them.

    The segment with the entry after `before` stays, and so does the last segment. If an XA transaction has its rows
    before the place `before` and its commit after this place, the events of the rows' segment stay, without the index.

    The oldest segment is removed first, and each index before its events. So wherever the purge is interrupted, the
    remaining segments have no gap between them. The next purge removes events without an index. The header of the first
    remaining segment names the events files that have to stay: the rows of any later commit are either at a place that
    the header names, or in a remaining segment.
    """
    folder = Folder.of(relay, source_id)
    listed = list_segments(relay, source_id)
    gone = [segment for segment, following in pairwise(listed) if following.start <= before]
    if not listed:
        return []
    first = listed[len(gone)].number
    needed = folder.referred_to(first)
    for segment in gone:
        folder.index(segment.number).unlink(missing_ok=True)
        if segment.number not in needed:
            folder.log(segment.number).unlink(missing_ok=True)
    for number, path in folder.logs():
        if number < first and number not in needed:
            path.unlink(missing_ok=True)
    folder.sync()
    return gone
