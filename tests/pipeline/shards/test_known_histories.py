"""Histories of shards in which merging could fail, each written step by step.

After a step that says so, the task continues until it has nothing left to do. Then each shard is before the schema
change for which it waits, or at the end of its log. The target has the rows that all shards had at these places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.examples import EXAMPLES, examples

from pidts.model import CommandKind, TableName

from .step_by_step import BOTH, GONE, INDEX, ONE, TWO, C, D, E, MakeStory, stories


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


@pytest.mark.parametrize("keyed", [False, True])
def test_two_shards_of_one_server(story: MakeStory, *, keyed: bool) -> None:
    task = story(ONE, keyed=keyed)
    task.plan(C)
    task.alter("one: shard_1.t_1")
    task.write(times=2)
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1"], "its new rows wait, the other's old ones come"
    assert "c" not in task.columns()
    task.alter("one: shard_1.t_2")
    task.finish_and_check()
    assert task.waiting() == []
    assert "c" in task.columns()


def test_two_servers(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C)
    task.alter("one: shard_1.t_1")
    task.write(times=3)
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1"]
    task.alter("two: shard_1.t_1")
    task.write()
    task.finish_and_check()
    assert task.waiting() == []


def test_several_shards_on_several_servers(story: MakeStory) -> None:
    task = story(BOTH)
    task.plan(C)
    for number, name in enumerate(("two: shard_2.t_1", "one: shard_1.t_1", "one: shard_2.t_1")):
        task.alter(name)
        task.write()
        task.finish_and_check()
        assert len(task.waiting()) == number + 1
    task.alter("two: shard_1.t_1")
    task.finish_and_check()
    assert task.waiting() == []


def test_a_shard_that_is_ahead_by_several_changes(story: MakeStory) -> None:
    task = story(BOTH)
    task.plan(C, D, INDEX, GONE)
    names = task.names
    task.alter(*[names[0]] * 4, *[names[1]] * 3, *[names[2]] * 2)
    task.write()
    task.finish_and_check()
    assert sorted(task.waiting()) == sorted(names[:3])
    for _ in range(4):
        task.alter(names[3])
        task.write()
        task.finish_and_check()
    for name, times in zip(names, (0, 1, 2), strict=False):
        task.alter(*[name] * times)
    task.finish_and_check()
    assert (task.waiting(), task.columns()) == ([], ["id", "v", "u", "d"])


def test_sequences_that_are_interleaved(story: MakeStory) -> None:
    """Five tables on two servers get two columns, an index, and a column with an index, with rows between all changes."""
    layout = {
        "one": ("shard_1.t_1", "shard_1.t_2"),
        "two": ("shard_1.t_2", "shard_1.t_3", "shard_2.t_1"),
    }
    task = story(layout)
    task.plan(C, D, INDEX, E)
    for _ in range(4):
        for name in task.chance.sample(task.names, 5):
            task.alter(name)
            task.write()
        task.finish_and_check()
        assert task.waiting() == []


def test_groups_wait_for_each_others_servers(story: MakeStory) -> None:
    """A task that stopped a whole server for one group would never reach the change for which the other group waits."""
    task = story({"one": ("shard_1.t_1", "shard_1.u_1"), "two": ("shard_1.t_1", "shard_1.u_1")})
    task.plan(C)
    task.plan(D, group="u")
    task.alter("one: shard_1.t_1", "two: shard_1.u_1")
    task.write()
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1", "two: shard_1.u_1"]
    task.alter("one: shard_1.u_1", "two: shard_1.t_1")
    task.finish_and_check()
    assert task.waiting() == []


def test_a_shard_that_comes_during_a_change_and_after_it(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C)
    task.alter("one: shard_1.t_1")
    old = task.shards.create("one", TableName("shard_2", "t_5"), 0)
    new = task.shards.create("one", TableName("shard_2", "t_6"), 1)
    task.write()
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1", "one: shard_2.t_6"]
    task.alter("two: shard_1.t_1")
    task.write()
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1", "one: shard_2.t_6", "two: shard_1.t_1"]
    task.alter(f"one: {old.name}")
    task.write()
    task.finish_and_check()
    assert task.waiting() == []
    late = task.shards.create("two", TableName("shard_3", "t_1"), 1)
    task.write()
    task.finish_and_check()
    assert task.waiting() == []
    task.plan(D)
    for shard in (late, new, old):
        task.alter(f"{shard.source.name}: {shard.name}")
    task.finish_and_check()
    assert len(task.waiting()) == 3
    task.alter("one: shard_1.t_1", "two: shard_1.t_1")
    task.finish_and_check()
    assert task.waiting() == []


def test_a_shard_that_comes_several_versions_ahead(story: MakeStory) -> None:
    """Two changes of the group come before the new shard in the log of its server. The other server has made neither of
    them yet.
    """
    task = story(TWO)
    task.plan(C, D)
    task.alter("one: shard_1.t_1", "one: shard_1.t_1")
    task.shards.create("one", TableName("shard_2", "t_5"), 2)
    task.write()
    task.finish_and_check()
    assert task.waiting() == ["one: shard_1.t_1", "one: shard_2.t_5"]
    for _ in range(2):
        task.alter("two: shard_1.t_1")
        task.finish_and_check()
    assert task.waiting() == []


def test_one_transaction_has_rows_of_a_waiting_shard_and_of_another_shard(story: MakeStory) -> None:
    task = story(BOTH)
    task.plan(C)
    task.alter("two: shard_1.t_1")
    task.shards.write(task["two: shard_1.t_1"], task["two: shard_2.t_1"], task["two: alone.x"])
    task.finish_and_check()
    task.alter("one: shard_1.t_1", "one: shard_2.t_1")
    task.shards.write(task["two: shard_2.t_1"], task["two: shard_1.t_1"])
    task.finish_and_check()
    task.alter("two: shard_2.t_1")
    task.finish_and_check()
    assert task.waiting() == []


@pytest.mark.parametrize("transactional_ddl", [True, False])
@pytest.mark.parametrize("change", [C, GONE] if not EXAMPLES else [C, D, GONE, E, "ALTER TABLE {t} MODIFY v BIGINT"])
def test_the_process_dies_anywhere(change: str, *, transactional_ddl: bool) -> None:
    """The process dies before the statement, after it, before the statement is reported as done, and while waiting
    shards catch up.
    """
    step = 1 if EXAMPLES else 31
    for crash in itertools.count(len(change) % step, step):
        with stories() as story:
            task = story(BOTH, seed=crash, transactional_ddl=transactional_ddl)
            task.plan(*[C] * (change == GONE), change, "ALTER TABLE {t} ADD INDEX vv (v)")
            if change == GONE:
                task.alter(*task.names)
            task.alter("one: shard_1.t_1", "one: shard_1.t_1", "two: shard_1.t_1")
            task.finish_and_check()
            task.alter("one: shard_2.t_1", "two: shard_2.t_1")
            task.crash_after(crash)
            task.finish_and_check()
            came = task.deaths == 0
            task.crash_after(None)
            task.alter("one: shard_2.t_1", "two: shard_2.t_1", "two: shard_1.t_1")
            task.finish_and_check()
            assert task.waiting() == []
        if came:
            break
    assert crash > 40, "there were some points"


@pytest.mark.parametrize("seed", range(examples(4)))
def test_a_replaced_process_leads_the_others(seed: int) -> None:
    """The old process reports for a source whose next attempt has begun.

    The report must not count: the new attempt has read the records as they were before the change.
    """
    with stories() as story:
        task = story(TWO, seed=seed, transactional_ddl=seed % 2 == 0)
        task.interrupts = True
        task.plan(C, INDEX, D, GONE)
        for _ in range(4):
            task.alter("one: shard_1.t_1", "two: shard_1.t_1")
            for _ in range(3):
                task.go(task.chance.randrange(25))
                task.take_over()
        task.finish_and_check()
        assert task.waiting() == []


@pytest.mark.parametrize("point", ["journal", "execute:before", "execute:after"])
def test_the_process_dies_while_one_continues_alone(point: str) -> None:
    """An operator has given a ddl command with which one shard continues alone.

    The next process gives the command to the other shard, and completes the change.
    """
    with stories(transactional_ddl=False) as story:
        task = story(TWO)
        task.plan(C)
        task.alter("two: shard_1.t_1")
        task.finish_and_check()
        task.command("two: shard_1.t_1", CommandKind.UNLOCK)
        task.crash_at(point)
        while not task.deaths:
            task.go(1)
        task.alter("one: shard_1.t_1")
        (first,) = (entry for entry in task.shards.sources["one"].entries() if entry.transaction.ddl)
        task.give("one", first.transaction.lsn, CommandKind.UNLOCK)
        task.finish_and_check()
        assert task.waiting() == []
