"""A table that is dropped or created anew leaves its rows on the target. Later rows get none of their values."""

from __future__ import annotations

import pytest

from pidts.model import Op, TableName
from pidts.schema import Dialect, apply, classify
from pidts.task.operate.ddl_commands import needs_operator

from .step_by_step import TWO, MakeStory, Story, T

A, B = "one: shard_1.t_1", "two: shard_1.t_1"
NAME = TableName("shard_1", "t_1")
THREE = {**TWO, "one": ("shard_1.t_1", "shard_2.t_1")}
MADE = "TABLE shard_1.t_1 (id INT NOT NULL PRIMARY KEY, v INT, u INT, UNIQUE KEY uu (u))"
C = "ALTER TABLE shard_1.t_1 ADD COLUMN c INT DEFAULT 7"


def begun(story: MakeStory, mode: str, *, keyed: bool) -> Story:
    """Returns a history in which all shards have c with values, and only A has row 7."""
    task = story(THREE if keyed else TWO, mode=mode, keyed=keyed)
    task.looks = False
    for shard in task.shards.shards:
        shard.source.say(f"ALTER TABLE {shard.name} ADD COLUMN c INT DEFAULT 7")
    task[A].source.commit((NAME, [(Op.INSERT, None, {"id": 7, "v": 1, "u": None, "c": 5})]))
    task.write(B)
    task.finish()
    assert values(task) == [5]
    return task


def values(task: Story) -> list[int | None]:
    """Returns the value in c of A's row 7 on the target."""
    target = task.rules["one"].target_name(NAME)
    whose = {"id": 7, **({"of_source": "one", "of_schema": "shard_1"} if task.shards.keyed else {})}
    return [row["c"] for row in task.content(target) if whose.items() <= row.items()]


def lives_again(task: Story) -> None:
    """Writes row 7 into the new table, without c. Then adds c again."""
    task[A].source.commit((NAME, [(Op.INSERT, None, {"id": 7, "v": 2, "u": None})]))
    task.finish()
    assert values(task) == [7], "the old row's value does not show through"
    task[A].source.say(C)
    task.finish()
    assert task.waiting() == []
    assert values(task) == [row["c"] for row in task[A].source.rows(NAME)] == [7]


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_table_that_was_dropped_comes_again(story: MakeStory, mode: str, *, keyed: bool, restarts: bool) -> None:
    task = begun(story, mode, keyed=keyed)
    task[A].source.say("DROP TABLE shard_1.t_1")
    task.finish()
    assert values(task) == [5], "its rows stay"
    if restarts:
        task.start()
    task[A].source.say(f"CREATE {MADE}")
    lives_again(task)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_table_is_created_anew_in_one_statement(story: MakeStory, mode: str, *, keyed: bool) -> None:
    task = begun(story, mode, keyed=keyed)
    source, dialect = task[A].source, Dialect(mariadb=True)
    made = apply(classify(f"CREATE OR REPLACE {MADE}", "shop", dialect=dialect), source.structures, {}, dialect=dialect)
    source.ddl(f"CREATE OR REPLACE {MADE}", made)
    source._rows[NAME] = {}
    task.finish()
    lives_again(task)


@pytest.mark.parametrize("restarts", range(4))
def test_dropped_columns_of_the_former_table_are_forgotten(story: MakeStory, restarts: int) -> None:
    task = begun(story, "optimistic", keyed=False)
    steps = ("ALTER TABLE shard_1.t_1 DROP COLUMN c", "DROP TABLE shard_1.t_1", f"CREATE {MADE}")
    for number, text in enumerate(steps):
        task[A].source.say(text)
        task.finish()
        if number == restarts:
            task.start()
            task.finish()
    lives_again(task)


@pytest.mark.parametrize("restarts", [True, False])
def test_another_table_takes_the_name_of_one_that_had_dropped_something(story: MakeStory, *, restarts: bool) -> None:
    task = story({**TWO, "one": ("shard_1.t_1", "shard_1.t_2", "alone.x")}, mode="optimistic")
    task.looks = False
    source = task[A].source
    for text in (
        "ALTER TABLE shard_1.t_1 DROP COLUMN v",
        "DROP TABLE shard_1.t_1",
        "RENAME TABLE shard_1.t_2 TO shard_1.t_1",
    ):
        source.say(text)
    task.finish()
    if restarts:
        task.start()
    source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN v BIGINT")
    source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_3")
    task.finish()
    assert task.waiting() == [], "its own rows have all their values"


def test_a_column_that_the_last_table_with_it_has_left_behind_comes_to_no_rows_that_had_dropped_it(
    story: MakeStory,
) -> None:
    """Rows of the dropped shard have values in the column, so it stays; no other shard could change these values."""
    task = begun(story, "optimistic", keyed=False)
    task[A].source.say("ALTER TABLE shard_1.t_1 DROP COLUMN c")
    task.finish()
    task.shards.drop(task[B])
    task.finish()
    task[A].source.say(C)
    task.finish()
    (halt,) = task.halts("one")
    assert halt.code == "shards-disagree"
    assert halt.what.endswith(
        "with other values in this shard's rows than on the source; no shard has this column any more"
    )
    assert f"pidts ddl skip TASK --source one --at {halt.lsn} --yes; pidts run TASK --resync one:" in halt.todo


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_table_that_comes_where_no_shard_is_left_and_has_no_place_halts(story: MakeStory, mode: str) -> None:
    """The change waits for no shard, so an operator is needed. The rows of the dropped shard stay."""
    task = story({"one": ("shard_1.t_1",)}, mode=mode)
    task.looks = False
    source = task[A].source
    source.say(C)
    task.finish()
    rows = task.content(T)
    source.say("DROP TABLE shard_1.t_1")
    task.finish()
    source.say("CREATE TABLE shard_1.t_1 (id BIGINT NOT NULL PRIMARY KEY, w INT)")
    task.finish()
    (halt,) = task.halts("one")
    assert (halt.code, halt.awaits, needs_operator(halt)) == ("shard-no-place", (), True)
    assert "pidts ddl skip" in halt.todo
    assert rows
    assert task.content(T) == rows


@pytest.mark.parametrize("restarts", [True, False])
def test_other_shards_add_a_column_of_a_dropped_shard(story: MakeStory, *, restarts: bool) -> None:
    """The target has the column, whichever shards lack it. Its existence need not be recorded."""
    task = story({**TWO, "one": ("shard_1.t_1", "shard_2.t_1")}, mode="optimistic")
    task.looks = False
    task[A].source.say(C)
    task.finish()
    task.shards.drop(task[A])
    task[B].source.say("ALTER TABLE shard_1.t_1 COMMENT = 'x'")
    task.finish()
    if restarts:
        task.start()
    for shard in task.shards.everyone:
        if shard in task.shards.shards:
            shard.source.say(f"ALTER TABLE {shard.name} ADD COLUMN c INT DEFAULT 7, ADD COLUMN d INT")
    task.write(B, "one: shard_2.t_1")
    task.finish()
    assert [halt for source in ("one", "two") for halt in task.halts(source)] == []
    assert task.columns()[3:] == ["c", "d"]
