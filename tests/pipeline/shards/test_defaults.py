"""A default changes on the target while a shard lacks the column: the shard's rows keep no value that they never had."""

from __future__ import annotations

import pytest

from pidts.model import OrderKind, TableName

from .step_by_step import TWO, MakeStory, Story, T
from .test_operator_orders import codes

A, B = "one: shard_1.t_1", "two: shard_1.t_1"


def said(world: Story, what: str, *names: str) -> None:
    for name in names:
        world[name].source.say(f"ALTER TABLE {world[name].name} {what}")
        world.finish()


def begun(story: MakeStory, mode: str) -> Story:
    world = story(TWO, mode=mode)
    world.looks = False
    world.write(times=3)
    world.finish()
    return world


def come(world: Story) -> str:
    """Makes a shard with rows, which has the structure that the others had at first."""
    name = f"one: {world.shards.create('one', TableName('shard_2', 't_7'), 0).name}"
    world.write(name, times=3)
    world.finish()
    return name


def default_of(world: Story, column: str) -> str | None:
    found = world.target.store.tables[T].table.column(column)
    assert found is not None
    return found.default


def assert_waits_for_its_old_values(world: Story, name: str) -> None:
    assert (world.waiting(), codes(world)) == ([name], {name: "shard-awaits"})
    (halt,) = world.halts(name.partition(": ")[0])
    assert "column c is on the target already, with other values in this shard's rows" in halt.what
    assert "--resync" in halt.todo


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("ADD COLUMN c INT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 9"),
        ("ADD COLUMN c INT", "MODIFY COLUMN c INT DEFAULT 9"),
    ],
)
def test_one_shard_does_in_one_step_what_others_did_in_two(
    story: MakeStory, first: str, then: str, *, restarts: bool
) -> None:
    world = begun(story, "optimistic")
    said(world, first, A)
    said(world, then, A)
    if restarts:
        world.start()
        world.finish()
    said(world, "ADD COLUMN c INT DEFAULT 9", B)
    assert_waits_for_its_old_values(world, B)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_shard_adds_what_the_others_have_changed(story: MakeStory, *, restarts: bool) -> None:
    world = begun(story, "pessimistic")
    said(world, "ADD COLUMN c INT DEFAULT 7", A, B)
    late = come(world)
    said(world, "ALTER COLUMN c SET DEFAULT 9", A, B)
    assert (world.waiting(), default_of(world, "c")) == ([], "9")
    if restarts:
        world.start()
        world.finish()
    said(world, "ADD COLUMN c INT DEFAULT 9", late)
    assert_waits_for_its_old_values(world, late)


def test_a_late_shard_adds_what_the_others_are_about_to_change(story: MakeStory) -> None:
    """The late shard gets the same structure as the others, but not the same values."""
    world = begun(story, "pessimistic")
    said(world, "ADD COLUMN c INT DEFAULT 7", A, B)
    late = come(world)
    said(world, "ALTER COLUMN c SET DEFAULT 9", A)
    said(world, "ADD COLUMN c INT DEFAULT 9", late)
    said(world, "ALTER COLUMN c SET DEFAULT 9", B)
    assert default_of(world, "c") == "9"
    assert_waits_for_its_old_values(world, late)


def test_one_shard_does_in_one_step_what_was_unlocked_in_two(story: MakeStory) -> None:
    world = begun(story, "pessimistic")
    for what in ("ADD COLUMN c INT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 9"):
        said(world, what, A)
        world.order(A, OrderKind.UNLOCK)
        world.finish()
    said(world, "ADD COLUMN c INT DEFAULT 9", B)
    assert_waits_for_its_old_values(world, B)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_default_that_all_change_is_changed_on_the_target(story: MakeStory, *, restarts: bool) -> None:
    world = begun(story, "optimistic")
    said(world, "ADD COLUMN c INT DEFAULT 7", A, B)
    said(world, "ALTER COLUMN c SET DEFAULT 9", A)
    assert default_of(world, "c") == "7"
    if restarts:
        world.start()
        world.finish()
    said(world, "ALTER COLUMN c SET DEFAULT 9", B)
    assert (world.waiting(), default_of(world, "c")) == ([], "9")
    late = come(world)
    said(world, "ADD COLUMN c INT DEFAULT 9", late)
    assert world.waiting() == []
    rows = {row["id"]: row["c"] for row in world.content(T)}
    assert {rows[row["id"]] for row in world[late].rows} == {9}


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_repeated_default_changes_no_values_of_other_shards(story: MakeStory, mode: str) -> None:
    world = begun(story, mode)
    said(world, "ADD COLUMN c INT DEFAULT 7", A, B)
    for what in ("MODIFY COLUMN c BIGINT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 9", "ADD COLUMN d INT"):
        said(world, what, A)
        if mode == "pessimistic":
            world.order(A, OrderKind.UNLOCK)
            world.finish()
    before = world.target.store.tables[T].table
    for name, what in ((B, "MODIFY COLUMN c INT DEFAULT 7 COMMENT 'x'"), (A, "ALTER COLUMN c SET DEFAULT 9")):
        said(world, what, name)
        assert world.waiting() == []
        assert world.target.store.tables[T].table == before
    said(world, "COMMENT = 'x'", B)
    assert world.target.store.tables[T].table.comment == "x", "which takes nothing from anybody"
