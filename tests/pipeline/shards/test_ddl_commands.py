"""Shards join, leave, are renamed or disagree, and operators give ddl commands about them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.examples import EXAMPLES

from pidts.model import CommandKind, TableName

from .step_by_step import BOTH, ONE, TWO, C, D, MakeStory, Story, T, stories

A, B = "one: shard_1.t_1", "two: shard_1.t_1"


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


def codes(task: Story) -> dict[str, str]:
    return {
        f"{source}: {table}": halt.code
        for source in task.shards.sources
        for halt in task.halts(source)
        for table in halt.tables
    }


def test_no_shard_waits_for_one_that_joined_with_a_later_structure(story: MakeStory) -> None:
    """The shard's rows fit into the target's table, so they are written.

    The shard need not reach a change that its structure includes.
    """
    task = story(TWO)
    task.plan("ALTER TABLE {t} ADD INDEX k (v)", D, C)
    task.alter(A)
    new = f"one: {task.shards.create('one', TableName('shard_2', 't_7'), 1).name}"
    task.write(new)
    task.finish_and_check()
    assert task.waiting() == [A]
    task.alter(new)
    task.finish_and_check()
    assert task.waiting() == [A, new]
    task.alter(B)
    task.finish_and_check()
    assert task.waiting() == [new]
    task.alter(A, B)
    task.finish_and_check()
    assert task.waiting() == []


def test_no_shard_waits_for_a_shard_that_joined_far_ahead(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C, "ALTER TABLE {t} DROP COLUMN c", "ALTER TABLE {t} ADD INDEX k (v)")
    task.alter(A, A, A)
    task.shards.create("one", TableName("shard_2", "t_7"), 3)
    task.write()
    task.finish_and_check()
    assert task.waiting() == [A]
    for _ in range(3):
        task.alter(B)
        task.write()
        task.finish_and_check()
    assert task.waiting() == []


def test_waiting_shards_are_reported(story: MakeStory) -> None:
    task = story(BOTH)
    task.plan(C)
    task.alter(A, B)
    task.finish_and_check()
    assert codes(task) == {A: "shard-awaits", B: "shard-awaits"}
    (halt,) = task.halts("one")
    assert halt.awaits == ("one: shard_2.t_1", "two: shard_2.t_1")
    assert halt.since
    (lock,) = task.locks()
    assert lock.target == T
    assert [str(one.member) for one in lock.arrived] in ([A, B], [B, A])
    assert [str(member) for member in lock.awaited] == [*halt.awaits]
    task.alter("one: shard_2.t_1", "two: shard_2.t_1")
    task.finish_and_check()
    assert (codes(task), task.locks(), task.waiting()) == ({}, (), [])


def test_an_unlocked_change_runs_without_a_late_shard(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    task.command(A, CommandKind.UNLOCK)
    task.write(B, times=3)
    task.finish()
    task.check()
    assert (task.waiting(), codes(task)) == ([], {})
    assert "c" in task.columns()
    task.write(A, B, times=2)
    task.finish()
    task.check()
    task.alter(B)
    task.finish_and_check()
    assert task.waiting() == []


def test_a_column_is_dropped_without_one_who_still_writes_to_it(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C, "ALTER TABLE {t} DROP COLUMN c")
    task.alter(A, B, A)
    task.write(times=3)
    task.finish_and_check()
    assert task.waiting() == [A]
    task.command(A, CommandKind.UNLOCK)
    task.looks = False
    task.write(times=3)
    task.finish()
    assert (task.waiting(), codes(task)) == ([], {})
    assert "c" in task.columns()
    task.alter(B)
    task.write(times=3)
    task.finish_and_check()
    assert task.waiting() == []
    assert "c" not in task.columns()


def test_a_change_away_from_the_others_structure_is_reported(story: MakeStory) -> None:
    task = story(TWO)
    task[A].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT")
    task.finish()
    task.command(A, CommandKind.UNLOCK)
    task.finish()
    assert (task.waiting(), "c" in task.columns()) == ([], True)
    task[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    task.finish()
    assert (task.waiting(), codes(task)) == ([B], {B: "shards-disagree"})
    (halt,) = task.halts("two")
    assert "varchar(9)" in halt.what
    assert "int there" in halt.what


def test_other_tables_continue_while_shards_disagree(story: MakeStory) -> None:
    task = story(TWO)
    task[A].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT")
    task[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    task.write("one: alone.x", "two: alone.x")
    task.finish()
    task.check()
    assert (task.waiting(), codes(task)) == ([A, B], {A: "shards-disagree", B: "shards-disagree"})
    (lock,) = task.locks()
    assert lock.disagree
    for name in ("one", "two"):
        assert task.place(name).lsn == task.shards.sources[name].received, "all but these are there"
    task[B].source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN c INT")
    task.command(A, CommandKind.UNLOCK)
    task.finish()
    assert task.waiting() == [B]
    task.command(B, CommandKind.SKIP)
    task.finish()
    task.check()
    assert (task.waiting(), codes(task)) == ([], {})
    assert task.columns() == ["id", "v", "u", "c"]


def test_no_shard_waits_for_a_dropped_shard(story: MakeStory) -> None:
    task = story(BOTH)
    task.plan(C, D)
    task.alter(A, B, "one: shard_2.t_1")
    task.finish_and_check()
    assert len(task.waiting()) == 3
    rows = len(task["two: shard_2.t_1"].rows)
    assert rows
    base = task["two: shard_2.t_1"].base
    task.shards.drop(task["two: shard_2.t_1"])
    task.finish_and_check()
    assert task.waiting() == []
    assert sum(base <= row["id"] < base + 100 for row in task.content(T)) == rows, "its rows stay"
    task.alter(A, B, "one: shard_2.t_1")
    task.finish_and_check()
    assert task.waiting() == []


def test_several_shards_are_dropped_at_once(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_2.t_1", "shard_2.t_2", "alone.x")})
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    task.shards.drop(task["one: shard_2.t_1"], task["one: shard_2.t_2"], task["one: alone.x"])
    task.write(A)
    task.finish()
    assert task.waiting() == []
    assert {"all.t"} == {str(name) for name in task.target.store.tables}


@pytest.mark.parametrize(
    "text", ["CREATE DATABASE IF NOT EXISTS shard_1", "ALTER DATABASE shard_1 COLLATE utf8mb4_bin"]
)
def test_a_statement_about_a_schema_does_not_prevent_a_shard_from_joining(story: MakeStory, text: str) -> None:
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "shard_2.t_1", "alone.x")})
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    task[A].source.say(text)
    task.write()
    task.finish_and_check()
    assert task.waiting() == [A]
    task.alter("one: shard_1.t_2", "one: shard_2.t_1")
    task.finish_and_check()
    assert task.waiting() == []


@pytest.mark.parametrize("writes", [False, True])
def test_shards_are_dropped_at_once_of_which_one_waits_for_the_other(story: MakeStory, *, writes: bool) -> None:
    task = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x"), "two": ("shard_1.t_1",)})
    task.plan(C)
    task.alter(A, B)
    task.finish_and_check()
    task.shards.drop(task[A], task["one: shard_2.t_1"])
    if writes:
        task.write("one: alone.x", times=5)
    task.finish()
    assert task.waiting() == []
    assert "c" in task.columns(), "nobody is left to wait for"
    assert codes(task) == {}


def test_a_schema_is_dropped_in_which_one_shard_waits_for_the_other(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1",)})
    task.plan(C)
    task.alter(A, B)
    task.finish_and_check()
    task.shards.drop(task[A], task["one: shard_1.t_2"], text="DROP DATABASE shard_1")
    task.write("one: alone.x")
    task.finish()
    assert (task.waiting(), codes(task)) == ([], {})
    assert "c" in task.columns()


def test_a_new_process_keeps_the_time_since_when_a_table_waits(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x"), "two": ("shard_1.t_1",)})
    task.plan(C)
    task.write("one: alone.x", times=9)
    task.alter(A)
    task.finish_and_check()
    task[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_7, shard_2.t_1 TO shard_2.t_7")
    task.looks = False
    task.finish()
    before = {halt.code: halt.since for halt in task.halts("one")}
    assert before.keys() == {"shard-awaits", "ddl-awaits-tables"}
    for begin_anew in (task.start, lambda: task.begin_anew("one")):
        begin_anew()
        task.finish()
        assert {halt.code: halt.since for halt in task.halts("one")} == before
        assert [lock.since for lock in task.locks()] == [before["shard-awaits"]]


def test_shards_that_wait_for_each_other_before_one_statement_are_reported(story: MakeStory) -> None:
    """Shard A waits at a change that the other shard makes only after a RENAME of both shards. This RENAME waits for A."""
    other = "one: shard_2.t_1"
    task = story({"one": ("shard_1.t_1", "shard_2.t_1", "alone.x")})
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    task.looks = False
    task[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_7, shard_2.t_1 TO shard_2.t_7")
    task.finish()
    assert codes(task) == {A: "shard-awaits", other: "ddl-awaits-tables"}
    (halt,) = (one for one in task.halts("one") if one.code == "ddl-awaits-tables")
    assert halt.awaits == (A,)
    assert halt.since
    task.command(A, CommandKind.UNLOCK)
    task.finish()
    assert codes(task) == {}
    assert task.waiting() == []
    assert {str(member.table) for member in task.groups.known.members} >= {"shard_1.t_7", "shard_2.t_7"}


def test_a_schema_that_waits_for_a_shard_is_reported(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "shard_2.t_1", "alone.x")})
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    task.shards.drop(task[A], task["one: shard_1.t_2"], text="DROP DATABASE shard_1")
    task.write("one: alone.x")
    task.finish()
    assert codes(task) == {A: "shard-awaits", "one: shard_1.t_2": "ddl-awaits-tables"}
    task.command(A, CommandKind.UNLOCK)
    task.finish()
    assert codes(task) == {}


def test_a_shard_that_waits_may_be_dropped_later_in_its_log(story: MakeStory) -> None:
    task = story(TWO)
    task.plan(C)
    task.alter(A)
    task.shards.drop(task[A])
    task.finish_and_check()
    assert task.waiting() == [A]
    task.alter(B)
    task.finish_and_check()
    assert task.waiting() == []


@pytest.mark.parametrize("keyed", [False, True])
def test_a_shard_is_emptied(story: MakeStory, *, keyed: bool) -> None:
    task = story(ONE, keyed=keyed)
    task.shards.empty(task[A])
    task.write(times=3)
    task.finish_and_check()
    assert task.waiting() == []


def test_a_schema_of_shards_is_dropped(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_2.t_1", "shard_2.t_2", "shard_2.u_1")})
    before = len(task.target.store.tables)
    task.plan(C)
    task.alter(A)
    task.finish_and_check()
    gone = [task[name] for name in task.names if name != A]
    task.shards.drop(*gone, text="DROP DATABASE shard_2")
    task.write(A)
    task.finish_and_check()
    assert task.waiting() == []
    assert "c" in task.columns(), "nobody is left to wait for"
    assert len(task.target.store.tables) == before


@pytest.mark.parametrize("text", ["RENAME TABLE {t} TO {new}", "ALTER TABLE {t} RENAME TO {new}"])
def test_a_shard_takes_another_name(story: MakeStory, text: str) -> None:
    task = story(TWO)
    task.plan(C)
    task.shards.rename(task[A], TableName("shard_2", "t_8"), text)
    task.write()
    task.finish_and_check()
    assert task.waiting() == []
    task.alter("one: shard_2.t_8")
    task.shards.rename(task["one: shard_2.t_8"], TableName("shard_2", "t_9"), text)
    task.write()
    task.finish_and_check()
    task.alter(B)
    task.finish_and_check()
    assert task.waiting() == []


def test_a_shard_leaves_the_group_by_another_name(story: MakeStory) -> None:
    """The rows of other shards in the target's table must not be renamed with the shard."""
    task = story(TWO)
    task.finish_and_check()
    rows = task.content(T)
    task[A].is_gone = True
    task.shards.sources["one"].say("RENAME TABLE shard_1.t_1 TO alone.y")
    task.write(B)
    task.finish()
    assert len(task.content(T)) >= len(rows)
    assert TableName("alone", "y") not in task.target.store.tables
    assert [*codes(task)], "somebody is informed"


def test_a_table_comes_into_the_group_by_another_name(story: MakeStory) -> None:
    task = story(TWO)
    task[A].source.say("RENAME TABLE alone.x TO shard_1.t_7")
    task.write(B)
    task.finish()
    assert {T, TableName("alone", "x")} <= task.target.store.tables.keys()
    assert [*codes(task)], "somebody is informed"


def test_a_statement_that_changes_no_structure_does_not_wait(story: MakeStory) -> None:
    task = story(TWO)
    task[A].source.say("ALTER TABLE shard_1.t_1 COMMENT = 'x'")
    task.write(A)
    task.finish_and_check()
    assert task.waiting() == []
