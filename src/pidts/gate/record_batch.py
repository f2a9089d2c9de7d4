"""Makes the records of a log part: of row changes up to the next schema change, or of one schema change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from pidts.batch.context import JobContext
from pidts.batch.decoding import AT_ONCE, READ_BYTES, SliceReader, decode_raw, log_facts, read_at_once
from pidts.binlog import whole_events
from pidts.binlog.decode import commit_times, times_of
from pidts.gate.committer import in_pieces
from pidts.gate.records import Numbering, of_rows, transaction_ends
from pidts.model import LogEntry, Lsn
from pidts.model.early_filter import TimesOf
from pidts.model.transaction import xa_not_received
from pidts.plan import BatchPlan, Limits, LogSlice, RelevanceKind
from pidts.plan.relevance import RelevanceOf
from pidts.relay import RelayReader
from pidts.target.mysql.datacenter import Numbers

_LOG_BYTES = 8 << 20
"""The largest number of bytes of log whose records are committed together. Their JSON is several times as long."""

_AHEAD_BYTES = 128 << 20
"""The largest size, in bytes, of records that wait in memory until the previous records are written."""


@dataclass(frozen=True, slots=True)
class TransactionRange:
    """The transactions between two places of the log, at most up to the next schema change."""

    end: Lsn
    entries: tuple[LogEntry, ...] = ()
    """The entries that have rows of the task. One entry may stand for many transactions."""
    due: LogEntry | None = None
    """The schema change after these transactions, if there is one."""
    count: int = 0
    """The number of transactions, including transactions of other tables."""
    oldest: int = 0
    """The earliest timestamp in the log that was read; 0 if there is none."""
    has_more: bool = False
    """Whether the range ends because the task's next entry would exceed the limit of bytes or of rows."""


def next_transactions(
    entries: Iterable[LogEntry], start: Lsn, relevance_of: RelevanceOf, limits: Limits
) -> TransactionRange:
    """Returns the next log part after `start`, where `entries` begin."""
    end, mine, size, rows, count, oldest = start, list[LogEntry](), 0, 0, 0, 0
    for entry in entries:
        transaction = entry.transaction
        if entry.lacks_rows:
            if mine:
                break
            raise xa_not_received(transaction)
        oldest = min(filter(None, (oldest, entry.begun_at)), default=0)
        relevance = relevance_of(entry)
        if relevance.kind is RelevanceKind.DDL:
            return TransactionRange(end, tuple(mine), entry, count, oldest)
        if relevance.kind is RelevanceKind.ROWS and transaction.row_events:
            own = entry.read_bytes
            if mine and (size + own > _LOG_BYTES or rows + transaction.row_events > limits.row_events):
                return TransactionRange(end, tuple(mine), None, count, oldest, has_more=True)
            mine.append(entry)
            size, rows = size + own, rows + transaction.row_events
        end, count = transaction.lsn, count + entry.count
        if count >= limits.transactions:
            break
    return TransactionRange(end, tuple(mine), None, count, oldest)


@dataclass(frozen=True, slots=True)
class Records:
    """Makes the rows of `transfer_data` for one log part. They are made again for each attempt to commit them."""

    context: JobContext
    relay: RelayReader
    plan: BatchPlan
    entries: tuple[LogEntry, ...]
    """The relay's entries that the plan contains."""
    instance_of: Callable[[int], str]
    """Returns `ip:port` of the server that wrote the log with this number of failovers in its Lsns."""
    zone: str
    first: pa.Table | None = None
    """The records of a schema change. They come before the records of rows in its transaction."""
    made: tuple[pa.Table, ...] | None = None
    """All records, still without their numbers, if they were made in advance."""

    def ahead(self) -> Records | None:
        """Returns the log part with its records already made; None if they are too large to wait in memory."""
        if self.plan.log_bytes > AT_ONCE:
            return None
        made, size = list[pa.Table](), 0
        for records in self._unnumbered():
            made.append(records)
            size += records.nbytes
            if size > _AHEAD_BYTES:
                return None
        return replace(self, made=tuple(made))

    def __call__(self, last: Numbers) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yields the rows in pieces, each with its last row's numbers. The first row gets the numbers after `last`."""
        numbering, ends = Numbering(last), transaction_ends(self.entries)
        for records in self._unnumbered():
            rows, numbering = numbering.of(records, ends, self.instance_of)
            yield from in_pieces(rows, numbering.last)

    def _unnumbered(self) -> Iterator[pa.Table]:
        if self.made is not None:
            yield from self.made
            return
        if self.first is not None:
            yield self.first
        for piece in self.plan.log:
            yield from self._of_slice(piece)

    def _of_slice(self, piece: LogSlice) -> Iterator[pa.Table]:
        times = self._times_of(piece)
        for batches in decode_raw(self.context, SliceReader(self.relay), piece):
            records = of_rows(batches, times, self.zone)
            if records is not None:
                yield records

    def _times_of(self, piece: LogSlice) -> TimesOf:
        if piece.groups is not None:
            return commit_times(piece.groups).of
        times = times_of(log_facts(self.context, self.relay, piece))
        if piece.extent.size <= AT_ONCE:
            times.add(read_at_once(self.relay, piece))
        else:
            for raw in whole_events(self.relay.chunks(piece.extent, READ_BYTES)):
                times.add(raw)
        return times.of
