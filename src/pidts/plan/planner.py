"""The next state of a task, from its state and what the relay holds.

Five rules make everything behind the planner simple:

- a batch ends at a transaction's end, so stopping, crashing and reading the target never tears a transaction;
- a batch never crosses a schema change of its tables, so one structure per table holds within a batch;
- a schema change begins when all that lies before it is in the target, on all workers, and nothing of its tables that
  lies behind it goes there before it is done;
- a chunk is written by the batch whose log covers its whole window, or it is read again;
- equal arguments give equal plans.

The way of a schema change: the batch that ends before it names it as *due*, and the driver runs it once that batch is
in the target. The driver waits for it for a short while. If it is done by then, the next batch goes over it as if it
were nothing, and no reader of the target saw more than a pause. If it is not, and there is other work, its tables are
held where they are and everything else goes on, until the schema change is done and they have caught up.

One that speaks of held tables and others waits until they have caught up; and so does one of which nobody can say
which tables it touches, for which everything waits, too, unless it only makes or alters a schema, or drops one of which
none are held. One that speaks of held tables only is met again when they get there, in the same way: of several groups,
whoever comes first waits there for the others, and they go on as one.

A table *halts* where an operator has to do something: a schema change of it fails for good (`halted`), or the target
refuses rows of it (`Held.halted`). Nobody knows how long that takes, so others do not wait for it to catch up. A
statement that speaks of halted tables and others holds those others, too, and waits for the halted ones.

What is copied is read when the batch leaves little of the log behind: a reading that begins with a backlog has the
backlog in its window. A source that writes without pause does not starve the copy: as long as batches keep up with it,
what is left behind one is what came while the one before was written. A batch goes on beyond its limits to the end of a
window. Only rows that wait, for which the whole window has to be in memory, are given up where it is too long; they are
read again in smaller pieces, until the window is short enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from pidts.model import LogEntry, Lsn, TableName, Transaction, xa_not_received
from pidts.plan.asking import ask
from pidts.plan.copying import CopyState, Phase, StagedChunk
from pidts.plan.groups import Groups
from pidts.plan.limits import Limits
from pidts.plan.settling import Settling
from pidts.plan.state import Held, PlanState
from pidts.plan.work import Begun, Log, Size, Work, WorkKind, WorkOf, after_ddl


def next_state(
    state: PlanState,
    log: Log,
    staged: Mapping[TableName, StagedChunk],
    limits: Limits,
    work_of: WorkOf,
    goal: Lsn | None = None,
    done: Collection[Lsn] = (),
    halted: Collection[Lsn] = (),
    kept: Collection[TableName] = (),
) -> PlanState | None:
    """The state after the next batch, or None where there is nothing to do yet.

    `staged` holds the chunks named by `state.reading`, `done` the schema changes of `state.dues` that have been run,
    `halted` those that have failed and wait for an operator, `kept` tables that stay where they are for now, since
    others change what they have together. Up to `goal` the position is moved even if nothing needs applying, so that a
    caller who waits for it sees it reached.
    """
    copy = {name: replace(one, reading=None) for name, one in state.copy.items() if not one.done}
    kept = frozenset(kept) - copy.keys()
    main = _Main(state, copy, limits, work_of, done, halted, _windows(staged), kept)
    main.walk(log(state.lsn, None))
    if main.at_end and main.is_in_window:
        return None
    # Where a schema change stands before the end of a chunk's window, or its file is gone, it is read again.
    has_work = main.has_work or bool(state.reading)
    walks = Groups(main.copy, limits, work_of, done, kept)
    walks.walk(main.held, main.overtaken, log, main.lsn)
    has_work |= walks.has_moved
    copy, held, size = walks.copy, walks.held, main.size.bytes + walks.bytes
    names = {name for group in held for name in group.tables}
    settling = Settling(copy, main.lsn, size, names, limits)
    settling.settle(staged, partial(_touched, log))
    copy, held = settling.copy, [*held, *settling.behind]
    names = {name for group in held for name in group.tables}
    if main.due is None and (main.at_end or (main.is_full and _is_near_end(log, main.lsn, limits))):
        copy = ask(copy, limits, names, main.lsn)
    if not has_work and copy == {name: one for name, one in state.copy.items() if not one.done}:
        towards_goal = goal is not None and state.lsn < goal <= main.lsn
        if main.size.count < limits.idle_entries and not towards_goal:
            return None
    written, settled = tuple(settling.written), tuple(settling.settled)
    # A table that was just settled as of an earlier place has to reach the schema change first.
    due = None if settling.behind else main.due
    return PlanState(main.lsn, copy, tuple(held), due, written, settled)


def _windows(staged: Mapping[TableName, StagedChunk]) -> tuple[Lsn | None, Lsn | None]:
    """Where the windows end of all that is to be settled, and of that for which the batch may become only so long."""
    read = [chunk for chunk in staged.values() if chunk.request.phase is not Phase.FINISH]
    loaded, waiting = ([chunk.high for chunk in read if bool(chunk.waiting) is waits] for waits in (False, True))
    return max(loaded, default=None), max(waiting, default=None)


def _touched(log: Log, table: TableName, low: Lsn, high: Lsn) -> bool:
    for entry in log(low, None):
        transaction = entry.transaction
        if transaction.prev_lsn >= high:
            return False
        # Neighbours that are told as one entry have the same tables, and the first of them lies before `high`.
        if transaction.row_events and table in transaction.tables:
            return True
    return False


def _is_near_end(log: Log, lsn: Lsn, limits: Limits) -> bool:
    """Whether so little of the log is left that a window which begins there can be settled."""
    left = 0
    for entry in log(lsn, None):
        left += (entry.prepared or entry.extent).size
        if left > limits.copy_bytes // 4 or entry.transaction.ddl is not None or entry.lacks_rows:
            return False
    return True


class _Main:
    """The walk of all tables that are not held."""

    def __init__(
        self,
        state: PlanState,
        copy: dict[TableName, CopyState],
        limits: Limits,
        work_of: WorkOf,
        done: Collection[Lsn],
        halted: Collection[Lsn],
        windows: tuple[Lsn | None, Lsn | None],
        kept: frozenset[TableName],
    ) -> None:
        self._was_due, self._work_of, self._done = state.due, work_of, done
        self._halted = halted
        self._window, self._waiting_window = windows
        self._copy_bytes = limits.copy_bytes
        self.lsn, self.held = state.lsn, list(state.held)
        self.due: Lsn | None = None
        self.copy = copy
        self.size = Size(limits)
        self.overtaken: list[Held] = []
        self.has_work = self.at_end = self.is_full = False
        self._kept, self._free = kept, kept - state.exceptions.keys()
        self.has_work |= bool(self._free)
        if state.due is None:
            self._keep()
        self._look_at(copy)

    def _look_at(self, copy: dict[TableName, CopyState]) -> None:
        self.copy, self._begun = copy, Begun(copy)
        self._uncarried = {name for name, state in copy.items() if not state.is_carried}

    @property
    def is_in_window(self) -> bool:
        """Whether the batch has to go on, for a chunk that it is to settle."""
        if self._window is not None and self.lsn < self._window:
            return True
        waits = self._waiting_window is not None and self.lsn < self._waiting_window
        return waits and self.size.bytes <= self._copy_bytes

    def walk(self, entries: Iterable[LogEntry]) -> None:
        """As far as the next batch goes."""
        self.at_end = all(self._takes(entry) for entry in entries)

    def _takes(self, entry: LogEntry) -> bool:
        transaction = entry.transaction
        if entry.lacks_rows:
            if self.size.count == 0:
                raise xa_not_received(transaction)
            self.has_work = True
            return False
        work = self._begun.work(self._work_of(entry), transaction.lsn)
        if work.kind is WorkKind.DDL and not self._passes(transaction.lsn, work):
            return False
        if self.size.is_full and not self.is_in_window:
            self.has_work = self.is_full = True
            return False
        rows = work.kind is not WorkKind.NOTHING and self._carries(transaction, work)
        self.size.take(entry, rows=rows)
        self.has_work |= rows
        self.lsn = transaction.lsn
        if transaction.lsn == self._was_due:
            self._keep()
        return True

    def _keep(self) -> None:
        """From here on; a schema change that is due is begun for all of its tables, so they go over it together."""
        if self._free:
            self.held.append(Held(self._free, self.lsn))
            self._free = frozenset()

    def _passes(self, lsn: Lsn, work: Work) -> bool:
        names = work.tables
        held = {name for group in self.held for name in group.tables}
        if names is not None and names <= held:
            return True
        if held and work.touches(held):
            if names is not None and any(map(self._stays, self.held)):
                self.held.append(Held(names - held, self.lsn))
                return True
            return False
        if lsn == self._was_due and lsn not in self._done and names is None:
            self._keep()
        if lsn in self._done:
            self._look_at(after_ddl(self.copy, work, lsn))
            self.has_work = True
            return True
        if lsn == self._was_due and names is not None:
            self.overtaken.append(Held(names, self.lsn, lsn))
            self.held += self.overtaken
            self._free -= names
            self._keep()
            return True
        self.due = lsn
        self.has_work |= lsn != self._was_due
        return False

    def _stays(self, group: Held) -> bool:
        """Whether nobody knows for how long."""
        return group.halted or group.due in self._halted or not group.tables.isdisjoint(self._kept)

    def _carries(self, transaction: Transaction, work: Work) -> bool:
        if not transaction.row_events:
            return False
        names = work.tables if work.kind is WorkKind.ROWS and work.tables is not None else transaction.tables
        left_out = self._uncarried
        if not self.held and not left_out:
            return True
        return any(name not in left_out and not any(name in group.tables for group in self.held) for name in names)
