"""Several shards reach a change at the same time.

Each shard alone could continue because the other shards still wait, but not all shards can.
"""

from __future__ import annotations

import pytest
from tests.examples import EXAMPLES

from pidts.model import TableName

from .step_by_step import TWO, C, Story, stories

A, B = "one: shard_1.t_1", "two: shard_1.t_1"
SEEDS = range(60 if EXAMPLES else 5)


def say(world: Story, name: str, what: str) -> None:
    world[name].source.say(f"ALTER TABLE {world[name].name} {what}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_column_that_all_drop_at_once_goes(seed: int) -> None:
    with stories(mode="optimistic", transactional_ddl=seed % 2 == 0) as make_story:
        world = make_story(TWO, seed=seed)
        world.looks = False
        world.interrupts = True
        world.plan(C)
        for name in (A, B):
            world.alter(name)
            world.finish()
        for name in (A, B):
            say(world, name, "DROP COLUMN c")
        world.finish()
        assert world.waiting() == []
        assert "c" not in world.columns()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_shard_comes_to_a_column_that_the_others_drop(seed: int) -> None:
    with stories(transactional_ddl=seed % 2 == 0) as make_story:
        world = make_story(TWO, seed=seed)
        world.looks = False
        for name in (A, B):
            say(world, name, "ADD COLUMN c INT DEFAULT 7")
            world.finish()
        late = f"one: {world.shards.create('one', TableName('shard_2', 't_7'), 0).name}"
        world.write(late, times=3)
        world.finish()
        world.interrupts = True
        for name in (A, B):
            say(world, name, "DROP COLUMN c")
        say(world, late, "ADD COLUMN c INT DEFAULT 7")
        world.finish()
        world.write(late, times=2)
        world.finish()  # A row that does not fit would halt the task.
        assert ("c" in world.columns()) or world.waiting() == [late]
