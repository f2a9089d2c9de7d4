"""Merged tables are copied while rows are inserted, deleted and moved between them: the target ends with the rows of
all.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples

from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.apply.merge.recorded_tables import RULES
from pidts.model import MergedTablesKey, Op, RemainingRowsKey, SourceTablesKey, TableName
from pidts.plan import CopyMode, Limits
from pidts.rules import Extract, RouteRule, Routes, Rules
from pidts.rules.record import to_text

from .online_copy import Row, Server, Task, in_any_order
from .test_online_copy import crash_after, is_valid, new_target, table_of, wished
from .test_online_copy_partial import Minimal

SHARDS = [table_of(f"t_{number}", ("id",), "slot") for number in (1, 2, 3)]
ALONE = table_of("alone", ("id",), "slot")
LANDS = TableName("all", "t")


class ChangingShards:
    """The source of the copy, which changes rows of the merged tables.

    If the key has no extracted columns, no two tables have rows with the same key or unique value.
    """

    def __init__(self, chance: random.Random, steps: int, *, keyed: bool, is_minimal: bool) -> None:
        self.server = (Minimal if is_minimal else Server)([*SHARDS, ALONE])
        self.chance, self.left, self.keyed = chance, steps, keyed

    def step(self) -> None:
        while self.left and self.chance.random() < 0.4:
            self.left -= 1
            self.happen()

    def happen(self) -> None:
        one, other = self.chance.sample([table.name for table in SHARDS], 2)
        rows = self.server.rows(one)
        if rows and self.chance.random() < 0.3:
            row = self.chance.choice(rows)
            there, gone = (other, [(Op.INSERT, None, row)]), (one, [(Op.DELETE, row, None)])
            steps = [there, gone] if self.chance.random() < 0.5 else [gone, there]
        else:
            names = [self.chance.choice([one, ALONE.name])]
            steps = [(name, wished(self.server, name, self.chance)) for name in names]
        if all(changes and is_valid(self.server, name, changes) for name, changes in steps) and self.may(steps):
            self.server.commit(*steps)

    def may(self, steps) -> bool:
        if self.keyed:
            return True
        there = {table.name: self.server.rows(table.name) for table in SHARDS}
        for name, changes in steps:
            for _, before, after in changes if name in there else ():
                if before is not None:
                    there[name].remove(before)
                if after is not None:
                    there[name].append(after)
        rows = list(itertools.chain.from_iterable(there.values()))
        values = [row["slot"] for row in rows if row["slot"] is not None]
        return all(len(each) == len(set(each)) for each in ([row["id"] for row in rows], values))

    def rows(self) -> list[Row]:
        found = [
            {**row, "shard": table.name.name[2:]} if self.keyed else row
            for table in SHARDS
            for row in self.server.rows(table.name)
        ]
        return in_any_order(found)


@pytest.mark.parametrize("keyed", [False, True])
@settings(max_examples=examples(10), deadline=None)
@given(
    rows=st.integers(0, 60),
    steps=st.integers(0, 80),
    chunk=st.integers(1, 4),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    is_minimal=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_with_the_rows_of_all(keyed, rows, steps, chunk, size, workers, crashes, is_minimal, seed):
    chance, target = random.Random(seed), new_target()
    shards = ChangingShards(chance, steps, keyed=keyed, is_minimal=is_minimal)
    for _ in range(rows):
        shards.happen()
    extract = Extract("t_(.*)", "shard") if keyed else None
    rules = Rules(routes=Routes((RouteRule("shop", "t_*", LANDS.schema, LANDS.name, extract),)))
    session = target.connect()
    rules = replace(rules, keyed=keyed_targets(session, rules, SHARDS, {LANDS}))
    session.close()
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    ways = {**{table.name: CopyMode.ADD for table in SHARDS}, ALONE.name: CopyMode.NEW}
    task = Task(
        shards.server, target, ways, limits=limits, workers=workers, chance=chance, between=shards.step, rules=rules
    )
    for points in [*crashes, None, None]:
        target.store.hook = None
        if points is not None:
            crash_after(target, points)
        try:
            task.run()
        except ProcessDied:
            continue
    target.store.hook = None
    while shards.left:
        shards.step()
    assert not task.run().copying
    assert task.content(LANDS) == shards.rows()
    assert task.content(ALONE.name) == in_any_order(shards.server.rows(ALONE.name))
    target.forget()


@settings(max_examples=examples(10), deadline=None)
@given(
    rows=st.integers(0, 60),
    steps=st.integers(0, 80),
    chunk=st.integers(1, 4),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    is_minimal=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_rows_that_a_shard_lacks_are_removed_and_those_of_others_stay(
    rows, steps, chunk, size, workers, crashes, is_minimal, seed
):
    """Each table is copied again into a target table with rows of all tables, some of which are missing, wrong or
    extra.
    """
    chance, target = random.Random(seed), new_target()
    shards = ChangingShards(chance, steps, keyed=True, is_minimal=is_minimal)
    for _ in range(rows):
        shards.happen()
    rules = Rules(routes=Routes((RouteRule("shop", "t_*", LANDS.schema, LANDS.name, Extract("t_(.*)", "shard")),)))
    session = target.connect()
    rules = replace(rules, keyed=keyed_targets(session, rules, SHARDS, {LANDS}))
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    ways = {table.name: CopyMode.OWN for table in SHARDS[:2]} | {SHARDS[2].name: CopyMode.ADD}
    task = Task(
        shards.server, target, ways, limits=limits, workers=workers, chance=chance, between=shards.step, rules=rules
    )
    session.begin()
    session.meta.notes.write("t", SourceTablesKey("s"), RULES, to_text(rules))
    session.meta.structures.save("t", MergedTablesKey(), shards.server.received, {LANDS: rules.target_table(SHARDS[0])})
    session.commit()
    session.close()
    stored = target.store.tables[LANDS]
    names = [column.name for column in stored.table.columns]
    begun = [row for row in shards.rows() if chance.random() < 0.8]
    lost = [
        {name: number if name == "id" else "12"[number % 2] if name == "shard" else None for name in names}
        for number in range(200, 206)
    ]
    left = [{**row, "shard": shard} for row in lost for shard in ("9", "3", "")]
    for row in (*begun, *lost, *left):
        values = tuple(row[name] for name in names)
        stored.rows[stored.key(values)] = values
    for points in [*crashes, None, None]:
        target.store.hook = None
        if points is not None:
            crash_after(target, points)
        try:
            task.run()
        except ProcessDied:
            continue
    target.store.hook = None
    while shards.left:
        shards.step()
    assert not task.run().copying
    gone = [row for row in task.content(LANDS) if row["shard"] in ("9", "3", "") and row["id"] >= 200]
    assert gone == in_any_order(left)
    assert in_any_order([row for row in task.content(LANDS) if row not in gone]) == shards.rows()
    target.forget()


def test_rows_that_a_table_of_the_same_values_has_left_meanwhile_stay():
    """The rows change between the reading and the transaction that would remove them."""
    server, target = Server(SHARDS), new_target()
    one, gone = SHARDS[0].name, TableName("shop", "t_1x")
    rules = Rules(routes=Routes((RouteRule("shop", "t_*", LANDS.schema, LANDS.name, Extract("t_(.)", "shard")),)))
    session = target.connect()
    rules = replace(rules, keyed=keyed_targets(session, rules, SHARDS, {LANDS}))
    task = Task(server, target, {one: CopyMode.OWN}, rules=rules)
    session.begin()
    session.meta.notes.write("t", SourceTablesKey("s"), RULES, to_text(rules))
    session.commit()
    stored = target.store.tables[LANDS]
    names = [column.name for column in stored.table.columns]
    row = tuple({"id": 7, "shard": "1"}.get(name) for name in names)
    stored.rows[stored.key(row)] = row
    read = task._read_extras

    def read_and_leave(*asked):
        found = read(*asked)
        assert found.waiting == 1
        session.begin()
        session.meta.structures.save("t", RemainingRowsKey("s"), server.received, {gone: SHARDS[0].renamed(gone)})
        session.commit()
        return found

    task._read_extras = read_and_leave
    assert not task.run().copying
    assert len(task.content(LANDS)) == 1
    target.forget()
