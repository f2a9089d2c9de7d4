"""Two-phase XA transactions: their rows are in the log when they are prepared, and count only once they are committed.

The log has a group that ends in XA_PREPARE, and later, maybe after many other transactions and in another log file, one
that says `XA COMMIT` or `XA ROLLBACK`. What was prepared becomes visible on the source with its commit, so that is
where it stands in the order of transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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
