"""The interfaces of a comparison to the source, the target, and the task between them.

The callers bring the connections. A key is a list of JSON values, one for each column of the identity, as a copy keeps
its progress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from pidts.model import Lsn, Table, TableName
from pidts.verify.owners import RowOwners

Key = Sequence[Any]
Mark: TypeAlias = tuple[Lsn, ...]
"""A place in the log of each source that a table has rows from."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The rows behind one key and not behind another; None is open."""

    after: Key | None = None
    upto: Key | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A checksum of rows: two sets of rows with the same sum are the same."""

    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class EstimatedSize:
    """About how large a table is, as its server guesses."""

    rows: int = 0
    row_bytes: int = 0


class Order(Enum):
    """The relation of the target's order of keys to the source's."""

    SAME = "same"
    """The same order as the source's, and that of their JSON values."""
    LIKELY = "likely"
    """The order of a collation that should be the source's."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Behind:
    """A member whose log the target does not have whole, and nobody knows when it will."""

    waits: str = ""
    """The cause that it waits for, where that is known: until then it is not expected to be equal."""
    is_stopped: bool = False
    """Whether that cause is that no run of the task is seen: a start is enough."""


class Leg(Protocol):
    """The way of one source's changes to the target."""

    def settled(self) -> Lsn:
        """Returns a place in the source's log: all before it shows in what is read from now on."""

    def place(self) -> Lsn:
        """Returns where the source's log ends now: nothing that was read before lies behind it."""

    def behind(self, table: TableName, lsn: Lsn) -> Behind | None:
        """Waits until the target has all of a table's log up to there; None if it has."""

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """Whether it is known that the log between two places has nothing about the table."""


class Member(Protocol):
    """One table of a source.

    Its rows have the values that the target gets, in the columns and keys of the table that is compared.
    """

    @property
    def name(self) -> TableName:
        """Returns the source's."""

    @property
    def label(self) -> str:
        """Returns a name for people, which no other member has."""

    @property
    def leg(self) -> Leg:
        """Returns the leg, one object for all tables of a source."""

    @property
    def extracted(self) -> Mapping[str, str]:
        """Returns the values of the columns that tell where the member's rows come from."""

    def size(self) -> EstimatedSize:
        """Returns about how large the table is."""

    def highest(self) -> Key | None:
        """Returns the key of the row that comes last now."""

    def spans(self, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        """Yields neighbouring parts of about so many rows that cover a span; its `upto` is given."""

    def sum(self, span: KeySpan) -> Sum | None:
        """Returns the sum of the rows now there; None if the server cannot tell."""

    def rows(self, span: KeySpan) -> pa.Table:
        """Returns all rows of a span."""

    def find(self, keys: pa.Table) -> pa.Table:
        """Returns the rows with these keys, as the server understands equality, in any order."""

    def count(self) -> int:
        """Returns the number of rows."""

    def all(self) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key, as they are at one moment."""


class KeyedSource(Protocol):
    """The sources, as far as they are asked for single keys."""

    def members(self, table: Table) -> Sequence[str]:
        """Returns the name of each member, for people."""

    def owners(self, table: Table) -> RowOwners:
        """Returns how to find the owners of the target's rows."""

    def find(self, table: Table, keys: pa.Table, member: int) -> pa.Table:
        """Returns the rows of a member with these keys, as its server understands equality, in any order."""


class SourceSide(KeyedSource, Protocol):
    """The sources. All rows come with the columns of `table.arrow`; a table is known by its name."""

    def tables(self) -> Sequence[Table]:
        """Returns all tables that are to be compared."""

    def structure(self, name: TableName) -> Table | None:
        """Returns the table's structure as it is now."""

    def signature(self, table: Table) -> str:
        """Returns another text where the table is not what it was, or is made of other members."""

    def size(self, table: Table) -> EstimatedSize:
        """Returns about how large the table is."""

    def highest(self, table: Table) -> Key | None:
        """Returns the key of the row that comes last now."""

    def spans(self, table: Table, span: KeySpan, rows: int, *, read: bool) -> Iterator[KeySpan]:
        """Yields neighbouring parts that cover a span; its `upto` is given.

        A part has a few times so many rows where all of it is going to be `read`, else so many of each member.
        """

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns the sum of the rows now there; None if the server cannot tell."""

    def rows(self, table: Table, span: KeySpan) -> pa.Table:
        """Returns all rows of a span."""

    def confirm(self, table: Table) -> None:
        """Raises `Halted` with "structure-changed" where it has got members that it did not have."""

    def count(self, table: Table) -> int:
        """Returns the number of rows."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key, as they are at one moment."""


class KeyedTarget(Protocol):
    """The target, in the source's types, as far as it is asked for single keys."""

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the rows with these keys, in any order."""

    def locked(self, table: Table, keys: pa.Table) -> Collection[int]:
        """Returns the places of those keys whose rows are set aside for an operator."""


class TargetSide(KeyedTarget, Protocol):
    """The target, in the source's types."""

    def order(self, table: Table) -> Order:
        """Returns how keys are ordered here."""

    def misfits(self, table: Table) -> list[str] | None:
        """Returns why rows of this structure cannot be here; None if there is no such table."""

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns the same sum as the source's.

        Equal rows may have different sums here, different rows never have equal ones.
        """

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        """Returns the next identities in this server's order, and the last of them."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key."""


class Flight(Protocol):
    """The changes on their way from the sources of a table to the target."""

    def settled(self, table: TableName) -> Mark:
        """Places in the sources' logs: all before them shows in what is read from now on."""

    def place(self, table: TableName) -> Mark:
        """Returns where the sources' logs end now: nothing that was read before lies behind them."""

    def behind(self, table: TableName, mark: Mark) -> dict[int, Behind]:
        """Waits until the target has all of a table's log up to there: the members of which it has not."""

    def untouched(self, table: TableName, after: Mark, upto: Mark) -> bool:
        """Whether it is known that the logs between these places have nothing about the table."""
