"""If a default changes on the target while a shard lacks the column, the shard waits when it adds the column.

Its rows have the old default on the target, and another value on the source.
"""

from __future__ import annotations

import pytest

from pidts.model import CommandKind, TableName

from .step_by_step import TWO, MakeStory, Story, T
from .test_ddl_commands import codes

A, B = "one: shard_1.t_1", "two: shard_1.t_1"


def said(task: Story, what: str, *names: str) -> None:
    for name in names:
        task[name].source.say(f"ALTER TABLE {task[name].name} {what}")
        task.finish()


def begun(story: MakeStory, mode: str) -> Story:
    task = story(TWO, mode=mode)
    task.looks = False
    task.write(times=3)
    task.finish()
    return task


def come(task: Story) -> str:
    """Makes a shard with rows, which has the structure that the others had at first."""
    name = f"one: {task.shards.create('one', TableName('shard_2', 't_7'), 0).name}"
    task.write(name, times=3)
    task.finish()
    return name


def default_of(task: Story, column: str) -> str | None:
    found = task.target.store.tables[T].table.column(column)
    assert found is not None
    return found.default


def assert_waits_for_its_old_values(task: Story, name: str) -> None:
    assert (task.waiting(), codes(task)) == ([name], {name: "shard-awaits"})
    (halt,) = task.halts(name.partition(": ")[0])
    assert "column c is already on the target, with other values in this shard's rows" in halt.what
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
    task = begun(story, "optimistic")
    said(task, first, A)
    said(task, then, A)
    if restarts:
        task.start()
        task.finish()
    said(task, "ADD COLUMN c INT DEFAULT 9", B)
    assert_waits_for_its_old_values(task, B)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_shard_adds_what_the_others_have_changed(story: MakeStory, *, restarts: bool) -> None:
    task = begun(story, "pessimistic")
    said(task, "ADD COLUMN c INT DEFAULT 7", A, B)
    late = come(task)
    said(task, "ALTER COLUMN c SET DEFAULT 9", A, B)
    assert (task.waiting(), default_of(task, "c")) == ([], "9")
    if restarts:
        task.start()
        task.finish()
    said(task, "ADD COLUMN c INT DEFAULT 9", late)
    assert_waits_for_its_old_values(task, late)


def test_a_late_shard_adds_what_the_others_are_about_to_change(story: MakeStory) -> None:
    """The late shard gets the same structure as the others, but not the same values."""
    task = begun(story, "pessimistic")
    said(task, "ADD COLUMN c INT DEFAULT 7", A, B)
    late = come(task)
    said(task, "ALTER COLUMN c SET DEFAULT 9", A)
    said(task, "ADD COLUMN c INT DEFAULT 9", late)
    said(task, "ALTER COLUMN c SET DEFAULT 9", B)
    assert default_of(task, "c") == "9"
    assert_waits_for_its_old_values(task, late)


def test_one_shard_does_in_one_step_what_was_unlocked_in_two(story: MakeStory) -> None:
    task = begun(story, "pessimistic")
    for what in ("ADD COLUMN c INT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 9"):
        said(task, what, A)
        task.command(A, CommandKind.UNLOCK)
        task.finish()
    said(task, "ADD COLUMN c INT DEFAULT 9", B)
    assert_waits_for_its_old_values(task, B)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_default_that_all_change_is_changed_on_the_target(story: MakeStory, *, restarts: bool) -> None:
    task = begun(story, "optimistic")
    said(task, "ADD COLUMN c INT DEFAULT 7", A, B)
    said(task, "ALTER COLUMN c SET DEFAULT 9", A)
    assert default_of(task, "c") == "7"
    if restarts:
        task.start()
        task.finish()
    said(task, "ALTER COLUMN c SET DEFAULT 9", B)
    assert (task.waiting(), default_of(task, "c")) == ([], "9")
    late = come(task)
    said(task, "ADD COLUMN c INT DEFAULT 9", late)
    assert task.waiting() == []
    rows = {row["id"]: row["c"] for row in task.content(T)}
    assert {rows[row["id"]] for row in task[late].rows} == {9}


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_repeated_default_changes_no_values_of_other_shards(story: MakeStory, mode: str) -> None:
    task = begun(story, mode)
    said(task, "ADD COLUMN c INT DEFAULT 7", A, B)
    for what in ("MODIFY COLUMN c BIGINT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 9", "ADD COLUMN d INT"):
        said(task, what, A)
        if mode == "pessimistic":
            task.command(A, CommandKind.UNLOCK)
            task.finish()
    before = task.target.store.tables[T].table
    for name, what in ((B, "MODIFY COLUMN c INT DEFAULT 7 COMMENT 'x'"), (A, "ALTER COLUMN c SET DEFAULT 9")):
        said(task, what, name)
        assert task.waiting() == []
        assert task.target.store.tables[T].table == before
    said(task, "COMMENT = 'x'", B)
    assert task.target.store.tables[T].table.comment == "x", "which takes nothing from anybody"
