"""A shard that joins after the task has begun gets its records on the target, and halts if it would overwrite rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.examples import EXAMPLES

from pidts.model import CommandKind, MergedTablesKey, OnDivergence, Op, RemainingRowsKey, TableName
from pidts.rules import AllowList, Extract, RouteRule, Routes, Rules

from .step_by_step import ONE, MakeStory, Story, T, stories

A, NEW = "one: shard_1.t_1", TableName("shard_2", "t_7")
ALONE = {"one": ("shard_1.t_1", "alone.x"), "two": ("alone.y",)}


@pytest.fixture(params=[False, True] if EXAMPLES else [False])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    with stories(transactional_ddl=request.param) as make_story:
        yield make_story


def shared(task: Story) -> set[TableName]:
    with closing(task.target.connect()) as session:
        return set(session.meta.structures.load("t", MergedTablesKey()))


def come(task: Story, options: str = "") -> None:
    """Creates a table with AUTO_INCREMENT."""
    columns = ", ".join(
        f"{column.name} INT" + (" NOT NULL AUTO_INCREMENT PRIMARY KEY" if column.name == "id" else "")
        for column in task[A].table.columns
    )
    task[A].source.say(f"CREATE TABLE {NEW} ({columns}) {options}")


def codes(task: Story) -> list[str]:
    return [halt.code for halt in task.halts("one")]


@pytest.mark.parametrize("source", ["one", "two"])
def test_the_second_table_puts_on_record_that_they_share_one_and_the_last_does_not_take_its_rows(
    story: MakeStory, source: str
) -> None:
    task = story(ALONE, mode="")
    task.finish_and_check()
    assert shared(task) == set()
    new = task.shards.create(source, NEW, 0)
    task.write(f"{source}: {NEW}")
    task.finish_and_check()
    assert shared(task) == {T}
    task.shards.drop(new)
    task.finish_and_check()
    task.start()
    task.shards.drop(task[A])
    task.finish_and_check()
    assert T in task.target.store.tables


def test_after_a_restart_the_last_of_those_that_began_together_does_not_take_the_rows_of_others(
    story: MakeStory,
) -> None:
    task = story({"one": ("shard_1.t_1", "shard_1.t_2")}, mode="")
    task.finish_and_check()
    task.shards.drop(task["one: shard_1.t_2"])
    task.finish_and_check()
    task.start()
    task.shards.empty(task[A])
    task.finish_and_check()
    task.start()
    task.shards.drop(task[A])
    task.finish_and_check()
    assert T in task.target.store.tables


def test_the_only_shard_that_leaves_its_rows_puts_that_on_record(story: MakeStory) -> None:
    task = story(ALONE, mode="pessimistic")
    task.shards.drop(task[A])
    task.finish_and_check()
    assert shared(task) == {T}


def left(task: Story) -> set[str]:
    with closing(task.target.connect()) as session:
        return set(map(str, session.meta.structures.load("t", RemainingRowsKey("one"))))


def test_emptied_and_dropped_shards_record_that_their_rows_stay(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1",)}, mode="")
    task.finish_and_check()
    assert left(task) == set()
    task.shards.empty(task[A])
    task.finish_and_check()
    assert left(task) == {"shard_1.t_1"}
    task.start()
    task.shards.drop(task["one: shard_1.t_2"])
    task.finish_and_check()
    assert left(task) == {"shard_1.t_1", "shard_1.t_2"}


def test_a_table_that_counts_from_one_again_is_held_beside_rows_of_others(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "alone.x")})
    task.finish_and_check()
    come(task)
    task.finish()
    assert codes(task) == ["shard-keys-meet"]
    (halt,) = task.halts("one")
    assert halt.tables == (NEW,)
    task.give("one", halt.lsn, CommandKind.SKIP)
    task.finish()
    assert codes(task) == []


@pytest.mark.parametrize("source", ["one", "two"])
@pytest.mark.parametrize("mode", ["", "pessimistic"])
def test_a_table_joins_another_in_a_task_that_locks_rows_if_versions_decide(
    story: MakeStory, source: str, mode: str
) -> None:
    """A start accepts the same tables: none of their rows is ever locked."""
    task = story(ALONE, mode=mode, on_divergence=OnDivergence.LOCK, version_column="v")
    task.finish()
    task.shards.create(source, NEW, 0)
    task.finish()
    assert task.halts(source) == []
    assert shared(task) == {T}


@pytest.mark.parametrize("mode", ["", "pessimistic", "optimistic"])
def test_a_merged_table_keeps_its_version_column_while_the_task_locks_rows(story: MakeStory, mode: str) -> None:
    """Rows of merged tables are not compared, and without versions each change overwrites the row."""
    task = story(ONE, mode=mode, on_divergence=OnDivergence.LOCK, version_column="v")
    task.finish()
    task.plan("ALTER TABLE {t} DROP COLUMN v")
    task.alter(A, "one: shard_1.t_2")
    task.finish()
    assert "v" in task.columns()
    assert codes(task) == ["merged-not-locked"] * 2
    task.settings.on_divergence = OnDivergence.OVERWRITE
    task.start()
    task.finish()
    assert "v" not in task.columns()
    assert task.waiting() == []


def test_a_table_that_is_not_merged_may_lose_its_version_column_while_the_task_locks_rows(story: MakeStory) -> None:
    task = story(ALONE, mode="", on_divergence=OnDivergence.LOCK, version_column="v")
    task.finish()
    task.plan("ALTER TABLE {t} DROP COLUMN v")
    task.alter(A)
    task.finish()
    assert codes(task) == []


@pytest.mark.parametrize("kind", [None, CommandKind.REVERT])
@pytest.mark.parametrize("source", ["one", "two"])
def test_a_table_does_not_join_another_while_the_task_locks_rows(
    story: MakeStory, source: str, kind: CommandKind | None
) -> None:
    """Rows of merged tables are not compared, so the first table's rows would be overwritten from then on."""
    task = story(ALONE, mode="", on_divergence=OnDivergence.LOCK)
    task.finish_and_check()
    task.shards.create(source, NEW, 0)
    task.finish()
    (halt,) = task.halts(source)
    assert (halt.code, halt.tables) == ("merged-not-locked", (NEW,))
    task.start()
    task.finish()
    assert [halt.code for halt in task.halts(source)] == ["merged-not-locked"]
    task.settings.on_divergence = OnDivergence.OVERWRITE
    task.start()
    if kind is not None:
        task.give(source, halt.lsn, kind)
    task.write(f"{source}: {NEW}")
    task.finish_and_check()
    assert shared(task) == {T}, "the commit that makes a table shared records this"


def test_a_table_with_a_target_table_of_its_own_may_be_renamed_while_the_task_locks_rows(story: MakeStory) -> None:
    task = story(ALONE, mode="", on_divergence=OnDivergence.LOCK)
    task.finish_and_check()
    task[A].source.say(f"RENAME TABLE shard_1.t_1 TO {NEW}")
    task.finish()
    assert codes(task) == []


@pytest.mark.parametrize(("name", "expected"), [("t_7", ["shard-keys-meet"]), ("t_8", [])])
def test_a_table_with_the_same_name_on_another_server_waits_if_nothing_distinguishes_the_servers(
    story: MakeStory, name: str, expected: list[str]
) -> None:
    extracts = [Extract("(.*)", "of_table"), Extract("(.*)", "of_schema"), None]
    routes = (RouteRule("shard_*", "t_*", "all", "t", *extracts),)
    rules = Rules(allow=AllowList(do_dbs=("shard_*", "alone")), routes=Routes(routes))
    task = story(
        {"one": ("shard_1.t_1", "alone.x"), "two": (f"shard_2.{name}",)}, keyed=True, presumes=True, rules=rules
    )
    task.finish_and_check()
    come(task)
    task.finish()
    assert codes(task) == expected


@pytest.mark.parametrize(("first", "expected"), [(6_000, []), (1, ["shard-keys-meet"])])
def test_only_rows_with_the_same_extracted_values_are_compared(
    story: MakeStory, first: int, expected: list[str]
) -> None:
    """A table with other extracted values has a row with a higher number, which does not count."""
    routes = (RouteRule("shard_*", "t_*", "all", "t", Extract("(.*)", "of_table"), Extract("(.*)", "of_schema"), None),)
    rules = Rules(allow=AllowList(do_dbs=("shard_*", "alone")), routes=Routes(routes))
    task = story({"one": ("shard_1.t_1", "alone.x"), "two": ("shard_2.t_7",)}, keyed=True, presumes=True, rules=rules)
    task.finish_and_check()
    shard = task[A]
    shard.source.commit((shard.name, [(Op.INSERT, None, {**dict.fromkeys(shard.table.arrow.names), "id": 9_000})]))
    come(task, f"ENGINE=InnoDB AUTO_INCREMENT={first}")
    task.finish()
    assert codes(task) == expected


def test_a_table_whose_numbers_are_above_all_others_joins(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "alone.x")})
    task.finish_and_check()
    come(task, "ENGINE=InnoDB AUTO_INCREMENT=1000000")
    task.finish()
    assert codes(task) == []
    assert shared(task) == {T}


def test_a_table_whose_rows_have_other_extracted_values_joins(story: MakeStory) -> None:
    task = story({"one": ("shard_1.t_1", "alone.x")}, keyed=True)
    task.finish_and_check()
    come(task)
    task.finish()
    assert codes(task) == []
