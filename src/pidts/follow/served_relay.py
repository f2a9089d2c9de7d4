"""One source's relay, as a relay server sends it.

The server reads the relay, records which log the followers' tasks need, purges log that no task needs, and requests
that a damaged part is received again.

A follower sends the state of its copy and gets the piece after it. The only things that the server stores for a
follower are its recorded needs (`relay.task_needs`: the places from which the follower's tasks need the log). So the
server and the follower may each end and start again at any moment.

These rules keep a copy equal to the relay:

- Events are sent only up to the end of an entry that is in the index. So the server sends no event that the writer may
  still remove: no event of an incomplete transaction, or of a complete transaction that is not synced.
- Each request contains a checksum of the copy's index. If the relay's own index does not begin with the same bytes, the
  answer is the error `relay-copy-differs` without events.
- While a part of the relay is being cut off, nothing is sent. If a cut began while the server was reading a piece, the
  server discards the piece. The file that tells the relay's readers of the cut (`relay.refetch`) also tells the server.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import structlog

from pidts.follow.wire import LogResponse
from pidts.model import DecodeError, Halted, Lsn, PidtsError, Position, Transient, Where
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.relay.breaks import first_break
from pidts.relay.copy_writer import IndexPrefix, SegmentPiece
from pidts.relay.folder import MAGIC, Folder
from pidts.relay.recovery import read_format
from pidts.relay.refetch import read_refetches, refetch_signature
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.segments.index import entry_end, entry_key, is_damaged, payloads
from pidts.relay.structures import load_structures, stored_places, structures_before_purge, structures_text
from pidts.relay.task_needs import Need, needs_locked, read_needs, write_need
from pidts.relay.watch import FolderWatch
from pidts.replicate import end_of_same_log, not_receiving, read_status
from pidts.replicate.resume import AppliedPlace, check_not_outdated, may_be_before
from pidts.source import SourceConfig

_LOG_BYTES = 16 << 20
"""The largest size of a piece's events in bytes. The next two constants limit the size of its index records."""
_INDEX_BYTES = 1 << 20
_MOST_INDEX_BYTES = 64 << 20
_BEGIN_SECONDS = 5.0
"""The longest time for which the server waits until its relay reaches the place at which a follower begins."""
_BELL_SECONDS = 0.5
_PASSED_ON = ("position", "source_time", "behind_bytes", "unreceived_bytes", "lag_seconds", "warning")
"""The fields of the replicator's status that followers can get only from the server."""
_PURGE_SECONDS = 10.0
_NAME = re.compile(r"\w[\w.@ -]{0,99}@\w[\w. -]{0,99}")
"""Matches `TASK@NAME`, the name of a follower's task.

Only for such a name can a follower report the Lsn up to which the relay may be purged.
"""
_log: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.follow")


@dataclass(frozen=True, slots=True)
class ServedSource:
    """One source whose relay is served."""

    source: SourceConfig
    relay: Path
    keep_seconds: int
    repair: Callable[[Halted, Lsn | None], object]
    """Requests that the source sends the log after an Lsn again. Raises if an earlier such request did not help."""


class ServedRelay:
    """Sends one source's relay. Any thread may use it."""

    def __init__(self, served: ServedSource) -> None:
        self._served = served
        self._id = served.source.source_id
        self._folder = Folder.of(served.relay, self._id)
        self._prefixes: dict[tuple[int, int], int] = {}
        """Checksums of segments' indexes, keyed by a segment and the place in its index at which a sent piece ends."""
        self._lock = threading.Lock()
        self._bell = threading.Condition()
        self._rings = 0
        self._end = threading.Event()
        self._repairing = threading.Lock()
        self._threads = (
            threading.Thread(target=self._watch, name=f"bell {self._id}", daemon=True),
            threading.Thread(target=self._purge, name=f"purge {self._id}", daemon=True),
        )

    def start(self) -> None:
        """Begins to watch the relay, and to purge log that no task needs."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Signals the threads, and the requests that wait for log, to end."""
        self._end.set()
        with self._bell:
            self._bell.notify_all()

    def join(self, seconds: float) -> None:
        """Waits until the threads have ended after `stop`, at most this long. After that they touch no file."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # The answers to requests of followers.

    def more(self, has: IndexPrefix, seconds: float) -> LogResponse:
        """Returns the piece after a copy's end. Without new log for `seconds`, the answer has no piece."""
        deadline = time.monotonic() + seconds
        while True:
            rings = self._rings
            piece = self._piece(has)
            if piece is not None or self._end.is_set():
                return self._answer(piece)
            with self._bell:
                left = deadline - time.monotonic()
                if left <= 0 or not self._bell.wait_for(partial(self._is_news, rings), left):
                    return self._answer(None)

    def begin(self, wanted: AppliedPlace | Position | None) -> LogResponse:
        """Returns the first piece for an empty copy: the beginning of the segment with the entry after a place.

        The place is a target's checkpoint, a position in the source's log, or None: the relay's last segment.
        """
        with closing(RelayReader(self._served.relay, self._id)) as reader:
            received, origin = reader.received, reader.origin
            if received is None or origin is None:
                raise self._not_yet("the relay server has received nothing of this source yet")
            lsn: Lsn = received
            if isinstance(wanted, AppliedPlace):
                check_not_outdated(origin, wanted, self._where)
                lsn = wanted.lsn
            elif wanted is not None:
                if wanted.base != origin.log_base:
                    what = f"the relay server receives the log {origin.log_base}, which does not contain {wanted}"
                    todo = "Compare mysql-instances of both task files: both have to name the same source"
                    raise Halted("relay-of-other-source", what, where=self._where, todo=todo)
                lsn = Lsn.at(wanted, origin.change_no)
            if not reader.wait(Lsn(lsn.change_no, lsn.log_index, max(0, lsn.offset - 1)), _BEGIN_SECONDS):
                raise self._not_yet(f"the relay server has received the log up to {received}, but not yet up to {lsn}")
            found = reader.gtid_set(lsn)
            if isinstance(wanted, AppliedPlace) and not may_be_before(wanted.gtid_set, found):
                what = f"the relay's transactions before {lsn} do not match the GTID set in the target's checkpoint"
                todo = (
                    "If this is the relay of another source, correct the address or the source-id. If the source was "
                    "reset, take a new position: run pidts apply TASK --resync"
                )
                raise Halted("relay-of-other-source", what, where=self._where, todo=todo)
            start = reader.segment_start(lsn)
        try:
            for header in self._folder.headers():
                if header.start == start:
                    return self._answer(self._begin_segment(header.segment))
        except FileNotFoundError:
            pass
        except Discontinuity as error:
            self._repair(error, start)
        raise self._not_yet("a part of the relay is being removed")

    def index(self, segment: int) -> bytes:
        """Returns the part of a segment's index that readers may see; empty if there is no such segment."""
        try:
            return self._folder.index(segment).read_bytes()
        except FileNotFoundError:
            return b""

    def structures(self, lsn: Lsn) -> str:
        """Returns all structures, as text, at a stored place or at a segment's start; empty if they are unknown."""
        with suppress(FileNotFoundError):
            return structures_text(load_structures(self._folder, lsn))
        with suppress(Halted):
            found = structures_before_purge(self._served.relay, self._id, lsn)
            return structures_text(found) if found is not None and found.lsn == lsn else ""
        return ""

    def report(self, needs: Mapping[str, Lsn | None]) -> None:
        """Records the places from which a follower's tasks need the log. If the disk is full, first purges other log.

        Otherwise the two would wait for each other: the report for room on the disk, and the purge for the report.
        """
        for name in needs:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not of the form TASK@NAME")
        try:
            self._record(needs)
        except Transient:
            self._make_room(needs)
            try:
                self._record(needs)
            except Transient:
                if not self._is_kept(needs):
                    raise

    def _record(self, needs: Mapping[str, Lsn | None]) -> None:
        with needs_locked(self._folder):
            # The name of a task of this machine may have the form `TASK@NAME`, too.
            if own := sorted(need.task for need in read_needs(self._folder) if need.is_local and need.task in needs):
                raise self._taken(own[0])
            for name, lsn in needs.items():
                write_need(self._folder, Need(name, lsn))

    def _make_room(self, needs: Mapping[str, Lsn | None]) -> None:
        places = {name: lsn for name, lsn in needs.items() if lsn is not None}
        if len(places) < len(needs):  # a task whose place is not known yet needs the whole log
            return
        limits = PurgeLimits(keep_seconds=self._served.keep_seconds, checkpoints=places)
        with suppress(PidtsError):
            release(self._served.relay, self._id, limits)

    def _is_kept(self, needs: Mapping[str, Lsn | None]) -> bool:
        """Returns whether the recorded needs already keep all log that these tasks need, or more."""
        recorded = {one.task: one.lsn for one in read_needs(self._folder)}
        return all(
            name in recorded and ((need := recorded[name]) is None or (lsn is not None and need <= lsn))
            for name, lsn in needs.items()
        )

    def end(self) -> Lsn | None:
        """Asks the source for the end of its log; None if the source does not have this log."""
        with closing(RelayReader(self._served.relay, self._id)) as reader:
            return end_of_same_log(self._served.source, reader)

    def doubt(self, after: Lsn) -> bool:
        """Looks for damage after the place at which a copy was damaged; returns whether there is any.

        A damaged part is received from the source again, once for each place. A follower can only request this check,
        so intact log is never cut off.
        """
        with closing(RelayReader(self._served.relay, self._id)) as reader:
            first = reader.first
            found = first_break(reader, after if first is None else max(first, after))
        if found is not None:
            self._repair(found, found.after or after)
        return found is not None

    # Reading the relay.

    def _is_news(self, rings: int) -> bool:
        return self._rings != rings or self._end.is_set()

    def _answer(self, piece: SegmentPiece | None) -> LogResponse:
        servers = ""
        with suppress(OSError, UnicodeDecodeError):
            servers = (self._folder.path / "servers").read_text("utf-8")
        return LogResponse(piece, self._state(), tuple(stored_places(self._folder)), servers)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            status = read_status(self._served.relay, self._id) or {}
            state = {name: status.get(name) for name in _PASSED_ON}
        lack = not_receiving(self._served.relay, self._id)
        state["lack"] = lack.error.to_json() if lack is not None else None
        # If this signature changes in the middle of a transaction that is longer than one piece, the follower must
        # discard the transaction's pieces that it has.
        return {**state, "cut": str(refetch_signature(self._folder))}

    def _piece(self, has: IndexPrefix) -> SegmentPiece | None:
        signature = refetch_signature(self._folder)
        try:
            if read_refetches(self._folder).pending is not None:
                return None
            piece = self._after(has)
        except Discontinuity as error:
            if refetch_signature(self._folder) != signature:
                return None
            self._repair(error, has.lsn)
            return None
        except Halted:
            if refetch_signature(self._folder) != signature:
                return None
            raise
        except FileNotFoundError:  # the segment was just purged; the next attempt finds out if the copy needs it
            return None
        return piece if refetch_signature(self._folder) == signature else None

    def _after(self, has: IndexPrefix) -> SegmentPiece | None:
        numbers = self._folder.numbers()
        if has.segment not in numbers:
            return self._behind_purged(has, numbers)
        # This check comes before the rest of the segment is read. If a later segment exists now, this one is complete.
        has_next = has.segment + 1 in numbers and self._folder.header(has.segment + 1) is not None
        try:
            data = self._read_index(has, is_complete=has_next)
        except FileNotFoundError:
            return self._behind_purged(has, self._folder.numbers())
        if data:
            return self._next_records(has, data)
        return self._begin_segment(has.segment + 1) if has_next else None

    def _behind_purged(self, has: IndexPrefix, numbers: list[int]) -> SegmentPiece | None:
        if not numbers:
            raise self._not_yet("the relay server has received nothing of this source yet")
        header = self._folder.header(numbers[0])
        if header is not None and numbers[0] > has.segment:
            if header.start == has.lsn:
                return self._begin_segment(numbers[0])
            what = f"the relay server has no log before {header.start}, and the copy ends at {has.lsn}"
            raise self._folder.purged(what)
        raise self._differs(has)

    def _read_index(self, has: IndexPrefix, *, is_complete: bool = False) -> bytes:
        """Returns index bytes after the copy's index, at least one whole record; empty if there is no whole record.

        In a complete segment, bytes after the last whole record are damaged, not just unfinished.
        """
        size = _INDEX_BYTES
        with self._folder.index(has.segment).open("rb") as file:
            self._check_prefix(has, file.fileno())
            while data := os.pread(file.fileno(), size, has.index_bytes):
                if next(payloads(data), None) is not None:
                    return data
                if len(data) < size or size >= _MOST_INDEX_BYTES:
                    break
                size *= 4
        if data and (is_complete or is_damaged(data)):
            raise self._folder.damaged(has.segment, has.index_bytes)
        return b""

    def _check_prefix(self, has: IndexPrefix, handle: int) -> None:
        key = has.segment, has.index_bytes
        with self._lock:
            known = self._prefixes.get(key)
        if known is None:
            data = os.pread(handle, has.index_bytes, 0) if has.index_bytes <= os.fstat(handle).st_size else b""
            if len(data) != has.index_bytes:
                raise self._differs(has)
            known = crc32(data)
        elif has.index_bytes > os.fstat(handle).st_size:
            raise self._differs(has)
        if known != has.index_crc:
            raise self._differs(has)

    def _next_records(self, has: IndexPrefix, data: bytes) -> SegmentPiece | None:
        """Returns the next whole records with their events.

        If the first record has too many events, returns only some of them.
        """
        named = len(MAGIC) + len(self._format(has.segment)) if not has.index_bytes else 0
        taken, log_end = 0, named
        for after, payload in payloads(data):
            end = entry_end(payload) if entry_key(payload) is not None else log_end
            if end - has.log_bytes > _LOG_BYTES and (taken or end > log_end):
                if not taken:  # one transaction is longer than a piece
                    return self._events(has, has.log_bytes + _LOG_BYTES, b"")
                break
            taken, log_end = after, max(log_end, end)
        return self._events(has, max(log_end, has.log_bytes), data[:taken])

    def _events(self, has: IndexPrefix, log_end: int, index: bytes) -> SegmentPiece:
        try:
            with self._folder.log(has.segment).open("rb") as file:
                log = os.pread(file.fileno(), log_end - has.log_bytes, has.log_bytes)
        except FileNotFoundError:
            if self._folder.index(has.segment).exists():
                raise self._folder.corrupt(has.segment, "the events file is missing") from None
            raise
        if len(log) != log_end - has.log_bytes:
            what = f"the events file ends before byte {log_end}"
            raise self._folder.corrupt(has.segment, what)
        with self._lock:
            if len(self._prefixes) > 1000:
                self._prefixes.clear()
            self._prefixes[has.segment, has.index_bytes + len(index)] = crc32(index, has.index_crc)
        return SegmentPiece(has.segment, has.log_bytes, log, has.index_bytes, index)

    def _begin_segment(self, segment: int) -> SegmentPiece | None:
        header = self._folder.header(segment)
        if header is None:
            return None
        begin = IndexPrefix(segment, 0, 0, 0, header.start)
        data = self._read_index(begin)
        first = next(payloads(data), None)
        if first is None:
            return None
        # Only the header is sent, so the follower can create the segment even if the first entry is too large for one
        # answer.
        return self._events(begin, len(MAGIC) + len(self._format(segment)), data[: first[0]])

    def _format(self, segment: int) -> bytes:
        event = read_format(self._folder.log(segment))
        if event is None:
            raise self._folder.corrupt(segment, "the events file has no head")
        return event

    # The work that no request asks for.

    def _watch(self) -> None:
        watch = FolderWatch(self._folder.path)
        while not self._end.is_set():
            if not self._folder.path.exists():
                self._end.wait(_BELL_SECONDS)
                continue
            watch.wait(_BELL_SECONDS)
            with self._bell:
                self._rings += 1
                self._bell.notify_all()
        watch.close()

    def _purge(self) -> None:
        while not self._end.wait(_PURGE_SECONDS):
            with suppress(Transient):
                try:
                    release(self._served.relay, self._id, PurgeLimits(keep_seconds=self._served.keep_seconds))
                except Halted as error:
                    _log.warning("the relay is not purged", source=self._id, code=error.code, what=error.what)
                except OSError as error:  # the folder may have vanished; the next purge looks again
                    _log.warning("the relay is not purged", source=self._id, what=str(error))

    def _repair(self, error: Halted, after: Lsn) -> None:
        if not isinstance(error, Discontinuity | DecodeError):
            raise error
        with self._repairing:
            if read_refetches(self._folder).pending is None:
                self._served.repair(error, after)

    # Errors.

    @property
    def _where(self) -> Where:
        return Where(source=self._id)

    def _differs(self, has: IndexPrefix) -> Halted:
        what = f"the relay server's segment {has.segment} differs from the segment that the copy has up to {has.lsn}"
        todo = (
            "Usually the copy removes the part that differs, and continues by itself. If this error does not go away, "
            "check that this is the relay of the right source, then empty the copy's folder: the task continues at the "
            "target's checkpoint"
        )
        return Halted("relay-copy-differs", what, where=self._where, todo=todo)

    def _taken(self, name: str) -> Halted:
        what = f"a task on the relay server's machine has the name {name}, and needs its own part of the log"
        todo = "Give the machine of the follower another name (pidts.relay-from.name), and start the follower again"
        return Halted("relay-name-taken", what, where=self._where, todo=todo)

    def _not_yet(self, what: str) -> Transient:
        todo = "Check on the relay server whether it receives the source's log: run pidts relay list DIR"
        return Transient("relay-server-behind", what, where=self._where, todo=todo)
