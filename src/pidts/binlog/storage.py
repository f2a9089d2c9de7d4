"""Keeps a table's decoded rows until they become a batch: in compiled memory or in plain lists."""

from __future__ import annotations

from typing import Protocol

from pidts.binlog.choice import compiled
from pidts.binlog.rows import TableRows
from pidts.binlog.rows_event import RowsEvent
from pidts.binlog.table_map import TableMap
from pidts.model.batch import ChangeBatch
from pidts.model.lsn import Lsn
from pidts.model.sieve import Sieve
from pidts.model.table import Table

Mark = tuple[int, int, int]
"""The rows so far, and two numbers that only the storage understands."""


class Binding(Protocol):
    """One TABLE_MAP event bound to the table it maps."""

    @property
    def rows(self) -> Rows:
        """The table's rows."""

    def decode(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        """Appends the event's rows, numbered from `first`; the first `skip` are read and dropped."""


class Rows(Protocol):
    """The rows of one table, on their way into one `ChangeBatch`."""

    table: Table

    def __len__(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of the images so far."""

    def bind(self, table_map: TableMap) -> Binding:
        """Returns the reader of the row events after a TABLE_MAP event."""

    def mark(self) -> Mark:
        """A point to which `back_to` can return."""

    def back_to(self, mark: Mark) -> None:
        """Forgets the rows since a mark."""

    def take(self, sieve: Sieve | None = None) -> ChangeBatch:
        """The rows so far as one batch, without those that a sieve drops; a new one begins."""


def new_rows(table: Table, sieve: Sieve | None = None, *, log_stays: bool = False) -> Rows:
    """Returns storage without rows. `log_stays`: the log remains where it is in memory until the rows are taken."""
    if not compiled():
        return TableRows(table)
    from pidts.binlog.kernel.table_rows import CompiledRows  # the compiler is loaded when rows come, not before

    return CompiledRows(table, sieve, log_stays=log_stays)
