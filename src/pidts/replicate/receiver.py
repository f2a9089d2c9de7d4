"""Stores one connection's raw events in the relay, and divides them into transactions and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING

from pidts.binlog import FILE_HEAD, Event, EventType, LogWalker, TransactionScanner, gtid_list, iter_raw, previous_gtids
from pidts.binlog.commit_time import COMMIT_TIME_EVENTS, commit_time
from pidts.binlog.machine_code import compiled
from pidts.model import Lsn, Position, Where
from pidts.relay import RelayWriter
from pidts.relay.receive_times import ReceiveTimeWriter
from pidts.replicate.receive_lag import KnownLag
from pidts.replicate.resume import Resume, check_same_file
from pidts.source import BinlogStream, Block, BlockShape

if TYPE_CHECKING:
    from pidts.binlog.blocks.scan import BlockScan, OrdinaryEvents

_WAITING = 512 << 10
"""After a burst of at least this size, more data is probably waiting, so flushing is postponed."""
_SYNC_BYTES = 8 << 20
_SYNC_SECONDS = 0.1


class Receiver:
    """Receives the events of one connection and gives them to the writer."""

    def __init__(
        self,
        writer: RelayWriter,
        resume: Resume,
        where: Where,
        arrivals: ReceiveTimeWriter | None = None,
        lag: Callable[[], KnownLag] = KnownLag,
    ) -> None:
        """`lag` returns the known lag, for estimating when the source committed.

        Without `arrivals`, no times are recorded.
        """
        self._writer, self._resume, self._where = writer, resume, where
        self._arrivals, self._lag = arrivals, lag
        self._is_compiled = compiled()
        start = resume.start
        self._walker = LogWalker(start.file, start.offset) if isinstance(start, Position) else LogWalker()
        self._scanner: TransactionScanner | None = None
        self._format = b""
        self._begin_segment = False
        self._received_before = _received_before(writer, resume)
        self._unsynced, self._synced_at = 0, monotonic()
        self._blocks: BlockScan | None = None
        self._long: bytearray | None = None
        """The pieces so far of a long event that has to be stored as a whole."""
        self._passing = False
        """Whether the pieces of a long event are written to the relay as they arrive."""
        self.events = 0
        self.bytes = 0
        self.event_time = 0
        """The time at which the source executed the last received event, in seconds since 1970 UTC."""
        self.commit_time: float | None = None
        """The time at which the source committed the last received transaction, if it logs this in microseconds."""
        self.waited = 0.0
        """The seconds spent waiting for the source."""
        self.taken_at = 0.0
        """The time at which events last arrived, by a monotonic clock."""

    @property
    def place(self) -> str:
        """Returns the end of the last undamaged event, as file and offset."""
        return f"{self._walker.file}:{self._walker.offset}"

    def receive(self, stream: BinlogStream, timeout: float) -> None:
        """Waits at most `timeout` seconds for events, and stores the events that have arrived."""
        began = monotonic()
        if not self._is_compiled:
            burst = stream.read_burst(timeout)
            self.waited += monotonic() - began
            self.take(burst)
            return
        block = stream.read_block(timeout)
        self.waited += monotonic() - began
        if block is not None:
            self.take_block(block)

    def take(self, burst: Sequence[bytes]) -> None:
        """Stores a burst of events, and makes visible the transactions that end in it."""
        for raw in burst:
            self._feed(raw)
        self._taken(sum(map(len, burst)), len(burst))

    def take_block(self, block: Block) -> None:
        """Stores a block of events. Ordinary transactions are not inspected event by event."""
        data = block.data
        match block.shape:
            case BlockShape.EVENTS:
                self._take_events(data)
            case BlockShape.ODD:
                self._feed(data[1:])
            case BlockShape.PIECE | BlockShape.LAST_PIECE:
                self._take_piece(data, last=block.shape is BlockShape.LAST_PIECE)
        self._taken(len(data), block.events)

    def _feed(self, raw: bytes | memoryview) -> None:
        event = self._walker.feed(raw)
        if event.type == EventType.FORMAT_DESCRIPTION:
            self._new_format(raw, event)
        elif not event.is_artificial:
            if event.type in COMMIT_TIME_EVENTS:
                self.commit_time = commit_time(raw)
            self._store(raw, event)
        elif event.type == EventType.ROTATE and self._scanner is not None:
            self._scanner.feed(event)
        self.event_time = event.timestamp or self.event_time

    def _take_events(self, block: memoryview) -> None:
        at = 0
        while at < len(block):
            if (run := self._run(block, at)) is not None:
                at = run.end
                continue
            raw = next(iter_raw(block[at:]))
            self._feed(raw)
            at += len(raw)

    def _run(self, block: memoryview, at: int) -> OrdinaryEvents | None:
        """Stores and returns the next events of the block if they are ordinary; returns None if they are not."""
        scan, scanner = self._scan(), self._scanner
        if scan is None or scanner is None:
            return None
        if not scanner.in_transaction:
            self._commit_between()
        run = scan.run(block, at, at + self._writer.room)
        if run is not None:
            self._writer.append_run(block, at, run)
            self.event_time = scanner.timestamp
            if (begin := run.last_begin(at)) is not None:
                self.commit_time = commit_time(block[begin:])
        return run

    def _scan(self) -> BlockScan | None:
        """Returns the block scanner; None if the next events have to be read one by one, as at the start of a file."""
        if self._scanner is None or self._begin_segment or self._received_before is not None:
            return None
        if self._blocks is None or self._blocks.scanner is not self._scanner:
            from pidts.binlog.blocks.scan import BlockScan  # this import loads the compiler

            self._blocks = BlockScan(self._walker, self._scanner, takes_steps=True)
        return self._blocks

    def _take_piece(self, piece: memoryview, *, last: bool) -> None:
        if self._long is None and not self._passing:
            scan = self._scan()
            self._passing = scan is not None and scan.begin_long(piece)
            self._long = None if self._passing else bytearray()
        if self._long is not None:
            self._long += piece
            if last:
                whole, self._long = self._long, None
                self._feed(memoryview(whole))
            return
        self._writer.append(piece)
        if self._blocks is not None:
            self._blocks.feed_long(piece, last=last)
        self._passing = not last

    def _taken(self, size: int, events: int) -> None:
        self.events += events
        self.bytes += size
        self._unsynced += size
        if size:
            self.taken_at = monotonic()
        if size < _WAITING or self._unsynced >= _SYNC_BYTES or monotonic() - self._synced_at >= _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Makes complete transactions visible, and records the place up to which the log was received."""
        self._commit_between()
        self._writer.sync()
        self._unsynced, self._synced_at = 0, monotonic()
        if self._arrivals is not None and (lsn := self._writer.lsn) is not None:
            now = time()
            self._arrivals.note(lsn, now, self._committed_at(now))

    def _committed_at(self, now: float) -> float:
        """Returns when the source committed the last transaction, as exactly as possible, by this machine's clock."""
        lag = self._lag()
        if self.commit_time is not None and lag.clock_ahead is not None:
            return min(now, self.commit_time - lag.clock_ahead)
        if lag.seconds is not None:
            return now - lag.seconds
        # The event only has the second of its execution. The commit is in this second or later, so the second's end is
        # used.
        return min(now, self.event_time + 1.0) if self.event_time else now

    def _store(self, raw: bytes | memoryview, event: Event) -> None:
        if self._received_before is not None and self._is_old(event, self._received_before):
            return
        if self._begin_segment or self._scanner is None:
            self._open(event)
        scanner = self._scanner
        if scanner is None:
            raise AssertionError("no scanner after opening")
        if not scanner.in_transaction:
            # Events between two transactions get their own entry, so that a transaction's entry has only the
            # transaction's bytes.
            self._commit_between()
        self._writer.append(raw)
        transaction = scanner.feed(event)
        if transaction is not None:
            self._writer.commit(transaction)
        elif event.type == EventType.PREVIOUS_GTIDS:
            self._commit_between()
            self._writer.learn_gtids(str(previous_gtids(event)))
        elif event.type == EventType.GTID_LIST:
            self._commit_between()
            self._writer.learn_gtids(str(gtid_list(event)))

    def _is_old(self, event: Event, received: Lsn) -> bool:
        """Whether the relay already has this event: in a dump by GTID, servers send a log file from its beginning."""
        if (event.log_index, event.end) <= (received.log_index, received.offset):
            return True
        self._received_before = None
        return False

    def _new_format(self, raw: bytes | memoryview, event: Event) -> None:
        """Handles the FORMAT_DESCRIPTION event. A file begins with it, and so does a dump from the middle of a file."""
        self._commit_between()
        if self._scanner is not None and self._scanner.in_transaction:
            # The file ended within a transaction: the server died while it wrote this transaction, which was therefore
            # never committed.
            self._writer.sync()
            self._writer.rollback()
            self._scanner = None
        self._format = bytes(raw)
        state = self._writer.state
        same_file = (
            state is not None
            and self._resume.begin is None
            and state.lsn > state.start
            and state.lsn.offset > FILE_HEAD
            and (state.lsn.change_no, state.lsn.log_index) == (state.origin.change_no, event.log_index)
        )
        if same_file and state is not None:
            check_same_file(state.format_event, self._format, self._where)
        self._begin_segment = not same_file
        if state is None and self._resume.begin_lsn is not None:
            # The place is recorded at once: after a restart, the relay would otherwise begin at the end of the server's
            # log.
            self._begin(self._resume.begin_lsn)

    def _open(self, event: Event) -> None:
        """Begins a new part of the relay or a new segment, if one is due before this event is stored."""
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

    def _commit_between(self) -> None:
        scanner = self._scanner
        if scanner is not None and not scanner.in_transaction and (entry := scanner.empty_entry()) is not None:
            self._writer.commit(entry)


def _received_before(writer: RelayWriter, resume: Resume) -> Lsn | None:
    """Returns the end of the relay's log if the server may send parts of this log again; None if it does not."""
    state, begin = writer.state, resume.begin
    if begin is not None:
        known, change_no = resume.begin_lsn, begin.change_no
    elif state is not None:
        known, change_no = state.lsn, state.origin.change_no
    else:
        return None
    return known if known is not None and known.change_no == change_no else None
