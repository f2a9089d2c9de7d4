"""Puts one connection's raw events into the relay: cuts the log into transactions and files, and stores all of it."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from pidts.binlog import MAGIC, Event, EventType, LogWalker, TransactionScanner, gtid_list, iter_raw, previous_gtids
from pidts.binlog.choice import compiled
from pidts.model import Lsn, Position, Where
from pidts.relay import RelayWriter
from pidts.replicate.resume import Resume, check_same_file
from pidts.source import BinlogStream, Block, Shape

if TYPE_CHECKING:
    from pidts.binlog.block_scan import BlockScan, Run

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
        self._blocks: BlockScan | None = None
        self._long: bytearray | None = None
        """An event in pieces that has to be whole before anything can be done with it."""
        self._passing = False
        """An event in pieces goes into the relay piece by piece."""
        self.events = 0
        self.bytes = 0
        self.event_time = 0
        """When the source executed what came last, in seconds since 1970 UTC."""

    def receive(self, stream: BinlogStream, timeout: float) -> None:
        """Store what comes within this time, if anything does."""
        if not compiled():
            self.take(stream.read_burst(timeout))
        elif (block := stream.read_block(timeout)) is not None:
            self.take_block(block)

    def take(self, burst: Sequence[bytes]) -> None:
        """Store a burst; what it completes becomes visible."""
        for raw in burst:
            self._feed(raw)
        self._taken(sum(map(len, burst)), len(burst))

    def take_block(self, block: Block) -> None:
        """The same for a block. Ordinary transactions are not looked at event by event."""
        data = block.data
        match block.shape:
            case Shape.EVENTS:
                self._take_events(data)
            case Shape.ODD:
                self._feed(data[1:])
            case Shape.PIECE | Shape.LAST_PIECE:
                self._take_piece(data, last=block.shape is Shape.LAST_PIECE)
        self._taken(len(data), block.events)

    def _feed(self, raw: bytes | memoryview) -> None:
        event = self._walker.feed(raw)
        if event.type == EventType.FORMAT_DESCRIPTION:
            self._new_format(raw, event)
        elif not event.is_artificial:
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

    def _run(self, block: memoryview, at: int) -> Run | None:
        """Store the ordinary events that come next, if they do."""
        scan, scanner = self._scan(), self._scanner
        if scan is None or scanner is None:
            return None
        if not scanner.in_transaction:
            self._mark()
        run = scan.run(block, at, at + self._writer.room)
        if run is not None:
            self._writer.append_run(block, at, run)
            self.event_time = scanner.timestamp
        return run

    def _scan(self) -> BlockScan | None:
        """Where events may come as they do within a log file that is being followed."""
        if self._scanner is None or self._begin_segment or self._received_before is not None:
            return None
        if self._blocks is None or self._blocks.scanner is not self._scanner:
            from pidts.binlog.block_scan import BlockScan  # it loads the compiler

            self._blocks = BlockScan(self._walker, self._scanner)
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
        if size < _WAITING or self._unsynced >= _SYNC_BYTES or monotonic() - self._synced_at >= _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make visible what is complete, and how far the log was followed."""
        self._mark()
        self._writer.sync()
        self._unsynced, self._synced_at = 0, monotonic()

    def _store(self, raw: bytes | memoryview, event: Event) -> None:
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

    def _new_format(self, raw: bytes | memoryview, event: Event) -> None:
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
