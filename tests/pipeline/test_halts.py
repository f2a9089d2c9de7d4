"""If the target refuses a row, the row's table halts, and other tables continue. Source and target are in memory.

Two tables have a random history. Batches, the number of workers, and crashes at named points are random, too. Each
table on the target is as the source's table was at the Lsn that this table has reached. When the target refuses nothing
any more, both tables become equal to the source's tables.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.values_target import ValuesTarget

from pidts.apply import Committer
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit, Workers
from pidts.model import Checkpoint, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, Where
from pidts.plan import Limits, PlanState, Relevance, RelevanceKind, next_state, plan_between
from pidts.reduce import buckets

from .crashes import Crashes, survive
from .values_source import ValuesSource

INT = ColumnType(Kind.INT)
A, B = TableName("shop", "a"), TableName("shop", "b")
BAD = 7
TABLES = {
    name: Table(
        name,
        (Column("id", INT, nullable=False), Column("v", INT)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    for name in (A, B)
}
numbers = itertools.count()


@dataclass
class Picky:
    """A target that refuses some values until the test removes the cause."""

    target: ValuesTarget
    refuses: bool = True

    def connect(self) -> Any:
        return _Session(self, self.target.connect())


@dataclass
class _Session:
    _owner: Picky
    _session: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def write(self, change: Any) -> None:
        if self._owner.refuses and BAD in change.upserts["v"].to_pylist():
            raise Halted("target-refused", "no such value", where=Where(table=str(change.table.name)))
        self._session.write(change)


@dataclass
class RefusingTask:
    """The source, the target and the runs of a task, one after the other. A run forgets its halts when it dies."""

    workers: int
    limits: Limits
    source: ValuesSource = field(default_factory=lambda: ValuesSource(list(TABLES.values())))
    history: dict[Lsn, dict[TableName, list[dict[str, Any]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target = ValuesTarget(f"halts {next(numbers)}")
        self.picky = Picky(self.target)
        session = self.target.connect()
        for table in TABLES.values():
            for statement in session.schema.create_statements(table).statements:
                session.execute(statement)
        session.close()
        self.first = Checkpoint(task="t", source="s", worker=0, lsn=self.source.received)
        self.remember()

    def remember(self) -> None:
        self.history[self.source.received] = {name: self.source.rows(name) for name in TABLES}

    def log(self, at: Lsn, to: Lsn | None = None):
        return self.source.entries(at, to)

    def run(self) -> set[TableName]:
        """Runs until there is nothing left to do, and returns the tables that have halted."""
        halted: set[TableName] = set()
        while True:
            try:
                self.attempt(halted)
            except Halted as error:
                (name,) = (name for name in TABLES if str(name) == error.where.table)
                assert name not in halted, "what is halted is left alone"
                halted.add(name)
            else:
                return halted

    def attempt(self, halted: set[TableName]) -> None:
        session = self.target.connect()
        claimed = tuple(session.meta.checkpoints.claim("t", "s", self.workers, self.first))
        session.close()
        workers, state, _ = Workers.claimed(claimed)
        state = state.halting(halted)
        committer = Committer(self.picky, "t", "s", claimed[0].epoch, sleep=lambda _: None)
        while True:
            end = next_state(state, self.log, {}, self.limits, relevance_of)
            if end is None:
                break
            plan_between(state, end, self.log, relevance_of)
            moved = workers.moved(end)
            commit = Commit(workers.checkpoints, moved.checkpoints)
            blobs = [[] for _ in range(self.workers)]
            for name, table in TABLES.items():
                for batch in self.source.decode(state.at(name), end.at(name).at_row(1), {name: table}):
                    for worker, part in enumerate(buckets(batch, self.workers)):
                        if part is not None:
                            blobs[worker].append(Blob(worker, 1, part))
            for worker in range(self.workers):
                apply(committer, commit, worker, blobs[worker])
            state, workers = end, moved
        committer.close()

    def check_visible(self) -> None:
        """Checks that each table, with one worker, is as it was on the source at the place in the checkpoint."""
        if self.workers == 1 and self.target.store.checkpoints:
            (row,) = self.target.store.checkpoints.values()
            state = PlanState.from_checkpoint(row.lsn, row.copy)
            for name in TABLES:
                assert self.content(name) == self.history[state.at(name)][name]

    def content(self, name: TableName) -> list[dict[str, Any]]:
        return sorted(self.target.store.content(name).values(), key=lambda row: row["id"])


def relevance_of(entry) -> Relevance:
    if not entry.transaction.row_events:
        return Relevance(RelevanceKind.NOTHING)
    return Relevance(RelevanceKind.ROWS, frozenset(entry.transaction.tables))


steps = st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(0, 3), st.integers(0, BAD)), max_size=25)


def play(task: RefusingTask, step: tuple[str, int, int]) -> None:
    """Makes one transaction, of one of the tables or of both. Only the second table gets the refused value."""
    letters, key, value = step
    done = []
    for name in (A, B):
        if name.name in letters:
            known = {row["id"]: row for row in task.source.rows(name)}
            new = {"id": key, "v": None if name == A and value == BAD else value}
            if key not in known:
                done.append((name, [(Op.INSERT, None, new)]))
            elif value == 0:
                done.append((name, [(Op.DELETE, known[key], None)]))
            else:
                done.append((name, [(Op.UPDATE, known[key], new)]))
    task.source.commit(*done)
    task.remember()


@settings(max_examples=examples(30), deadline=None)
@given(
    before=steps,
    after=steps,
    workers=st.integers(1, 3),
    size=st.integers(1, 5),
    crashes=st.lists(st.integers(0, 30), max_size=4),
    seed=st.integers(0, 1 << 32),
)
def test_other_tables_continue_and_refused_rows_arrive_when_the_cause_is_removed(
    before, after, workers, size, crashes, seed
):
    task, chance = RefusingTask(workers, Limits(transactions=size, idle_entries=1)), random.Random(seed)
    dies = Crashes(crashes)

    def hook(point: str) -> None:
        if point == "commit:after":
            task.check_visible()
        dies(point)

    task.target.store.hook = hook
    for history in (before, after):
        for step in history:
            play(task, step)
            if chance.random() < 0.3:
                survive(task.run)
        halted = survive(task.run)
        assert halted <= {B}
        assert task.content(A) == task.source.rows(A), "the other table has all"
        if not halted:
            assert task.content(B) == task.source.rows(B)
    task.picky.refuses = False
    assert survive(task.run) == set()
    assert {name: task.content(name) for name in TABLES} == {name: task.source.rows(name) for name in TABLES}
    task.target.forget()


def test_a_table_stays_where_its_rows_were_last_taken():
    task = RefusingTask(1, Limits(transactions=2, idle_entries=1))
    for step in [("ab", 0, 1), ("b", 1, 2), ("ab", 2, BAD), ("a", 3, 4), ("b", 1, 3)]:
        play(task, step)
    assert task.run() == {B}
    assert task.content(A) == task.source.rows(A)
    assert [row["id"] for row in task.content(B)] == [0, 1]
    task.check_visible()
    assert task.run() == {B}, "the next run tries it again"
    task.picky.refuses = False
    assert task.run() == set()
    assert task.content(B) == task.source.rows(B)
