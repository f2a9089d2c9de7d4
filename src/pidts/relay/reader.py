"""Reads a relay from any Lsn across segments, even while it is being written, and checks that nothing is missing.

Readers open files for reading only and take no lock. An incomplete entry at the end of the last segment is ignored.
Everything else that does not fit is an error:

- `relay-gap`, `relay-disorder`: an entry does not follow the previous entry (a repeated entry is skipped);
- `relay-purged`: the caller asks for entries before the first remaining segment;
- `relay-corrupt`: bytes differ from what was written;
- `other-source`: the caller asks for entries after a place in one server's log, and the relay has continued with the
  log of another server before this place.

A relay may be cut back while it is read, and filled again (`refetch`). As soon as a cut is requested, the reader clears
its caches, and returns no entry after the requested place. A caller that has already read further waits until the relay
is filled up to the caller's place again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from pidts.model import Extent, Halted, LogEntry, LogFile, Lsn, Position, Transaction, Transient, Where
from pidts.plan.continuity import Discontinuity, followed
from pidts.relay.folder import MAGIC, Folder
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.recovery import read_format
from pidts.relay.refetch import Signature, read_refetches, refetch_signature
from pidts.relay.segments.index import (
    GtidsLearned,
    Header,
    LsnKey,
    Origin,
    decode,
    decode_entry,
    entry_gtid,
    entry_has_ddl,
    entry_key,
    key_of,
    position_of,
)
from pidts.relay.segments.records import IndexFiles

if TYPE_CHECKING:
    from pidts.relay.segments.joined_records import Most

_POLL = 0.002
_POLL_IDLE = 0.01
_QUICK = 0.1
_PURGED = "relay-purged"
OWN_RELAY = (
    "If other tasks use this relay, give this task a relay of its own (pidts.relay), which begins at the task's place "
    "(docs/operate/source-changed.md#tasks-that-share-a-relay)."
)
_NEVER: Signature = (-1, -1)
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.relay")


@dataclass(frozen=True, slots=True)
class _FileRange:
    """A part of the relay whose entries are in one log file."""

    begin: Lsn
    end: Lsn
    """The end of an entry in this file. So after any place between `begin` and `end`, the next entry is also in this
    file.
    """
    file: LogFile


@dataclass(frozen=True, slots=True)
class FormerSourceLog:
    """The part of the log that was received from one server."""

    origin: Origin
    end: Lsn
    """The last place that was received from this server."""


class RelayReader:
    """Reads one source's relay. Only one thread may use it."""

    def __init__(self, relay: Path | str, source_id: str) -> None:
        self.folder = Folder.of(relay, source_id)
        self._index = IndexFiles(self.folder)
        self._formats: dict[int, bytes] = {}
        self._tail: tuple[int, int, Lsn] | None = None
        """Segment, place and Lsn of the last entry that `received` or `entries` has seen."""
        self._open_log: tuple[int, int] | None = None
        self._signature: Signature = _NEVER
        self._origin: Origin | None = None
        """The server of the last Lsn for which `position` was called."""
        self._file_range: _FileRange | None = None
        """The last result of `log_file`."""
        self._end: LsnKey | None = None
        """The place after which the relay will be cut: no entry after this place is read."""
        self.damage: Discontinuity | None = None
        """The damage that stopped the last call of `received`."""
        self.repeats = 0
        """The number of repeated entries that this reader has skipped."""

    @property
    def first(self) -> Lsn | None:
        """Returns the Lsn after which the relay begins; None for an empty relay."""
        self.renew()
        listed = self._index.listed()
        return listed[0].start if listed else None

    @property
    def received(self) -> Lsn | None:
        """Returns the Lsn of the last entry, even if that entry has nothing to apply; None for an empty relay.

        Damage raises no error here: `entries` raises the error after all entries that can still be read.
        """
        self.renew()
        if self._tail is None:
            last = self._index.newest()
            if last is None:
                return None
            self._tail = (last.segment, 0, last.start)
        tail, self.damage = self._tail, None
        try:
            nowhere = key_of(tail[2])
            for segment, place, key, _ in self._index.walk_joined(*tail[:2], (nowhere, nowhere)):
                if key is not None:
                    tail = segment, place, Lsn(*key)
                    self._index.note(segment, key, place)
                else:
                    tail = segment, place, tail[2]
        except Discontinuity as error:
            self.damage = error if self._end is None else None
        except Halted as error:
            if error.code == _PURGED:
                # A purge has removed the segment. The end of the relay is in a remaining segment.
                self._tail = None
                return self.received
            if not self._is_renewed:
                raise
        self._tail = tail
        return tail[2] if self._end is None else min(tail[2], Lsn(*self._end))

    @property
    def stamp(self) -> tuple[int, int]:
        """Returns a value that changes if the relay is written to after the last call of `received` or `entries`.

        The second number changes with each entry. The property is fast.
        """
        try:
            folder = os.stat(self.folder.path).st_mtime_ns  # noqa: PTH116 - in every poll
            tail = os.stat(self.folder.index(self._tail[0])).st_size if self._tail else 0  # noqa: PTH116 - the same
        except FileNotFoundError:
            return 0, 0
        return folder, tail

    @property
    def last_cut(self) -> Signature:
        """Returns a value that changes whenever a cut of the relay (`pidts.relay.refetch`) is requested or made."""
        return refetch_signature(self.folder)

    @property
    def origin(self) -> Origin | None:
        """Returns the server whose log is received; None for an empty relay."""
        last = self._index.newest()
        return last.origin if last else None

    @property
    def log_base(self) -> str:
        """Returns the current log's file name without its number; empty for an empty relay."""
        last = self._index.newest()
        return last.origin.log_base if last else ""

    def entries(
        self, after: Lsn | None = None, to: Lsn | None = None, *, joined: bool = False, most: Most | None = None
    ) -> Iterator[LogEntry]:
        """Yields the entries after an Lsn (None: from the start), in order. Call the method again for later entries.

        `after` need not be the end of an entry. If it is between two transactions, the next entry is returned with
        `after` as its `prev_lsn`. So a caller at `after` finds that the entry follows directly.

        With `to`, the entries end at this Lsn. If the relay does not reach `to`, `Transient` is raised, so that the
        caller does not take an incomplete list for all entries up to `to`.

        With `joined`, one entry may stand for many ordinary transactions in a row; `most` limits the number of these
        transactions, and the number of their row events.
        """
        self.renew()
        last, header = after, None
        if to is not None and after is not None and to <= after:
            return
        try:
            header = self._index.segment_of(after)
            if header is not None and after is not None:
                self._demand_same_server(header, after)
            if last is None:
                last = header.start if header is not None else to
            if header is not None and last is not None:
                for entry in followed(
                    self._entries(header.segment, last, to, joined=joined, most=most),
                    last,
                    self._where,
                    self._pass_over,
                ):
                    if to is not None and entry.transaction.lsn > to:
                        break
                    yield _following(last, entry)
                    last = entry.transaction.lsn
                    if last == to:
                        return
        except Halted as error:
            if self._is_renewed:
                raise self._cut_back(last) from error
            if error.code == _PURGED and header is not None and last is not None and self._is_left(header, last):
                yield from self.entries(last, to, joined=joined, most=most)
                return
            if isinstance(error, Discontinuity) and error.after is None and last is not None:
                raise error.at(last) from error
            raise
        if to is not None and (last is None or last < to):
            raise self._cut_back(to)

    def demand_place(self, lsn: Lsn) -> None:
        """Raises if the relay has continued with another server's log before this place.

        Such a relay was lost. Then it was filled by GTID from a new server, from an earlier place of the old log on. So
        it has changes again that come before `lsn`. For damaged or purged log, only `entries` raises an error.
        """
        self.renew()
        try:
            header = self._index.segment_of(lsn)
        except Halted:
            return
        if header is not None:
            self._demand_same_server(header, lsn)

    def _demand_same_server(self, header: Header, lsn: Lsn) -> None:
        if lsn.change_no >= header.origin.change_no or lsn <= header.start:
            return
        what = (
            f"after {header.start}, the relay has the log of another server ({header.origin.server}), but the task "
            f"has reached {lsn}, a later place in the former server's log. The changes between these two places "
            f"would be applied twice"
        )
        where = Where(source=self.folder.source_id, file=str(self.folder.path))
        raise Halted("other-source", what, where=where, todo=OWN_RELAY)

    def _is_left(self, purged: Header, last: Lsn) -> bool:
        """Whether all entries after `last` are in the remaining segments, and none was in the purged segments."""
        try:
            found = self._index.segment_of(last)
        except Halted:
            return False
        return found is not None and found.segment > purged.segment

    def _entries(
        self, segment: int, after: Lsn, to: Lsn | None, *, joined: bool, most: Most | None
    ) -> Iterator[LogEntry]:
        """Yields the entries after `after` as stored, the first in `segment`. Other parameters: see `entries`."""
        first, end, last = key_of(after), self._end, after
        started = False
        if end is not None and first >= end:
            return
        stop = min((key for key in (end, key_of(to) if to is not None else None) if key is not None), default=first)
        begin = self._index.place(segment, first)
        stops = (first, stop) if joined else None
        for number, place, key, payload in self._index.walk_joined(segment, begin, stops, most):
            if key is None or (not started and key <= first):
                continue
            if end is not None and key > end:
                return
            entry = decode_entry(payload, number, last) if isinstance(payload, bytes) else payload.entry(number, last)
            started, last = True, entry.transaction.lsn
            self._index.note(number, key, place)
            if self._tail is not None and (number, place) > self._tail[:2]:
                self._tail = number, place, last
            yield entry
            if key == end:
                return

    def segment_start(self, lsn: Lsn) -> Lsn:
        """Returns the start of the segment with the entry after `lsn`; `lsn` itself for an empty relay."""
        self.renew()
        header = self._index.segment_of(lsn)
        return header.start if header is not None else lsn

    def start_of_segment(self, segment: int) -> Lsn | None:
        """Returns the place before a segment's first entry; None if the segment has no index."""
        header = self._index.header(segment)
        return header.start if header is not None else None

    def schema_changes(self, after: Lsn, to: Lsn, is_over: Callable[[], bool] = lambda: False) -> Iterator[Transaction]:
        """Yields the schema changes after `after`, up to and including `to`. Other entries are not decoded.

        Ends early if `is_over`, which is called for each entry, returns True.
        """
        self.renew()
        header = self._index.segment_of(after)
        if header is None:
            return
        begin, end = key_of(after), key_of(to)
        for segment, _, key, payload in self._index.walk(header.segment, self._index.place(header.segment, begin)):
            if key is None or key <= begin:
                continue
            if key > end or is_over():
                return
            if entry_has_ddl(payload):
                yield decode_entry(payload, segment, after).transaction

    def find(self, lsn: Lsn) -> LogEntry | None:
        """Returns the entry that ends at this Lsn or has a row with this Lsn; None if it is not received yet."""
        self.renew()
        header = self._index.segment_of(lsn)
        # A segment's `start` is the end of the previous segment's last entry. So the entry is in that segment, unless
        # the segment was purged.
        if header is not None and header.start == lsn and self.folder.index(header.segment - 1).exists():
            header = self._index.header(header.segment - 1) or header
        if header is None:
            return None
        segment, place = self._place_before(header.segment, key_of(lsn))
        for number, _, key, payload in self._index.walk(segment, place):
            if key is not None and Lsn(*key) >= lsn:
                return decode_entry(payload, number, lsn)
        return None

    def _place_before(self, segment: int, key: LsnKey) -> tuple[int, int]:
        """Returns segment and place in the index of the first entry at or after a key, without decoding entries."""
        before = key[0], key[1], key[2] - 1
        place = self._index.place(segment, before)
        for number, behind, end, _ in self._index.walk_joined(segment, place, (before, key)):
            if end is not None and end > before:
                break
            segment, place = number, behind
            if end is not None:
                self._index.note(segment, end, place)
        return segment, place

    def wait(self, lsn: Lsn | None, timeout: float) -> bool:
        """Waits at most `timeout` seconds for an entry after `lsn` (None: any); returns whether there is one."""
        begin = time.monotonic()
        while True:
            received = self.received
            if received is not None and (lsn is None or received > lsn):
                return True
            waited = time.monotonic() - begin
            if waited >= timeout:
                return False
            time.sleep(min(_POLL if waited < _QUICK else _POLL_IDLE, timeout - waited))

    def read(self, extent: Extent) -> bytes:
        """Returns the events of an entry, or of neighbouring entries together."""
        handle = self._opened(extent.segment)
        parts = []
        offset, left = extent.offset, extent.size
        while left:
            data = os.pread(handle, min(left, 1 << 30), offset)
            if not data:
                raise self.folder.corrupt(extent.segment, f"the events file ends before byte {extent.end}")
            parts.append(data)
            offset += len(data)
            left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def chunks(self, extent: Extent, size: int = 16 << 20) -> Iterator[bytes]:
        """Returns the same bytes as `read`, a part at a time."""
        for offset in range(extent.offset, extent.end, size):
            yield self.read(Extent(extent.segment, offset, min(size, extent.end - offset)))

    def format(self, segment: int) -> bytes:
        """Returns the raw FORMAT_DESCRIPTION event for a segment's events."""
        self._opened(segment)
        if segment not in self._formats:
            try:
                event = read_format(self.folder.log(segment))
            except FileNotFoundError as error:
                raise self._lost(segment) from error
            if event is None:
                raise self.folder.corrupt(segment, "the events file has no head")
            self._formats[segment] = event
        return self._formats[segment]

    def position(self, lsn: Lsn) -> Position | None:
        """Returns the file and the offset of an Lsn in its server's log; None if the relay lacks this server's log."""
        if self._origin is not None and (position := position_of(lsn, self._origin)) is not None:
            return position
        for number in reversed(self._index.numbers()):
            header = self._index.header(number)
            if header is not None and (position := position_of(lsn, header.origin)) is not None:
                self._origin = header.origin
                return position
        return None

    def log_file(self, lsn: Lsn) -> LogFile | None:
        """Returns the log file of the entry that ends at this Lsn, or of the next entry if no entry ends there.

        Returns None if the relay has no such entry of this server, or cannot read it: `entries` reports damage. If the
        relay begins at this Lsn, the next entry may be in a later file.
        """
        self.renew()
        if (known := self._known_file(lsn)) is not None:
            return known
        try:
            entry = self.find(lsn)
            header = self._index.header(entry.extent.segment) if entry is not None else None
            if entry is None or header is None or entry.transaction.lsn.change_no != lsn.change_no:
                return None
            end = entry.transaction.lsn
            name = Position.of(header.origin.log_base, _file_number(end)[1], 0).file
            found = LogFile.of_head(name, self.format(header.segment), header.origin.server)
        except Halted:
            return None
        self._file_range = _FileRange(min(lsn, end), end, found)
        return found

    def _known_file(self, lsn: Lsn) -> LogFile | None:
        """Returns the last result of `log_file`, if the entry at or after this Lsn is certainly in that file.

        Each batch needs the files of two Lsns, and finding an entry takes many times as long as this method.
        """
        known, last = self._file_range, self._tail[2] if self._tail is not None else None
        if known is None or lsn < known.begin:
            return None
        if lsn <= known.end:
            return known.file
        if last is None or last < lsn or _file_number(last) != _file_number(known.end):
            return None
        return known.file

    def former_source_log(self, change_no: int) -> FormerSourceLog | None:
        """Returns the log of the server after `change_no` replacements; None if the relay has no part of this log."""
        self.renew()
        headers = self._index.listed()
        origin = next((header.origin for header in headers if header.origin.change_no == change_no), None)
        after = next((header.start for header in headers if header.origin.change_no > change_no), self.received)
        if origin is None or after is None or after.change_no != change_no:
            return None
        return FormerSourceLog(origin, after)

    def gtid_set(self, at: Lsn) -> str | None:
        """Returns the GTIDs that the source had executed at an Lsn; None if they are not known."""
        header = self._index.segment_of(at)
        if header is None:
            return None
        gtids = ExecutedGtids(header.gtid_set)
        for _, payload in self._index.records(header.segment, 0):
            key = entry_key(payload)
            if key is not None:
                if key > key_of(at):
                    break
                gtids.add(entry_gtid(payload))
            elif isinstance(record := decode(payload), GtidsLearned):
                gtids.learn(record.gtid_set)
        return gtids.text

    def close(self) -> None:
        """Closes open files; the reader can still be used."""
        if self._open_log is not None:
            os.close(self._open_log[1])
            self._open_log = None
        self._formats.clear()

    def _opened(self, segment: int) -> int:
        """Returns a handle of a segment's events.

        The handle stays open for the next call. If the relay was emptied meanwhile, the file is opened again, since
        another file may have the same name now.
        """
        if self._open_log is not None and self._open_log[0] == segment and os.fstat(self._open_log[1]).st_nlink:
            return self._open_log[1]
        self.close()
        try:
            handle = os.open(self.folder.log(segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self._lost(segment) from error
        self._open_log = (segment, handle)
        return handle

    def _lost(self, segment: int) -> Halted:
        """Returns the error for a missing events file: damage if the segment's index exists, otherwise a purge."""
        if self.folder.index(segment).exists():
            return self.folder.corrupt(segment, f"the events file {self.folder.log(segment).name} is missing")
        return self.folder.purged(f"segment {segment} is gone")

    def renew(self) -> None:
        """Clears the caches if the relay was cut back or will be: otherwise `read` might read a removed file."""
        if not self._is_renewed:
            return
        self._signature = refetch_signature(self.folder)
        pending = read_refetches(self.folder).pending
        self._end = key_of(pending.after) if pending is not None else None
        self._tail = self._origin = self._file_range = None
        self._index.forget()
        self.close()

    @property
    def _is_renewed(self) -> bool:
        """Whether the relay was cut back or emptied, or a cut was requested, since the caches were last cleared."""
        return refetch_signature(self.folder) != self._signature

    def _pass_over(self, entry: LogEntry) -> None:
        if not self.repeats:
            lsn, place = str(entry.transaction.lsn), str(self._where(entry))
            _logger.warning("the relay has an entry twice, and the second entry is skipped", lsn=lsn, place=place)
        self.repeats += 1

    def _where(self, entry: LogEntry) -> Where:
        return self.folder.where(entry.extent.segment)

    def _cut_back(self, to: Lsn | None) -> Transient:
        reach = f"; it does not reach {to}" if to is not None else ""
        what = f"the relay was cut back while it was read{reach}"
        where = Where(source=self.folder.source_id, file=str(self.folder.path))
        return Transient("relay-cut-back", what, where=where, todo="Nothing to do: the source sends the rest again")


def _file_number(end: Lsn) -> tuple[int, int]:
    """Returns the change number and file of an entry's end. A file's last entry may end at the next file's head."""
    return end.change_no, end.log_index - (end.offset <= len(MAGIC))


def _following(last: Lsn, entry: LogEntry) -> LogEntry:
    """Returns the entry with `last` as its `prev_lsn`, even if the stored entry has another `prev_lsn`."""
    transaction = entry.transaction
    prev = transaction.prev_lsn
    if prev is last or prev == last or transaction.begin < last:
        return entry
    return replace(entry, transaction=replace(transaction, prev_lsn=last), is_after_gap=True)
