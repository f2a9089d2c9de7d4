"""Transactions as the relay's index knows them, and where their raw events lie."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.errors import Halted, Where
from pidts.model.lsn import Lsn
from pidts.model.table import TableName
from pidts.model.xa import Xa, XaStep


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
    """The step of a two-phase XA transaction that it is. One that only prepares is a mark."""

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
