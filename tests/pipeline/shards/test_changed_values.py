"""If a change gives a column other values, and the structure stays the same, no shard's rows get the values of another
shard.
"""

from __future__ import annotations

from typing import Any

import pytest

from pidts.model import OrderKind

from .step_by_step import TWO, MakeStory, Story, T, stories
from .test_operator_orders import codes

A, B = "one: shard_1.t_1", "two: shard_1.t_1"
ALTER = "ALTER TABLE shard_1.t_1 "
AGAIN = "DROP COLUMN d, ADD COLUMN d INT DEFAULT 7"
TRADED = "CHANGE COLUMN c d INT DEFAULT 7, CHANGE COLUMN d c INT DEFAULT 7"


def begun(story: MakeStory, mode: str) -> Story:
    """Returns a history in which both shards have c and d, with values in both columns."""
    world = story(TWO, mode=mode)
    world.looks = False
    for name in (A, B):
        for column in "cd":
            world[name].source.say(f"{ALTER}ADD COLUMN {column} INT DEFAULT 7")
    world.write(times=4)
    world.finish()
    assert world.waiting() == []
    return world


def rows_of(world: Story, name: str) -> list[dict[str, Any]]:
    keys = {row["id"] for row in world[name].rows}
    return sorted((row for row in world.content(T) if row["id"] in keys), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize(
    "change",
    [
        AGAIN,
        "DROP COLUMN d, ADD COLUMN d INT DEFAULT 7 AFTER c",
        "CHANGE COLUMN d c INT DEFAULT 7 AFTER u, CHANGE COLUMN c d INT DEFAULT 7 AFTER c",
    ],
)
def test_the_same_structure_with_other_values_is_reported(story: MakeStory, mode: str, change: str) -> None:
    world = begun(story, mode)
    before = rows_of(world, B)
    world[A].source.say(ALTER + change)
    world.finish()
    assert codes(world) == {A: "ddl-moves-values"}
    assert rows_of(world, B) == before


@pytest.mark.parametrize(
    "change",
    [
        TRADED,
        f"{TRADED}, ADD COLUMN x INT",
        "DROP COLUMN d, ADD COLUMN d BIGINT DEFAULT 7",
        f"{AGAIN}, ADD COLUMN x INT",
        "DROP COLUMN c, ADD COLUMN c INT DEFAULT 7 FIRST",
        "CHANGE COLUMN d e INT DEFAULT 7, ADD COLUMN d INT DEFAULT 7",
    ],
)
def test_changes_that_would_run_at_once_are_reported(story: MakeStory, change: str) -> None:
    world = begun(story, "optimistic")
    before = rows_of(world, B)
    world[A].source.say(ALTER + change)
    world.finish()
    assert codes(world) == {A: "ddl-moves-values"}
    assert rows_of(world, B) == before


def test_columns_that_trade_names_on_all_shards_do_so_on_the_target(story: MakeStory) -> None:
    world = begun(story, "pessimistic")
    both = [*rows_of(world, A), *rows_of(world, B)]
    for name in (A, B):
        world[name].source.say(ALTER + TRADED)
    world.finish()
    assert (world.waiting(), codes(world)) == ([], {})
    found = {row["id"]: row for row in world.content(T)}
    for row in both:
        assert (found[row["id"]]["c"], found[row["id"]]["d"]) == (row["d"], row["c"])


def test_a_rename_to_a_column_that_others_have_added_is_reported(story: MakeStory) -> None:
    world = begun(story, "optimistic")
    before = rows_of(world, B)
    world[A].source.say(f"{ALTER}ADD COLUMN w INT")
    world[B].source.say(f"{ALTER}CHANGE COLUMN v w INT")
    world.finish()
    assert codes(world) == {B: "ddl-moves-values"}
    assert [row["v"] for row in rows_of(world, B)] == [row["v"] for row in before]


def test_dropped_columns_are_recorded_under_a_shards_new_name(story: MakeStory) -> None:
    world = begun(story, "optimistic")
    world[A].source.say(f"{ALTER}DROP COLUMN v")
    world[B].source.say(f"{ALTER}CHANGE COLUMN v w INT")
    world.finish()
    assert "w" in world.columns()
    world[A].source.say(f"{ALTER}ADD COLUMN w INT")
    world.finish()
    assert world.waiting() == [A], "its rows have old values in it"


def test_a_shard_is_not_renamed_while_the_target_has_what_it_has_dropped(story: MakeStory) -> None:
    world = begun(story, "optimistic")
    world[A].source.say(f"{ALTER}DROP COLUMN v")
    world[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_9")
    world.finish()
    assert "rename-moves-rows" in codes(world).values()


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_shard_that_drops_a_column_and_gets_another_name_in_one(
    story: MakeStory, mode: str, *, restarts: bool
) -> None:
    world = begun(story, mode)
    before = {row["id"]: row["v"] for row in rows_of(world, A)}
    world[A].source.say(f"{ALTER}DROP COLUMN v, RENAME TO shard_1.t_5", {})
    world.finish()
    if mode == "pessimistic":
        world.order(A, OrderKind.UNLOCK)
        world.finish()
    assert world.waiting() == []
    if restarts:
        world.start()
    world[A].source.say("ALTER TABLE shard_1.t_5 ADD COLUMN v INT AFTER id")
    world.finish()
    assert world.waiting() == ["one: shard_1.t_5"], "its rows have old values in it"
    assert {row["id"]: row["v"] for row in world.content(T) if row["id"] in before} == before


@pytest.mark.parametrize("index", ["", ", ADD INDEX i (c)"])
@pytest.mark.parametrize("transactional", [True, False])
def test_only_the_column_that_was_dropped_meanwhile_is_added(index: str, transactional: bool) -> None:
    """The shard that lags waits for no other shard, since the other one has passed this change long ago."""
    steps = ("ADD COLUMN c INT DEFAULT 7, ADD COLUMN d INT DEFAULT 8" + index, "ADD COLUMN e INT", "DROP COLUMN d")
    with stories(mode="optimistic", transactional_ddl=transactional) as make_story:
        world = make_story(TWO)
        world.looks = False
        world.write(times=3)
        for step in steps:
            world[A].source.say(ALTER + step)
            world.write(times=2)
        world.finish()
        for step in steps:
            world[B].source.say(ALTER + step)
            world.write(times=2)
            world.finish()
            assert world.waiting() == []
        assert {"c", "e"} <= set(world.columns(T))
        assert "d" not in world.columns(T)
        for name in (A, B):
            assert rows_of(world, name) == sorted(world[name].rows, key=lambda row: int(row["id"]))
