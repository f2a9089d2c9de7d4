"""If a change gives a column other values, and the structure stays the same, no shard's rows get the values of another
shard.
"""

from __future__ import annotations

from typing import Any

import pytest

from pidts.model import CommandKind

from .step_by_step import TWO, MakeStory, Story, T, stories
from .test_ddl_commands import codes

A, B = "one: shard_1.t_1", "two: shard_1.t_1"
ALTER = "ALTER TABLE shard_1.t_1 "
AGAIN = "DROP COLUMN d, ADD COLUMN d INT DEFAULT 7"
TRADED = "CHANGE COLUMN c d INT DEFAULT 7, CHANGE COLUMN d c INT DEFAULT 7"


def begun(story: MakeStory, mode: str) -> Story:
    """Returns a history in which both shards have c and d, with values in both columns."""
    task = story(TWO, mode=mode)
    task.looks = False
    for name in (A, B):
        for column in "cd":
            task[name].source.say(f"{ALTER}ADD COLUMN {column} INT DEFAULT 7")
    task.write(times=4)
    task.finish()
    assert task.waiting() == []
    return task


def rows_of(task: Story, name: str) -> list[dict[str, Any]]:
    keys = {row["id"] for row in task[name].rows}
    return sorted((row for row in task.content(T) if row["id"] in keys), key=lambda row: int(row["id"]))


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
    task = begun(story, mode)
    before = rows_of(task, B)
    task[A].source.say(ALTER + change)
    task.finish()
    assert codes(task) == {A: "ddl-moves-values"}
    assert rows_of(task, B) == before


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
    task = begun(story, "optimistic")
    before = rows_of(task, B)
    task[A].source.say(ALTER + change)
    task.finish()
    assert codes(task) == {A: "ddl-moves-values"}
    assert rows_of(task, B) == before


def test_columns_that_trade_names_on_all_shards_do_so_on_the_target(story: MakeStory) -> None:
    task = begun(story, "pessimistic")
    both = [*rows_of(task, A), *rows_of(task, B)]
    for name in (A, B):
        task[name].source.say(ALTER + TRADED)
    task.finish()
    assert (task.waiting(), codes(task)) == ([], {})
    found = {row["id"]: row for row in task.content(T)}
    for row in both:
        assert (found[row["id"]]["c"], found[row["id"]]["d"]) == (row["d"], row["c"])


def test_a_rename_to_a_column_that_others_have_added_is_reported(story: MakeStory) -> None:
    task = begun(story, "optimistic")
    before = rows_of(task, B)
    task[A].source.say(f"{ALTER}ADD COLUMN w INT")
    task[B].source.say(f"{ALTER}CHANGE COLUMN v w INT")
    task.finish()
    assert codes(task) == {B: "ddl-moves-values"}
    assert [row["v"] for row in rows_of(task, B)] == [row["v"] for row in before]


def test_dropped_columns_are_recorded_under_a_shards_new_name(story: MakeStory) -> None:
    task = begun(story, "optimistic")
    task[A].source.say(f"{ALTER}DROP COLUMN v")
    task[B].source.say(f"{ALTER}CHANGE COLUMN v w INT")
    task.finish()
    assert "w" in task.columns()
    task[A].source.say(f"{ALTER}ADD COLUMN w INT")
    task.finish()
    assert task.waiting() == [A], "its rows have old values in it"


def test_a_shard_is_not_renamed_while_the_target_has_what_it_has_dropped(story: MakeStory) -> None:
    task = begun(story, "optimistic")
    task[A].source.say(f"{ALTER}DROP COLUMN v")
    task[A].source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_9")
    task.finish()
    assert "rename-moves-rows" in codes(task).values()


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_shard_that_drops_a_column_and_gets_another_name_in_one(
    story: MakeStory, mode: str, *, restarts: bool
) -> None:
    task = begun(story, mode)
    before = {row["id"]: row["v"] for row in rows_of(task, A)}
    task[A].source.say(f"{ALTER}DROP COLUMN v, RENAME TO shard_1.t_5", {})
    task.finish()
    if mode == "pessimistic":
        task.command(A, CommandKind.UNLOCK)
        task.finish()
    assert task.waiting() == []
    if restarts:
        task.start()
    task[A].source.say("ALTER TABLE shard_1.t_5 ADD COLUMN v INT AFTER id")
    task.finish()
    assert task.waiting() == ["one: shard_1.t_5"], "its rows have old values in it"
    assert {row["id"]: row["v"] for row in task.content(T) if row["id"] in before} == before


@pytest.mark.parametrize("index", ["", ", ADD INDEX i (c)"])
@pytest.mark.parametrize("transactional", [True, False])
def test_only_the_column_that_was_dropped_meanwhile_is_added(index: str, transactional: bool) -> None:
    """The shard that lags waits for no other shard, since the other one has passed this change long ago."""
    steps = ("ADD COLUMN c INT DEFAULT 7, ADD COLUMN d INT DEFAULT 8" + index, "ADD COLUMN e INT", "DROP COLUMN d")
    with stories(mode="optimistic", transactional_ddl=transactional) as make_story:
        task = make_story(TWO)
        task.looks = False
        task.write(times=3)
        for step in steps:
            task[A].source.say(ALTER + step)
            task.write(times=2)
        task.finish()
        for step in steps:
            task[B].source.say(ALTER + step)
            task.write(times=2)
            task.finish()
            assert task.waiting() == []
        assert {"c", "e"} <= set(task.columns(T))
        assert "d" not in task.columns(T)
        for name in (A, B):
            assert rows_of(task, name) == sorted(task[name].rows, key=lambda row: int(row["id"]))
