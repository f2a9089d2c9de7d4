"""Histories of shards in which merging could fail, each written step by step.

After a step that says so, the task continues until it has nothing left to do. Then each shard is before the schema
change for which it waits, or at the end of its log. The target has the rows that all shards had at these places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.examples import EXAMPLES, examples

from pidts.model import OrderKind, TableName

from .step_by_step import BOTH, GONE, INDEX, ONE, TWO, C, D, E, MakeStory, stories


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


@pytest.mark.parametrize("keyed", [False, True])
def test_two_shards_of_one_server(story: MakeStory, *, keyed: bool) -> None:
    world = story(ONE, keyed=keyed)
    world.plan(C)
    world.alter("one: shard_1.t_1")
    world.write(times=2)
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1"], "its new rows wait, the other's old ones come"
    assert "c" not in world.columns()
    world.alter("one: shard_1.t_2")
    world.finish_and_check()
    assert world.waiting() == []
    assert "c" in world.columns()


def test_two_servers(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C)
    world.alter("one: shard_1.t_1")
    world.write(times=3)
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1"]
    world.alter("two: shard_1.t_1")
    world.write()
    world.finish_and_check()
    assert world.waiting() == []


def test_several_shards_on_several_servers(story: MakeStory) -> None:
    world = story(BOTH)
    world.plan(C)
    for number, name in enumerate(("two: shard_2.t_1", "one: shard_1.t_1", "one: shard_2.t_1")):
        world.alter(name)
        world.write()
        world.finish_and_check()
        assert len(world.waiting()) == number + 1
    world.alter("two: shard_1.t_1")
    world.finish_and_check()
    assert world.waiting() == []


def test_a_shard_that_is_ahead_by_several_changes(story: MakeStory) -> None:
    world = story(BOTH)
    world.plan(C, D, INDEX, GONE)
    names = world.names
    world.alter(*[names[0]] * 4, *[names[1]] * 3, *[names[2]] * 2)
    world.write()
    world.finish_and_check()
    assert sorted(world.waiting()) == sorted(names[:3])
    for _ in range(4):
        world.alter(names[3])
        world.write()
        world.finish_and_check()
    for name, times in zip(names, (0, 1, 2), strict=False):
        world.alter(*[name] * times)
    world.finish_and_check()
    assert (world.waiting(), world.columns()) == ([], ["id", "v", "u", "d"])


def test_sequences_that_are_interleaved(story: MakeStory) -> None:
    """Five tables on two servers get two columns, an index, and a column with an index, with rows between all changes."""
    layout = {
        "one": ("shard_1.t_1", "shard_1.t_2"),
        "two": ("shard_1.t_2", "shard_1.t_3", "shard_2.t_1"),
    }
    world = story(layout)
    world.plan(C, D, INDEX, E)
    for _ in range(4):
        for name in world.chance.sample(world.names, 5):
            world.alter(name)
            world.write()
        world.finish_and_check()
        assert world.waiting() == []


def test_groups_wait_for_each_others_servers(story: MakeStory) -> None:
    """A task that stopped a whole server for one group would never reach the change for which the other group waits."""
    world = story({"one": ("shard_1.t_1", "shard_1.u_1"), "two": ("shard_1.t_1", "shard_1.u_1")})
    world.plan(C)
    world.plan(D, group="u")
    world.alter("one: shard_1.t_1", "two: shard_1.u_1")
    world.write()
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1", "two: shard_1.u_1"]
    world.alter("one: shard_1.u_1", "two: shard_1.t_1")
    world.finish_and_check()
    assert world.waiting() == []


def test_a_shard_that_comes_during_a_change_and_after_it(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C)
    world.alter("one: shard_1.t_1")
    old = world.shards.create("one", TableName("shard_2", "t_5"), 0)
    new = world.shards.create("one", TableName("shard_2", "t_6"), 1)
    world.write()
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1", "one: shard_2.t_6"]
    world.alter("two: shard_1.t_1")
    world.write()
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1", "one: shard_2.t_6", "two: shard_1.t_1"]
    world.alter(f"one: {old.name}")
    world.write()
    world.finish_and_check()
    assert world.waiting() == []
    late = world.shards.create("two", TableName("shard_3", "t_1"), 1)
    world.write()
    world.finish_and_check()
    assert world.waiting() == []
    world.plan(D)
    for shard in (late, new, old):
        world.alter(f"{shard.source.name}: {shard.name}")
    world.finish_and_check()
    assert len(world.waiting()) == 3
    world.alter("one: shard_1.t_1", "two: shard_1.t_1")
    world.finish_and_check()
    assert world.waiting() == []


def test_a_shard_that_comes_several_versions_ahead(story: MakeStory) -> None:
    """Two changes of the group come before the new shard in the log of its server. The other server has made neither of
    them yet.
    """
    world = story(TWO)
    world.plan(C, D)
    world.alter("one: shard_1.t_1", "one: shard_1.t_1")
    world.shards.create("one", TableName("shard_2", "t_5"), 2)
    world.write()
    world.finish_and_check()
    assert world.waiting() == ["one: shard_1.t_1", "one: shard_2.t_5"]
    for _ in range(2):
        world.alter("two: shard_1.t_1")
        world.finish_and_check()
    assert world.waiting() == []


def test_one_transaction_has_rows_of_a_waiting_shard_and_of_another_shard(story: MakeStory) -> None:
    world = story(BOTH)
    world.plan(C)
    world.alter("two: shard_1.t_1")
    world.shards.write(world["two: shard_1.t_1"], world["two: shard_2.t_1"], world["two: alone.x"])
    world.finish_and_check()
    world.alter("one: shard_1.t_1", "one: shard_2.t_1")
    world.shards.write(world["two: shard_2.t_1"], world["two: shard_1.t_1"])
    world.finish_and_check()
    world.alter("two: shard_2.t_1")
    world.finish_and_check()
    assert world.waiting() == []


@pytest.mark.parametrize("transactional_ddl", [True, False])
@pytest.mark.parametrize("change", [C, GONE] if not EXAMPLES else [C, D, GONE, E, "ALTER TABLE {t} MODIFY v BIGINT"])
def test_the_process_dies_anywhere(change: str, *, transactional_ddl: bool) -> None:
    """The process dies before the statement, after it, before the statement is reported as done, and while waiting
    shards catch up.
    """
    step = 1 if EXAMPLES else 31
    for crash in itertools.count(len(change) % step, step):
        with stories() as story:
            world = story(BOTH, seed=crash, transactional_ddl=transactional_ddl)
            world.plan(*[C] * (change == GONE), change, "ALTER TABLE {t} ADD INDEX vv (v)")
            if change == GONE:
                world.alter(*world.names)
            world.alter("one: shard_1.t_1", "one: shard_1.t_1", "two: shard_1.t_1")
            world.finish_and_check()
            world.alter("one: shard_2.t_1", "two: shard_2.t_1")
            world.crash_after(crash)
            world.finish_and_check()
            came = world.deaths == 0
            world.crash_after(None)
            world.alter("one: shard_2.t_1", "two: shard_2.t_1", "two: shard_1.t_1")
            world.finish_and_check()
            assert world.waiting() == []
        if came:
            break
    assert crash > 60, "there were some points"


@pytest.mark.parametrize("seed", range(examples(4)))
def test_a_replaced_process_leads_the_others(seed: int) -> None:
    """The old process reports for a source whose next attempt has begun.

    The report must not count: the new attempt has read the records as they were before the change.
    """
    with stories() as story:
        world = story(TWO, seed=seed, transactional_ddl=seed % 2 == 0)
        world.interrupts = True
        world.plan(C, INDEX, D, GONE)
        for _ in range(4):
            world.alter("one: shard_1.t_1", "two: shard_1.t_1")
            for _ in range(3):
                world.go(world.chance.randrange(25))
                world.take_over()
        world.finish_and_check()
        assert world.waiting() == []


@pytest.mark.parametrize("point", ["journal", "execute:before", "execute:after"])
def test_the_process_dies_while_one_continues_alone(point: str) -> None:
    """An operator has given a ddl command with which one shard continues alone.

    The next process gives the command to the other shard, and completes the change.
    """
    with stories(transactional_ddl=False) as story:
        world = story(TWO)
        world.plan(C)
        world.alter("two: shard_1.t_1")
        world.finish_and_check()
        world.order("two: shard_1.t_1", OrderKind.UNLOCK)
        world.crash_at(point)
        while not world.deaths:
            world.go(1)
        world.alter("one: shard_1.t_1")
        (first,) = (entry for entry in world.shards.sources["one"].entries() if entry.transaction.ddl)
        world.give("one", first.transaction.lsn, OrderKind.UNLOCK)
        world.finish_and_check()
        assert world.waiting() == []
