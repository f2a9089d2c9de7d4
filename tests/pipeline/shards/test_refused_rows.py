"""If the target refuses a row of one of two merged tables, this shard halts, and the other shard continues.

A batch has rows of both shards. Histories, batches, the number of workers, and crashes at named points are random. When
the target refuses nothing any more, it gets the rows of both shards. No row is in both tables, but rows may move from
one table to the other.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes, survive
from tests.examples import examples
from tests.pipeline.refusing_task import REFUSED, RefusingTask

from pidts.apply import ApplyRules
from pidts.batch.lagging_merge import lagging_targets
from pidts.batch.workers import KnownPlaces
from pidts.model import ChangeBatch, Checkpoint, Column, ColumnType, Key, Kind, Op, Table, TableName
from pidts.plan import Limits, PlanState
from pidts.rules import RouteRule, Routes, Rules

INT = ColumnType(Kind.INT)
A, B, ALL = TableName("shop", "t_a"), TableName("shop", "t_b"), TableName("all", "t")
RULES = Rules(routes=Routes((RouteRule("shop", "t_*", "all", "t"),)))
COLUMNS = (Column("id", INT, nullable=False), Column("v", INT))
KEYS = (Key("PRIMARY", ("id",), unique=True, primary=True),)
TABLES = {name: Table(name, COLUMNS, KEYS) for name in (A, B)}
MERGED = Table(ALL, COLUMNS, KEYS)


class MergingTask(RefusingTask):
    """Merges two source tables into one table of the target."""

    def __init__(self, workers: int, limits: Limits) -> None:
        rules = ApplyRules(task="t", source="s", merged=frozenset({ALL}), filters=RULES)
        super().__init__(TABLES, [MERGED], workers, limits, rules)

    def for_target(self, batch: ChangeBatch) -> ChangeBatch:
        arrays = [batch.rows.column(name) for name in ("lsn", "op", "before", "after", "partial")]
        return replace(ChangeBatch.of(MERGED, *arrays), upstream=batch.table.name)

    def before_batch(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Removes the records about moved rows between batches, as `pidts.batch.lagging_merge` does."""
        if not lagging_targets(RULES, KnownPlaces().of, checkpoints):
            session = self.target.connect()
            session.begin()
            session.meta.moves.forget("t", "s", ALL)
            session.commit()
            session.close()

    def content(self) -> list[dict[str, Any]]:
        return sorted(self.target.store.content(ALL).values(), key=lambda row: row["id"])

    def wanted(self, *names: TableName) -> list[dict[str, Any]]:
        return sorted((row for name in names for row in self.source.rows(name)), key=lambda row: row["id"])


def play(task: MergingTask, steps: list[tuple[str, int, int]]) -> None:
    """Makes one transaction: `a` and `b` write a row of the table with this letter; `m` moves a row to the other table.

    Only b ever has the refused value.
    """
    changes: list[tuple[TableName, list[Any]]] = []
    rows = {name: {row["id"]: row for row in task.source.rows(name)} for name in TABLES}
    for letter, key, value in {one[1]: one for one in steps}.values():
        holder = next((name for name in TABLES if key in rows[name]), None)
        owner = holder or (A if letter == "a" else B)
        old = rows[owner].get(key)
        new = {"id": key, "v": None if value == REFUSED and owner == A else value}
        if old is None:
            changes.append((owner, [(Op.INSERT, None, new)]))
        elif letter == "m" and old["v"] != REFUSED:
            other = B if owner == A else A
            pair = [(other, [(Op.INSERT, None, old)]), (owner, [(Op.DELETE, old, None)])]
            changes += pair if value % 2 else pair[::-1]
        elif value == 0:
            changes.append((owner, [(Op.DELETE, old, None)]))
        else:
            changes.append((owner, [(Op.UPDATE, old, new)]))
    if changes:
        task.source.commit(*changes)


step = st.tuples(st.sampled_from("aabbm"), st.integers(0, 5), st.integers(0, REFUSED))
histories = st.lists(st.lists(step, min_size=1, max_size=4), max_size=20)


@settings(max_examples=examples(25), deadline=None)
@given(
    before=histories,
    after=histories,
    workers=st.integers(1, 3),
    size=st.integers(1, 5),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    seed=st.integers(0, 1 << 32),
)
@example(
    before=[],
    after=[[("b", 1, 0)], [("a", 1, 7)], [("a", 0, 0)], [("a", 1, 0)], [("a", 1, 0)], [("a", 1, 0)]],
    workers=1,
    size=2,
    crashes=[],
    seed=0,
)  # While b is halted, a inserts a row with the key of the refused row and deletes it. Then b tries again.
def test_the_other_shard_continues_and_both_are_there_in_the_end(before, after, workers, size, crashes, seed):
    task, chance = MergingTask(workers, Limits(transactions=size, idle_entries=1)), random.Random(seed)
    task.target.store.hook = Crashes(crashes)
    for history in (before, after):
        for steps in history:
            play(task, steps)
            if chance.random() < 0.3:
                survive(task.run)
        halted = survive(task.run)
        assert halted.keys() <= {B}, "no row of the other one was refused"
        there = {row["id"]: row for row in task.content()}
        if not halted:
            assert list(task.content()) == task.wanted(A, B)
        assert all(there.get(row["id"]) == row for row in task.wanted(A)), "the other one has all of its rows"
    task.refusing.refuses = False
    assert survive(task.run) == {}
    assert task.content() == task.wanted(A, B)
    task.target.forget()


def test_one_batch_of_both() -> None:
    task = MergingTask(1, Limits(transactions=9, idle_entries=1))
    play(task, [("a", 0, 1), ("b", 1, 2)])
    play(task, [("a", 2, 3), ("b", 3, REFUSED), ("b", 4, 1)])
    play(task, [("a", 5, 5), ("b", 1, 3)])
    halted = task.run()
    assert [(error.where.source, error.where.table, error.where.key) for error in halted.values()] == [
        ("s", str(B), "id=3")
    ]
    assert [row["id"] for row in task.content()] == [0, 2, 5]
    assert task.run().keys() == {B}, "the next run tries it again"
    task.refusing.refuses = False
    assert task.run() == {}
    assert task.content() == task.wanted(A, B)
    task.target.forget()


def test_the_place_of_the_shard_that_waits_is_its_own() -> None:
    task = MergingTask(2, Limits(transactions=1, idle_entries=1))
    for steps in ([("a", 0, 1)], [("b", 1, 1)], [("b", 2, REFUSED)], [("a", 3, 1)], [("b", 4, 1)]):
        play(task, steps)
    assert task.run().keys() == {B}
    for row in task.target.store.checkpoints.values():
        state = PlanState.from_checkpoint(row.lsn, row.copy)
        assert state.exceptions.keys() == {B}
        assert state.at(B) < state.at(A)
    assert [row["id"] for row in task.content()] == [0, 1, 3]
    task.target.forget()
