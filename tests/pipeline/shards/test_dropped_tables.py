"""A table that is dropped or created anew leaves its rows on the target. Later rows get none of their values."""

from __future__ import annotations

import pytest

from pidts.model import Op, TableName
from pidts.schema import Dialect, apply, classify
from pidts.task.operate.orders import needs_operator

from .step_by_step import TWO, MakeStory, Story, T

A, B = "one: shard_1.t_1", "two: shard_1.t_1"
NAME = TableName("shard_1", "t_1")
THREE = {**TWO, "one": ("shard_1.t_1", "shard_2.t_1")}
MADE = "TABLE shard_1.t_1 (id INT NOT NULL PRIMARY KEY, v INT, u INT, UNIQUE KEY uu (u))"
C = "ALTER TABLE shard_1.t_1 ADD COLUMN c INT DEFAULT 7"


def begun(story: MakeStory, mode: str, *, keyed: bool) -> Story:
    """Returns a history in which all shards have c with values, and only A has row 7."""
    world = story(THREE if keyed else TWO, mode=mode, keyed=keyed)
    world.looks = False
    for shard in world.shards.shards:
        shard.source.say(f"ALTER TABLE {shard.name} ADD COLUMN c INT DEFAULT 7")
    world[A].source.commit((NAME, [(Op.INSERT, None, {"id": 7, "v": 1, "u": None, "c": 5})]))
    world.write(B)
    world.finish()
    assert values(world) == [5]
    return world


def values(world: Story) -> list[int | None]:
    """Returns the value in c of A's row 7 on the target."""
    target = world.rules["one"].target_name(NAME)
    whose = {"id": 7, **({"of_source": "one", "of_schema": "shard_1"} if world.shards.keyed else {})}
    return [row["c"] for row in world.content(target) if whose.items() <= row.items()]


def lives_again(world: Story) -> None:
    """Writes row 7 into the new table, without c. Then adds c again."""
    world[A].source.commit((NAME, [(Op.INSERT, None, {"id": 7, "v": 2, "u": None})]))
    world.finish()
    assert values(world) == [7], "the old row's value does not show through"
    world[A].source.say(C)
    world.finish()
    assert world.waiting() == []
    assert values(world) == [row["c"] for row in world[A].source.rows(NAME)] == [7]


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_table_that_was_dropped_comes_again(story: MakeStory, mode: str, *, keyed: bool, restarts: bool) -> None:
    world = begun(story, mode, keyed=keyed)
    world[A].source.say("DROP TABLE shard_1.t_1")
    world.finish()
    assert values(world) == [5], "its rows stay"
    if restarts:
        world.start()
    world[A].source.say(f"CREATE {MADE}")
    lives_again(world)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_table_is_created_anew_in_one_statement(story: MakeStory, mode: str, *, keyed: bool) -> None:
    world = begun(story, mode, keyed=keyed)
    source, dialect = world[A].source, Dialect(mariadb=True)
    made = apply(classify(f"CREATE OR REPLACE {MADE}", "shop", dialect=dialect), source.structures, {}, dialect=dialect)
    source.ddl(f"CREATE OR REPLACE {MADE}", made)
    source._rows[NAME] = {}
    world.finish()
    lives_again(world)


@pytest.mark.parametrize("restarts", range(4))
def test_dropped_columns_of_the_former_table_are_forgotten(story: MakeStory, restarts: int) -> None:
    world = begun(story, "optimistic", keyed=False)
    steps = ("ALTER TABLE shard_1.t_1 DROP COLUMN c", "DROP TABLE shard_1.t_1", f"CREATE {MADE}")
    for number, text in enumerate(steps):
        world[A].source.say(text)
        world.finish()
        if number == restarts:
            world.start()
            world.finish()
    lives_again(world)


@pytest.mark.parametrize("restarts", [True, False])
def test_another_table_takes_the_name_of_one_that_had_dropped_something(story: MakeStory, *, restarts: bool) -> None:
    world = story({**TWO, "one": ("shard_1.t_1", "shard_1.t_2", "alone.x")}, mode="optimistic")
    world.looks = False
    source = world[A].source
    for text in (
        "ALTER TABLE shard_1.t_1 DROP COLUMN v",
        "DROP TABLE shard_1.t_1",
        "RENAME TABLE shard_1.t_2 TO shard_1.t_1",
    ):
        source.say(text)
    world.finish()
    if restarts:
        world.start()
    source.say("ALTER TABLE shard_1.t_1 MODIFY COLUMN v BIGINT")
    source.say("RENAME TABLE shard_1.t_1 TO shard_1.t_3")
    world.finish()
    assert world.waiting() == [], "its own rows have all their values"


def test_a_column_that_the_last_table_with_it_has_left_behind_comes_to_no_rows_that_had_dropped_it(
    story: MakeStory,
) -> None:
    """Rows of the dropped shard have values in the column, so it stays; no other shard could change these values."""
    world = begun(story, "optimistic", keyed=False)
    world[A].source.say("ALTER TABLE shard_1.t_1 DROP COLUMN c")
    world.finish()
    world.shards.drop(world[B])
    world.finish()
    world[A].source.say(C)
    world.finish()
    (halt,) = world.halts("one")
    assert halt.code == "shards-disagree"
    assert halt.what.endswith(
        "with other values in this shard's rows than on the source; no shard has this column any more"
    )
    assert f"pidts ddl skip TASK --source one --at {halt.lsn}; pidts run TASK --resync one:" in halt.todo


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_table_that_comes_where_no_shard_is_left_and_has_no_place_halts(story: MakeStory, mode: str) -> None:
    """The change waits for no shard, so an operator is needed. The rows of the dropped shard stay."""
    world = story({"one": ("shard_1.t_1",)}, mode=mode)
    world.looks = False
    source = world[A].source
    source.say(C)
    world.finish()
    rows = world.content(T)
    source.say("DROP TABLE shard_1.t_1")
    world.finish()
    source.say("CREATE TABLE shard_1.t_1 (id BIGINT NOT NULL PRIMARY KEY, w INT)")
    world.finish()
    (halt,) = world.halts("one")
    assert (halt.code, halt.awaits, needs_operator(halt)) == ("shard-no-place", (), True)
    assert "pidts ddl skip" in halt.todo
    assert rows
    assert world.content(T) == rows


@pytest.mark.parametrize("restarts", [True, False])
def test_other_shards_add_a_column_of_a_dropped_shard(story: MakeStory, *, restarts: bool) -> None:
    """The target has the column, whichever shards lack it. Its existence need not be recorded."""
    world = story({**TWO, "one": ("shard_1.t_1", "shard_2.t_1")}, mode="optimistic")
    world.looks = False
    world[A].source.say(C)
    world.finish()
    world.shards.drop(world[A])
    world[B].source.say("ALTER TABLE shard_1.t_1 COMMENT = 'x'")
    world.finish()
    if restarts:
        world.start()
    for shard in world.shards.everyone:
        if shard in world.shards.shards:
            shard.source.say(f"ALTER TABLE {shard.name} ADD COLUMN c INT DEFAULT 7, ADD COLUMN d INT")
    world.write(B, "one: shard_2.t_1")
    world.finish()
    assert [halt for source in ("one", "two") for halt in world.halts(source)] == []
    assert world.columns()[3:] == ["c", "d"]
