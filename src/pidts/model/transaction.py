"""Transactions as the relay's index knows them, and where their raw events lie."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.lsn import Lsn
from pidts.model.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An atomic commit on the source, or a *mark*: a stretch of log that holds none (rotation, bookkeeping events)."""

    lsn: Lsn
    """The byte after its last event."""
    prev_lsn: Lsn
    """The Lsn of the transaction (or mark) before it; the chain that shows that nothing is missing."""
    begin: Lsn
    """Its first event."""
    gtid: str = ""
    timestamp: int = 0
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    """A statement found in it other than BEGIN, COMMIT and their like."""
    ddl_schema: str = ""

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
class LogEntry:
    """One line of the relay's index."""

    transaction: Transaction
    extent: Extent
