"""Puts one connection's raw events into the relay: cuts the log into transactions and files, and stores all of it."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from pidts.binlog import MAGIC, Event, EventType, LogWalker, TransactionScanner, gtid_list, previous_gtids
from pidts.model import Lsn, Position, Where
from pidts.relay import RelayWriter
from pidts.replicate.resume import Resume, check_same_file

_WAITING = 512 << 10
"""A burst of this size means that more is waiting: making it durable can wait for a while."""
_FILE_HEAD = len(MAGIC)
"""Where a log file's first event begins; the entry that ends a file ends here, in the next one."""
_SYNC_BYTES = 8 << 20
_SYNC_SECONDS = 0.1


class Receiver:
    """Lives as long as a connection; the writer outlives it."""

    def __init__(self, writer: RelayWriter, resume: Resume, where: Where) -> None:
        self._writer, self._resume, self._where = writer, resume, where
        start = resume.start
        self._walker = LogWalker(start.file, start.offset) if isinstance(start, Position) else LogWalker()
        self._scanner: TransactionScanner | None = None
        self._format = b""
        self._begin_segment = False
        self._received_before = _received_before(writer, resume)
        self._unsynced, self._synced_at = 0, monotonic()
        self.events = 0
        self.bytes = 0
        self.event_time = 0
        """When the source executed what came last, in seconds since 1970 UTC."""

    def take(self, burst: Sequence[bytes]) -> None:
        """Store a burst; what it completes becomes visible."""
        size = 0
        for raw in burst:
            size += len(raw)
            event = self._walker.feed(raw)
            if event.type == EventType.FORMAT_DESCRIPTION:
                self._new_format(raw, event)
            elif not event.is_artificial:
                self._store(raw, event)
            elif event.type == EventType.ROTATE and self._scanner is not None:
                self._scanner.feed(event)
        if burst and (timestamp := int.from_bytes(burst[-1][:4], "little")):
            self.event_time = timestamp
        self.events += len(burst)
        self.bytes += size
        self._unsynced += size
        if size < _WAITING or self._unsynced >= _SYNC_BYTES or monotonic() - self._synced_at >= _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make visible what is complete, and how far the log was followed."""
        self._mark()
        self._writer.sync()
        self._unsynced, self._synced_at = 0, monotonic()

    def _store(self, raw: bytes, event: Event) -> None:
        if self._received_before is not None and self._is_old(event, self._received_before):
            return
        if self._begin_segment or self._scanner is None:
            self._open(event)
        scanner = self._scanner
        if scanner is None:
            raise AssertionError("no scanner after opening")
        if not scanner.in_transaction:
            # What lies between two transactions is an entry of its own: a transaction's bytes begin with it.
            self._mark()
        self._writer.append(raw)
        transaction = scanner.feed(event)
        if transaction is not None:
            self._writer.commit(transaction)
        elif event.type == EventType.PREVIOUS_GTIDS:
            self._mark()
            self._writer.learn_gtids(str(previous_gtids(event)))
        elif event.type == EventType.GTID_LIST:
            self._mark()
            self._writer.learn_gtids(str(gtid_list(event)))

    def _is_old(self, event: Event, received: Lsn) -> bool:
        """By GTID, a server begins to send at the head of a file; what the relay has of it is passed over."""
        if (event.log_index, event.end) <= (received.log_index, received.offset):
            return True
        self._received_before = None
        return False

    def _new_format(self, raw: bytes, event: Event) -> None:
        """A file begins, or a connection starts in the middle of one."""
        self._mark()
        if self._scanner is not None and self._scanner.in_transaction:
            # The server died in the middle of writing it: the transaction never took place.
            self._writer.sync()
            self._writer.rollback()
            self._scanner = None
        self._format = bytes(raw)
        state = self._writer.state
        same_file = (
            state is not None
            and self._resume.begin is None
            and state.lsn > state.start
            and state.lsn.offset > _FILE_HEAD
            and (state.lsn.change_no, state.lsn.log_index) == (state.origin.change_no, event.log_index)
        )
        if same_file and state is not None:
            check_same_file(state.format_event, self._format, self._where)
        self._begin_segment = not same_file
        if state is None and self._resume.begin_lsn is not None:
            # From now on a restart begins here, not at the end that the server's log will have by then.
            self._begin(self._resume.begin_lsn)

    def _open(self, event: Event) -> None:
        """What has to be there before the first event of a stretch is stored."""
        resume = self._resume
        if resume.begin is not None and self._scanner is None and self._is_unbegun():
            first = Lsn(resume.begin.change_no, event.log_index, event.offset)
            self._begin(resume.begin_lsn or first)
        elif self._begin_segment:
            self._writer.start_segment(self._format)
        self._begin_segment = False
        state = self._writer.state
        if self._scanner is None and state is not None:
            self._scanner = TransactionScanner(state.origin.change_no, state.lsn)

    def _is_unbegun(self) -> bool:
        state = self._writer.state
        return state is None or state.origin != self._resume.begin

    def _begin(self, lsn: Lsn) -> None:
        if self._resume.begin is None:
            raise AssertionError("nothing to begin")
        self._writer.begin(self._resume.begin, lsn, self._resume.gtid_set)
        self._writer.start_segment(self._format)
        self._begin_segment = False

    def _mark(self) -> None:
        scanner = self._scanner
        if scanner is not None and not scanner.in_transaction and (mark := scanner.mark()) is not None:
            self._writer.commit(mark)


def _received_before(writer: RelayWriter, resume: Resume) -> Lsn | None:
    """What the relay has of the log that will be sent."""
    state, begin = writer.state, resume.begin
    if begin is not None:
        known, change_no = resume.begin_lsn, begin.change_no
    elif state is not None:
        known, change_no = state.lsn, state.origin.change_no
    else:
        return None
    return known if known is not None and known.change_no == change_no else None
