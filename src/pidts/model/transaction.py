"""Transactions in the relay's index, and the places of their raw events.

The rows of a two-phase XA transaction are in the log when they are prepared, and count only once they are committed.
The log has a group that ends in XA_PREPARE, and later, maybe after many other transactions and in another log file, a
group with `XA COMMIT` or `XA ROLLBACK`. The prepared changes become visible on the source with the commit, so the
commit is their place in the order of transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from pidts.model.advice import START_ANEW
from pidts.model.errors import Halted, Where
from pidts.model.lsn import Lsn
from pidts.model.table import TableName


class XaStep(IntEnum):
    """The steps of a two-phase XA transaction. Each step is a group of events in the log."""

    PREPARE = 1
    COMMIT = 2
    ROLLBACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Xa:
    """One step of a two-phase XA transaction. Only PREPARE has the tables and the number of row events."""

    step: XaStep
    xid: str
    """The name as in the log's own statements: `X'6f6e65',X'6272',7`."""
    at: Lsn
    """The place of the event that makes the step. The place of COMMIT is also the place of all rows of the transaction.
    """
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    ddl_schema: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An atomic commit on the source, or a *mark*: a part of the log without one (rotation, bookkeeping events)."""

    lsn: Lsn
    """The byte after the transaction's last event."""
    prev_lsn: Lsn
    """The Lsn of the previous transaction (or mark); this chain shows that nothing is missing."""
    begin: Lsn
    """The Lsn of the transaction's first event."""
    gtid: str = ""
    timestamp: int = 0
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    """A statement in the transaction other than BEGIN, COMMIT and similar ones."""
    ddl_schema: str = ""
    xa: Xa | None = None
    """The step, if this is a step of a two-phase XA transaction. A transaction that only prepares is a mark."""

    @property
    def is_mark(self) -> bool:
        """Whether there is nothing to apply."""
        return self.ddl is None and self.row_events == 0


@dataclass(frozen=True, slots=True)
class Extent:
    """A byte range of one relay segment."""

    segment: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Returns the first byte after the range."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PreparedExtent(Extent):
    """The place of the events that prepared an XA transaction."""

    begin: Lsn
    """The Lsn of the first of these events."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the relay's index: a transaction, or several transactions that are joined."""

    transaction: Transaction
    extent: Extent
    prepared: PreparedExtent | None = None
    """If the entry commits a two-phase XA transaction: the place of its rows. No other entry has these rows."""
    count: int = 1
    """The number of neighbouring transactions with the same tables that are joined in this entry.

    If there are several, the entry's GTID is the set of their GTIDs.
    """
    ends: bytes = field(default=b"", repr=False)
    """If there are several transactions: the byte of the log file after each of them, as 64-bit numbers in this
    machine's byte order.
    """
    first_timestamp: int = 0
    """The time of the first of several transactions. The entry's own time is the time of the last transaction."""

    @property
    def begun_at(self) -> int:
        """Returns the time of the entry's first transaction, in seconds since 1970; 0 if unknown."""
        return self.first_timestamp or self.transaction.timestamp

    @property
    def lacks_rows(self) -> bool:
        """Whether the rows of the committed transaction are unknown, since it was prepared before the relay began."""
        xa = self.transaction.xa
        return xa is not None and xa.step is XaStep.COMMIT and self.prepared is None


def xa_not_received(transaction: Transaction) -> Halted:
    """Returns the halt at the commit of a two-phase XA transaction whose rows are unknown."""
    xid = transaction.xa.xid if transaction.xa else ""
    return Halted(
        "xa-not-received",
        f"the XA transaction {xid} is committed here, but it was prepared before the log that PiDTS has",
        where=Where(position=str(transaction.lsn)),
        todo=f"Its rows are unknown. When XA RECOVER on the source shows nothing, {START_ANEW}",
    )
