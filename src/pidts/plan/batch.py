"""The parts of a batch: what Spark's tasks work on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pidts.model import Extent, LogEntry, Lsn, TableName
from pidts.plan.copying import ChunkRequest
from pidts.plan.state import PlanState
from pidts.plan.work import Begun, Log, WorkKind, WorkOf

_SLICE_BYTES = 8 << 20
_SLICE_GAP = 64 << 10
"""Bytes of other tables' transactions that a slice rather reads than is cut at."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole transactions that lie together in one relay segment.

    Or the one group that prepared an XA transaction, wherever it lies, once that is committed. What is prepared and
    lies between other transactions of a slice is passed over when the slice is decoded.
    """

    extent: Extent
    begin: Lsn
    """Where its first event stands in the source's log."""
    number: int
    """Its place in the batch: changes of a later slice are later."""
    commit: Lsn | None = None
    """Of a prepared group: the event that committed it, which is the place of its rows."""
    only: frozenset[TableName] | None = None
    """Tables that catch up: the others' rows are in the target already. None: all tables."""
    without: frozenset[TableName] = frozenset()
    """Tables that are held, or catch up by slices of their own, or whose rows there do not count."""

    def carries(self, table: TableName) -> bool:
        """Whether this table's rows are taken from it."""
        return table not in self.without and (self.only is None or table in self.only)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Everything that becomes visible on the target at once."""

    start: PlanState
    end: PlanState
    log: tuple[LogSlice, ...]
    entries: int
    row_events: int
    timestamp: int
    """When the source committed the batch's last transaction; 0 if there is none."""
    gtids: tuple[str, ...]
    """Each a GTID, or the set of those of neighbouring transactions."""
    tables: frozenset[TableName]
    """Every table that the log slices carry rows of, the task's own and others."""

    @property
    def write(self) -> tuple[ChunkRequest, ...]:
        """Requests of the batch before, of which rows are to be written."""
        return self.end.written

    @property
    def settled(self) -> tuple[ChunkRequest, ...]:
        """Requests of the batch before that need not be read again, once this batch is in the target."""
        return self.end.settled

    @property
    def read(self) -> tuple[ChunkRequest, ...]:
        """What to read, for the batch after."""
        return self.end.reading

    @property
    def log_bytes(self) -> int:
        """How much log there is to decode."""
        return sum(piece.extent.size for piece in self.log)

    @property
    def largest(self) -> int:
        """The bytes of the largest slice, which is one transaction if they are many."""
        return max((piece.extent.size for piece in self.log), default=0)

    @property
    def moves_held(self) -> bool:
        """Whether tables are held, let go or moved: then no single place inside the batch says what is applied."""
        return self.start.exceptions != self.end.exceptions


def plan_between(start: PlanState, end: PlanState, log: Log, work_of: WorkOf) -> BatchPlan:
    """The batch that leads from one state to the next: of each table what lies between its two places.

    What lies before a table has joined the task is left out, and all of a table without a key that was not copied yet.
    """
    uncarried, begun = end.uncarried, Begun(end.copy)
    apart = frozenset({*start.exceptions, *end.exceptions}) - uncarried
    without = apart | uncarried
    ranges: dict[tuple[Lsn, Lsn], set[TableName]] = {}
    for name in apart:
        if start.at(name) < end.at(name):
            ranges.setdefault((start.at(name), end.at(name)), set()).add(name)
    slices: list[LogSlice] = []
    carried: set[TableName] = set()
    row_events = 0
    for place, names in sorted(ranges.items(), key=lambda item: item[0]):
        only = frozenset(names)
        for entry in _up_to(place[1], log(*place)):
            mine = frozenset(name for name in only if begun.has(name, entry.transaction.lsn))
            tables = mine.intersection(entry.transaction.tables)
            if tables and entry.transaction.row_events:
                row_events += entry.transaction.row_events
                carried |= tables
                _extend(slices, LogSlice(entry.extent, entry.transaction.begin, len(slices), only=mine), entry)
    gtids: list[str] = []
    count = timestamp = 0
    for entry in _up_to(end.lsn, log(start.lsn, end.lsn)):
        transaction = entry.transaction
        count += entry.count
        timestamp = transaction.timestamp or timestamp
        if transaction.gtid:
            gtids.append(transaction.gtid)
        if not transaction.row_events:
            continue
        work = begun.work(work_of(entry), transaction.lsn)
        if work.kind is not WorkKind.NOTHING:
            ours = work.tables if work.kind is WorkKind.ROWS and work.tables is not None else transaction.tables
            early = begun.late(transaction.lsn)
            tables = frozenset(ours) - without - early
            if tables:
                row_events += transaction.row_events
                carried |= tables
                piece = LogSlice(entry.extent, transaction.begin, len(slices), without=without | early)
                _extend(slices, piece, entry)
    return BatchPlan(start, end, tuple(slices), count, row_events, timestamp, tuple(gtids), frozenset(carried))


def _up_to(end: Lsn, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    for entry in entries:
        if entry.transaction.lsn > end:
            return
        yield entry


def _extend(slices: list[LogSlice], piece: LogSlice, entry: LogEntry) -> None:
    """One slice more, or the last one made longer."""
    if entry.prepared is not None and entry.transaction.xa is not None:
        at = entry.transaction.xa.at
        slices.append(replace(piece, extent=entry.prepared, begin=entry.prepared.begin, commit=at))
        return
    last = slices[-1] if slices else piece
    if slices and last.commit is None and (last.only, last.without) == (piece.only, piece.without):
        extent, before = piece.extent, last.extent
        near = before.segment == extent.segment and 0 <= extent.offset - before.end <= _SLICE_GAP
        if near and extent.end - before.offset <= _SLICE_BYTES:
            slices[-1] = replace(last, extent=Extent(before.segment, before.offset, extent.end - before.offset))
            return
    slices.append(piece)
