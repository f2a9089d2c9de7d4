"""A row moves from a shard to another shard that lacks a column: the row loses its value in this column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidts.model import Op, OrderKind
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
    world = make_story(THREE, **settings)
    world.looks = False
    return world


def say(world: Story, name: str, change: str) -> None:
    world[name].source.say(f"ALTER TABLE {world[name].name} {change}")


def insert(world: Story, name: str, **values: int) -> None:
    shard = world[name]
    shard.source.commit((shard.name, [(Op.INSERT, None, row(shard, KEY, **values))]))


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [one.get("c") for one in rows if one["id"] == KEY]


def ends(world: Story, name: str) -> None:
    """Runs the task to the end, and checks that the row has NULL in c, on the target and in its shard."""
    world.finish()
    assert world.waiting() == []
    assert values(world.content(T)) == values(world[name].rows) == [None]


@pytest.mark.parametrize(("first", "apart"), [("insert", False), ("delete", False), ("delete", True)])
def test_the_old_shard_of_the_row_waits(story: MakeStory, first: str, *, apart: bool) -> None:
    """The row's old shard waits before its DELETE, so the new shard's INSERT finds the old shard's row on the target."""
    world = begun(story)
    world.plan(f"ALTER TABLE {{t}} {WIDER}")
    world.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", {"w": "v"})
    world[FIRST].alter()
    insert(world, FIRST, c=5)
    world.finish()
    world[FIRST].alter()
    world.finish()
    assert world.waiting() == [FIRST]
    assert values(world.content(T)) == [5]
    move(world, FIRST, SECOND, first=first, apart=apart)
    world.finish()
    assert values(world.content(T)) == [None]
    world.shards.level()
    ends(world, SECOND)


@pytest.mark.parametrize("first", ["insert", "delete"])
def test_the_old_shard_has_dropped_a_column_that_others_have(story: MakeStory, first: str) -> None:
    """No shard waits, and both shards have the same structure."""
    world = begun(story)
    for name in (FIRST, SECOND):
        say(world, name, WIDER)
        world.finish()
    insert(world, SECOND, c=5)
    world.finish()
    say(world, SECOND, "DROP COLUMN c")
    world.finish()
    assert world.waiting() == []
    assert values(world.content(T)) == [5], "which nobody reads in the second one"
    move(world, SECOND, THIRD, first=first)
    updated(world, THIRD, v=3)
    world.finish()
    say(world, THIRD, WIDER)
    ends(world, THIRD)


def test_a_ddl_command_lets_one_shard_continue_first(story: MakeStory) -> None:
    world = begun(story, mode="pessimistic")
    world.plan(f"ALTER TABLE {{t}} {WIDER}")
    world.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", {"w": "v"})
    world[FIRST].alter()
    world.finish()
    world.order(FIRST, OrderKind.UNLOCK)
    insert(world, FIRST, c=5)
    world[FIRST].alter()
    world.finish()
    assert world.waiting() == [FIRST]
    assert values(world.content(T)) == [5]
    move(world, FIRST, SECOND)
    world.finish()
    world.shards.level()
    ends(world, SECOND)
