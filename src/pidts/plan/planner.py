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

One that speaks of tables of two groups, or of held tables and others, waits until the groups have caught up; and so
does one of which nobody can say which tables it touches, for which everything waits, too. One that speaks of tables of
a single group only is met again when the group gets there, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pidts.model import Halted, LogEntry, Lsn, TableName, Transaction, Where, xa_not_received
from pidts.plan.copying import ChunkRequest, CopyState, StagedChunk
from pidts.plan.state import Held, PlanState

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
    gone: tuple[TableName, ...] = ()
    gone_schemas: tuple[str, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()
    """Name before and name after the whole statement."""
    recopied: tuple[TableName, ...] = ()
    """Tables whose key may be another one now: how far a copy had come by the old key says nothing any more."""


WorkOf = Callable[[LogEntry], Work]


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch may become. Transactions are never cut, so a batch may exceed them by one transaction.

    Tables that catch up have these limits once more, each group for itself.
    """

    transactions: int = 50_000
    row_events: int = 80_000
    bytes: int = 56 << 20
    """Less than the driver applies by itself: a batch that exceeds it by one entry shall not need a Spark job."""
    chunk_rows: int = 20_000
    chunks: int = 4
    idle_entries: int = 10_000
    """So many transactions of other tables pass before the position is moved for their sake alone."""
    copy_bytes: int = 32 << 20
    """A batch with more log than this writes no chunk: a chunk has to be reduced together with all of its window."""


def next_state(
    state: PlanState,
    log: Log,
    staged: Mapping[TableName, StagedChunk],
    limits: Limits,
    work_of: WorkOf,
    goal: Lsn | None = None,
    done: Collection[Lsn] = (),
) -> PlanState | None:
    """The state after the next batch, or None where there is nothing to do yet.

    `staged` holds the chunks named by `state.reading`, `done` the schema changes of `state.dues` that have been run. Up
    to `goal` the position is moved even if nothing needs applying, so that a caller who waits for it sees it reached.
    """
    floor = max((chunk.high for chunk in staged.values()), default=None)
    main = _Main(state, limits, work_of, done, floor)
    main.walk(log(state.lsn, None))
    if main.at_end and main.is_in_window:
        return None
    # Where a schema change stands before the end of a chunk's window, or its file is gone, it is read again.
    has_work = main.has_work or bool(state.reading)
    copy, held, size = main.copy, [], main.size.bytes
    for group in main.held:
        step = _Group(group, limits, work_of, done, copy)
        after = group if group in main.overtaken else step.walk(log, main.lsn)
        has_work |= after != group
        copy, size = step.copy, size + step.size.bytes
        if after is not None:
            held.append(after)
    names = {name for group in held for name in group.tables}
    copy, written = _write_chunks(copy, staged if size <= limits.copy_bytes else {}, main.lsn, names)
    if main.at_end:
        # Behind a backlog (or before a DDL) a chunk's window would be as long as the backlog, and so would its batch.
        copy = _read_chunks(copy, limits, names)
    if not has_work and copy == state.copy:
        towards_goal = goal is not None and state.lsn < goal <= main.lsn
        if main.size.count < limits.idle_entries and not towards_goal:
            return None
    return PlanState(main.lsn, copy, tuple(held), main.due, written)


class _Size:
    """How much of the log a walk has taken."""

    __slots__ = ("_limits", "bytes", "count", "rows")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.count = self.rows = self.bytes = 0

    @property
    def is_full(self) -> bool:
        limits = self._limits
        return self.count >= limits.transactions or self.rows >= limits.row_events or self.bytes >= limits.bytes

    def take(self, entry: LogEntry, *, rows: bool) -> None:
        self.count += entry.count
        if rows:
            self.rows += entry.transaction.row_events
            self.bytes += (entry.prepared or entry.extent).size


class _Main:
    """The walk of all tables that are not held."""

    def __init__(
        self, state: PlanState, limits: Limits, work_of: WorkOf, done: Collection[Lsn], floor: Lsn | None
    ) -> None:
        self._was_due, self._work_of, self._done, self._floor = state.due, work_of, done, floor
        self._copy_bytes = limits.copy_bytes
        self.lsn, self.held = state.lsn, list(state.held)
        self.due: Lsn | None = None
        self.copy: dict[TableName, CopyState] = dict(state.durable().copy)
        self.size = _Size(limits)
        self.overtaken: list[Held] = []
        self.has_work = self.at_end = False

    @property
    def is_in_window(self) -> bool:
        """Whether the batch has to go on, for a chunk that it is to write."""
        return self._floor is not None and self.lsn < self._floor and self.size.bytes <= self._copy_bytes

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
        work = self._work_of(entry)
        if work.kind is WorkKind.DDL and not self._passes(transaction.lsn, work):
            return False
        if self.size.is_full and not self.is_in_window:
            self.has_work = True
            return False
        rows = work.kind is not WorkKind.NOTHING and self._carries(transaction, work)
        self.size.take(entry, rows=rows)
        self.has_work |= rows
        self.lsn = transaction.lsn
        return True

    def _passes(self, lsn: Lsn, work: Work) -> bool:
        names = work.tables
        if names is not None and any(names <= group.tables for group in self.held):
            return True
        if self.held and (names is None or any(names & group.tables for group in self.held)):
            return False
        if lsn in self._done:
            self.copy = _after_ddl(self.copy, work)
            self.has_work = True
            return True
        if lsn == self._was_due and names is not None:
            self.overtaken.append(Held(names, self.lsn, lsn))
            self.held += self.overtaken
            return True
        self.due = lsn
        self.has_work |= lsn != self._was_due
        return False

    def _carries(self, transaction: Transaction, work: Work) -> bool:
        if not transaction.row_events:
            return False
        names = work.tables if work.kind is WorkKind.ROWS and work.tables is not None else transaction.tables
        return not self.held or any(not any(name in group.tables for group in self.held) for name in names)


class _Group:
    """The walk of held tables, up to where all others will be."""

    def __init__(
        self,
        group: Held,
        limits: Limits,
        work_of: WorkOf,
        done: Collection[Lsn],
        copy: dict[TableName, CopyState],
    ) -> None:
        self._group, self._work_of, self._done = group, work_of, done
        self.size = _Size(limits)
        self.copy = copy

    def walk(self, log: Log, goal: Lsn) -> Held | None:
        """Where the group is after the batch; None where it has caught up."""
        tables, lsn = self._group.tables, self._group.lsn
        if self._group.due is not None and self._group.due not in self._done:
            return self._group
        for entry in log(lsn, goal):
            transaction = entry.transaction
            if transaction.lsn > goal:
                return None
            work = self._work_of(entry)
            if work.kind is WorkKind.DDL and work.tables is not None and work.tables & tables:
                if transaction.lsn not in self._done:
                    return Held(tables, lsn, transaction.lsn)
                self.copy = _after_ddl(self.copy, work)
            if self.size.is_full:
                return Held(tables, lsn)
            rows = transaction.row_events > 0 and not tables.isdisjoint(transaction.tables)
            self.size.take(entry, rows=rows)
            lsn = transaction.lsn
        return None if lsn >= goal else Held(tables, lsn)


def _write_chunks(
    copy: Mapping[TableName, CopyState],
    staged: Mapping[TableName, StagedChunk],
    end: Lsn,
    held: Collection[TableName],
) -> tuple[dict[TableName, CopyState], tuple[ChunkRequest, ...]]:
    copy = dict(copy)
    written = []
    for name, chunk in staged.items():
        if chunk.high > end or name in held or name not in copy:
            continue
        if chunk.stale:
            # All of the log up to the reading is in this batch, and a batch holds no DDL behind its first row.
            raise Halted(
                "changed-outside-log",
                "the table's structure was changed without a statement in the log",
                where=Where(table=str(name), position=str(chunk.high)),
                todo="Make the same change on the target, then start a new task for this table",
            )
        before = copy[name]
        copy[name] = CopyState(
            after=chunk.last_key if chunk.last_key is not None else before.after,
            upto=chunk.upto,
            reads=before.reads,
            rows=before.rows + chunk.rows,
            done=chunk.is_last,
        )
        written.append(chunk.request)
    return copy, tuple(written)


def _read_chunks(
    copy: dict[TableName, CopyState], limits: Limits, held: Collection[TableName]
) -> dict[TableName, CopyState]:
    open_tables = [name for name, state in copy.items() if not state.done and name not in held]
    for name in open_tables[: limits.chunks]:
        state = copy[name]
        request = ChunkRequest(name, state.reads, state.after, state.upto, limits.chunk_rows)
        copy[name] = replace(state, reads=state.reads + 1, reading=request)
    return copy


def _after_ddl(copy: Mapping[TableName, CopyState], work: Work) -> dict[TableName, CopyState]:
    renamed = dict(work.renamed)
    return {
        renamed.get(name, name): state if state.done or name not in work.recopied else CopyState(reads=state.reads)
        for name, state in copy.items()
        if name not in work.gone and name.schema not in work.gone_schemas
    }
