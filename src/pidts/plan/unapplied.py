"""Finds the oldest transaction with the task's tables that the target does not have.

After the place that a task has reached, the log may have only transactions of other tables. Then the task's place does
not move for some time (`Limits.idle_entries`), although the target lacks nothing. So a target's lag is not the distance
between two places in the log, but the age of the first transaction that has to be applied.
"""

from __future__ import annotations

from pidts.model import LogEntry, Lsn
from pidts.plan.relevance import JoinedTables, Log, RelevanceKind, RelevanceOf
from pidts.plan.state import PlanState


class Unapplied:
    """Searches the log of one attempt; each search continues where the previous one ended."""

    def __init__(self, relevance_of: RelevanceOf) -> None:
        self._relevance_of = relevance_of
        self._clear: Lsn | None = None
        """The place up to which the log has no further change for the task."""
        self._found: LogEntry | None = None

    def first(self, state: PlanState, log: Log, received: Lsn) -> LogEntry | None:
        """Returns the first entry with changes that the target lacks; None if it lacks none.

        The log is read from the end of the previous search on, at least up to `received`. Tables that are held at
        earlier places are not considered.
        """
        if self._found is not None and self._found.transaction.lsn > state.lsn:
            return self._found
        self._found = None
        joined = JoinedTables(state.copy)
        at = state.lsn if self._clear is None else max(self._clear, state.lsn)
        if at >= received:
            return None
        for entry in log(at, None):
            transaction = entry.transaction
            if (
                entry.lacks_rows
                or joined.narrow(self._relevance_of(entry), transaction.lsn).kind is not RelevanceKind.NOTHING
            ):
                self._found = entry
                return entry
            self._clear = transaction.lsn
        return None
