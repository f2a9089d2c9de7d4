"""Tables that become one are copied while rows come, go and move between them: the target ends with the rows of all."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidts.apply.shard_keys import keyed_landings
from pidts.model import Op, TableName
from pidts.plan import Limits, Way
from pidts.rules import Extract, RouteRule, Routes, Rules

from .online_copy import CrashError, Row, Server, Task, in_any_order
from .test_online_copy import EXAMPLES, crash_after, is_valid, new_target, table_of, wished

SHARDS = [table_of(f"t_{number}", ("id",), "slot") for number in (1, 2, 3)]
ALONE = table_of("alone", ("id",), "slot")
LANDS = TableName("all", "t")


class World:
    """The source's side. Without extracted columns in the key, no two tables have a row of one key or unique value."""

    def __init__(self, chance: random.Random, steps: int, *, keyed: bool) -> None:
        self.server, self.chance, self.left, self.keyed = Server([*SHARDS, ALONE]), chance, steps, keyed

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
@settings(max_examples=EXAMPLES or 15, deadline=None, derandomize=not EXAMPLES, database=None)
@given(
    rows=st.integers(0, 60),
    steps=st.integers(0, 80),
    chunk=st.integers(1, 4),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_with_the_rows_of_all(keyed, rows, steps, chunk, size, workers, crashes, seed):
    chance, target = random.Random(seed), new_target()
    world = World(chance, steps, keyed=keyed)
    for _ in range(rows):
        world.happen()
    extract = Extract("t_(.*)", "shard") if keyed else None
    rules = Rules(routes=Routes((RouteRule("shop", "t_*", LANDS.schema, LANDS.name, extract),)))
    session = target.connect()
    rules = replace(rules, keyed=keyed_landings(session, rules, SHARDS, {LANDS}))
    session.close()
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    ways = {**{table.name: Way.ADD for table in SHARDS}, ALONE.name: Way.NEW}
    task = Task(
        world.server, target, ways, limits=limits, workers=workers, chance=chance, between=world.step, rules=rules
    )
    for points in [*crashes, None, None]:
        target.store.hook = None
        if points is not None:
            crash_after(target, points)
        try:
            task.run()
        except CrashError:
            continue
    target.store.hook = None
    while world.left:
        world.step()
    assert not task.run().copying
    assert task.content(LANDS) == world.rows()
    assert task.content(ALONE.name) == in_any_order(world.server.rows(ALONE.name))
    target.forget()
