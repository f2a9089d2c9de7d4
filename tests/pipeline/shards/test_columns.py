"""If a row moves from a shard to another shard that lacks a column, the row loses its value in this column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidts.model import CommandKind, Op
from pidts.plan import Limits

from .step_by_step import MakeStory, Story, T, stories
from .test_moved_rows import FIRST, KEY, SECOND, THIRD, THREE, move, row, updated

WIDER = "ADD COLUMN c INT"


@pytest.fixture(params=[1, 9])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    """Begins histories: with each transaction in a batch of its own, and with many transactions in one batch."""
    with stories(mode="optimistic", limits=Limits(transactions=request.param, idle_entries=1)) as make_story:
        yield make_story


def begun(make_story: MakeStory, **settings: Any) -> Story:
    task = make_story(THREE, **settings)
    task.looks = False
    return task


def say(task: Story, name: str, change: str) -> None:
    task[name].source.say(f"ALTER TABLE {task[name].name} {change}")


def insert(task: Story, name: str, **values: int) -> None:
    shard = task[name]
    shard.source.commit((shard.name, [(Op.INSERT, None, row(shard, KEY, **values))]))


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [one.get("c") for one in rows if one["id"] == KEY]


def ends(task: Story, name: str) -> None:
    """Runs the task to the end, and checks that the row has NULL in c, on the target and in its shard."""
    task.finish()
    assert task.waiting() == []
    assert values(task.content(T)) == values(task[name].rows) == [None]


@pytest.mark.parametrize(("first", "apart"), [("insert", False), ("delete", False), ("delete", True)])
def test_the_old_shard_of_the_row_waits(story: MakeStory, first: str, *, apart: bool) -> None:
    """The row's old shard waits before its DELETE, so the new shard's INSERT finds the old shard's row on the target."""
    task = begun(story)
    task.plan(f"ALTER TABLE {{t}} {WIDER}")
    task.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", {"w": "v"})
    task[FIRST].alter()
    insert(task, FIRST, c=5)
    task.finish()
    task[FIRST].alter()
    task.finish()
    assert task.waiting() == [FIRST]
    assert values(task.content(T)) == [5]
    move(task, FIRST, SECOND, first=first, apart=apart)
    task.finish()
    assert values(task.content(T)) == [None]
    task.shards.level()
    ends(task, SECOND)


@pytest.mark.parametrize("first", ["insert", "delete"])
def test_the_old_shard_has_dropped_a_column_that_others_have(story: MakeStory, first: str) -> None:
    """No shard waits, and both shards have the same structure."""
    task = begun(story)
    for name in (FIRST, SECOND):
        say(task, name, WIDER)
        task.finish()
    insert(task, SECOND, c=5)
    task.finish()
    say(task, SECOND, "DROP COLUMN c")
    task.finish()
    assert task.waiting() == []
    assert values(task.content(T)) == [5], "which nobody reads in the second one"
    move(task, SECOND, THIRD, first=first)
    updated(task, THIRD, v=3)
    task.finish()
    say(task, THIRD, WIDER)
    ends(task, THIRD)


def test_a_ddl_command_lets_one_shard_continue_first(story: MakeStory) -> None:
    task = begun(story, mode="pessimistic")
    task.plan(f"ALTER TABLE {{t}} {WIDER}")
    task.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", {"w": "v"})
    task[FIRST].alter()
    task.finish()
    task.command(FIRST, CommandKind.UNLOCK)
    insert(task, FIRST, c=5)
    task[FIRST].alter()
    task.finish()
    assert task.waiting() == [FIRST]
    assert values(task.content(T)) == [5]
    move(task, FIRST, SECOND)
    task.finish()
    task.shards.level()
    ends(task, SECOND)
