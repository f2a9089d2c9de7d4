"""Shards join, leave, are renamed or disagree, and operators give ddl commands about them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.examples import EXAMPLES

from pidts.model import OrderKind, TableName

from .step_by_step import BOTH, ONE, TWO, C, D, MakeStory, Story, T, stories

A, B = "one: shard_1.t_1", "two: shard_1.t_1"


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


def codes(world: Story) -> dict[str, str]:
    return {
        f"{source}: {table}": halt.code
        for source in world.shards.sources
        for halt in world.halts(source)
        for table in halt.tables
    }


def test_no_shard_waits_for_one_that_joined_with_a_later_structure(story: MakeStory) -> None:
    """The shard's rows fit into the target's table, so they are written.

    The shard need not reach a change that its structure includes.
    """
    world = story(TWO)
    world.plan("ALTER TABLE {t} ADD INDEX k (v)", D, C)
    world.alter(A)
    new = f"one: {world.shards.create('one', TableName('shard_2', 't_7'), 1).name}"
    world.write(new)
    world.finish_and_check()
    assert world.waiting() == [A]
    world.alter(new)
    world.finish_and_check()
    assert world.waiting() == [A, new]
    world.alter(B)
    world.finish_and_check()
    assert world.waiting() == [new]
    world.alter(A, B)
    world.finish_and_check()
    assert world.waiting() == []


def test_no_shard_waits_for_a_shard_that_joined_far_ahead(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C, "ALTER TABLE {t} DROP COLUMN c", "ALTER TABLE {t} ADD INDEX k (v)")
    world.alter(A, A, A)
    world.shards.create("one", TableName("shard_2", "t_7"), 3)
    world.write()
    world.finish_and_check()
    assert world.waiting() == [A]
    for _ in range(3):
        world.alter(B)
        world.write()
        world.finish_and_check()
    assert world.waiting() == []


def test_waiting_shards_are_reported(story: MakeStory) -> None:
    world = story(BOTH)
    world.plan(C)
    world.alter(A, B)
    world.finish_and_check()
    assert codes(world) == {A: "shard-awaits", B: "shard-awaits"}
    (halt,) = world.halts("one")
    assert halt.awaits == ("one: shard_2.t_1", "two: shard_2.t_1")
    assert halt.since
    (lock,) = world.locks()
    assert lock.target == T
    assert [str(one.member) for one in lock.arrived] in ([A, B], [B, A])
    assert [str(member) for member in lock.awaited] == [*halt.awaits]
    world.alter("one: shard_2.t_1", "two: shard_2.t_1")
    world.finish_and_check()
    assert (codes(world), world.locks(), world.waiting()) == ({}, (), [])


def test_an_unlocked_change_runs_without_a_late_shard(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    world.order(A, OrderKind.UNLOCK)
    world.write(B, times=3)
    world.finish()
    world.check()
    assert (world.waiting(), codes(world)) == ([], {})
    assert "c" in world.columns()
    world.write(A, B, times=2)
    world.finish()
    world.check()
    world.alter(B)
    world.finish_and_check()
    assert world.waiting() == []


def test_a_column_is_dropped_without_one_who_still_writes_to_it(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C, "ALTER TABLE {t} DROP COLUMN c")
    world.alter(A, B, A)
    world.write(times=3)
    world.finish_and_check()
    assert world.waiting() == [A]
    world.order(A, OrderKind.UNLOCK)
    world.looks = False
    world.write(times=3)
    world.finish()
    assert (world.waiting(), codes(world)) == ([], {})
    assert "c" in world.columns()
    world.alter(B)
    world.write(times=3)
    world.finish_and_check()
    assert world.waiting() == []
    assert "c" not in world.columns()


def test_a_change_away_from_the_others_structure_is_reported(story: MakeStory) -> None:
    world = story(TWO)
    world[A].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT")
    world.finish()
    world.order(A, OrderKind.UNLOCK)
    world.finish()
    assert (world.waiting(), "c" in world.columns()) == ([], True)
    world[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    world.finish()
    assert (world.waiting(), codes(world)) == ([B], {B: "shards-disagree"})
    (halt,) = world.halts("two")
    assert "varchar(9)" in halt.what
    assert "int there" in halt.what


def test_other_tables_continue_while_shards_disagree(story: MakeStory) -> None:
    world = story(TWO)
    world[A].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT")
    world[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    world.write("one: alone.x", "two: alone.x")
    world.finish()
    world.check()
    assert (world.waiting(), codes(world)) == ([A, B], {A: "shards-disagree", B: "shards-disagree"})
    (lock,) = world.locks()
    assert lock.disagree
    for name in ("one", "two"):
        assert world.place(name).lsn == world.shards.sources[name].received, "all but these are there"
    world[B].source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN c INT")
    world.order(A, OrderKind.UNLOCK)
    world.finish()
    assert world.waiting() == [B]
    world.order(B, OrderKind.SKIP)
    world.finish()
    world.check()
    assert (world.waiting(), codes(world)) == ([], {})
    assert world.columns() == ["id", "v", "u", "c"]


def test_no_shard_waits_for_a_dropped_shard(story: MakeStory) -> None:
    world = story(BOTH)
    world.plan(C, D)
    world.alter(A, B, "one: shard_2.t_1")
    world.finish_and_check()
    assert len(world.waiting()) == 3
    rows = len(world["two: shard_2.t_1"].rows)
    assert rows
    base = world["two: shard_2.t_1"].base
    world.shards.drop(world["two: shard_2.t_1"])
    world.finish_and_check()
    assert world.waiting() == []
    assert sum(base <= row["id"] < base + 100 for row in world.content(T)) == rows, "its rows stay"
    world.alter(A, B, "one: shard_2.t_1")
    world.finish_and_check()
    assert world.waiting() == []


def test_several_shards_are_dropped_at_once(story: MakeStory) -> None:
    world = story({"one": ("shard_1.t_1", "shard_2.t_1", "shard_2.t_2", "alone.x")})
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    world.shards.drop(world["one: shard_2.t_1"], world["one: shard_2.t_2"], world["one: alone.x"])
    world.write(A)
    world.finish()
    assert world.waiting() == []
    assert {"all.t"} == {str(name) for name in world.target.store.tables}


@pytest.mark.parametrize(
    "text", ["CREATE DATABASE IF NOT EXISTS shard_1", "ALTER DATABASE shard_1 COLLATE utf8mb4_bin"]
)
def test_a_statement_about_a_schema_does_not_prevent_a_shard_from_joining(story: MakeStory, text: str) -> None:
    world = story({"one": ("shard_1.t_1", "shard_1.t_2", "shard_2.t_1", "alone.x")})
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    world[A].source.say(text)
    world.write()
    world.finish_and_check()
    assert world.waiting() == [A]
    world.alter("one: shard_1.t_2", "one: shard_2.t_1")
    world.finish_and_check()
    assert world.waiting() == []


@pytest.mark.parametrize("writes", [False, True])
def test_shards_are_dropped_at_once_of_which_one_waits_for_the_other(story: MakeStory, *, writes: bool) -> None:
    world = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x"), "two": ("shard_1.t_1",)})
    world.plan(C)
    world.alter(A, B)
    world.finish_and_check()
    world.shards.drop(world[A], world["one: shard_2.t_1"])
    if writes:
        world.write("one: alone.x", times=5)
    world.finish()
    assert world.waiting() == []
    assert "c" in world.columns(), "nobody is left to wait for"
    assert codes(world) == {}


def test_a_schema_is_dropped_in_which_one_shard_waits_for_the_other(story: MakeStory) -> None:
    world = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1",)})
    world.plan(C)
    world.alter(A, B)
    world.finish_and_check()
    world.shards.drop(world[A], world["one: shard_1.t_2"], text="DROP DATABASE shard_1")
    world.write("one: alone.x")
    world.finish()
    assert (world.waiting(), codes(world)) == ([], {})
    assert "c" in world.columns()


def test_a_new_process_keeps_the_time_since_when_a_table_waits(story: MakeStory) -> None:
    world = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x"), "two": ("shard_1.t_1",)})
    world.plan(C)
    world.write("one: alone.x", times=9)
    world.alter(A)
    world.finish_and_check()
    world[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_7, shard_2.t_1 TO shard_2.t_7")
    world.looks = False
    world.finish()
    before = {halt.code: halt.since for halt in world.halts("one")}
    assert before.keys() == {"shard-awaits", "ddl-awaits-tables"}
    for begin_anew in (world.start, lambda: world.begin_anew("one")):
        begin_anew()
        world.finish()
        assert {halt.code: halt.since for halt in world.halts("one")} == before
        assert [lock.since for lock in world.locks()] == [before["shard-awaits"]]


def test_shards_that_wait_for_each_other_before_one_statement_are_reported(story: MakeStory) -> None:
    """Shard A waits at a change that the other shard makes only after a RENAME of both shards. This RENAME waits for A."""
    other = "one: shard_2.t_1"
    world = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x")})
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    world.looks = False
    world[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_7, shard_2.t_1 TO shard_2.t_7")
    world.finish()
    assert codes(world) == {A: "shard-awaits", other: "ddl-awaits-tables"}
    (halt,) = (one for one in world.halts("one") if one.code == "ddl-awaits-tables")
    assert halt.awaits == (A,)
    assert halt.since
    world.order(A, OrderKind.UNLOCK)
    world.finish()
    assert codes(world) == {}
    assert world.waiting() == []
    assert {str(member.table) for member in world.groups.known.members} >= {"shard_1.t_7", "shard_2.t_7"}


def test_a_schema_that_waits_for_a_shard_is_reported(story: MakeStory) -> None:
    world = story({"one": ("shard_1.t_1", "shard_1.t_2", "shard_2.t_1", "alone.x")})
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    world.shards.drop(world[A], world["one: shard_1.t_2"], text="DROP DATABASE shard_1")
    world.write("one: alone.x")
    world.finish()
    assert codes(world) == {A: "shard-awaits", "one: shard_1.t_2": "ddl-awaits-tables"}
    world.order(A, OrderKind.UNLOCK)
    world.finish()
    assert codes(world) == {}


def test_a_shard_that_waits_may_be_dropped_later_in_its_log(story: MakeStory) -> None:
    world = story(TWO)
    world.plan(C)
    world.alter(A)
    world.shards.drop(world[A])
    world.finish_and_check()
    assert world.waiting() == [A]
    world.alter(B)
    world.finish_and_check()
    assert world.waiting() == []


@pytest.mark.parametrize("keyed", [False, True])
def test_a_shard_is_emptied(story: MakeStory, *, keyed: bool) -> None:
    world = story(ONE, keyed=keyed)
    world.shards.empty(world[A])
    world.write(times=3)
    world.finish_and_check()
    assert world.waiting() == []


def test_a_schema_of_shards_is_dropped(story: MakeStory) -> None:
    world = story({"one": ("shard_1.t_1", "shard_2.t_1", "shard_2.t_2", "shard_2.u_1")})
    before = len(world.target.store.tables)
    world.plan(C)
    world.alter(A)
    world.finish_and_check()
    gone = [world[name] for name in world.names if name != A]
    world.shards.drop(*gone, text="DROP DATABASE shard_2")
    world.write(A)
    world.finish_and_check()
    assert world.waiting() == []
    assert "c" in world.columns(), "nobody is left to wait for"
    assert len(world.target.store.tables) == before


@pytest.mark.parametrize("text", ["RENAME TABLE {t} TO {new}", "ALTER TABLE {t} RENAME TO {new}"])
def test_a_shard_takes_another_name(story: MakeStory, text: str) -> None:
    world = story(TWO)
    world.plan(C)
    world.shards.rename(world[A], TableName("shard_2", "t_8"), text)
    world.write()
    world.finish_and_check()
    assert world.waiting() == []
    world.alter("one: shard_2.t_8")
    world.shards.rename(world["one: shard_2.t_8"], TableName("shard_2", "t_9"), text)
    world.write()
    world.finish_and_check()
    world.alter(B)
    world.finish_and_check()
    assert world.waiting() == []


def test_a_shard_leaves_the_group_by_another_name(story: MakeStory) -> None:
    """The rows of other shards in the target's table must not be renamed with the shard."""
    world = story(TWO)
    world.finish_and_check()
    rows = world.content(T)
    world[A].is_gone = True
    world.shards.sources["one"].say("RENAME TABLE shard_1.t_1 TO alone.y")
    world.write(B)
    world.finish()
    assert len(world.content(T)) >= len(rows)
    assert TableName("alone", "y") not in world.target.store.tables
    assert [*codes(world)], "somebody is informed"


def test_a_table_comes_into_the_group_by_another_name(story: MakeStory) -> None:
    world = story(TWO)
    world[A].source.say("RENAME TABLE alone.x TO shard_1.t_7")
    world.write(B)
    world.finish()
    assert {T, TableName("alone", "x")} <= world.target.store.tables.keys()
    assert [*codes(world)], "somebody is informed"


def test_a_statement_that_changes_no_structure_does_not_wait(story: MakeStory) -> None:
    world = story(TWO)
    world[A].source.say("ALTER TABLE shard_1.t_1 COMMENT = 'x'")
    world.write(A)
    world.finish_and_check()
    assert world.waiting() == []
