"""Transactions as the relay's index knows them, and where their raw events lie.

The rows of a two-phase XA transaction are in the log when they are prepared, and count only once they are committed.
The log has a group that ends in XA_PREPARE, and later, maybe after many other transactions and in another log file, one
that says `XA COMMIT` or `XA ROLLBACK`. What was prepared becomes visible on the source with its commit, so that is
where it stands in the order of transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from pidts.model.errors import Halted, Where
from pidts.model.lsn import Lsn
from pidts.model.table import TableName


class XaStep(IntEnum):
    """The step that a group of the log takes in a two-phase XA transaction."""

    PREPARE = 1
    COMMIT = 2
    ROLLBACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Xa:
    """One step of a two-phase XA transaction. Its content comes with PREPARE."""

    step: XaStep
    xid: str
    """The name as in the log's own statements: `X'6f6e65',X'6272',7`."""
    at: Lsn
    """The event that makes the step; with COMMIT the place of all the transaction's rows."""
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    ddl_schema: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An atomic commit on the source, or a *mark*: a stretch of log that holds none (rotation, bookkeeping events)."""

    lsn: Lsn
    """The byte after its last event."""
    prev_lsn: Lsn
    """The Lsn of the transaction (or mark) before it; the chain that shows that nothing is missing."""
    begin: Lsn
    """The Lsn of its first event."""
    gtid: str = ""
    timestamp: int = 0
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    """A statement found in it other than BEGIN, COMMIT and their like."""
    ddl_schema: str = ""
    xa: Xa | None = None
    """Which step of a two-phase XA transaction this is. One that only prepares is a mark."""

    @property
    def is_mark(self) -> bool:
        """True where there is nothing to apply."""
        return self.ddl is None and self.row_events == 0


@dataclass(frozen=True, slots=True)
class Extent:
    """A byte range of one relay segment."""

    segment: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PreparedExtent(Extent):
    """The place of the group that prepared an XA transaction."""

    begin: Lsn
    """The Lsn of its first event."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the relay's index."""

    transaction: Transaction
    extent: Extent
    prepared: PreparedExtent | None = None
    """The place of the rows of a two-phase XA transaction, at its commit. They are in no other entry."""
    count: int = 1
    """The number of neighbouring transactions of the same tables that it stands for.

    Its GTID then tells the set of theirs.
    """
    ends: bytes = field(default=b"", repr=False)
    """Where each of several transactions ends in their log file, as 64-bit numbers of this machine."""
    first_timestamp: int = 0
    """The time of the first of several transactions; the entry's own time is that of the last."""

    @property
    def begun_at(self) -> int:
        """Returns the time of its first transaction, in seconds since 1970; 0 where it is not known."""
        return self.first_timestamp or self.transaction.timestamp

    @property
    def lacks_rows(self) -> bool:
        """Whether it commits what was prepared before the relay began, so that nobody knows the rows."""
        xa = self.transaction.xa
        return xa is not None and xa.step is XaStep.COMMIT and self.prepared is None


def xa_not_received(transaction: Transaction) -> Halted:
    """The halt at the commit of a two-phase XA transaction of whose rows nothing is known."""
    xid = transaction.xa.xid if transaction.xa else ""
    return Halted(
        "xa-not-received",
        f"the XA transaction {xid} is committed here, but it was prepared before the log begins that we have",
        where=Where(position=str(transaction.lsn)),
        todo="Its rows are unknown: start a new task that copies the tables when XA RECOVER on the source is empty",
    )
