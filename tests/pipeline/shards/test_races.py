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


def say(task: Story, name: str, what: str) -> None:
    task[name].source.say(f"ALTER TABLE {task[name].name} {what}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_column_that_all_drop_at_once_goes(seed: int) -> None:
    with stories(mode="optimistic", transactional_ddl=seed % 2 == 0) as make_story:
        task = make_story(TWO, seed=seed)
        task.looks = False
        task.interrupts = True
        task.plan(C)
        for name in (A, B):
            task.alter(name)
            task.finish()
        for name in (A, B):
            say(task, name, "DROP COLUMN c")
        task.finish()
        assert task.waiting() == []
        assert "c" not in task.columns()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_shard_comes_to_a_column_that_the_others_drop(seed: int) -> None:
    with stories(transactional_ddl=seed % 2 == 0) as make_story:
        task = make_story(TWO, seed=seed)
        task.looks = False
        for name in (A, B):
            say(task, name, "ADD COLUMN c INT DEFAULT 7")
            task.finish()
        late = f"one: {task.shards.create('one', TableName('shard_2', 't_7'), 0).name}"
        task.write(late, times=3)
        task.finish()
        task.interrupts = True
        for name in (A, B):
            say(task, name, "DROP COLUMN c")
        say(task, late, "ADD COLUMN c INT DEFAULT 7")
        task.finish()
        task.write(late, times=2)
        task.finish()  # A row that does not fit would halt the task.
        assert ("c" in task.columns()) or task.waiting() == [late]
