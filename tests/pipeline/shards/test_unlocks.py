"""An unlocked change runs without some shards, which reach it later. For all other changes, the shards wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.examples import EXAMPLES

from pidts.model import OrderKind, TableName
from pidts.schema import apply, classify

from .step_by_step import GONE, C, D, MakeStory, Story, T, stories
from .unlocks import check_unlocked

A, B, OTHER = "one: shard_1.t_1", "two: shard_1.t_1", "one: shard_2.t_1"
THREE = {"one": ("shard_1.t_1", "shard_2.t_1"), "two": ("shard_1.t_1", "alone.x")}
INDEX = "ALTER TABLE {t} ADD INDEX k (v)"


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


def unlocked(world: Story, *names: str) -> None:
    """Unlocks the change at which each of these shards waits: it runs without the other shards."""
    world.looks = False  # The target still has columns that one shard has dropped and others have not.
    for name in names:
        world.order(name, OrderKind.UNLOCK)
        world.finish()


def comes(world: Story, *names: str) -> None:
    for name in names:
        world.alter(name)
        world.write()
        world.finish()
        check_unlocked(world)


def test_the_next_change_waits_again_and_no_shard_waits_for_one_that_has_continued(story: MakeStory) -> None:
    world = story(THREE)
    world.plan(C, D)
    world.alter(A, A)
    world.finish_and_check()
    unlocked(world, A)
    assert (world.waiting(), world.columns()[3:]) == ([A], ["c"]), "the others' rows would have a place, too"
    (halt,) = world.halts("one")
    assert halt.awaits == (OTHER, B)
    comes(world, B)
    assert world.waiting() == [A], "it passes"
    comes(world, B)
    assert world.waiting() == [A, B]
    comes(world, OTHER)
    assert world.waiting() == [A, B]
    comes(world, OTHER)
    assert (world.waiting(), world.columns()[3:]) == ([], ["c", "d"])
    world.finish_and_check()


def said(world: Story, name: str, what: str) -> None:
    shard = world[name]
    shard.source.say(f"ALTER TABLE {shard.name} {what}")
    world.finish()


def test_one_of_two_defaults_is_run_and_no_row_gets_the_other(story: MakeStory) -> None:
    """If a row's table lacks a column, the column's value does not depend on other tables in the batch."""
    world = story(THREE)
    world.finish_and_check()
    said(world, A, "ADD COLUMN c INT NOT NULL DEFAULT 7")
    said(world, B, "ADD COLUMN c INT NOT NULL DEFAULT 8")
    assert [halt.code for halt in world.halts("two")] == ["shards-disagree"]
    unlocked(world, A)
    assert world.waiting() == [B]
    (halt,) = world.halts("two")
    assert halt.code == "shards-disagree", "nobody who comes could help"
    assert "DEFAULT 7" in halt.what
    assert "--resync two:shard_1.t_1" in halt.todo
    unlocked(world, B)
    assert world.waiting() == [B], "the target's rows have other values than this one's"
    world.order(B, OrderKind.SKIP)
    world.finish()
    for _ in range(5):
        world.write()
        world.finish()
    assert world.waiting() == []
    (target,) = (name for name in world.target.store.tables if name == T)
    rows = {row["id"]: row["c"] for row in world.target.store.content(target).values()}
    assert {rows[row["id"]] for row in world[OTHER].rows} == {7}


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize(
    ("kind", "statements"), [(OrderKind.REVERT, ()), (OrderKind.INJECT, ("ALTER TABLE all.t COMMENT = 'x'",))]
)
def test_a_retry_with_another_default_does_not_pass(
    story: MakeStory, mode: str, kind: OrderKind, statements: tuple[str, ...]
) -> None:
    """The existing rows would get the value of the other shards. `skip` helps, as the halt says."""
    world = story(THREE, mode=mode)
    world.finish()
    said(world, A, "ADD COLUMN c INT NOT NULL DEFAULT 7")
    if mode == "pessimistic":
        unlocked(world, A)
    said(world, B, "ADD COLUMN c INT NOT NULL DEFAULT 8")
    world.order(B, kind, *statements)
    world.finish()
    assert [halt.code for halt in world.halts("two")] == ["shards-disagree"]
    world.order(B, OrderKind.SKIP)
    world.finish()
    assert world.waiting() == []


def test_injected_statements_run_before_a_change_that_passes(story: MakeStory) -> None:
    world = story(THREE)
    world.finish_and_check()
    said(world, A, "ADD COLUMN c INT DEFAULT 7")
    unlocked(world, A)
    lsn = world[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT DEFAULT 7").transaction.lsn
    alone = {TableName("alone", "x"): world.target.store.tables[TableName("alone", "x")].table}
    statement = classify("ALTER TABLE alone.x ADD COLUMN extra INT", "alone")
    with closing(world.target.connect()) as session:
        (injected,) = session.schema.ddl_statements(statement, alone, apply(statement, alone, {})).statements
    world.give("two", lsn, OrderKind.INJECT, injected)
    world.finish()
    assert (world.waiting(), world.halts("two")) == ([], [])
    assert world.columns(TableName("alone", "x"))[-1] == "extra"
    assert world.columns()[3:] == ["c"]
    with closing(world.target.connect()) as session:
        assert [order.taken for order in session.meta.orders.read("t", "two")] == [True]
    said(world, OTHER, "ADD COLUMN c INT DEFAULT 7")
    assert world.waiting() == []


@pytest.mark.parametrize("back", [GONE, "ALTER TABLE {t} DROP COLUMN c, ADD INDEX k (v)"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_column_is_added_and_dropped_again(story: MakeStory, back: str, *, restarts: bool) -> None:
    """Shards that have not begun look like shards that have made the change."""
    world = story(THREE)
    world.plan(C, back)
    world.alter(A, A)
    world.finish_and_check()
    unlocked(world, A)
    assert world.waiting() == [A]
    comes(world, B, B)
    if restarts:
        world.start()
    assert world.waiting() == [A, B]
    comes(world, OTHER)
    assert (world.waiting(), world.columns()[3:]) == ([A, B], ["c"])
    comes(world, OTHER)
    assert (world.waiting(), world.columns()[3:]) == ([], [])
    world.finish_and_check()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_column_is_added_and_dropped_again_without_the_others(story: MakeStory, *, restarts: bool) -> None:
    """The column stays for the rows that will have values in it."""
    world = story(THREE)
    world.plan(C, GONE, D)
    world.alter(A, A, A)
    world.finish_and_check()
    unlocked(world, A, A)
    assert (world.waiting(), world.columns()[3:]) == ([A], ["c"])
    if restarts:
        world.start()
    comes(world, B)
    assert world.waiting() == [A]
    comes(world, B)
    assert (world.waiting(), world.columns()[3:]) == ([A], ["c"]), "it waits for nobody"
    if restarts:
        world.start()
    comes(world, OTHER, OTHER)
    assert (world.waiting(), world.columns()[3:]) == ([A], []), "the last one clears up"
    comes(world, OTHER, B)
    assert (world.waiting(), world.columns()[3:]) == ([], ["d"])
    world.finish_and_check()


@pytest.mark.parametrize("keys", ["c", "c, v", "v, c"])
@pytest.mark.parametrize("then", ["", ", ADD INDEX k2 (v)", ", ADD INDEX k (v)"])
def test_a_column_and_its_index_are_dropped_without_the_others(story: MakeStory, keys: str, then: str) -> None:
    world = story(THREE)
    world.plan(f"ALTER TABLE {{t}} ADD COLUMN c INT DEFAULT 7, ADD INDEX k ({keys})")
    world.plan(f"ALTER TABLE {{t}} DROP INDEX k, DROP COLUMN c{then}")
    world.alter(A, B, OTHER)
    world.alter(A)
    world.finish_and_check()
    unlocked(world, A)
    assert (world.waiting(), "c" in world.columns()) == ([], True)
    comes(world, B)
    comes(world, OTHER)
    assert (world.waiting(), "c" in world.columns()) == ([], False)
    key = {one.name: one.columns for one in world.target.store.tables[T].table.keys}
    assert key.get("k") == (("v",) if "INDEX k " in then else None)
    world.finish_and_check()


def test_a_renamed_shard_still_has_its_missed_changes(story: MakeStory) -> None:
    world = story(THREE)
    world.plan(C, D)
    world.alter(A, A)
    world.finish_and_check()
    unlocked(world, A)
    world.shards.rename(world[B], TableName("shard_3", "t_8"))
    world.finish()
    comes(world, OTHER, OTHER)
    assert world.waiting() == [A, OTHER]
    world.start()
    world.finish()
    assert world.waiting() == [A, OTHER]
    comes(world, "two: shard_3.t_8", "two: shard_3.t_8")
    assert world.waiting() == []
    world.finish_and_check()


def test_no_shard_waits_for_a_dropped_shard(story: MakeStory) -> None:
    world = story(THREE)
    world.plan(C, GONE, INDEX)
    world.alter(A, A, A)
    world.finish_and_check()
    unlocked(world, A, A)
    comes(world, B, B)
    world.shards.drop(world[OTHER])
    world.finish()
    assert world.waiting() == [A]
    world.alter(B)
    world.finish()
    assert world.waiting() == []


@pytest.mark.slow
@pytest.mark.parametrize("transactional_ddl", [False, True])
def test_the_process_dies_anywhere(*, transactional_ddl: bool) -> None:
    """A missed change is recorded together with the change that was run, and removed together with the change that ends
    it.
    """
    step = 1 if EXAMPLES else 17
    for crash in itertools.count(0, step):
        with stories() as story:
            world = story(THREE, seed=crash, transactional_ddl=transactional_ddl)
            world.plan(C, GONE, D)
            world.alter(A, A, A)
            world.finish_and_check()
            unlocked(world, A)
            world.order(A, OrderKind.UNLOCK)
            world.alter(B, B, OTHER, OTHER)
            world.crash_after(crash)
            world.finish()
            came = world.deaths == 0
            world.crash_after(None)
            world.finish()
            assert (world.waiting(), world.columns()[3:]) == ([A], [])
            comes(world, B, OTHER)
            assert world.waiting() == []
            world.finish_and_check()
        if came:
            break
    assert crash > 30, "there were some points"
