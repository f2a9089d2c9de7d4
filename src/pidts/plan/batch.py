"""The parts of a batch: what Spark's tasks work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pidts.model import Extent, LogEntry, Lsn, TableName
from pidts.plan.copying import ChunkRequest
from pidts.plan.planner import Work, WorkKind
from pidts.plan.state import BatchKind, PlanState

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
    tables: frozenset[TableName]
    """Every table that the log slices hold rows of, the task's own and others."""
    ddl: LogEntry | None = None

    @property
    def write(self) -> tuple[ChunkRequest, ...]:
        """Chunks to write, read by the batch before."""
        return self.end.written

    @property
    def read(self) -> tuple[ChunkRequest, ...]:
        """Chunks to read, for the batch after."""
        return self.end.reading


def plan_between(
    start: PlanState, end: PlanState, entries: Iterable[LogEntry], work_of: Callable[[LogEntry], Work]
) -> BatchPlan:
    """The batch that leads from one state to the next; `entries` follow `start.lsn`."""
    slices: list[LogSlice] = []
    gtids: list[str] = []
    tables: set[TableName] = set()
    count = row_events = timestamp = 0
    ddl = None
    for entry in entries:
        transaction = entry.transaction
        if transaction.lsn > end.lsn:
            break
        count += 1
        timestamp = transaction.timestamp or timestamp
        if transaction.gtid:
            gtids.append(transaction.gtid)
        work = work_of(entry)
        if end.kind is BatchKind.DDL:
            ddl = entry
        if work.kind is not WorkKind.NOTHING and transaction.row_events:
            row_events += transaction.row_events
            tables.update(transaction.tables)
            _extend(slices, entry)
    return BatchPlan(start, end, tuple(slices), count, row_events, timestamp, tuple(gtids), frozenset(tables), ddl)


def _extend(slices: list[LogSlice], entry: LogEntry) -> None:
    if entry.prepared is not None and entry.transaction.xa is not None:
        slices.append(LogSlice(entry.prepared, entry.prepared.begin, len(slices), entry.transaction.xa.at))
        return
    extent, begin = entry.extent, entry.transaction.begin
    if slices and slices[-1].commit is None:
        last = slices[-1].extent
        near = last.segment == extent.segment and extent.offset - last.end <= _SLICE_GAP
        if near and extent.end - last.offset <= _SLICE_BYTES:
            joined = Extent(last.segment, last.offset, extent.end - last.offset)
            slices[-1] = LogSlice(joined, slices[-1].begin, slices[-1].number)
            return
    slices.append(LogSlice(extent, begin, len(slices)))
