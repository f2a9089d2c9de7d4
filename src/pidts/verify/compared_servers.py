"""The interfaces of a comparison to the source, the target, and the task between them.

The callers pass the connections in. A key is a list of JSON values, one for each column of the identity, as in the
progress of a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from pidts.model import Lsn, Table, TableName
from pidts.verify.row_members import RowMembers

Key = Sequence[Any]
LogPlaces: TypeAlias = tuple[Lsn, ...]
"""For each source from which a table has rows, a place in the source's log."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The rows above one key and up to another key. None means no limit."""

    after: Key | None = None
    upto: Key | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A checksum of rows: two sets of rows with the same sum are equal."""

    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class EstimatedSize:
    """The size of a table as its server estimates it."""

    rows: int = 0
    row_bytes: int = 0


class Order(Enum):
    """How the target's order of keys is related to the source's order."""

    SAME = "same"
    """The target's order is the source's order, and equals the order of the keys' JSON values."""
    LIKELY = "likely"
    """The target orders keys by a collation, so its order is probably the source's order."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class NotCaughtUp:
    """The reason why the target does not have all log of a member, and whether waiting for this log is in vain."""

    waits: str = ""
    """The cause for which the member waits, if it is known. While the member waits, its rows cannot be equal."""
    is_stopped: bool = False
    """Whether waiting is in vain because the task does not run. Then it is enough to start the task."""


class SourceCatchUp(Protocol):
    """Waits until the target has a table's log of one source."""

    def settled(self) -> Lsn:
        """Returns a place in the source's log: rows that are read from now on contain all changes before it."""

    def place(self) -> Lsn:
        """Returns the current end of the source's log: rows that were read before have no changes after it."""

    def await_target(self, table: TableName, lsn: Lsn) -> NotCaughtUp | None:
        """Waits until the target has all of a table's log up to `lsn`. Returns None if the target has it."""

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """Whether the log from `after` to `upto` is known to have no change of the table."""


class ComparedServer(Protocol):
    """One table of a source, whose rows have the target's values, in the columns and keys of the compared table."""

    @property
    def name(self) -> TableName:
        """Returns the table's name on the source."""

    @property
    def label(self) -> str:
        """Returns the unique name that messages give the member."""

    @property
    def catch_up(self) -> SourceCatchUp:
        """Returns the object that waits for the log of the member's source. All tables of one source share it."""

    @property
    def extracted(self) -> Mapping[str, str]:
        """Returns the member's values of the extracted columns."""

    def size(self) -> EstimatedSize:
        """Returns the estimated size of the table."""

    def highest(self) -> Key | None:
        """Returns the key of the row that comes last now; None if there is no row."""

    def spans(self, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        """Yields adjacent parts that cover a span, of about `rows` rows each. The span has an `upto`."""

    def sum(self, span: KeySpan) -> Sum | None:
        """Returns the checksum of a span's rows as they are now; None if the server cannot compute it."""

    def rows(self, span: KeySpan) -> pa.Table:
        """Returns all rows of a span."""

    def find(self, keys: pa.Table) -> pa.Table:
        """Returns the rows whose keys the server treats as equal to these, in any order."""

    def count(self) -> int:
        """Returns the number of rows."""

    def all(self) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key, as they are at one moment."""


class KeyedSource(Protocol):
    """The sources of a target table, whose rows are read by key."""

    def members(self, table: Table) -> Sequence[str]:
        """Returns the names that messages give the members."""

    def row_members(self, table: Table) -> RowMembers:
        """Returns the rule that says to which member a row of the target belongs."""

    def find(self, table: Table, keys: pa.Table, member: int) -> pa.Table:
        """Returns the rows of a member whose keys its server treats as equal to these, in any order."""


class SourceSide(KeyedSource, Protocol):
    """The sources. All rows have the columns of `table.arrow`; a table is identified by its name."""

    def tables(self) -> Sequence[Table]:
        """Returns all tables to compare."""

    def structure(self, name: TableName) -> Table | None:
        """Returns the table's current structure; None if there is no such table."""

    def signature(self, table: Table) -> str:
        """Returns a text that changes if the structure or the members of the table change."""

    def size(self, table: Table) -> EstimatedSize:
        """Returns the estimated size of the table."""

    def highest(self, table: Table) -> Key | None:
        """Returns the key of the row that comes last now; None if there is no row."""

    def spans(self, table: Table, span: KeySpan, rows: int, *, read: bool) -> Iterator[KeySpan]:
        """Yields adjacent parts that together cover a span. The span must have an `upto`.

        A part has a few times `rows` rows if all of it will be `read`; otherwise it has `rows` rows of each member.
        """

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns the checksum of a span's rows as they are now; None if the server cannot compute it."""

    def rows(self, table: Table, span: KeySpan) -> pa.Table:
        """Returns all rows of a span."""

    def confirm(self, table: Table) -> None:
        """Raises `Halted` with "structure-changed" if the table has got new members."""

    def count(self, table: Table) -> int:
        """Returns the number of rows."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key, as they are at one moment."""


class KeyedTarget(Protocol):
    """The target, whose rows are read by key, and have the source's types."""

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the rows with these keys, in any order."""

    def locked(self, table: Table, keys: pa.Table) -> Collection[int]:
        """Returns the places in `keys` of the keys whose rows are set aside for an operator."""


class TargetSide(KeyedTarget, Protocol):
    """The target, which returns rows in the source's types."""

    @property
    def has_sums(self) -> bool:
        """Returns whether the target can compute checksums of rows."""

    def order(self, table: Table) -> Order:
        """Returns the relation of the target's order of keys to the source's."""

    def misfits(self, table: Table) -> list[str] | None:
        """Returns the reasons why rows of this structure do not fit; None if there is no such table."""

    def documents(self, table: Table) -> Collection[str]:
        """Returns the columns of text that are JSON on the target, which may spell the same document differently."""

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns a checksum that can be compared with the source's; None if the target cannot compute it.

        Equal rows may have different checksums. Different rows hardly ever have equal checksums.
        """

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        """Returns up to `rows` keys after `after`, in the target's order, and the last of them (None: no keys)."""

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows of a table without a key."""


class CatchUp(Protocol):
    """Waits until the target has a table's log of all of its sources."""

    def settled(self, table: TableName) -> LogPlaces:
        """Returns places in the sources' logs: rows that are read from now on contain all changes before them."""

    def place(self, table: TableName) -> LogPlaces:
        """Returns the current ends of the sources' logs: rows that were read before have no changes after them."""

    def await_target(self, table: TableName, places: LogPlaces) -> dict[int, NotCaughtUp]:
        """Waits until the target has a table's log up to `places`. Returns the members whose log it lacks."""

    def untouched(self, table: TableName, after: LogPlaces, upto: LogPlaces) -> bool:
        """Whether the logs from `after` to `upto` are known to have no change of the table."""
