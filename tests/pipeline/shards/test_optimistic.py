"""Optimistic shards, each of which adds and drops columns at any time. A change whose result is not certain waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidts.apply import DdlRunner, Outcome, SchemaChange
from pidts.model import CommandKind, Lsn, Op
from pidts.plan import Limits

from .free_changes import check_rows
from .step_by_step import TWO, MakeStory, Story, T, stories
from .test_moved_rows import FIRST, SECOND, move, row

THREE = {"one": ("shard_1.t_1", "shard_1.t_2"), "two": ("shard_1.t_1",)}
A, B = "one: shard_1.t_1", "two: shard_1.t_1"


@pytest.fixture
def story() -> Iterator[MakeStory]:
    with stories(mode="optimistic", transactional_ddl=False) as make_story:
        yield make_story


def say(task: Story, name: str, change: str) -> None:
    """Makes a change of one shard alone, and then writes rows with the new structure."""
    shard = task[name]
    shard.had.update(column.name for column in shard.table.columns)
    shard.source.say(f"ALTER TABLE {shard.name} {change}")
    shard.had.update(column.name for column in shard.table.columns)
    task.write(name, times=2)


def finish_and_check(task: Story, *waiting: str) -> None:
    task.finish()
    assert task.waiting() == [*waiting]
    if not waiting:
        task.check_whole()


def values(task: Story, name: str, column: str) -> list[Any]:
    """Returns the values that the rows of one shard have on the target."""
    base = task[name].base
    return [row[column] for row in task.content(T) if base <= row["id"] < base + 100]


def test_a_column_of_one_is_there_at_once(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "ADD COLUMN c INT DEFAULT 7")
    task.write(B, times=2)
    finish_and_check(task)
    assert set(values(task, B, "c")) == {7}, "rows of who does not have it have its default"
    say(task, B, "ADD COLUMN c INT DEFAULT 7")
    say(task, B, "ADD COLUMN d INT")
    finish_and_check(task)
    assert task.columns() == ["id", "v", "u", "c", "d"]


def test_a_column_goes_when_the_last_one_drops_it(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "DROP COLUMN v")
    task.write(B, times=2)
    finish_and_check(task)
    assert "v" in task.columns()
    say(task, B, "DROP COLUMN v")
    finish_and_check(task)
    assert "v" not in task.columns()


@pytest.mark.parametrize(
    ("first", "change"),
    [
        ("", "DROP COLUMN v, ADD INDEX i (u)"),
        ("", "ADD UNIQUE INDEX n (id, v), ADD INDEX i (v)"),
        ("ADD INDEX x (v)", "DROP INDEX x, ADD INDEX y (v, u)"),
        ("ADD INDEX x (v)", "RENAME INDEX x TO y"),
        ("ADD COLUMN c INT DEFAULT 7", "ALTER COLUMN c SET DEFAULT 8, ADD INDEX i (c)"),
        ("ADD COLUMN c INT NOT NULL DEFAULT 7", "ALTER COLUMN c DROP DEFAULT, ADD INDEX i (c)"),
    ],
)
def test_the_last_shard_runs_only_what_the_target_lacks(story: MakeStory, first: str, change: str) -> None:
    """The first shard makes a part of the statement on the target, and the last shard makes the other part."""
    task = story(THREE)
    names = sorted(task.names)
    for text in filter(None, (first, change)):
        for name in names:
            say(task, name, text)
            finish_and_check(task)
    wanted = {(key.name, key.columns, key.unique) for key in task[names[0]].table.keys}
    assert {(key.name, key.columns, key.unique) for key in task.target.store.tables[T].table.keys} == wanted
    assert set(task.columns()) == {column.name for column in task[names[0]].table.columns}


@pytest.mark.parametrize("first", ["insert", "delete"])
@pytest.mark.parametrize(("one", "other"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_rows_move_to_or_from_a_shard_that_has_dropped_its_unique_key(first: str, one: str, other: str) -> None:
    """One worker has all rows of a shard with a unique key. Rows of a shard without one were divided by their keys."""
    limits = Limits(transactions=50, idle_entries=1)
    with stories(mode="optimistic", transactional_ddl=False, workers=3, limits=limits) as make_story:
        task = make_story({"one": ("shard_1.t_1", "shard_1.t_2")})
        say(task, FIRST, "DROP INDEX uu")
        finish_and_check(task)
        keys = range(7000, 7020)
        shard = task[one]
        shard.source.commit((shard.name, [(Op.INSERT, None, row(shard, key)) for key in keys]))
        finish_and_check(task)
        for key in keys:
            move(task, one, other, key=key, first=first)
        finish_and_check(task)
        say(task, SECOND, "DROP INDEX uu")
        finish_and_check(task)
        for key in keys:
            move(task, other, one, key=key, first=first)
        finish_and_check(task)


@pytest.mark.parametrize("kind", ["INT", "INT NOT NULL DEFAULT 7", "BIGINT DEFAULT 5, ADD INDEX i (w)"])
def test_a_drop_next_to_an_added_column_waits_for_no_shard(story: MakeStory, kind: str) -> None:
    """The column is added at once. The last shard drops the other column, even after a restart."""
    task = story(THREE)
    names = sorted(task.names)
    for name in names:
        say(task, name, f"DROP COLUMN v, ADD COLUMN w {kind}")
        task.write(times=2)
        finish_and_check(task)
        check_rows(task)
        assert "w" in task.columns()
        assert ("v" in task.columns()) == (name != names[-1])
        if "v" in task.columns():
            assert values(task, name, "v")[-1] is None, "its new rows have no value there"
            task.start()
    for name in names:
        say(task, name, "ADD COLUMN v INT")
        finish_and_check(task)
        check_rows(task)


def test_a_column_dropped_with_an_added_one_is_not_added_again_before_it_is_gone(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "DROP COLUMN v, ADD COLUMN w INT")
    finish_and_check(task)
    task.start()
    say(task, A, "ADD COLUMN v INT")
    finish_and_check(task, A)
    say(task, B, "DROP COLUMN v, ADD COLUMN w INT")
    finish_and_check(task)
    check_rows(task)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("first", [A, B])
def test_a_renamed_column_keeps_its_values_where_another_shard_has_made_it_anew(
    story: MakeStory, mode: str, first: str
) -> None:
    """One shard renames the column, the other one drops it and adds it under the new name: both get the same structure.

    One statement for both shards would remove values, or keep values that must be removed.
    """
    task = story(TWO, mode=mode)
    for name in (first, *({A, B} - {first})):
        shard = task[name]
        shard.had.update("vw")
        if name == A:
            shard.source.say(f"ALTER TABLE {shard.name} DROP COLUMN v, ADD COLUMN w INT AFTER id")
        else:
            shard.source.say(f"ALTER TABLE {shard.name} CHANGE COLUMN v w INT AFTER id", {"w": "v"})
        task.write(name)
        task.finish()
        check_rows(task)
    assert B in task.waiting()
    found = {halt.code for name in ("one", "two") for halt in task.halts(name)}
    assert found <= {"shards-disagree", "ddl-moves-values"}


def test_shards_that_put_a_renamed_column_elsewhere_continue(story: MakeStory) -> None:
    task = story(TWO)
    for name, place in ((A, "AFTER u"), (B, "FIRST")):
        shard = task[name]
        shard.had.update(("v", "w"))
        shard.source.say(f"ALTER TABLE {shard.name} CHANGE COLUMN v w INT {place}", {"w": "v"})
        task.write(name)
    finish_and_check(task)
    assert set(task.columns()) == {"id", "u", "w"}
    for name in (A, B):
        say(task, name, "ADD COLUMN c INT DEFAULT 7")
    finish_and_check(task)


def test_a_column_that_comes_again_waits_until_it_was_gone(story: MakeStory) -> None:
    """The target still has the old values, which the source does not have any more."""
    task = story(TWO)
    say(task, A, "DROP COLUMN v")
    finish_and_check(task)
    say(task, A, "ADD COLUMN v INT")
    task.write(B)
    finish_and_check(task, A)
    say(task, B, "DROP COLUMN v")
    finish_and_check(task)
    assert "v" in task.columns()


def test_the_next_process_knows_the_dropped_columns(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "DROP COLUMN v")
    finish_and_check(task)
    task.start()
    say(task, A, "ADD COLUMN v INT")
    finish_and_check(task, A)
    task.begin_anew("one")
    finish_and_check(task, A)
    say(task, B, "DROP COLUMN v")
    finish_and_check(task)


def test_two_defaults_of_one_column_wait(story: MakeStory) -> None:
    """The existing rows have one value on the first source and another on the second."""
    task = story(TWO)
    say(task, A, "ADD COLUMN c INT DEFAULT 1")
    finish_and_check(task)
    say(task, B, "ADD COLUMN c INT DEFAULT 2")
    finish_and_check(task, B)


def test_a_wider_type_is_there_at_once(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "MODIFY COLUMN v BIGINT")
    task.write(B, times=2)
    finish_and_check(task)
    say(task, B, "MODIFY COLUMN v BIGINT")
    finish_and_check(task)


def test_types_of_different_families_wait_for_each_other(story: MakeStory) -> None:
    task = story(TWO)
    say(task, A, "ADD COLUMN c INT")
    task[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    finish_and_check(task, B)
    task.write("two: alone.x")
    finish_and_check(task, B)
    task[B].source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN c INT")
    task.command(B, CommandKind.SKIP)
    finish_and_check(task)


def test_another_name_of_a_column_waits_for_all(story: MakeStory) -> None:
    task = story(TWO)
    for name in (A, B):
        task[name].source.say("ALTER TABLE shard_1.t_1 CHANGE COLUMN v w INT", {"w": "v"})
        task.write(A, B)
        finish_and_check(task, *([A] if name == A else []))
    assert task.columns() == ["id", "w", "u"]


def test_one_batch_has_rows_of_both_structures(story: MakeStory) -> None:
    """The batch has rows of two shards of one server, and one of the shards has an additional column."""
    task = story({"one": ("shard_1.t_1", "shard_1.t_2")})
    say(task, A, "ADD COLUMN c INT DEFAULT 7")
    finish_and_check(task)
    for _ in range(5):
        task.shards.write(task[A], task["one: shard_1.t_2"])
    finish_and_check(task)
    assert set(values(task, "one: shard_1.t_2", "c")) == {7}


def test_the_others_wait_while_a_change_is_made(story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise rows of the other shards would wait for the lock that the statement has on the target table, and so
    would all other tables in the batches of these rows.
    """
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1", "alone.x")})
    made: list[list[str]] = []
    begins = DdlRunner.run

    def run(runner: DdlRunner, change: SchemaChange, lsn: Lsn) -> Outcome:
        if change.shared is not None:
            for _ in range(20):  # The change takes a while, and there are many rows to write meanwhile.
                task.write()
                task.scheduler.wait(1)
            made.append(task.waiting())
            assert task.place("two").lsn > task.place("two").needs, "its other tables go on"
        return begins(runner, change, lsn)

    monkeypatch.setattr(DdlRunner, "run", run)
    say(task, A, "ADD COLUMN c INT")
    finish_and_check(task)
    assert made == [["one: shard_1.t_1", "one: shard_1.t_2", B]]
