"""Finds what each transaction of the log contains for a task. Limits the amount of log in a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan.copy.state import CopyState, Phase
from pidts.plan.limits import Limits

Log = Callable[[Lsn, Lsn | None], Iterable[LogEntry]]
"""Returns the relay's entries after one place, up to another place, in log order. The second place is the end of an
entry; None: the end of the relay.
"""


NOTES = "*"
"""A value of `Relevance.origin`, and no zone's name: the transaction has notes about changes that were already made."""


class RelevanceKind(Enum):
    """What a transaction can contain for the task."""

    NOTHING = "nothing"
    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class Relevance:
    """A transaction's content for the task, and the effect of a schema change on tables that are being copied."""

    kind: RelevanceKind
    tables: frozenset[TableName] | None = None
    """The task's tables in a schema change, by their names before and after it. None: it may concern any table."""
    schemas: tuple[str, ...] = ()
    """The schemas whose tables a schema change may concern, if it does not name its tables."""
    gone: tuple[TableName, ...] = ()
    gone_schemas: tuple[str, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()
    """Pairs of names, before and after the whole statement."""
    recopied: tuple[TableName, ...] = ()
    """Tables whose key may have changed. A copy of such a table restarts: its progress is a value of the old key."""
    comes_back: bool = False
    """Whether the rows came from a zone whose changes the task does not pass on. No slice extends over them."""
    origin: str = ""
    """The other zone from which the rows came, if its changes are passed on; empty: the source's own zone.

    `NOTES`: only the transaction's notes are read, in a batch without rows, since later batches have to find them.
    """
    is_returned: bool = False
    """Whether rows came from the target's zone. Only removed rows return to that zone. No slice extends over them."""

    def touches(self, held: Collection[TableName]) -> bool:
        """Whether the transaction may concern one of these tables."""
        if self.tables is not None:
            return not self.tables.isdisjoint(held)
        # Creating or altering a schema does not change its tables.
        return any(name.schema in self.gone_schemas for name in held) if self.schemas else bool(held)


RelevanceOf = Callable[[LogEntry], Relevance]


class Size:
    """How much log a batch has taken so far."""

    __slots__ = ("_limits", "bytes", "count", "passed", "rows")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.count = self.rows = self.bytes = self.passed = 0

    @property
    def is_full(self) -> bool:
        """Whether the batch has reached one of its limits."""
        limits = self._limits
        return self.count >= limits.transactions or self.rows >= limits.row_events or self.bytes >= limits.bytes

    def take(self, entry: LogEntry, *, rows: bool) -> None:
        """Counts one more entry of the log; `rows`: the batch takes rows of the entry."""
        self.count += entry.count
        size = entry.read_bytes
        self.passed += size
        if rows:
            self.rows += entry.transaction.row_events
            self.bytes += size


class JoinedTables:
    """Leaves out the changes of a table from before it joined the task."""

    def __init__(self, copy: Mapping[TableName, CopyState]) -> None:
        self._since = {name: state.since for name, state in copy.items() if state.since is not None}
        self._latest = max(self._since.values(), default=None)

    def cut(self, log: Log) -> Log:
        """Returns the log with entries that end where a table joins, so that no entry has changes from both sides.

        The relay joins small transactions to one entry, which may extend over this place.
        """
        latest, places = self._latest, sorted({*self._since.values()})

        def entries(at: Lsn, to: Lsn | None) -> Iterable[LogEntry]:
            return log(at, to) if latest is None or at >= latest else _cut(log, places, at, to)

        return entries

    def narrow(self, relevance: Relevance, lsn: Lsn) -> Relevance:
        """Returns the relevance without tables that join later."""
        if self._latest is None or lsn > self._latest or relevance.tables is None:
            return relevance
        tables = frozenset(name for name in relevance.tables if self.has(name, lsn))
        if not tables:
            return Relevance(RelevanceKind.NOTHING)
        return relevance if len(tables) == len(relevance.tables) else replace(relevance, tables=tables)

    def late(self, lsn: Lsn) -> frozenset[TableName]:
        """Returns the tables that join at this place or later, so that no change at this place belongs to them."""
        if self._latest is None or lsn > self._latest:
            return frozenset()
        return frozenset(name for name, since in self._since.items() if lsn <= since)

    def has(self, table: TableName, lsn: Lsn) -> bool:
        """Whether the table joined before this place, so that a change at this place belongs to it."""
        since = self._since.get(table)
        return since is None or lsn > since


def _cut(log: Log, places: Sequence[Lsn], at: Lsn, to: Lsn | None) -> Iterator[LogEntry]:
    cut: Lsn | None = at
    while cut is not None:
        at, cut = cut, None
        for entry in log(at, to):
            if entry.count > 1 and (cut := _place_inside(entry, places, at)) is not None:
                break
            yield entry
            at = entry.transaction.lsn
        if cut is not None:
            yield from log(at, cut)


def _place_inside(entry: LogEntry, places: Sequence[Lsn], at: Lsn) -> Lsn | None:
    """Returns the first of these sorted places that is after `at` and between two transactions of the entry."""
    lsn = entry.transaction.lsn
    inside = places[bisect_right(places, at) : bisect_right(places, lsn)]
    ends = memoryview(entry.ends).cast("q").tolist() if inside else ()
    return next((one for one in inside if one < lsn and one.log_index == lsn.log_index and one.offset in ends), None)


def is_end_of_entry(log: Log, lsn: Lsn, to: Lsn) -> bool:
    """Whether a place is the end of an entry of the log, so that the log can be read up to this place.

    False if the place is inside a transaction, of which an earlier run has committed a part. Also False if no entry of
    the relay ends at this place, as after a change of the source's server.
    """
    entry = next(iter(log(lsn, to)), None)
    return entry is not None and entry.transaction.prev_lsn == lsn and not entry.is_after_gap


def after_ddl(copy: Mapping[TableName, CopyState], relevance: Relevance, lsn: Lsn) -> dict[TableName, CopyState]:
    """Returns the progress of the copies after a schema change."""
    renamed = dict(relevance.renamed)
    after: dict[TableName, CopyState] = {}
    for name, state in copy.items():
        if state.since is not None and lsn <= state.since:
            after[name] = state
        elif name not in relevance.gone and name.schema not in relevance.gone_schemas:
            after[renamed.get(name, name)] = _anew(state) if name in relevance.recopied else state
    return after


def _anew(state: CopyState) -> CopyState:
    return replace(state, after=None, upto=None, rows=0, phase=Phase.ROWS)
