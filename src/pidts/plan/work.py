"""What the log means for a task, transaction by transaction, and how much of it a batch takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan.copying import CopyState, Phase
from pidts.plan.limits import Limits

Log = Callable[[Lsn, Lsn | None], Iterable[LogEntry]]
"""What the relay holds behind a place, in order: up to another place, which is the end of an entry then, or all."""


class WorkKind(Enum):
    """What a transaction means for the task."""

    NOTHING = "nothing"
    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction means, and what a DDL does to the tables that are being copied."""

    kind: WorkKind
    tables: frozenset[TableName] | None = None
    """Of a DDL: the task's tables that it speaks of, by all of their names; None: it may be any."""
    schemas: tuple[str, ...] = ()
    """Where it may be any table, but only in these."""
    gone: tuple[TableName, ...] = ()
    gone_schemas: tuple[str, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()
    """Name before and name after the whole statement."""
    recopied: tuple[TableName, ...] = ()
    """Tables whose key may be another one now: how far a copy had come by the old key says nothing any more."""

    def touches(self, held: Collection[TableName]) -> bool:
        """Whether it may speak of one of these."""
        if self.tables is not None:
            return not self.tables.isdisjoint(held)
        # A schema that is made or altered has its tables as before.
        return any(name.schema in self.gone_schemas for name in held) if self.schemas else bool(held)


WorkOf = Callable[[LogEntry], Work]


class Size:
    """How much of the log a walk has taken."""

    __slots__ = ("_limits", "bytes", "count", "rows")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.count = self.rows = self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is enough."""
        limits = self._limits
        return self.count >= limits.transactions or self.rows >= limits.row_events or self.bytes >= limits.bytes

    def take(self, entry: LogEntry, *, rows: bool) -> None:
        """One entry more."""
        self.count += entry.count
        if rows:
            self.rows += entry.transaction.row_events
            self.bytes += (entry.prepared or entry.extent).size


class Begun:
    """Leaves out of what is to be done what comes before a table has joined the task."""

    def __init__(self, copy: Mapping[TableName, CopyState]) -> None:
        self._since = {name: state.since for name, state in copy.items() if state.since is not None}
        self._latest = max(self._since.values(), default=None)

    def work(self, work: Work, lsn: Lsn) -> Work:
        """Of the tables that have joined."""
        if self._latest is None or lsn > self._latest or work.tables is None:
            return work
        tables = frozenset(name for name in work.tables if self.has(name, lsn))
        if not tables:
            return Work(WorkKind.NOTHING)
        return work if len(tables) == len(work.tables) else replace(work, tables=tables)

    def late(self, lsn: Lsn) -> frozenset[TableName]:
        """Tables of which a change at this place is none."""
        if self._latest is None or lsn > self._latest:
            return frozenset()
        return frozenset(name for name, since in self._since.items() if lsn <= since)

    def has(self, table: TableName, lsn: Lsn) -> bool:
        """Whether a change at this place is one of the table."""
        since = self._since.get(table)
        return since is None or lsn > since


def after_ddl(copy: Mapping[TableName, CopyState], work: Work, lsn: Lsn) -> dict[TableName, CopyState]:
    """How far copies are behind a schema change."""
    renamed = dict(work.renamed)
    after: dict[TableName, CopyState] = {}
    for name, state in copy.items():
        if state.since is not None and lsn <= state.since:
            after[name] = state
        elif name not in work.gone and name.schema not in work.gone_schemas:
            after[renamed.get(name, name)] = _anew(state) if name in work.recopied else state
    return after


def _anew(state: CopyState) -> CopyState:
    return replace(state, after=None, upto=None, rows=0, phase=Phase.ROWS)
