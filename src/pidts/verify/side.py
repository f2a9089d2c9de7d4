"""What a comparison asks of the source, of the target, and of the task between them; the callers bring the connections.

A key is a list of JSON values, one for each column of the identity, as a copy keeps its progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from pidts.model import Lsn, Table, TableName

Key = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The rows behind one key and not behind another; None is open."""

    after: Key | None = None
    upto: Key | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """Two sets of rows with the same sum are the same."""

    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Size:
    """About how large a table is, as its server guesses."""

    rows: int = 0
    row_bytes: int = 0


class Order(Enum):
    """How the target orders the table's keys."""

    SAME = "same"
    """As the source does, and as their JSON values are ordered."""
    LIKELY = "likely"
    """By a collation that should be the source's."""
    OTHER = "other"


class SourceSide(Protocol):
    """The source. All rows come with the columns of `table.arrow`."""

    def tables(self) -> Sequence[Table]:
        """All that are to be compared."""

    def structure(self, name: TableName) -> Table | None:
        """As it is now."""

    def size(self, table: Table) -> Size:
        """About."""

    def highest(self, table: Table) -> Key | None:
        """The key of the row that comes last now."""

    def spans(self, table: Table, span: Span, rows: int) -> Iterator[Span]:
        """Neighbouring parts of about so many rows that cover a span; its `upto` is given."""

    def sum(self, table: Table, span: Span) -> Sum | None:
        """Of the rows now there; None where the server cannot tell."""

    def rows(self, table: Table, span: Span) -> pa.Table:
        """All rows of a span."""

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """The rows with these keys, as the server understands equality, in any order."""

    def count(self, table: Table) -> int:
        """Number of rows."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """All rows of a table without a key, as they are at one moment."""


class TargetSide(Protocol):
    """The target, in the source's types."""

    def order(self, table: Table) -> Order:
        """How keys are ordered here."""

    def misfits(self, table: Table) -> list[str] | None:
        """Why rows of this structure cannot be here; None where there is no such table."""

    def sum(self, table: Table, span: Span) -> Sum | None:
        """As the source's; equal rows may have different sums here, different rows never have equal ones."""

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """The rows with these keys, in any order."""

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        """The next identities in this server's order, and the last of them."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """All rows of a table without a key."""


class Flight(Protocol):
    """What is on its way from the source to the target."""

    def settled(self) -> Lsn:
        """A place in the source's log: all before it shows in what is read from now on."""

    def place(self) -> Lsn:
        """Where the source's log ends now: nothing that was read before lies behind it."""

    def reached(self, table: TableName, lsn: Lsn) -> bool:
        """Wait until the target has all of a table's log up to there; False where that does not come."""

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """Whether it is known that the log between two places has nothing about the table."""
