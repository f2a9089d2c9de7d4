"""Reads a relay, also while its writer writes: lazily, from any Lsn, across segments, proving that nothing is missing.

Readers open files for reading only and take no lock. An entry that is not whole at the end of the last segment is not
there yet. Everything else that does not fit is an error that says what it is:

- `relay-gap`: an entry does not follow the one before it;
- `relay-purged`: the caller asks for entries before the first segment that is left;
- `relay-corrupt`: bytes are not what was written.

Nothing is kept per entry. To find an Lsn again quickly, as planning does several times per batch, a reader notes every
few kilobytes where it was.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pidts.model import Extent, Halted, LogEntry, Lsn, Position, Transaction, Where
from pidts.relay.folder import Folder
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.index import (
    GtidsLearned,
    Header,
    LsnKey,
    Origin,
    decode,
    decode_entry,
    entry_gtid,
    entry_has_ddl,
    entry_key,
    is_damaged,
    payloads,
    position_of,
)
from pidts.relay.recovery import read_format

_CHUNK = 256 << 10
_ALL = 1 << 30
_NOTE_EVERY = 16 << 10
_POLL = 0.002
_POLL_IDLE = 0.01
_QUICK = 0.1


class RelayReader:
    """One source's relay; for one thread."""

    def __init__(self, relay: Path | str, source_id: str) -> None:
        self._folder = Folder.of(relay, source_id)
        self._headers: dict[int, Header] = {}
        self._formats: dict[int, bytes] = {}
        self._notes: dict[int, tuple[list[LsnKey], list[int]]] = {}
        """Per segment: Lsn of some entries, and where the entry behind each begins."""
        self._tail: tuple[int, int, Lsn] | None = None
        """Segment, place and Lsn of the last entry seen by `received`."""
        self._open_log: tuple[int, int] | None = None

    @property
    def folder(self) -> Folder:
        """Where this source's relay is."""
        return self._folder

    @property
    def first(self) -> Lsn | None:
        """Entries after this one are here; None in an empty relay."""
        listed = self._listed()
        return listed[0].start if listed else None

    @property
    def received(self) -> Lsn | None:
        """The last entry's Lsn, marks included; None in an empty relay."""
        if self._tail is None:
            last = self._newest()
            if last is None:
                return None
            self._tail = (last.segment, 0, last.start)
        tail = self._tail
        for segment, place, key, _ in self._walk(*tail[:2]):
            if key is not None:
                tail = segment, place, Lsn(*key)
                self._note(segment, key, place)
            else:
                tail = segment, place, tail[2]
        self._tail = tail
        return tail[2]

    @property
    def origin(self) -> Origin | None:
        """Which server's log is being received; None in an empty relay."""
        last = self._newest()
        return last.origin if last else None

    @property
    def log_base(self) -> str:
        """The present source's log name without its number; empty in an empty relay."""
        last = self._newest()
        return last.origin.log_base if last else ""

    def entries(self, after: Lsn | None = None) -> Iterator[LogEntry]:
        """What is there now after an Lsn (None: from the start of the relay), in order; call again for what came since.

        `after` need not be the end of an entry. Where it lies between two transactions, the next entry's `prev_lsn` is
        `after` itself: there is nothing between, and the one who checks the chain has just been there.
        """
        header = self._segment_of(after)
        if header is None:
            return
        last = header.start if after is None else after
        last_key = _key(last)
        started = False
        for segment, place, key, payload in self._walk(header.segment, self._place(header.segment, last_key)):
            if key is None or key <= last_key:
                continue
            entry = decode_entry(payload, segment, last)
            transaction = entry.transaction
            if transaction.prev_lsn is not last and transaction.prev_lsn != last:
                if transaction.prev_lsn > last or (started and transaction.begin < last):
                    raise self._gap(last, transaction.prev_lsn, segment)
                if last <= transaction.begin:
                    entry = replace(entry, transaction=replace(transaction, prev_lsn=last))
            started = True
            last, last_key = transaction.lsn, key
            self._note(segment, key, place)
            yield entry

    def schema_changes(self, after: Lsn, to: Lsn) -> Iterator[Transaction]:
        """Those behind one place, up to and with another; nothing else is decoded on the way."""
        header = self._segment_of(after)
        if header is None:
            return
        begin, end = _key(after), _key(to)
        for segment, _, key, payload in self._walk(header.segment, self._place(header.segment, begin)):
            if key is None or key <= begin:
                continue
            if key > end:
                return
            if entry_has_ddl(payload):
                yield decode_entry(payload, segment, after).transaction

    def find(self, lsn: Lsn) -> LogEntry | None:
        """The entry whose stretch of the log holds this Lsn, as its own end or a row's; None if not received yet."""
        header = self._segment_of(lsn)
        # A segment's `start` is the end of the last entry of the segment before.
        if header is not None and header.start == lsn and self._header(header.segment - 1) is not None:
            header = self._header(header.segment - 1)
        if header is None:
            return None
        for segment, _, key, payload in self._walk(header.segment, 0):
            if key is not None and Lsn(*key) >= lsn:
                return decode_entry(payload, segment, lsn)
        return None

    def wait(self, lsn: Lsn | None, timeout: float) -> bool:
        """Until something was received after `lsn` (None: anything), at most `timeout` seconds; whether there is."""
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
        """The events of an entry, or of neighbouring entries together."""
        if self._open_log is None or self._open_log[0] != extent.segment:
            self.close()
            try:
                handle = os.open(self._folder.log(extent.segment), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise self._purged(f"segment {extent.segment} is gone") from error
            self._open_log = (extent.segment, handle)
        parts = []
        offset, left = extent.offset, extent.size
        while left:
            data = os.pread(self._open_log[1], min(left, 1 << 30), offset)
            if not data:
                raise self._folder.corrupt(extent.segment, f"the events file ends before {extent}")
            parts.append(data)
            offset += len(data)
            left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def chunks(self, extent: Extent, size: int = 16 << 20) -> Iterator[bytes]:
        """The same bytes as `read` gives, a part at a time."""
        for offset in range(extent.offset, extent.end, size):
            yield self.read(Extent(extent.segment, offset, min(size, extent.end - offset)))

    def format(self, segment: int) -> bytes:
        """The raw FORMAT_DESCRIPTION event that holds for a segment's events."""
        if segment not in self._formats:
            try:
                event = read_format(self._folder.log(segment))
            except FileNotFoundError as error:
                raise self._purged(f"segment {segment} is gone") from error
            if event is None:
                raise self._folder.corrupt(segment, "the events file has no head")
            self._formats[segment] = event
        return self._formats[segment]

    def position(self, lsn: Lsn) -> Position | None:
        """The file and offset of an Lsn in its own server's log; None if that server's log is not in the relay."""
        for number in reversed(self._folder.numbers()):
            header = self._header(number)
            if header is not None and (position := position_of(lsn, header.origin)) is not None:
                return position
        return None

    def gtid_set(self, at: Lsn) -> str | None:
        """What the source had executed at an Lsn; None where the relay does not know."""
        header = self._segment_of(at)
        if header is None:
            return None
        gtids = ExecutedGtids(header.gtid_set)
        for _, payload in self._records(header.segment, 0):
            key = entry_key(payload)
            if key is not None:
                if key > _key(at):
                    break
                gtids.add(entry_gtid(payload))
            elif isinstance(record := decode(payload), GtidsLearned):
                gtids.learn(record.gtid_set)
        return gtids.text

    def close(self) -> None:
        """Close what is open; the reader can still be used."""
        if self._open_log is not None:
            os.close(self._open_log[1])
            self._open_log = None

    def _walk(self, segment: int, begin: int) -> Iterator[tuple[int, int, LsnKey | None, bytes]]:
        """Whole records from a place on to the end of what is there: segment, the place behind, key, payload."""
        place = begin
        while True:
            # Asked before reading: a segment with a successor does not grow any more.
            complete = self._header(segment + 1) is not None
            for behind, payload in self._records(segment, place):
                place = behind
                yield segment, place, entry_key(payload), payload
            if complete:
                if self._size(segment) != place:
                    raise self._folder.damaged(segment, place)
                segment, place = segment + 1, 0
            elif self._header(segment + 1) is None:
                self._check_successors(segment)
                return

    def _records(self, segment: int, place: int) -> Iterator[tuple[int, bytes]]:
        try:
            handle = os.open(self._folder.index(segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self._purged(f"segment {segment} is gone") from error
        try:
            chunk = _CHUNK
            while data := os.pread(handle, chunk, place):
                done = 0
                for done, payload in payloads(data):
                    yield place + done, payload
                place += done
                if len(data) < chunk and not done:
                    break
                chunk = chunk if done else chunk * 4
            if data and is_damaged(os.pread(handle, _ALL, place)):
                raise self._folder.damaged(segment, place)
        finally:
            os.close(handle)

    def _header(self, segment: int) -> Header | None:
        if segment not in self._headers:
            try:
                header = self._folder.header(segment)
            except FileNotFoundError:
                return None
            if header is None:
                return None
            self._headers[segment] = header
        return self._headers[segment]

    def _listed(self) -> list[Header]:
        return [header for number in self._folder.numbers() if (header := self._header(number)) is not None]

    def _newest(self) -> Header | None:
        for number in reversed(self._folder.numbers()):
            if (header := self._header(number)) is not None:
                return header
        return None

    def _segment_of(self, after: Lsn | None) -> Header | None:
        """Where the entry behind `after` is to be looked for."""
        listed = self._listed()
        if not listed:
            return None
        if after is None:
            return listed[0]
        at = bisect_right(listed, after, key=lambda header: header.start)
        if at == 0:
            raise self._purged(f"entries after {after} are asked for, the relay begins after {listed[0].start}")
        return listed[at - 1]

    def _note(self, segment: int, key: LsnKey, place: int) -> None:
        keys, places = self._notes.setdefault(segment, ([], []))
        if not keys or (place >= places[-1] + _NOTE_EVERY and key > keys[-1]):
            keys.append(key)
            places.append(place)

    def _place(self, segment: int, key: LsnKey) -> int:
        keys, places = self._notes.get(segment, ([], []))
        at = bisect_right(keys, key)
        return places[at - 1] if at else 0

    def _size(self, segment: int) -> int:
        try:
            return self._folder.index(segment).stat().st_size
        except FileNotFoundError as error:
            raise self._purged(f"segment {segment} is gone") from error

    def _check_successors(self, segment: int) -> None:
        numbers = self._folder.numbers()
        if not numbers or segment < numbers[0]:
            raise self._purged(f"segment {segment} is gone")
        if segment + 1 < numbers[-1] and segment + 1 not in numbers:
            raise self._folder.corrupt(segment + 1, "this segment is missing between others")

    def _gap(self, last: Lsn, prev: Lsn, segment: int) -> Halted:
        what = f"after {last} comes an entry that follows {prev}"
        todo = "Events between the two are missing: empty this folder and start again from the target's checkpoint."
        return Halted("relay-gap", what, where=self._folder.where(segment), todo=todo)

    def _purged(self, what: str) -> Halted:
        todo = "Empty this folder; start at the target's checkpoint if the source still has its log, else copy again."
        where = Where(source=self._folder.source_id, file=str(self._folder.path))
        return Halted("relay-purged", what, where=where, todo=todo)


def _key(lsn: Lsn) -> LsnKey:
    return lsn.change_no, lsn.log_index, lsn.offset
