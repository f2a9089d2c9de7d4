"""Moves held tables towards the place that all other tables will have reached after the batch.

Tables that are held together have one place (`HeldTables`). A schema change may concern tables that are held at several
places. Then all of them wait before the schema change until the last one has reached it, and are held together from
then on. If only some of the tables that are held together have to wait for a schema change, the others go on without
these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

from pidts.model import Lsn, TableName
from pidts.plan.copy.state import CopyState
from pidts.plan.limits import Limits
from pidts.plan.relevance import NOTES, JoinedTables, Log, RelevanceKind, RelevanceOf, Size, after_ddl
from pidts.plan.state import HeldTables, PlanState


def origin_of_held(
    state: PlanState, log: Log, relevance_of: RelevanceOf, done: Collection[Lsn], kept: Collection[TableName]
) -> str | None:
    """Returns the zone of the next change of a held table; None if no held table has a change left.

    The held tables decide first from which zone the batch's changes come. Otherwise they would wait as long as other
    tables have changes of another zone.
    """
    joined = JoinedTables(state.copy)
    for waiting in state.held:
        tables = waiting.tables.difference(kept)
        is_kept = tables != waiting.tables and (waiting.due is not None or not tables)
        if waiting.halted or (waiting.due is not None and waiting.due not in done) or is_kept:
            continue
        for entry in log(waiting.lsn, state.lsn):
            relevance = joined.narrow(relevance_of(entry), entry.transaction.lsn)
            is_about = (
                relevance.kind is RelevanceKind.DDL and relevance.tables is not None and relevance.tables & tables
            )
            if is_about and entry.transaction.lsn not in done:
                break
            is_read = entry.transaction.row_events and not relevance.comes_back and relevance.origin != NOTES
            if is_read and not tables.isdisjoint(entry.transaction.tables):
                return relevance.origin
    return None


class HeldTablesOfBatch:
    """All held tables of one batch. `held` has the tables that are still held after the batch."""

    def __init__(
        self,
        copy: dict[TableName, CopyState],
        limits: Limits,
        relevance_of: RelevanceOf,
        done: Collection[Lsn],
        kept: frozenset[TableName] = frozenset(),
        origin: str | None = None,
    ) -> None:
        """`origin`: the zone from which the batch's changes come; None: the batch has no changes yet."""
        self.copy = copy
        self.held: list[HeldTables] = []
        self.bytes = 0
        self.has_moved = False
        self._kept, self._origin = kept, origin
        self._limits, self._relevance_of, self._done = limits, relevance_of, done
        self._meeting: dict[Lsn, tuple[frozenset[TableName], list[HeldTables]]] = {}
        """Schema changes of tables held at several places: all tables of the change, and those that wait before it."""

    def advance(
        self, held_tables: Iterable[HeldTables], overtaken: Collection[HeldTables], log: Log, goal: Lsn
    ) -> None:
        """Moves the held tables as far as possible.

        The tables in `overtaken` wait, since a schema change in this batch stops them.
        """
        left = deque(held_tables)
        while left:
            waiting = left.popleft()
            after = waiting if waiting in overtaken else self._advance(waiting, log, goal, left)
            self.has_moved |= after != waiting
            if after is not None:
                self.held.append(after)
        for lsn, (names, there) in self._meeting.items():
            tables = frozenset(name for waiting in there for name in waiting.tables)
            if names <= tables and len({waiting.lsn for waiting in there}) == 1:
                self.held = [waiting for waiting in self.held if waiting not in there]
                self.held.append(HeldTables(tables, there[0].lsn, lsn))
                self.has_moved = True

    def _advance(self, waiting: HeldTables, log: Log, goal: Lsn, left: deque[HeldTables]) -> HeldTables | None:
        """Returns the tables that are still held together after the batch; None if they have caught up.

        Adds tables that are no longer held together with them to `left`.
        """
        if waiting.halted or (waiting.due is not None and waiting.due not in self._done):
            return waiting
        if (staying := waiting.tables & self._kept) and waiting.due is not None:
            return self._past_due(waiting, log, waiting.due)
        if staying:
            if staying != waiting.tables:
                left.append(replace(waiting, tables=waiting.tables - staying))
                waiting = replace(waiting, tables=staying)
            return waiting
        tables, lsn, joined = waiting.tables, waiting.lsn, JoinedTables(self.copy)
        size = Size(self._limits)
        try:
            for entry in log(lsn, goal):
                transaction = entry.transaction
                if transaction.lsn > goal:
                    return None
                relevance = joined.narrow(self._relevance_of(entry), transaction.lsn)
                if relevance.kind is RelevanceKind.DDL and relevance.tables is not None and relevance.tables & tables:
                    if transaction.lsn not in self._done:
                        if tables - relevance.tables:
                            left.append(HeldTables(tables - relevance.tables, lsn))
                        return self._waiting(tables & relevance.tables, lsn, transaction.lsn, relevance.tables)
                    self.copy = after_ddl(self.copy, relevance, transaction.lsn)
                    joined = JoinedTables(self.copy)
                if size.is_full:
                    return HeldTables(tables, lsn)
                rows = transaction.row_events > 0 and not tables.isdisjoint(transaction.tables)
                if rows and not relevance.comes_back and relevance.origin != NOTES:
                    if self._origin not in {None, relevance.origin}:
                        return HeldTables(tables, lsn)
                    self._origin = relevance.origin
                size.take(entry, rows=rows)
                lsn = transaction.lsn
            return None if lsn >= goal else HeldTables(tables, lsn)
        finally:
            self.bytes += size.bytes

    def _past_due(self, waiting: HeldTables, log: Log, due: Lsn) -> HeldTables:
        """Returns the tables at their new place: just after the schema change that was made for all of them."""
        for entry in log(waiting.lsn, due):
            if entry.transaction.lsn == due:
                self.copy = after_ddl(self.copy, JoinedTables(self.copy).narrow(self._relevance_of(entry), due), due)
        return HeldTables(waiting.tables, due)

    def _waiting(self, tables: frozenset[TableName], lsn: Lsn, ddl: Lsn, names: frozenset[TableName]) -> HeldTables:
        if names == tables:
            return HeldTables(tables, lsn, ddl)
        waiting = HeldTables(tables, lsn)
        self._meeting.setdefault(ddl, (names, []))[1].append(waiting)
        return waiting
