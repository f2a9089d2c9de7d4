"""Computes index entries again from the events of their transactions, after a power loss.

The writer flushes the events of ordinary transactions before it makes their entries visible, but it does not flush
these entries at once (`pidts.relay.writer`). A power loss may remove such entries, although readers have seen them.
Their events are still there. An ordinary transaction has rows and no statement, so its entry can be computed from its
events and the previous entry. The computed entry equals the lost entry, byte for byte.

The bytes after the last flushed event may be anything, so only events with checksums are used. For this reason, the
writer flushes at once the entries of a log without checksums, and every entry that is not ordinary.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pidts.binlog import Format, LogWalker, TransactionScanner
from pidts.binlog.walk import event_at
from pidts.model import Extent, LogEntry, PidtsError
from pidts.relay.folder import Folder
from pidts.relay.segments.files import open_file, write_all
from pidts.relay.segments.index import Origin, encode_entry, frame, position_of

UNFLUSHED_BYTES = 1 << 20
"""The largest number of bytes of events whose entries are not flushed."""


def has_checksums(format_event: bytes) -> bool:
    """Whether the events after this FORMAT_DESCRIPTION event have checksums."""
    found = _format(format_event)
    return found is not None and found.checksum


def restore(folder: Folder, last: LogEntry, origin: Origin, format_event: bytes) -> tuple[list[LogEntry], int]:
    """Adds the ordinary transactions' entries after `last` to the index, durably; returns them and the index's size."""
    segment, begin = last.extent.segment, last.extent.end
    log = os.open(folder.log(segment), os.O_RDWR | os.O_CLOEXEC)
    index = open_file(folder.index(segment))
    try:
        tail = os.pread(log, UNFLUSHED_BYTES, begin)
        entries = list(_entries(tail, last, origin, format_event))
        if entries:
            # After a failed flush, the kernel may take bytes in memory for written. So the events are written again
            # before they are flushed.
            os.lseek(log, begin, os.SEEK_SET)
            write_all(log, tail[: entries[-1].extent.end - begin])
            os.fdatasync(log)
            write_all(index, b"".join(frame(encode_entry(entry)) for entry in entries))
            os.fdatasync(index)
        return entries, os.fstat(index).st_size
    finally:
        os.close(log)
        os.close(index)


def _entries(log: bytes, last: LogEntry, origin: Origin, format_event: bytes) -> Iterator[LogEntry]:
    """Yields the entries of the ordinary transactions with which `log` begins. `log` has the bytes after `last`."""
    known, after = _format(format_event), last.transaction
    position = position_of(after.lsn, origin)
    if known is None or not known.checksum or position is None:
        return
    walker = LogWalker(position.file, position.offset, known)
    scanner = TransactionScanner(origin.change_no, after.lsn)
    scanner.timestamp = after.timestamp
    view, at, begin = memoryview(log), 0, 0
    while at < len(view):
        try:
            raw = event_at(view, at)
            found = scanner.feed(walker.feed(raw))
        except PidtsError:  # the bytes from here on were not flushed
            return
        at += len(raw)
        if found is None and scanner.in_transaction:
            continue
        if found is None or found.xa is not None or found.ddl is not None:
            return
        yield LogEntry(found, Extent(last.extent.segment, last.extent.end + begin, at - begin))
        begin = at


def _format(format_event: bytes) -> Format | None:
    walker = LogWalker()
    try:
        walker.feed(format_event)
    except PidtsError:
        return None
    return walker.format
