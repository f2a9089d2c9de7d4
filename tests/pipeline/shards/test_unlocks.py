"""An unlocked change runs without some shards, which reach it later. For all other changes, the shards wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.examples import EXAMPLES

from pidts.model import CommandKind, TableName
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


def unlocked(task: Story, *names: str) -> None:
    """Unlocks the change at which each of these shards waits: it runs without the other shards."""
    task.looks = False  # The target still has columns that one shard has dropped and others have not.
    for name in names:
        task.command(name, CommandKind.UNLOCK)
        task.finish()


def comes(task: Story, *names: str) -> None:
    for name in names:
        task.alter(name)
        task.write()
        task.finish()
        check_unlocked(task)


def test_the_next_change_waits_again_and_no_shard_waits_for_one_that_has_continued(story: MakeStory) -> None:
    task = story(THREE)
    task.plan(C, D)
    task.alter(A, A)
    task.finish_and_check()
    unlocked(task, A)
    assert (task.waiting(), task.columns()[3:]) == ([A], ["c"]), "the others' rows would have a place, too"
    (halt,) = task.halts("one")
    assert halt.awaits == (OTHER, B)
    comes(task, B)
    assert task.waiting() == [A], "it passes"
    comes(task, B)
    assert task.waiting() == [A, B]
    comes(task, OTHER)
    assert task.waiting() == [A, B]
    comes(task, OTHER)
    assert (task.waiting(), task.columns()[3:]) == ([], ["c", "d"])
    task.finish_and_check()


def said(task: Story, name: str, what: str) -> None:
    shard = task[name]
    shard.source.say(f"ALTER TABLE {shard.name} {what}")
    task.finish()


def test_one_of_two_defaults_is_run_and_no_row_gets_the_other(story: MakeStory) -> None:
    """If a row's table lacks a column, the column's value does not depend on other tables in the batch."""
    task = story(THREE)
    task.finish_and_check()
    said(task, A, "ADD COLUMN c INT NOT NULL DEFAULT 7")
    said(task, B, "ADD COLUMN c INT NOT NULL DEFAULT 8")
    assert [halt.code for halt in task.halts("two")] == ["shards-disagree"]
    unlocked(task, A)
    assert task.waiting() == [B]
    (halt,) = task.halts("two")
    assert halt.code == "shards-disagree", "nobody who comes could help"
    assert "DEFAULT 7" in halt.what
    assert "--resync two:shard_1.t_1" in halt.todo
    unlocked(task, B)
    assert task.waiting() == [B], "the target's rows have other values than this one's"
    task.command(B, CommandKind.SKIP)
    task.finish()
    for _ in range(5):
        task.write()
        task.finish()
    assert task.waiting() == []
    (target,) = (name for name in task.target.store.tables if name == T)
    rows = {row["id"]: row["c"] for row in task.target.store.content(target).values()}
    assert {rows[row["id"]] for row in task[OTHER].rows} == {7}


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize(
    ("kind", "statements"), [(CommandKind.REVERT, ()), (CommandKind.INJECT, ("ALTER TABLE all.t COMMENT = 'x'",))]
)
def test_a_retry_with_another_default_does_not_pass(
    story: MakeStory, mode: str, kind: CommandKind, statements: tuple[str, ...]
) -> None:
    """The existing rows would get the value of the other shards. `skip` helps, as the halt says."""
    task = story(THREE, mode=mode)
    task.finish()
    said(task, A, "ADD COLUMN c INT NOT NULL DEFAULT 7")
    if mode == "pessimistic":
        unlocked(task, A)
    said(task, B, "ADD COLUMN c INT NOT NULL DEFAULT 8")
    task.command(B, kind, *statements)
    task.finish()
    assert [halt.code for halt in task.halts("two")] == ["shards-disagree"]
    task.command(B, CommandKind.SKIP)
    task.finish()
    assert task.waiting() == []


def test_injected_statements_run_before_a_change_that_passes(story: MakeStory) -> None:
    task = story(THREE)
    task.finish_and_check()
    said(task, A, "ADD COLUMN c INT DEFAULT 7")
    unlocked(task, A)
    lsn = task[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c INT DEFAULT 7").transaction.lsn
    alone = {TableName("alone", "x"): task.target.store.tables[TableName("alone", "x")].table}
    statement = classify("ALTER TABLE alone.x ADD COLUMN extra INT", "alone")
    with closing(task.target.connect()) as session:
        (injected,) = session.schema.ddl_statements(statement, alone, apply(statement, alone, {})).statements
    task.give("two", lsn, CommandKind.INJECT, injected)
    task.finish()
    assert (task.waiting(), task.halts("two")) == ([], [])
    assert task.columns(TableName("alone", "x"))[-1] == "extra"
    assert task.columns()[3:] == ["c"]
    with closing(task.target.connect()) as session:
        assert [command.taken for command in session.meta.ddl_commands.read("t", "two")] == [True]
    said(task, OTHER, "ADD COLUMN c INT DEFAULT 7")
    assert task.waiting() == []


@pytest.mark.parametrize("back", [GONE, "ALTER TABLE {t} DROP COLUMN c, ADD INDEX k (v)"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_column_is_added_and_dropped_again(story: MakeStory, back: str, *, restarts: bool) -> None:
    """Shards that have not begun look like shards that have made the change."""
    task = story(THREE)
    task.plan(C, back)
    task.alter(A, A)
    task.finish_and_check()
    unlocked(task, A)
    assert task.waiting() == [A]
    comes(task, B, B)
    if restarts:
        task.start()
    assert task.waiting() == [A, B]
    comes(task, OTHER)
    assert (task.waiting(), task.columns()[3:]) == ([A, B], ["c"])
    comes(task, OTHER)
    assert (task.waiting(), task.columns()[3:]) == ([], [])
    task.finish_and_check()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_column_is_added_and_dropped_again_without_the_others(story: MakeStory, *, restarts: bool) -> None:
    """The column stays for the rows that will have values in it."""
    task = story(THREE)
    task.plan(C, GONE, D)
    task.alter(A, A, A)
    task.finish_and_check()
    unlocked(task, A, A)
    assert (task.waiting(), task.columns()[3:]) == ([A], ["c"])
    if restarts:
        task.start()
    comes(task, B)
    assert task.waiting() == [A]
    comes(task, B)
    assert (task.waiting(), task.columns()[3:]) == ([A], ["c"]), "it waits for nobody"
    if restarts:
        task.start()
    comes(task, OTHER, OTHER)
    assert (task.waiting(), task.columns()[3:]) == ([A], []), "the last one clears up"
    comes(task, OTHER, B)
    assert (task.waiting(), task.columns()[3:]) == ([], ["d"])
    task.finish_and_check()


@pytest.mark.parametrize("keys", ["c", "c, v", "v, c"])
@pytest.mark.parametrize("then", ["", ", ADD INDEX k2 (v)", ", ADD INDEX k (v)"])
def test_a_column_and_its_index_are_dropped_without_the_others(story: MakeStory, keys: str, then: str) -> None:
    task = story(THREE)
    task.plan(f"ALTER TABLE {{t}} ADD COLUMN c INT DEFAULT 7, ADD INDEX k ({keys})")
    task.plan(f"ALTER TABLE {{t}} DROP INDEX k, DROP COLUMN c{then}")
    task.alter(A, B, OTHER)
    task.alter(A)
    task.finish_and_check()
    unlocked(task, A)
    assert (task.waiting(), "c" in task.columns()) == ([], True)
    comes(task, B)
    comes(task, OTHER)
    assert (task.waiting(), "c" in task.columns()) == ([], False)
    key = {one.name: one.columns for one in task.target.store.tables[T].table.keys}
    assert key.get("k") == (("v",) if "INDEX k " in then else None)
    task.finish_and_check()


def test_a_renamed_shard_still_has_its_missed_changes(story: MakeStory) -> None:
    task = story(THREE)
    task.plan(C, D)
    task.alter(A, A)
    task.finish_and_check()
    unlocked(task, A)
    task.shards.rename(task[B], TableName("shard_3", "t_8"))
    task.finish()
    comes(task, OTHER, OTHER)
    assert task.waiting() == [A, OTHER]
    task.start()
    task.finish()
    assert task.waiting() == [A, OTHER]
    comes(task, "two: shard_3.t_8", "two: shard_3.t_8")
    assert task.waiting() == []
    task.finish_and_check()


def test_no_shard_waits_for_a_dropped_shard(story: MakeStory) -> None:
    task = story(THREE)
    task.plan(C, GONE, INDEX)
    task.alter(A, A, A)
    task.finish_and_check()
    unlocked(task, A, A)
    comes(task, B, B)
    task.shards.drop(task[OTHER])
    task.finish()
    assert task.waiting() == [A]
    task.alter(B)
    task.finish()
    assert task.waiting() == []


@pytest.mark.slow
@pytest.mark.parametrize("transactional_ddl", [False, True])
def test_the_process_dies_anywhere(*, transactional_ddl: bool) -> None:
    """Wherever the process dies, the record of a missed change is neither lost, nor kept after the shard has caught up
    with the change.
    """
    step = 1 if EXAMPLES else 17
    for crash in itertools.count(0, step):
        with stories() as story:
            task = story(THREE, seed=crash, transactional_ddl=transactional_ddl)
            task.plan(C, GONE, D)
            task.alter(A, A, A)
            task.finish_and_check()
            unlocked(task, A)
            task.command(A, CommandKind.UNLOCK)
            task.alter(B, B, OTHER, OTHER)
            task.crash_after(crash)
            task.finish()
            came = task.deaths == 0
            task.crash_after(None)
            task.finish()
            assert (task.waiting(), task.columns()[3:]) == ([A], [])
            comes(task, B, OTHER)
            assert task.waiting() == []
            task.finish_and_check()
        if came:
            break
    assert crash > 30, "there were some points"
