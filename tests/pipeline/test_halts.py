"""If the target refuses a row, the row's table halts, and other tables continue. Source and target are in memory.

Two tables have a random history. Batches, the number of workers, and crashes at named points are random, too. Each
table on the target is as the source's table was at the Lsn that this table has reached. When the target refuses nothing
any more, both tables become equal to the source's tables.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes, ProcessDied, survive
from tests.examples import examples

from pidts.model import Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName
from pidts.plan import Limits, PlanState

from .refusing_task import REFUSED, RefusingTask

INT = ColumnType(Kind.INT)
A, B = TableName("shop", "a"), TableName("shop", "b")
TABLES = {
    name: Table(
        name,
        (Column("id", INT, nullable=False), Column("v", INT)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    for name in (A, B)
}


class TwoTablesTask(RefusingTask):
    """Carries two tables, and remembers the rows of each at each place of the source."""

    def __init__(self, workers: int, limits: Limits, split: int | None = None) -> None:
        super().__init__(TABLES, TABLES.values(), workers, limits, split=split)
        self.history: dict[Lsn, dict[TableName, list[dict[str, Any]]]] = {}
        self.remember()

    def remember(self) -> None:
        self.history[self.source.received] = {name: self.source.rows(name) for name in TABLES}

    def check_visible(self) -> None:
        """Checks that each table, with one worker, is as it was on the source at the place in the checkpoint."""
        if self.workers == 1 and self.split is None and self.target.store.checkpoints:
            (row,) = self.target.store.checkpoints.values()
            state = PlanState.from_checkpoint(row.lsn, row.copy)
            for name in TABLES:
                assert self.content(name) == self.history[state.at(name)][name]

    def content(self, name: TableName) -> list[dict[str, Any]]:
        return sorted(self.target.store.content(name).values(), key=lambda row: row["id"])


steps = st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(0, 3), st.integers(0, REFUSED)), max_size=25)


def play(task: TwoTablesTask, step: tuple[str, int, int]) -> None:
    """Makes one transaction, of one of the tables or of both. Only the second table gets the refused value."""
    letters, key, value = step
    done = []
    for name in (A, B):
        if name.name in letters:
            known = {row["id"]: row for row in task.source.rows(name)}
            new = {"id": key, "v": None if name == A and value == REFUSED else value}
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
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 30), max_size=4),
    seed=st.integers(0, 1 << 32),
)
def test_other_tables_continue_and_refused_rows_arrive_when_the_cause_is_removed(
    before, after, workers, size, split, crashes, seed
):
    task, chance = TwoTablesTask(workers, Limits(transactions=size, idle_entries=1), split), random.Random(seed)
    task.order = lambda numbers: chance.sample(numbers, len(numbers))
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
        assert halted.keys() <= {B}
        assert task.content(A) == task.source.rows(A), "the other table has all"
        if not halted:
            assert task.content(B) == task.source.rows(B)
    task.refusing.refuses = False
    assert survive(task.run) == {}
    assert {name: task.content(name) for name in TABLES} == {name: task.source.rows(name) for name in TABLES}
    task.target.forget()


def test_a_table_stays_where_its_rows_were_last_taken():
    task = TwoTablesTask(1, Limits(transactions=2, idle_entries=1))
    for step in [("ab", 0, 1), ("b", 1, 2), ("ab", 2, REFUSED), ("a", 3, 4), ("b", 1, 3)]:
        play(task, step)
    assert task.run().keys() == {B}
    assert task.content(A) == task.source.rows(A)
    assert [row["id"] for row in task.content(B)] == [0, 1]
    task.check_visible()
    assert task.run().keys() == {B}, "the next run tries it again"
    task.refusing.refuses = False
    assert task.run() == {}
    assert task.content(B) == task.source.rows(B)
    task.target.forget()


@pytest.mark.parametrize("dies_at", range(18, 38, 2))
def test_a_row_that_was_refused_inside_a_divided_transaction_is_not_passed_over(dies_at: int) -> None:
    """The process dies after it has committed a part of the transaction, while the table of the row is halted."""
    task = TwoTablesTask(1, Limits(transactions=2, idle_entries=1), split=1)
    rows = [(Op.INSERT, None, {"id": number, "v": 1}) for number in range(4)]
    task.source.commit((B, [(Op.INSERT, None, {"id": 0, "v": REFUSED})]), (A, rows))
    task.target.store.hook = Crashes([dies_at])
    assert survive(task.run).keys() == {B}
    task.target.store.hook = None
    assert task.content(A) == task.source.rows(A)
    assert task.target.store.commits > 3, "the rows of the other table are still committed one by one"
    task.refusing.refuses = False
    assert task.run() == {}
    assert task.content(B) == task.source.rows(B)
    task.target.forget()


@pytest.mark.parametrize("dies_at", range(8, 16, 2))
def test_a_transaction_is_not_divided_while_a_table_that_is_held_on_another_worker_catches_up(dies_at: int) -> None:
    """The changes of the table that catches up come first. So the Lsn of a part of it is after changes of the other
    table that are not written yet.
    """
    task = TwoTablesTask(2, Limits(transactions=2, idle_entries=1), split=1)
    rows = [(Op.INSERT, None, {"id": number, "v": 1}) for number in range(8)]
    task.source.commit((A, rows), (B, rows))
    task.target.store.hook = Crashes([7, 8, dies_at])
    with pytest.raises(ProcessDied):
        task.attempt({B})  # Only the first worker commits the batch, while B is halted.
    task.order = reversed
    for _ in range(2):  # The second worker commits parts.
        with pytest.raises(ProcessDied):
            task.attempt(set())
    task.target.store.hook = None
    assert task.run() == {}
    assert {name: task.content(name) for name in TABLES} == {name: task.source.rows(name) for name in TABLES}
    task.target.forget()
