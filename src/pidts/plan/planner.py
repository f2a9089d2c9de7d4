"""Plans the next state of a task from its current state and the contents of the relay.

Six rules make everything after the planner simple:

- a batch ends at a transaction's end, so the target never has only half of a transaction, even after a crash;
- a batch never crosses a schema change of its tables, so each table has one structure within a batch;
- a schema change begins when all changes before it are in the target, on all workers; no later change of its tables is
  written before it is done;
- the batch whose log covers a chunk's whole window writes the chunk, or the chunk is read again (the only exception, in
  `pidts.plan.copy.state`, is for batches that end before a change of another zone);
- all changes of a batch come from one zone, since the batch is one transaction on the target, which is marked with one
  zone;
- equal arguments give equal plans.

A schema change takes these steps. The batch that ends before the schema change names it as *due*. The driver runs the
schema change once that batch is in the target, and waits a short time for its end. If it is done by then, the next
batch goes past its place, and a reader of the target sees only a pause. If it is not done, and there is other work, its
tables are held at their place. All other tables continue. When the schema change is done, the held tables catch up.

Where held tables meet further schema changes:

- A schema change that names held and other tables waits until the held tables have caught up.
- A schema change whose tables are not known waits for all held tables, and all other tables wait, too. The exception is
  a schema change that only creates or alters a schema, or drops a schema without held tables.
- A schema change that names only held tables takes the steps above when these tables reach it. If they are held at
  several places, the first tables to reach it wait for the others. From then on all these tables are held together.

A table is *halted* if an operator has to act: its schema change fails permanently (`halted`), or the target refuses its
rows (`HeldTables.halted`). Nobody knows how long the operator needs, so other tables do not wait until the table has
caught up. If a statement names halted tables and other tables, it waits for the halted tables, and the other tables are
held before it.

The copy reads rows when little of the log is left after the batch. If rows were read during a backlog, their window
would contain the backlog. The copy progresses even if the source writes without pause: as long as batches keep up with
the source, the log left after a batch is only what the source wrote during that batch. A batch exceeds its limits to
reach the end of a window. If a window is too long to be held in memory, only its staged rows are dropped. These rows
are read again in smaller pieces, until the window is short enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from pidts.model import LogEntry, Lsn, TableName, Transaction, xa_not_received
from pidts.plan.copy.requests import ask
from pidts.plan.copy.settlement import Settlement
from pidts.plan.copy.state import CopyState, Phase, StagedChunk
from pidts.plan.held_tables import HeldTablesOfBatch, origin_of_held
from pidts.plan.limits import Limits
from pidts.plan.relevance import JoinedTables, Log, Relevance, RelevanceKind, RelevanceOf, Size, after_ddl
from pidts.plan.state import HeldTables, PlanState


def next_state(
    state: PlanState,
    log: Log,
    staged: Mapping[TableName, StagedChunk],
    limits: Limits,
    relevance_of: RelevanceOf,
    goal: Lsn | None = None,
    done: Collection[Lsn] = (),
    halted: Collection[Lsn] = (),
    kept: Collection[TableName] = (),
) -> PlanState | None:
    """Returns the state after the next batch, or None if there is nothing to do yet.

    - `staged` has the chunks of `state.open_requests`.
    - `done` are the schema changes of `state.dues` that have been run. `halted` have failed, and wait for an operator.
    - `kept` are tables that are held for now, because a schema change of their shared target table is under way.
    - Up to `goal` the position moves even without changes to apply: a caller may wait for this place.
    """
    copy = {name: one.unread for name, one in state.copy.items() if not one.done}
    log = JoinedTables(copy).cut(log)
    kept = frozenset(kept) - copy.keys()
    origin = origin_of_held(state, log, relevance_of, done, kept) if limits.one_origin else None
    main = _UnheldTables(state, copy, limits, relevance_of, done, halted, _windows(staged), kept, origin)
    main.advance(log(state.lsn, None))
    if main.at_end and main.is_in_window:
        return None
    if not (state.copy or state.held or main.held):
        # The rest of this function would change nothing, and take longer than reading a few entries.
        is_ahead = main.has_work or main.moves_without_work(state.lsn, limits, goal)
        return PlanState(main.lsn, due=main.due) if is_ahead else None
    # Open requests count as work even without changes in the log. A chunk has to be read again if a schema change comes
    # before the end of its window, or if its file is gone.
    has_work = main.has_work or bool(state.open_requests)
    held_tables = HeldTablesOfBatch(main.copy, limits, relevance_of, done, kept, main.origin)
    held_tables.advance(main.held, main.overtaken, log, main.lsn)
    has_work |= held_tables.has_moved
    copy, held, size = held_tables.copy, held_tables.held, main.size.bytes + held_tables.bytes
    index = state.index.moved_to(tuple(held))
    keeps = limits.one_origin and main.due is None
    settlement = Settlement(copy, state.lsn, main.lsn, size, index.places, limits, keeps)
    settlement.settle(staged, partial(_touched, log))
    copy, held = settlement.copy, [*held, *settlement.settled_early]
    index = index.moved_to(tuple(held)) if settlement.settled_early else index
    if main.due is None and (main.at_end or (main.is_full and _is_near_end(log, main.lsn, limits))):
        waits = frozenset(index.places).union(name for name, one in copy.items() if one.kept is not None)
        copy = ask(copy, limits, waits, main.lsn)
    is_same = not has_work and copy == {name: one for name, one in state.copy.items() if not one.done}
    if is_same and not main.moves_without_work(state.lsn, limits, goal):
        return None
    written, settled = tuple(settlement.written), tuple(settlement.settled)
    # A table that was just settled at an earlier place has to reach the schema change first.
    due = None if settlement.settled_early else main.due
    return PlanState(main.lsn, copy, tuple(held), due, written, settled).with_index(index)


def _windows(staged: Mapping[TableName, StagedChunk]) -> tuple[Lsn | None, Lsn | None]:
    """Returns the ends of two windows: of loaded chunks, and of waiting chunks; None if there are no such chunks.

    A batch extends to the end of the second window only while it is smaller than `copy_bytes`.
    """
    read = [chunk for chunk in staged.values() if chunk.request.phase is not Phase.FINISH]
    loaded, waiting = ([chunk.high for chunk in read if bool(chunk.waiting) is waits] for waits in (False, True))
    return max(loaded, default=None), max(waiting, default=None)


def _touched(log: Log, table: TableName, low: Lsn, high: Lsn) -> bool:
    for entry in log(low, None):
        transaction = entry.transaction
        if transaction.prev_lsn >= high:
            return False
        # Transactions in one entry have the same tables, and the first of them is before `high`.
        if transaction.row_events and table in transaction.tables:
            return True
    return False


def _is_near_end(log: Log, lsn: Lsn, limits: Limits) -> bool:
    """Whether so little log is left that a window which begins here can be settled."""
    left = 0
    for entry in log(lsn, None):
        left += entry.read_bytes
        if left > limits.copy_bytes // 4 or entry.transaction.ddl is not None or entry.lacks_rows:
            return False
    return True


class _UnheldTables:
    """Advances the place in the log of all tables that are not held."""

    def __init__(
        self,
        state: PlanState,
        copy: dict[TableName, CopyState],
        limits: Limits,
        relevance_of: RelevanceOf,
        done: Collection[Lsn],
        halted: Collection[Lsn],
        windows: tuple[Lsn | None, Lsn | None],
        kept: frozenset[TableName],
        origin: str | None,
    ) -> None:
        self._was_due, self._relevance_of, self._done = state.due, relevance_of, done
        self._halted = halted
        self._window, self._waiting_window = windows
        self._copy_bytes = limits.copy_bytes
        self.lsn, self.held = state.lsn, list(state.held)
        self._held_names, self._named = set(state.exceptions), len(state.held)
        self.due: Lsn | None = None
        self.origin = origin
        """The zone from which the batch's changes come; None: the batch has no changes yet."""
        self.copy = copy
        self.size = Size(limits)
        self.overtaken: list[HeldTables] = []
        self.has_work = self.at_end = self.is_full = False
        self._kept, self._free = kept, kept - state.exceptions.keys() if kept else kept
        self.has_work |= bool(self._free)
        if state.due is None:
            self._keep()
        self._look_at(copy)

    def _look_at(self, copy: dict[TableName, CopyState]) -> None:
        self.copy, self._joined = copy, JoinedTables(copy)
        self._uncarried = {name for name, state in copy.items() if not state.is_carried}

    @property
    def is_in_window(self) -> bool:
        """Whether the batch has to continue because it will settle a chunk."""
        if self._window is not None and self.lsn < self._window:
            return True
        waits = self._waiting_window is not None and self.lsn < self._waiting_window
        return waits and self.size.bytes <= self._copy_bytes

    def moves_without_work(self, begin: Lsn, limits: Limits, goal: Lsn | None) -> bool:
        """Whether the position moves from `begin` to `lsn` even if there is nothing to apply."""
        is_far = self.size.count >= limits.idle_entries or self.size.passed >= limits.idle_bytes
        return is_far or (goal is not None and begin < goal <= self.lsn)

    def advance(self, entries: Iterable[LogEntry]) -> None:
        self.at_end = all(self._takes(entry) for entry in entries)

    def _takes(self, entry: LogEntry) -> bool:
        transaction = entry.transaction
        if entry.lacks_rows:
            if self.size.count == 0:
                raise xa_not_received(transaction)
            self.has_work = True
            return False
        relevance = self._joined.narrow(self._relevance_of(entry), transaction.lsn)
        if relevance.kind is RelevanceKind.DDL and not self._passes(transaction.lsn, relevance):
            return False
        if self.size.is_full and not self.is_in_window:
            self.has_work = self.is_full = True
            return False
        if transaction.row_events and relevance.kind is not RelevanceKind.NOTHING:
            if self.origin not in {None, relevance.origin}:
                self.has_work = self.is_full = True
                return False
            self.origin = relevance.origin
        rows = relevance.kind is not RelevanceKind.NOTHING and self._carries(transaction, relevance)
        self.size.take(entry, rows=rows)
        self.has_work |= rows
        self.lsn = transaction.lsn
        if transaction.lsn == self._was_due:
            self._keep()
        return True

    def _keep(self) -> None:
        """Makes the `kept` tables wait at the reached place, after a due change that has begun for all its tables."""
        if self._free:
            self.held.append(HeldTables(self._free, self.lsn))
            self._free = frozenset()

    def _all_held(self) -> set[TableName]:
        """Returns all tables that are held so far. The list of held tables only grows."""
        self._held_names.update(*(waiting.tables for waiting in self.held[self._named :]))
        self._named = len(self.held)
        return self._held_names

    def _passes(self, lsn: Lsn, relevance: Relevance) -> bool:
        names, held = relevance.tables, self._all_held()
        if names is not None and names <= held:
            return True
        if held and relevance.touches(held):
            if names is not None and any(map(self._stays, self.held)):
                self.held.append(HeldTables(names - held, self.lsn))
                return True
            return False
        if lsn == self._was_due and lsn not in self._done and names is None:
            self._keep()
        if lsn in self._done:
            self._look_at(after_ddl(self.copy, relevance, lsn))
            self.has_work = True
            return True
        if lsn == self._was_due and names is not None:
            self.overtaken.append(HeldTables(names, self.lsn, lsn))
            self.held += self.overtaken
            self._free -= names
            self._keep()
            return True
        self.due = lsn
        self.has_work |= lsn != self._was_due
        return False

    def _stays(self, waiting: HeldTables) -> bool:
        """Whether nobody knows how long the tables stay at their place."""
        return waiting.halted or waiting.due in self._halted or not waiting.tables.isdisjoint(self._kept)

    def _carries(self, transaction: Transaction, relevance: Relevance) -> bool:
        if not transaction.row_events:
            return False
        names = (
            relevance.tables
            if relevance.kind is RelevanceKind.ROWS and relevance.tables is not None
            else transaction.tables
        )
        left_out = self._uncarried
        if not self.held and not left_out:
            return True
        held = self._all_held()
        return any(name not in left_out and name not in held for name in names)
