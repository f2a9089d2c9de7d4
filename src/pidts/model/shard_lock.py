"""Source tables that share one target table, and the schema changes at which they wait for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pidts.model.halt import CommandKind
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A shard: its source, and the name that the table has there."""

    source: str
    table: TableName

    def __hash__(self) -> int:
        """Returns the hash of all names at once: decisions about a thousand shards look up members very often."""
        return hash((self.source, self.table.schema, self.table.name))

    @property
    def names(self) -> tuple[str, str, str]:
        """Returns all names, which sort like members. Comparing members themselves takes ten times as long."""
        return self.source, self.table.schema, self.table.name

    def __str__(self) -> str:
        return f"{self.source}: {self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A member that has reached a schema change: the target has everything before the change."""

    member: Member
    lsn: Lsn
    text: str
    before: Table
    """The structure before the change, with the names that the target uses. For a new table, it equals `after`."""
    after: Table
    since: float = 0.0
    """When the member arrived, in seconds since 1970."""
    position: str = ""
    """The place of the statement as a log file and a byte."""
    command: CommandKind | None = None
    """The operator's ddl command for the schema change; None if there is none."""
    runs: bool = True
    """Whether the statement may be run: a CREATE TABLE may not be run if the shard group has other members."""
    revalues: frozenset[str] = frozenset()
    """The columns whose values the change may have rewritten. Because of them, the change may have to be run even if
    the target table already accepts the member's rows.
    """
    computes: frozenset[tuple[str, object]] = frozenset()
    """The generated columns that the statement adds, with their expressions, which a structure does not have."""
    adds: frozenset[str] = frozenset()
    """Columns that the statement adds, in lower case. A structure does not show whether a column is new or renamed."""

    @property
    def unlocked(self) -> bool:
        """Whether a ddl command lets the member continue without the members that have not arrived."""
        return self.command in {CommandKind.UNLOCK, CommandKind.REPLACE}

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for operators."""
        return {
            "source": self.member.source,
            "table": str(self.member.table),
            "lsn": str(self.lsn),
            "position": self.position,
            "statement": self.text,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLock:
    """A schema change at which members of a shard group wait for the other members."""

    target: TableName
    text: str
    """The statement as the source of the first member ran it."""
    first: Member
    """The member that was the first to reach the schema change."""
    since: float
    arrived: tuple[Arrival, ...]
    """The members that wait, in the order of their arrival."""
    awaited: tuple[Member, ...] = ()
    """The members that have not arrived."""
    disagree: tuple[Arrival, ...] = ()
    """The waiting members whose schema change leads to another structure than the first member's change."""
    absent: tuple[str, ...] = ()
    """Sources that this run has not begun to read, so that their tables are unknown."""
    running: bool = False
    """Whether all members have arrived, and the target is being changed."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "target": str(self.target),
            "statement": self.text,
            "owner": {"source": self.first.source, "table": str(self.first.table)},
            "since": self.since,
            "arrived": [arrival.to_json() for arrival in self.arrived],
            "awaited": [{"source": member.source, "table": str(member.table)} for member in self.awaited],
            "disagree": [arrival.to_json() for arrival in self.disagree],
            "absent": list(self.absent),
            "running": self.running,
        }
