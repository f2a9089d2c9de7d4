"""Finds the oldest transactions with the task's tables that the target does not have.

After the place that a task has reached, the log may have only transactions of other tables. Then the task's place does
not move for some time (`Limits.idle_entries`), although the target lacks nothing. So a target's lag is the age of the
first transaction to apply, and not the distance between two places in the log.

Changes of waiting tables are searched for separately. A table may wait for days until an operator acts. If one number
were the lag of all tables, it would hide the lag of the tables that do not wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan.copy.state import CopyState
from pidts.plan.relevance import JoinedTables, Log, Relevance, RelevanceKind, RelevanceOf
from pidts.plan.state import PlanState

_MOST = 10_000
"""The most entries that one search reads, since its caller has other work, too."""


class UnappliedSearch:
    """Searches the log of one attempt for changes of tables that do not wait.

    Each set of waiting tables has its own search, and the last two are kept. A search continues where it ended the last
    time. With another set of waiting tables, it begins anew: a change that was passed over may count.
    """

    def __init__(self, relevance_of: RelevanceOf) -> None:
        self._relevance_of = relevance_of
        self._searches: dict[frozenset[TableName], _Search] = {}

    def first(self, state: PlanState, log: Log, received: Lsn, waiting: Collection[TableName] = ()) -> LogEntry | None:
        """Returns the first entry with changes that the target lacks; None if the target has all changes.

        The search begins where the previous search with these `waiting` tables has ended, and goes at least to
        `received`. Changes that concern only `waiting` tables do not count. One call reads only a part of a long log.
        If it has read its part and found nothing, it returns the first entry after this part, which the target may
        lack. The next call with these tables begins at this entry.
        """
        names = frozenset(waiting)
        search = self._searches.pop(names, None) or _Search(self._relevance_of, names)
        self._searches = {**dict([*self._searches.items()][-1:]), names: search}
        return search.first(state, log, received)


class _Search:
    """The search for changes of tables other than `waiting`."""

    def __init__(self, relevance_of: RelevanceOf, waiting: frozenset[TableName]) -> None:
        self._relevance_of, self._waiting = relevance_of, waiting
        self._clear: Lsn | None = None
        """The place up to which the log has no further change of these tables."""
        self._found: LogEntry | None = None

    def first(self, state: PlanState, log: Log, received: Lsn) -> LogEntry | None:
        if self._found is not None and self._found.transaction.lsn > state.lsn:
            return self._found
        self._found = None
        joined = JoinedTables(state.copy)
        at = state.lsn if self._clear is None else max(self._clear, state.lsn)
        if at >= received:
            return None
        for count, entry in enumerate(log(at, None)):
            if count == _MOST:
                return entry
            transaction = entry.transaction
            if entry.lacks_rows or self._is_lacked(joined.narrow(self._relevance_of(entry), transaction.lsn)):
                self._found = entry
                return entry
            self._clear = transaction.lsn
        return None

    def _is_lacked(self, relevance: Relevance) -> bool:
        if relevance.kind is RelevanceKind.NOTHING:
            return False
        return relevance.tables is None or not relevance.tables <= self._waiting


class WaitingTableSearch:
    """Searches the log for the oldest change of a waiting table; each search continues where the previous one ended."""

    def __init__(self, relevance_of: RelevanceOf) -> None:
        self._relevance_of = relevance_of
        self._places: Mapping[TableName, Lsn] = {}
        self._found: LogEntry | None = None
        self.clear: Lsn | None = None
        """The place up to which the log has no change of a waiting table that the target lacks."""

    def first(
        self, places: Mapping[TableName, Lsn], copy: Mapping[TableName, CopyState], log: Log, received: Lsn
    ) -> LogEntry | None:
        """Returns the first entry with a change of a waiting table that the target lacks.

        `places` has the place up to which the target has each waiting table. Returns None if the target has all changes
        of waiting tables, or if the search has not reached the first missing change yet: one call reads only a part of
        a long log.
        """
        known = self._places
        if not all(name in known and at >= known[name] for name, at in places.items()):
            self.clear, self._found = None, None
        self._places = dict(places)
        if not places:
            return None
        joined = JoinedTables(copy)
        if self._found is not None and self._waits(self._found, joined):
            return self._found
        self._found = None
        begin = min(places.values())
        self.clear = begin if self.clear is None else max(self.clear, begin)
        if self.clear >= received:
            return None
        for entry in islice(log(self.clear, None), _MOST):
            if self._waits(entry, joined):
                self._found = entry
                return entry
            self.clear = entry.transaction.lsn
        return None

    def _waits(self, entry: LogEntry, joined: JoinedTables) -> bool:
        lsn = entry.transaction.lsn
        relevance = joined.narrow(self._relevance_of(entry), lsn)
        if relevance.kind is RelevanceKind.NOTHING:
            return False
        if relevance.tables is None:
            return relevance.touches([name for name, at in self._places.items() if at < lsn])
        return any(self._places.get(name, lsn) < lsn for name in relevance.tables)
