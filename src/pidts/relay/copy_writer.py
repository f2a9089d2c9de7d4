"""Writes the copy of a relay that another machine serves, byte for byte: segments, index entries, structures.

A copy is a relay like any other. Its readers (a task, Spark's executors, `pidts relay list`) cannot distinguish it from
other relays. Tasks purge a copy, and request its repair, as if a replicator had written it. Like every relay, a copy
has a lock for its only writer.

A *piece* is a part of one segment's events with the index records that name these events. A piece may have events
without records, since a transaction may be larger than a piece. A piece is written in this order: (a) the events are
written and flushed, (b) the index records are written and flushed. For the first piece of a segment, (c) the folder is
flushed.

Crash points: writing a piece can be interrupted by SIGKILL, power loss, a full disk or a lost connection.

1. Before a piece has arrived completely with the right checksum: nothing of it is written.
2. During or after (a): the events file has bytes at its end that no record names. No reader reads them. The next `open`
   cuts them off, and they are sent again.
3. During (b): the last record is incomplete. Readers stop before it, and the next `open` cuts it off. The records
   before it name bytes that (a) has made durable.
4. During the first piece of a segment: the next `open` removes an events file without an index, or an index without a
   complete header. The previous segment is complete, since its pieces came first.
5. The disk is full in any write or flush: both files are cut back to the last whole record, and `Transient` is raised.
   The same writer continues when there is room. Any other error of the disk is `Halted`.
6. After a power loss, the served relay may lack records that the copy has. The follower notices this by the checksum of
   the index (`IndexPrefix`), and requests that the copy is cut back (`refetch`) to the part that both relays have. The
   follower does the same if the served relay was cut back because a part of it was damaged.
7. If the served relay has purged everything up to the copy's end, the next segment's number does not follow the number
   of the copy's last segment. All tasks have applied everything in the copy: otherwise the served relay would have kept
   this log. So the copy's segments are removed, oldest first, before the new segment is created. If the removal is
   interrupted, the copy is shorter or empty, and an empty copy begins at the target's checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from pidts.model import Halted, Lsn
from pidts.relay.disk_space import has_room
from pidts.relay.folder import Folder
from pidts.relay.lock import WriterLock
from pidts.relay.recovery import recover
from pidts.relay.segments.files import make_segment, open_file, write_all
from pidts.relay.segments.index import Header, Origin, decode, entry_key, payloads
from pidts.relay.task_needs import needs_locked
from pidts.relay.writer import is_full, locked, unwritable

_CLOSED = -1


@dataclass(frozen=True, slots=True)
class IndexPrefix:
    """The part of its last segment that a copy has, so that the relay server can compare it with its own relay."""

    segment: int
    log_bytes: int
    index_bytes: int
    index_crc: int
    """CRC32 of the index up to `index_bytes`, with its header: source, server and the segment's beginning."""
    lsn: Lsn
    """The Lsn of the last entry, or the place before the first entry."""


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """A part of one segment, which begins where the copy ends."""

    segment: int
    log_at: int
    log: bytes
    index_at: int
    index: bytes
    """Only complete records."""


class CopyWriter:
    """The only writer of a copied relay."""

    def __init__(self, folder: Folder, lock: WriterLock) -> None:
        self._folder, self._lock = folder, lock
        self._log = self._index = _CLOSED
        self._log_named = 0
        """The size of the events that the index lists."""
        self._has: IndexPrefix | None = None
        self.origin: Origin | None = None
        """The server from which the last segment was received; None in an empty copy."""

    @classmethod
    def open(cls, relay: Path | str, source_id: str) -> CopyWriter:
        """Takes the writer's lock, cuts the copy back if a cut was requested, and cuts off incomplete writes."""
        folder = Folder.of(relay, source_id)
        lock = locked(folder, source_id)
        writer = cls(folder, lock)
        try:
            writer._resume()
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def has(self) -> IndexPrefix | None:
        """Returns which part of its last segment the copy has; None while the copy is empty."""
        return self._has

    @property
    def lsn(self) -> Lsn | None:
        """Returns the last entry's Lsn; None while the copy is empty."""
        return self._has.lsn if self._has is not None else None

    def has_room(self) -> bool:
        """Whether the disk, which was full, has space for another attempt."""
        return has_room(self._folder.path)

    def write(self, piece: SegmentPiece) -> None:
        """Writes a piece, durably if it has index records; raises `Halted` unless it begins at the copy's end."""
        has = self._has
        with self._guard():
            if has is None or piece.segment != has.segment:
                self._begin_segment(piece)
            elif (piece.log_at, piece.index_at) != (has.log_bytes, has.index_bytes):
                raise self._misfit(piece)
            else:
                self._append(piece, has)

    def drop_unnamed(self) -> bool:
        """Cuts off events that no record names; returns whether there were any."""
        has = self._has
        if has is None or has.log_bytes == self._log_named:
            return False
        with self._guard():
            os.ftruncate(self._log, self._log_named)
        self._has = replace(has, log_bytes=self._log_named)
        return True

    def close(self) -> None:
        """Closes the files and releases the writer's lock."""
        self._close_files()
        self._lock.release()

    def _resume(self) -> None:
        found = recover(self._folder)
        if found is None:
            return
        segment, lsn = found.state.segment, found.state.lsn
        crc = crc32(self._folder.index(segment).read_bytes())
        self._has = IndexPrefix(segment, found.log_bytes, found.index_bytes, crc, lsn)
        self._log_named, self.origin = found.log_bytes, found.state.origin
        self._log, self._index = open_file(self._folder.log(segment)), open_file(self._folder.index(segment))

    def _append(self, piece: SegmentPiece, has: IndexPrefix) -> None:
        write_all(self._log, piece.log)
        self._has = has = replace(has, log_bytes=has.log_bytes + len(piece.log))
        if not piece.index:
            return
        os.fdatasync(self._log)
        write_all(self._index, piece.index)
        os.fdatasync(self._index)
        self._accept(has, piece.index)

    def _begin_segment(self, piece: SegmentPiece) -> None:
        has = self._has
        header = _header(piece.index)
        if header is None or header.segment != piece.segment or piece.log_at or piece.index_at:
            raise self._misfit(piece)
        if has is not None and (piece.segment < has.segment or header.start != has.lsn):
            raise self._misfit(piece)
        if has is not None and piece.segment != has.segment + 1:
            self._close_files()
            self._has = None
            with needs_locked(self._folder):
                for number in self._folder.numbers():
                    self._folder.remove(number)
        handles = make_segment(self._folder, piece.segment, piece.log, piece.index)
        self._close_files()
        self._log, self._index = handles
        self.origin = header.origin
        self._accept(IndexPrefix(piece.segment, len(piece.log), 0, 0, header.start), piece.index)

    def _accept(self, has: IndexPrefix, index: bytes) -> None:
        keys = (entry_key(payload) for _, payload in payloads(index))
        last = max((key for key in keys if key is not None), default=None)
        lsn = Lsn(*last) if last is not None else has.lsn
        size, crc = has.index_bytes + len(index), crc32(index, has.index_crc)
        self._has = IndexPrefix(has.segment, has.log_bytes, size, crc, lsn)
        self._log_named = has.log_bytes

    def _misfit(self, piece: SegmentPiece) -> Halted:
        found = f"segment {piece.segment} from byte {piece.log_at} of the events and {piece.index_at} of the index"
        has = self._has
        known = "is empty" if has is None else f"ends in segment {has.segment}, at byte {has.log_bytes} of the events"
        known += "" if has is None else f" and {has.index_bytes} of the index"
        return self._folder.corrupt(piece.segment, f"the relay server sent {found}, and the copy {known}")

    def _close_files(self) -> None:
        for handle in (self._log, self._index):
            if handle != _CLOSED:
                os.close(handle)
        self._log = self._index = _CLOSED

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_full(error) and self._has is not None and self._log != _CLOSED:
                has = self._has
                os.ftruncate(self._log, self._log_named)
                os.ftruncate(self._index, has.index_bytes)
                self._has = replace(has, log_bytes=self._log_named)
            raise unwritable(self._folder, error) from error


def _header(index: bytes) -> Header | None:
    first = next(payloads(index), None)
    if first is None or entry_key(first[1]) is not None:
        return None
    record = decode(first[1])
    return record if isinstance(record, Header) else None
