"""Transactions in the relay's index, and the places of their raw events.

The rows of a two-phase XA transaction are in an event group that ends in XA_PREPARE. A later event group, maybe after
many other transactions and in another log file, has `XA COMMIT` or `XA ROLLBACK`. The prepared changes become visible
on the source with the commit. So the commit is their place in the order of transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
    """An atomic commit on the source, or an *empty entry*: events between two commits (rotation, bookkeeping)."""

    lsn: Lsn
    """The byte after the transaction's last event."""
    prev_lsn: Lsn
    """The Lsn of the previous transaction (or empty entry). The chain of these Lsns shows that nothing is missing."""
    begin: Lsn
    """The Lsn of the transaction's first event."""
    gtid: str = ""
    timestamp: int = 0
    row_events: int = 0
    tables: tuple[TableName, ...] = ()
    ddl: str | None = None
    """A statement in the transaction other than BEGIN, COMMIT and similar ones; None if there is none."""
    ddl_schema: str = ""
    xa: Xa | None = None
    """The step of a two-phase XA transaction, or None. If the step is PREPARE, there is nothing to apply."""

    @property
    def is_empty(self) -> bool:
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
class CommittedEventGroups:
    """Event groups that prepared XA transactions, in the order of their commits, stored in little memory.

    All groups are in one segment and one log file, and all commits are in one log file.
    """

    segment: int
    begin: Lsn
    """The place of the first group's first event."""
    commit: Lsn
    """The event that commits the first group. The rows of each group get the Lsn of the event that commits them."""
    numbers: bytes = field(repr=False)
    """Five 64-bit numbers for each group, in this machine's byte order:

    1. the group's offset in the segment
    2. its size in the segment
    3. its offset in the log file
    4. the offset in the log file of the event that commits it
    5. the time of this event, in seconds since 1970
    """

    @classmethod
    def of(cls, place: PreparedExtent, commit: Lsn, time: int) -> CommittedEventGroups:
        """Returns the group at this place, which the event at `commit` has committed at this time."""
        numbers = _GROUP.pack(place.offset, place.size, place.begin.offset, commit.offset, time)
        return cls(place.segment, place.begin, commit, numbers)

    def __len__(self) -> int:
        return len(self.numbers) // _GROUP.size

    @property
    def size(self) -> int:
        """Returns the number of bytes of all groups."""
        return sum(memoryview(self.numbers).cast("q")[1::GROUP_NUMBERS])

    @property
    def extent(self) -> Extent:
        """Returns the place of the first group."""
        offset, size, *_ = _GROUP.unpack_from(self.numbers)
        return Extent(self.segment, offset, size)

    @property
    def commit_time(self) -> int:
        """Returns the time of the event that commits the first group, in seconds since 1970."""
        return int(_GROUP.unpack_from(self.numbers)[4])

    def followed_by(self, others: Iterable[CommittedEventGroups]) -> CommittedEventGroups:
        """Returns these groups and the later groups in `others`, which are all alike (`is_alike`)."""
        return replace(self, numbers=b"".join((self.numbers, *(other.numbers for other in others))))

    def is_alike(self, other: CommittedEventGroups) -> bool:
        """Whether all groups of the two are in one segment and log file, and all their commits in one log file."""
        return self._files == other._files

    @property
    def _files(self) -> tuple[int, ...]:
        begin, commit = self.begin, self.commit
        return self.segment, begin.change_no, begin.log_index, commit.change_no, commit.log_index


GROUP_NUMBERS = 5
_GROUP = struct.Struct(f"={GROUP_NUMBERS}q")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the relay's index: a transaction, or several transactions that are joined."""

    transaction: Transaction
    extent: Extent
    prepared: PreparedExtent | None = None
    """If the entry commits a two-phase XA transaction: the place of its rows, which no other entry has; else None."""
    count: int = 1
    """How many neighbouring transactions with the same tables this entry joins. If there are several, the entry's GTID
    is the set of their GTIDs.
    """
    ends: bytes = field(default=b"", repr=False)
    """For several transactions: the byte after each of them, as 64-bit numbers in this machine's order."""
    first_timestamp: int = 0
    """The time of the first of several transactions. The entry's own time is the time of the last transaction."""
    joined_groups: CommittedEventGroups | None = None
    """If the entry joins several steps of XA transactions: the places of the rows that its COMMITs commit; otherwise
    None. No other entry has these rows, and this entry has no other rows: its PREPAREs and ROLLBACKs apply none.
    """
    is_after_gap: bool = False
    """Whether the reader has set `prev_lsn` to the place after which it reads. Perhaps no entry ends at that place."""

    @property
    def groups(self) -> CommittedEventGroups | None:
        """Returns the places of the rows of committed XA transactions; None for every other entry."""
        if self.joined_groups is not None or self.prepared is None or self.transaction.xa is None:
            return self.joined_groups
        return CommittedEventGroups.of(self.prepared, self.transaction.xa.at, self.transaction.timestamp)

    @property
    def read_bytes(self) -> int:
        """Returns the number of bytes that are read for the entry's rows."""
        if self.joined_groups is not None:
            return self.joined_groups.size
        return (self.prepared or self.extent).size

    @property
    def begun_at(self) -> int:
        """Returns the time of the entry's first transaction, in seconds since 1970; 0 if unknown."""
        return self.first_timestamp or self.transaction.timestamp

    @property
    def lacks_rows(self) -> bool:
        """Whether the committed transaction was prepared before the relay began. Then its rows are unknown."""
        xa = self.transaction.xa
        return xa is not None and xa.step is XaStep.COMMIT and self.prepared is None


def xa_not_received(transaction: Transaction) -> Halted:
    """Returns the halt at the commit of a two-phase XA transaction whose rows are unknown."""
    xid = transaction.xa.xid if transaction.xa else ""
    return Halted(
        "xa-not-received",
        f"the XA transaction {xid} is committed here, but it was prepared before the task's part of the log begins",
        where=Where(position=str(transaction.lsn)),
        todo="Its rows are unknown. When all XA transactions from before that part are committed or rolled "
        f"back (XA RECOVER lists those that are not), {START_ANEW}",
    )
