"""Optimistic shards, each of which adds and drops columns at any time. A change whose result is not certain waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidts.apply import DdlRunner, Outcome, SchemaChange
from pidts.model import Lsn, OrderKind

from .free_changes import check_rows
from .step_by_step import TWO, MakeStory, Story, T, stories

THREE = {"one": ("shard_1.t_1", "shard_1.t_2"), "two": ("shard_1.t_1",)}
A, B = "one: shard_1.t_1", "two: shard_1.t_1"


@pytest.fixture
def story() -> Iterator[MakeStory]:
    with stories(mode="optimistic", transactional_ddl=False) as make_story:
        yield make_story


def say(world: Story, name: str, change: str) -> None:
    """Makes a change of one shard alone, and then writes rows with the new structure."""
    shard = world[name]
    shard.had.update(column.name for column in shard.table.columns)
    shard.source.say(f"ALTER TABLE {shard.name} {change}")
    shard.had.update(column.name for column in shard.table.columns)
    world.write(name, times=2)


def finish_and_check(world: Story, *waiting: str) -> None:
    world.finish()
    assert world.waiting() == [*waiting]
    if not waiting:
        world.check_whole()


def values(world: Story, name: str, column: str) -> list[Any]:
    """Returns the values that the rows of one shard have on the target."""
    base = world[name].base
    return [row[column] for row in world.content(T) if base <= row["id"] < base + 100]


def test_a_column_of_one_is_there_at_once(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "ADD COLUMN c INT DEFAULT 7")
    world.write(B, times=2)
    finish_and_check(world)
    assert set(values(world, B, "c")) == {7}, "rows of who does not have it have its default"
    say(world, B, "ADD COLUMN c INT DEFAULT 7")
    say(world, B, "ADD COLUMN d INT")
    finish_and_check(world)
    assert world.columns() == ["id", "v", "u", "c", "d"]


def test_a_column_goes_when_the_last_one_drops_it(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "DROP COLUMN v")
    world.write(B, times=2)
    finish_and_check(world)
    assert "v" in world.columns()
    say(world, B, "DROP COLUMN v")
    finish_and_check(world)
    assert "v" not in world.columns()


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
    world = story(THREE)
    names = sorted(world.names)
    for text in filter(None, (first, change)):
        for name in names:
            say(world, name, text)
            finish_and_check(world)
    wanted = {(key.name, key.columns, key.unique) for key in world[names[0]].table.keys}
    assert {(key.name, key.columns, key.unique) for key in world.target.store.tables[T].table.keys} == wanted
    assert set(world.columns()) == {column.name for column in world[names[0]].table.columns}


@pytest.mark.parametrize("kind", ["INT", "INT NOT NULL DEFAULT 7", "BIGINT DEFAULT 5, ADD INDEX i (w)"])
def test_a_drop_next_to_an_added_column_waits_for_no_shard(story: MakeStory, kind: str) -> None:
    """The column is added at once. The last shard drops the other column, even after a restart."""
    world = story(THREE)
    names = sorted(world.names)
    for name in names:
        say(world, name, f"DROP COLUMN v, ADD COLUMN w {kind}")
        world.write(times=2)
        finish_and_check(world)
        check_rows(world)
        assert "w" in world.columns()
        assert ("v" in world.columns()) == (name != names[-1])
        if "v" in world.columns():
            assert values(world, name, "v")[-1] is None, "its new rows have no value there"
            world.start()
    for name in names:
        say(world, name, "ADD COLUMN v INT")
        finish_and_check(world)
        check_rows(world)


def test_a_column_dropped_with_an_added_one_is_not_added_again_before_it_is_gone(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "DROP COLUMN v, ADD COLUMN w INT")
    finish_and_check(world)
    world.start()
    say(world, A, "ADD COLUMN v INT")
    finish_and_check(world, A)
    say(world, B, "DROP COLUMN v, ADD COLUMN w INT")
    finish_and_check(world)
    check_rows(world)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("first", [A, B])
def test_a_renamed_column_keeps_its_values_where_another_shard_has_made_it_anew(
    story: MakeStory, mode: str, first: str
) -> None:
    """One shard renames the column, the other one drops it and adds it under the new name: both get the same structure.

    One statement for both shards would remove values, or keep values that must be removed.
    """
    world = story(TWO, mode=mode)
    for name in (first, *({A, B} - {first})):
        shard = world[name]
        shard.had.update("vw")
        if name == A:
            shard.source.say(f"ALTER TABLE {shard.name} DROP COLUMN v, ADD COLUMN w INT AFTER id")
        else:
            shard.source.say(f"ALTER TABLE {shard.name} CHANGE COLUMN v w INT AFTER id", {"w": "v"})
        world.write(name)
        world.finish()
        check_rows(world)
    assert B in world.waiting()
    found = {halt.code for name in ("one", "two") for halt in world.halts(name)}
    assert found <= {"shards-disagree", "ddl-moves-values"}


def test_shards_that_put_a_renamed_column_elsewhere_continue(story: MakeStory) -> None:
    world = story(TWO)
    for name, place in ((A, "AFTER u"), (B, "FIRST")):
        shard = world[name]
        shard.had.update(("v", "w"))
        shard.source.say(f"ALTER TABLE {shard.name} CHANGE COLUMN v w INT {place}", {"w": "v"})
        world.write(name)
    finish_and_check(world)
    assert set(world.columns()) == {"id", "u", "w"}
    for name in (A, B):
        say(world, name, "ADD COLUMN c INT DEFAULT 7")
    finish_and_check(world)


def test_a_column_that_comes_again_waits_until_it_was_gone(story: MakeStory) -> None:
    """The target still has the old values, which the source does not have any more."""
    world = story(TWO)
    say(world, A, "DROP COLUMN v")
    finish_and_check(world)
    say(world, A, "ADD COLUMN v INT")
    world.write(B)
    finish_and_check(world, A)
    say(world, B, "DROP COLUMN v")
    finish_and_check(world)
    assert "v" in world.columns()


def test_the_next_process_knows_the_dropped_columns(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "DROP COLUMN v")
    finish_and_check(world)
    world.start()
    say(world, A, "ADD COLUMN v INT")
    finish_and_check(world, A)
    world.begin_anew("one")
    finish_and_check(world, A)
    say(world, B, "DROP COLUMN v")
    finish_and_check(world)


def test_two_defaults_of_one_column_wait(story: MakeStory) -> None:
    """The existing rows have one value on the first source and another on the second."""
    world = story(TWO)
    say(world, A, "ADD COLUMN c INT DEFAULT 1")
    finish_and_check(world)
    say(world, B, "ADD COLUMN c INT DEFAULT 2")
    finish_and_check(world, B)


def test_a_wider_type_is_there_at_once(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "MODIFY COLUMN v BIGINT")
    world.write(B, times=2)
    finish_and_check(world)
    say(world, B, "MODIFY COLUMN v BIGINT")
    finish_and_check(world)


def test_types_of_different_families_wait_for_each_other(story: MakeStory) -> None:
    world = story(TWO)
    say(world, A, "ADD COLUMN c INT")
    world[B].source.say("ALTER TABLE shard_1.t_1 ADD COLUMN c VARCHAR(9)")
    finish_and_check(world, B)
    world.write("two: alone.x")
    finish_and_check(world, B)
    world[B].source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN c INT")
    world.order(B, OrderKind.SKIP)
    finish_and_check(world)


def test_another_name_of_a_column_waits_for_all(story: MakeStory) -> None:
    world = story(TWO)
    for name in (A, B):
        world[name].source.say("ALTER TABLE shard_1.t_1 CHANGE COLUMN v w INT", {"w": "v"})
        world.write(A, B)
        finish_and_check(world, *([A] if name == A else []))
    assert world.columns() == ["id", "w", "u"]


def test_one_batch_has_rows_of_both_structures(story: MakeStory) -> None:
    """The batch has rows of two shards of one server, and one of the shards has an additional column."""
    world = story({"one": ("shard_1.t_1", "shard_1.t_2")})
    say(world, A, "ADD COLUMN c INT DEFAULT 7")
    finish_and_check(world)
    for _ in range(5):
        world.shards.write(world[A], world["one: shard_1.t_2"])
    finish_and_check(world)
    assert set(values(world, "one: shard_1.t_2", "c")) == {7}


def test_the_others_wait_while_a_change_is_made(story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise rows of the other shards would wait for the lock that the statement has on the target table, and so
    would all other tables in the batches of these rows.
    """
    world = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1", "alone.x")})
    made: list[list[str]] = []
    begins = DdlRunner.run

    def run(runner: DdlRunner, change: SchemaChange, lsn: Lsn) -> Outcome:
        if change.shared is not None:
            for _ in range(20):  # The change takes a while, and there are many rows to write meanwhile.
                world.write()
                world.scheduler.wait(1)
            made.append(world.waiting())
            assert world.place("two").lsn > world.place("two").needs, "its other tables go on"
        return begins(runner, change, lsn)

    monkeypatch.setattr(DdlRunner, "run", run)
    say(world, A, "ADD COLUMN c INT")
    finish_and_check(world)
    assert made == [["one: shard_1.t_1", "one: shard_1.t_2", B]]
