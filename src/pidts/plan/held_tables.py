"""Advances held tables in the log, towards the place that all other tables will have reached after the batch.

Tables that are held together have one place (`HeldTables`). A schema change may concern tables that are held at several
places. Then all of them wait before the schema change until the last one has reached it, and are held together from
then on. If only some of the tables that are held together have to wait for a schema change, the others advance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan.copy.state import CopyState
from pidts.plan.limits import Limits
from pidts.plan.relevance import (
    NOTES,
    JoinedTables,
    Log,
    RelevanceKind,
    RelevanceOf,
    Size,
    after_ddl,
    is_end_of_entry,
)
from pidts.plan.state import HeldTables, PlanState


def origin_of_held(
    state: PlanState, log: Log, relevance_of: RelevanceOf, done: Collection[Lsn], kept: Collection[TableName]
) -> str | None:
    """Returns the zone of the next change of a held table; None if no held table has a change left.

    Held tables come first when the zone of the batch's changes is chosen. Otherwise held tables would wait as long as
    other tables have changes of another zone.
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
    """All held tables of one batch; `held` are the tables that are still held after the batch."""

    def __init__(
        self,
        copy: dict[TableName, CopyState],
        limits: Limits,
        relevance_of: RelevanceOf,
        done: Collection[Lsn],
        kept: frozenset[TableName],
        origin: str | None,
    ) -> None:
        """`origin`: the zone from which the batch's changes come; None: the batch has no changes yet."""
        self.copy = copy
        self.held: list[HeldTables] = []
        self.bytes = 0
        self.has_moved = False
        self._kept, self._origin = kept, origin
        self._limits, self._relevance_of, self._done = limits, relevance_of, done
        self._meeting: dict[Lsn, tuple[frozenset[TableName], list[HeldTables]]] = {}
        """Schema changes of tables held at several places, each with all its tables, and the tables that wait."""
        self._taking_along: list[Lsn] = []
        """The places of moved tables for which released tables wait."""

    def advance(
        self, held_tables: Iterable[HeldTables], overtaken: Collection[HeldTables], log: Log, goal: Lsn
    ) -> None:
        """Advances the held tables as far as possible. `overtaken` are held tables at a schema change of this batch."""
        stopped, moving, done = set(map(id, overtaken)), list[HeldTables](), self._done
        for waiting in held_tables:
            is_due = waiting.due is not None and not (done and waiting.due in done)
            if id(waiting) in stopped or waiting.halted or is_due:
                self.held.append(waiting)
                continue
            staying = waiting.tables & self._kept
            if staying and waiting.due is not None:
                self.held.append(self._past_due(waiting, log, waiting.due))
                self.has_moved = True
            elif staying == waiting.tables:
                self.held.append(waiting)
            elif staying:
                self.held.append(replace(waiting, tables=staying))
                moving.append(replace(waiting, tables=waiting.tables - staying))
                self.has_moved = True
            else:
                moving.append(waiting)
        if self._limits.one_origin:
            # The zone of the batch's changes was chosen for the held tables at one place. These tables must not wait
            # for tables at another place.
            for waiting in moving:
                self._advance(waiting, [], log, goal, Size(self._limits))
        else:
            self._advance_together(moving, log, goal)
        for lsn, (names, there) in self._meeting.items():
            tables = frozenset(name for waiting in there for name in waiting.tables)
            if names <= tables and len({waiting.lsn for waiting in there}) == 1:
                self.held = [waiting for waiting in self.held if waiting not in there]
                self.held.append(HeldTables(tables, there[0].lsn, lsn))
                self.has_moved = True

    def _advance_together(self, held_tables: Iterable[HeldTables], log: Log, goal: Lsn) -> None:
        """Advances tables so that tables which are released at the same time read the log together.

        A thousand shards may wait before the same change, each at a place of its own. When the change is done, they are
        *released*. Released tables wait until tables from an earlier place reach them, and are then held together with
        these tables. If the batch is full before that, the earlier tables go on in the next batch (`takes_along`).
        Until the earlier tables arrive, only those released tables go on that are at the latest place in the log. So
        the tables that are released together do not read the log more than twice.

        Nothing more than each table's place is stored. After a crash, the tables that have not moved reach their
        changes again, find in the journal that these are done, and are released again.
        """
        released, others = list[HeldTables](), list[HeldTables]()
        for waiting in held_tables:
            is_released = waiting.due is not None and is_end_of_entry(log, waiting.lsn, waiting.due)
            (released if is_released else others).append(waiting)
        released.sort(key=_place_of)
        for waiting in sorted(others, key=_place_of):
            self._advance(waiting, released, log, goal, Size(self._limits))
        size = Size(self._limits)
        while released and not size.is_full and all(lsn > released[0].lsn for lsn in self._taking_along):
            self._advance(released.pop(0), released, log, goal, size)
        if released and self._taking_along and max(self._taking_along) < released[-1].lsn:
            self._advance(released.pop(), [], log, goal, Size(self._limits))
        self.held += released

    def _advance(self, first: HeldTables, released: list[HeldTables], log: Log, goal: Lsn, size: Size) -> None:
        """Advances tables together with the released tables that they reach, and shortens `released` by these.

        `size` counts the log that these and earlier tables have taken.
        """
        advance, joined = _Advance(first, released, log, goal, size), JoinedTables(self.copy)
        before, bytes_before = len(self.held), size.bytes
        for entry in advance.entries():
            transaction = entry.transaction
            relevance = joined.narrow(self._relevance_of(entry), transaction.lsn)
            names = relevance.tables
            if relevance.kind is RelevanceKind.DDL and names is not None and not advance.tables.isdisjoint(names):
                if transaction.lsn in self._done:
                    self.copy = after_ddl(self.copy, relevance, transaction.lsn)
                    joined = JoinedTables(self.copy)
                else:
                    self.held.append(self._waiting(names & advance.tables, advance.lsn, transaction.lsn, names))
                    advance.tables -= names
                    if not advance.tables:
                        break
            if size.is_full:
                break
            rows = transaction.row_events > 0 and not advance.tables.isdisjoint(transaction.tables)
            if rows and not relevance.comes_back and relevance.origin != NOTES:
                if self._origin not in {None, relevance.origin}:
                    break
                self._origin = relevance.origin
            size.take(entry, rows=rows)
            advance.lsn = transaction.lsn
        released[:] = advance.released_left
        self.bytes += size.bytes - bytes_before
        if advance.tables and advance.lsn < goal:
            takes_along = first.takes_along or first.due is not None or advance.reached > 0
            self.held.append(HeldTables(frozenset(advance.tables), advance.lsn, takes_along=takes_along))
            if takes_along:
                self._taking_along.append(advance.lsn)
        self.has_moved |= advance.reached > 0 or self.held[before:] != [first]

    def _past_due(self, waiting: HeldTables, log: Log, due: Lsn) -> HeldTables:
        """Returns the tables at their new place, just after the schema change that was made for all of them."""
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


class _Advance:
    """The entries of the log over which tables move, and the released tables that join on the way."""

    def __init__(self, first: HeldTables, released: list[HeldTables], log: Log, goal: Lsn, size: Size) -> None:
        """`released` has the tables that may join, sorted by place. Each place is the end of an entry."""
        self.tables, self.lsn = set(first.tables), first.lsn
        """The tables that move, and the place that they have reached. The caller changes both."""
        self.reached = 0
        """How many elements of `released` have joined."""
        self._released, self._first = released, bisect_left(released, first.lsn, key=_place_of)
        self._log, self._goal, self._size = log, goal, size

    @property
    def released_left(self) -> list[HeldTables]:
        """Returns the released tables that have not joined."""
        return self._released[: self._first] + self._released[self._first + self.reached :]

    def entries(self) -> Iterator[LogEntry]:
        """Yields the entries from `lsn` to the goal. Released tables join before the first entry after their place."""
        while not self._size.is_full:
            while (waiting := self._next) is not None and waiting.lsn == self.lsn:
                self.tables |= waiting.tables
                self.reached += 1
            if self.lsn >= self._goal:
                return
            # No entry is cut at the place of the next tables, because this place is the end of an entry.
            stop = self._goal if waiting is None else min(waiting.lsn, self._goal)
            yield from self._log(self.lsn, stop)
            if self.lsn < stop:
                return

    @property
    def _next(self) -> HeldTables | None:
        place = self._first + self.reached
        return self._released[place] if place < len(self._released) else None


def _place_of(waiting: HeldTables) -> Lsn:
    return waiting.lsn
