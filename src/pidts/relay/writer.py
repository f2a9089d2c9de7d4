"""Writes the relay. Even after an interruption, readers see the beginning of the source's log without gaps.

Events are appended to the last segment as they come, even those of incomplete transactions. `commit` closes a
transaction in memory. `sync` makes it visible, always in this order: (a) the segment's bytes are written and flushed to
the disk, (b) the index entries are written, (c) the index is flushed. Both files only grow at their end.

Step (c) takes as long as (a), so it is left out for ordinary transactions. If a power loss has removed their entries,
`open` computes them again from their events (`pidts.relay.segments.index_rebuild`). Five cases flush the index at once:

- one of the new entries is not ordinary;
- the events have no checksums;
- the entries are the first of a segment;
- more than 1 MiB of events have entries that are not flushed;
- the next segment is about to be created.

Crash points: the writer can be interrupted by SIGKILL, power loss or a full disk.

1. During or after an append, before (a) is done: the segment has a tail of bytes that no entry names. No reader reads
   this tail. The next `open` takes the ordinary transactions at the beginning of the tail, if their checksums are
   right, and flushes them. It cuts off the rest, and the source sends these bytes again.
2. Between (a) and (b): as in 1.
3. During (b): the last entry is incomplete (after a power loss, it may have zeros or an old page). Each entry has its
   own checksums. So readers stop before the first bad entry, and the next `open` cuts there and continues as in 1. The
   entries before that place name bytes that (a) has made durable.
4. After (b), before the index is flushed: readers may have seen entries that a power loss removes. The next `open`
   computes the ordinary entries again, since (a) has made their events durable. If an entry is not ordinary, (c)
   follows at once, but the power loss may come first. Then the source sends the events of these entries again, with the
   same Lsn. Only an empty entry (an entry with nothing to apply) may end at another place than before; readers accept
   this.
5. While a segment is created: the events file with its head is flushed, then the index with its header, then the
   folder. The next `open` removes an events file without an index, and an index without a whole header or without
   events. The previous segment is complete, since it was synced first.
6. While a transaction of many gigabytes is being written: as in 1. The memory used does not depend on the transaction's
   size.
7. The disk is full in any write or flush: both files are cut back to the last complete entry in the index, since
   readers may have seen this entry, and its events are durable. `Transient` is raised, and the same writer can be used
   again when there is space. If a segment was being created, its files are removed. `give_way` then begins a segment in
   the space of a reserve, so that the full segment can be purged.
8. Any other error of the disk: `Halted`. The kernel may have dropped pages after a failed flush, and marked them as
   written. So only `open` can continue, since it reads again the last segment's index, and the events that no entry
   names.
9. While `open` repairs: it cuts the index first. Then it writes and flushes the events of the transactions that it
   takes from the tail, then their entries, and then it cuts the segment. Wherever it is interrupted, the next `open`
   starts over.
10. An XA transaction was prepared in the last segment and is not decided yet: the entry that prepares it names it.
    `open` reads all entries of the last segment, and so finds the undecided transactions.
11. An XA transaction was prepared in an earlier segment and is not decided yet: the header of each new segment lists
    the undecided transactions. The list comes from the index of the previous segment, which is durable (see 5). A
    commit names the place of its rows. Step (a) made these bytes durable before the entry that prepares the transaction
    was written, and `purge` keeps them.
12. A step of an XA transaction is committed in memory, and dropped before it is in the index (as in 7, or after a lost
    connection). When its events come again, the step is computed again from the undecided transactions in the index.

A segment begins with MAGIC and a FORMAT_DESCRIPTION event. The rest is an exact part of one file of the source's log.
Empty entries include the bytes of their events, as transactions do: the entries of a segment have no gaps between them.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pidts.model import Extent, Halted, LogEntry, Lsn, Transaction, Where
from pidts.model.errors import Transient
from pidts.relay.disk_space import WORTH_TRYING, Reserve, has_room, segment_limit
from pidts.relay.folder import MAGIC, Folder
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.lock import WriterLock
from pidts.relay.permissions import make_folder
from pidts.relay.recovery import RelayState, Undecided, recover, settled
from pidts.relay.segments.files import make_segment, open_file, write_all
from pidts.relay.segments.index import (
    Entries,
    GtidsLearned,
    Header,
    Origin,
    encode_entry,
    encode_gtids,
    encode_header,
    entry_end,
    entry_gtid,
    entry_key,
    entry_xa,
    frame,
    payloads,
)
from pidts.relay.segments.index_rebuild import UNFLUSHED_BYTES, has_checksums

if TYPE_CHECKING:
    from pidts.binlog.blocks.scan import OrdinaryEvents
    from pidts.relay.segments.bulk import EntryEncoder

_BUFFER_BYTES = 1 << 20
_WORTH_A_WRITE = 128 << 10
"""Pieces of at least this many bytes are written at once; smaller pieces are collected first."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CLOSED = -1
_MEASURE_SECONDS = 0.1
"""The interval at which the free space on the disk is measured while transactions arrive."""


class RelayWriter:
    """The only writer of one source's relay."""

    def __init__(self, folder: Folder, lock: WriterLock, segment_bytes: int) -> None:
        self._folder, self._lock, self._wanted_bytes = folder, lock, segment_bytes
        self._segment_bytes = segment_limit(folder.path, segment_bytes)
        """The size at which a segment ends: less than `segment_bytes` if the disk has little space."""
        self._measured_at = monotonic()
        self._unfinished = 0
        """The size of the part of a transaction that had been received when the disk became full."""
        self._reserve = Reserve(folder.path)
        self._log = self._index = _CLOSED
        self._state: RelayState | None = None
        self._gtids = ExecutedGtids(None)
        self._undecided, self._undecided_in_index = Undecided(), Undecided()
        """The undecided XA transactions up to the last commit, and those up to the last entry in the index."""
        self._begun: Header | None = None
        self._buffer = bytearray()
        self._pending: list[LogEntry | GtidsLearned | Entries] = []
        self._encoder: EntryEncoder | None = None
        self._received = 0
        """The size of the segment with the bytes that are still in the buffer."""
        self._committed = 0
        """The size of the segment up to the last committed transaction."""
        self._log_size = self._index_size = 0
        """The sizes of the two files up to the last entry in the index."""
        self._flushed: int | None = None
        """The size of the segment up to the last flushed entry; None if the segment has no flushed entries yet."""
        self._has_checksums = False

    @classmethod
    def open(cls, relay: Path | str, source_id: str, *, segment_bytes: int = 128 << 20) -> RelayWriter:
        """Takes the writer's lock, cuts off incomplete writes of the last writer, and continues at the relay's end."""
        folder = Folder.of(relay, source_id)
        lock = locked(folder, source_id)
        writer = cls(folder, lock, segment_bytes)
        try:
            writer._resume()
        except OSError as error:
            writer.close()
            raise unwritable(folder, error) from error
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def state(self) -> RelayState | None:
        """Returns the end of the relay, after the last entry in the index; None in an empty relay."""
        if self._state is None:
            return None
        return replace(self._state, gtid_set=self._gtids.text)

    @property
    def lsn(self) -> Lsn | None:
        """Returns the Lsn of the last entry in the index, without the cost of `state`; None in an empty relay."""
        return self._state.lsn if self._state else None

    @property
    def log_base(self) -> str:
        """Returns the name of the current server's log files without their number; empty in an empty relay."""
        return self._state.origin.log_base if self._state else ""

    def begin(self, origin: Origin, start: Lsn, gtid_set: str | None) -> None:
        """Sets the origin of the events: in an empty relay, and whenever another server takes over.

        `start` is the Lsn before the first event; if another server takes over, the last Lsn from the old server.
        `gtid_set` has the GTIDs executed up to `start`; None: unknown. The next segment begins with the new origin.
        """
        self._between_transactions()
        if self._state is not None and (start != self._state.lsn or origin.change_no <= self._state.origin.change_no):
            raise ValueError(f"{origin} from {start} does not follow {self._state}")
        self._begun = Header(self._folder.source_id, 0, origin, start, gtid_set)

    def start_segment(self, format_event: bytes | memoryview) -> None:
        """Continues in a new segment, which begins with the FORMAT_DESCRIPTION event for its events."""
        self._between_transactions()
        self.sync()
        with self._guard():
            self._flush_index()
        header = self._begun
        if header is None:
            if self._state is None:
                raise ValueError("the place where the first segment begins is not set")
            header = Header(self._folder.source_id, 0, self._state.origin, self._state.lsn, self._gtids.text)
        number = self._state.segment + 1 if self._state else 1
        header = replace(header, segment=number, prepared=tuple(self._undecided_in_index))
        with self._guard():
            self._create(header, bytes(format_event))
            self._measure()
        self._reserve.keep()

    def give_way(self) -> bool:
        """Ends the last segment on a full disk, so that it can be purged; returns whether a new segment has begun."""
        if self._state is None or self._begun is not None or self._state.lsn == self._state.start:
            return False
        self._reserve.give_up()
        try:
            self.start_segment(self._state.format_event)
        except Transient:
            return False
        return True

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for more events."""
        return has_room(self._folder.path, self._unfinished)

    @property
    def room(self) -> int:
        """Returns the number of bytes that the segment can still take; it ends with the transaction that fills it."""
        if self._is_full and self._state is not None:
            return self._segment_bytes - len(MAGIC) - len(self._state.format_event)
        return self._segment_bytes - self._received

    def append(self, raw: bytes | memoryview) -> None:
        """Appends the next event with its checksum, or several events, or a piece of a long one."""
        if self._is_full and self._state is not None:
            self.start_segment(self._state.format_event)
        self._received += len(raw)
        if len(raw) >= _WORTH_A_WRITE:
            with self._guard():
                self._flush()
                write_all(self._log, raw)
            return
        self._buffer += raw
        if len(self._buffer) >= _BUFFER_BYTES:
            with self._guard():
                self._flush()

    def append_run(self, block: memoryview, at: int, run: OrdinaryEvents) -> None:
        """Appends a block's events from byte `at` on. Only the last transaction may fill the segment."""
        self.append(block[at : run.end])
        if not len(run.lines):
            return
        if self._encoder is None:
            from pidts.relay.segments.bulk import EntryEncoder  # this import loads the compiler

            self._encoder = EntryEncoder()
        if self._state is None:
            raise AssertionError("events without a segment")
        begin, base = self._committed, self._received - run.end
        entries = self._encoder.encode(run, begin, base, self._state.segment, self._undecided)
        self._pending.append(entries)
        self._committed = entries.log_end

    def commit(self, transaction: Transaction) -> None:
        """Commits all appended events since the last commit as one entry. `sync` makes it visible."""
        if self._state is None or self._begun is not None:
            raise ValueError("there is no segment yet")
        extent = Extent(self._state.segment, self._committed, self._received - self._committed)
        self._pending.append(settled(self._undecided, LogEntry(transaction, extent)))
        self._committed = self._received

    def learn_gtids(self, gtid_set: str) -> None:
        """Sets the GTIDs executed up to the last commit, as read from the log, unless they are already known."""
        if self._gtids.known or any(isinstance(record, GtidsLearned) for record in self._pending):
            return
        self._pending.append(GtidsLearned(gtid_set))

    def sync(self) -> None:
        """Makes every committed transaction durable and visible, and writes the bytes of an unfinished transaction."""
        if not self._pending:
            return
        with self._guard():
            self._flush()
            os.fdatasync(self._log)
            is_ordinary = all(isinstance(one, Entries) and not one.has_steps for one in self._pending)
            frames = [_frames(record) for record in self._pending]
            written = b"".join(frames)
            try:
                write_all(self._index, written)
            except BaseException:
                self._accept(frames, os.fstat(self._index).st_size - self._index_size)
                raise
            self._accept(frames, len(written))
            if not (is_ordinary and self._can_be_rebuilt):
                self._flush_index()
            if monotonic() >= self._measured_at + _MEASURE_SECONDS:
                self._measure()
        self._reserve.keep()

    def _measure(self) -> None:
        """Adapts the size of the segment to the free space."""
        self._segment_bytes, self._measured_at = segment_limit(self._folder.path, self._wanted_bytes), monotonic()

    def rollback(self) -> None:
        """Drops events that are not in the index: of an unfinished transaction, and of transactions without a sync."""
        self._buffer = bytearray()
        self._pending.clear()
        self._begun = None
        self._undecided = self._undecided_in_index.copy()
        self._received = self._committed = self._log_size
        if self._log != _CLOSED:
            os.ftruncate(self._log, self._log_size)
            os.ftruncate(self._index, self._index_size)

    def close(self) -> None:
        """Closes the files without a sync, and releases the writer's lock."""
        self._close_files()
        self._lock.release()

    def _resume(self) -> None:
        found = recover(self._folder, restores=True)
        if found is None:
            return
        self._state, self._gtids = found.state, found.gtids
        self._undecided, self._undecided_in_index = found.undecided, found.undecided.copy()
        self._log_size, self._index_size = found.log_bytes, found.index_bytes
        self._received = self._committed = found.log_bytes
        self._log = open_file(self._folder.log(found.state.segment))
        self._index = open_file(self._folder.index(found.state.segment))
        self._has_checksums = has_checksums(found.state.format_event)
        if found.state.lsn != found.state.start:
            # A killed process may have left entries that are not flushed.
            self._flush_index()

    def _create(self, header: Header, format_event: bytes) -> None:
        head, first = MAGIC + format_event, frame(encode_header(header))
        handles = make_segment(self._folder, header.segment, head, first)
        self._close_files()
        self._log, self._index = handles
        self._log_size = self._committed = self._received = len(head)
        self._index_size = len(first)
        self._flushed, self._has_checksums = None, has_checksums(format_event)
        self._gtids = ExecutedGtids(header.gtid_set)
        self._begun = None
        self._state = RelayState(header.start, header.origin, None, format_event, header.segment, header.start)

    def _accept(self, frames: list[bytes | memoryview], written: int) -> None:
        """Counts the complete entries in the index, even after a failed write: readers may have seen them."""
        if self._state is None:
            raise AssertionError("entries without a segment")
        count, lsn = 0, self._state.lsn
        for data, record in zip(frames, self._pending, strict=True):
            if len(data) > written:
                if isinstance(record, Entries):
                    lsn = self._accept_some(bytes(data[:written]), lsn)
                break
            written -= len(data)
            count += 1
            self._index_size += len(data)
            if isinstance(record, GtidsLearned):
                self._gtids.learn(record.gtid_set)
            elif isinstance(record, Entries):
                lsn, self._log_size = record.lsn, record.log_end
                for gtid_range in record.gtids:
                    self._gtids.add_range(*gtid_range)
                for xid in record.decided:
                    self._undecided_in_index.drop(xid)
                for group in record.undecided:
                    self._undecided_in_index.add(group)
            else:
                lsn, self._log_size = record.transaction.lsn, record.extent.end
                self._gtids.add(record.transaction.gtid)
                settled(self._undecided_in_index, record)
        del self._pending[:count]
        self._state = replace(self._state, lsn=lsn)

    def _accept_some(self, written: bytes, lsn: Lsn) -> Lsn:
        """Counts the complete records among records that were written together; returns the Lsn of the last of them."""
        begin = self._index_size
        for behind, payload in payloads(written):
            self._index_size = begin + behind
            lsn, self._log_size = Lsn(*(entry_key(payload) or ())), entry_end(payload)
            self._gtids.add(entry_gtid(payload))
            if self._state is not None and (entry := entry_xa(payload, self._state.segment)) is not None:
                settled(self._undecided_in_index, entry)
        return lsn

    @property
    def _can_be_rebuilt(self) -> bool:
        """Whether `open` can rebuild the unflushed entries, if all of them are ordinary transactions."""
        return self._has_checksums and self._flushed is not None and self._log_size - self._flushed <= UNFLUSHED_BYTES

    def _flush_index(self) -> None:
        if self._index != _CLOSED and self._flushed != self._log_size:
            os.fdatasync(self._index)
            self._flushed = self._log_size

    @property
    def _is_full(self) -> bool:
        """Whether the next event begins a new segment."""
        return self._received == self._committed >= self._segment_bytes

    def _flush(self) -> None:
        write_all(self._log, self._buffer)
        self._buffer.clear()

    def _between_transactions(self) -> None:
        if self._received != self._committed:
            raise ValueError("a segment cannot end within a transaction")

    def _close_files(self) -> None:
        for handle in (self._log, self._index):
            if handle != _CLOSED:
                os.close(handle)
        self._log = self._index = _CLOSED

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_full(error):
                self._unfinished = self._received - self._committed
                self.rollback()
            self._pending.clear()
            raise unwritable(self._folder, error, self._unfinished) from error


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's quota of it, is full."""
    return error.errno in _FULL


def locked(folder: Folder, source_id: str) -> WriterLock:
    """Makes a relay's folder, and takes the writer's lock."""
    try:
        make_folder(folder.path)
        return WriterLock(folder.lock, source_id)
    except OSError as error:
        raise unwritable(folder, error) from error


def unwritable(folder: Folder, error: OSError, unfinished: int = 0) -> Halted | Transient:
    """Returns the error for a file of the relay that cannot be written.

    `unfinished` is the size of the received part of a transaction. This part is removed from a full disk, so the disk
    then has free space, but less than the transaction needs.
    """
    where = Where(source=folder.source_id, file=error.filename or str(folder.path))
    if is_full(error):
        what, room = "no room for the relay", "room"
        if unfinished > WORTH_TRYING:
            size = f"{unfinished / 1e6:,.1f} MB"
            what += f": the disk was full after {size} of one transaction, and a relay has only whole transactions"
            room = f"room for much more than {size}"
        todo = (
            f"Make {room} on that disk, or let the tasks catch up so that old segments are purged. "
            "Receiving then continues by itself; the source must keep its logs until then."
        )
        return Transient("relay-full", what, where=where, todo=todo)
    todo = "Look at the disk and the folder's permissions, then start again."
    return Halted("relay-unwritable", f"the relay cannot be written: {error.strerror}", where=where, todo=todo)


def _frames(record: LogEntry | GtidsLearned | Entries) -> bytes | memoryview:
    if isinstance(record, Entries):
        return record.frames
    return frame(encode_gtids(record) if isinstance(record, GtidsLearned) else encode_entry(record))
