"""A row that the target refuses halts its own shard.

The other shards of its group continue, on its source and on others.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.spark.merged_task import Shards

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.server, pytest.mark.timeout(600)]


def test_one_shard_of_a_group_halts_and_the_others_continue(make_shards: Callable[..., Shards]) -> None:
    shards = make_shards("postgres")
    shards.on("one", "INSERT INTO {1}.orders_1 VALUES (1, 'a', 1)", "INSERT INTO {1}.orders_2 VALUES (2, 'b', 2)")
    shards.on("two", "INSERT INTO {1}.orders_2 VALUES (3, 'c', 3)")
    run = shards.task.start("--json")
    run.wait_until(shards.are_copied, "all is copied")
    shards.on_target("ALTER TABLE {0}.orders ADD CONSTRAINT odd CHECK (n <> 666)")

    # The row is in one transaction with rows of other tables, and more rows come later.
    shards.on(
        "one",
        "BEGIN",
        "INSERT INTO {1}.orders_1 VALUES (11, 'd', 1), (12, 'd', 2)",
        "INSERT INTO {1}.orders_2 VALUES (21, 'e', 1), (22, 'e', 666), (23, 'e', 3)",
        "INSERT INTO {2}.orders_3 VALUES (31, 'f', 1)",
        "COMMIT",
        "UPDATE {1}.orders_1 SET v = 'later' WHERE id = 1",
        "UPDATE {1}.orders_2 SET v = 'held' WHERE id = 2",
    )
    shards.on("two", "INSERT INTO {1}.orders_2 VALUES (41, 'g', 1)")
    others = {(1, "later", 1), (3, "c", 3), (11, "d", 1), (12, "d", 2), (31, "f", 1), (41, "g", 1)}
    run.wait_until(lambda: others <= set(shards.rows()), "rows of the others")
    assert set(shards.rows()) == {*others, (2, "b", 2)}, "that shard stays at its place"
    (halt,) = shards.halts()
    name = f"{shards.schema}_1.orders_2"
    assert (halt["source"], halt["tables"], halt["code"], halt["key"]) == ("one", [name], "target-refused", "id=22")
    assert "odd" in halt["what"]

    # Commands show the halt, and how to end it.
    path = str(shards.task.path)
    (listed,) = shards.pidts("ddl", "list", path)["halted"]
    assert (listed["source"], listed["tables"], listed["key"]) == ("one", [name], "id=22")
    text = shards.task.command("ddl", "list", path).stdout.decode()
    for words in (
        f"one: {name}: halted at",
        "odd",
        "(key id=22)",
        f"pidts ddl retry {path} --table {name} --source one",
    ):
        assert words in text, text

    # A second halt, on the other source, whose table has the same name there.
    shards.on("two", "UPDATE {1}.orders_2 SET n = 666 WHERE id = 41", "INSERT INTO {2}.orders_3 VALUES (51, 'h', 1)")
    run.wait_until(lambda: (51, "h", 1) in shards.rows(), "the other source goes on")
    assert {(one["source"], *one["tables"], one["key"]) for one in shards.halts()} == {
        ("one", name, "id=22"),
        ("two", name, "id=41"),
    }

    # A row moves from the halted shard to one that is not halted.
    shards.on(
        "one",
        "BEGIN",
        "INSERT INTO {1}.orders_1 SELECT * FROM {1}.orders_2 WHERE id = 2",
        "DELETE FROM {1}.orders_2 WHERE id = 2",
        "COMMIT",
    )
    run.wait_until(lambda: (2, "held", 2) in shards.rows(), "it is where it went")
    shards.on_target("ALTER TABLE {0}.orders DROP CONSTRAINT odd")
    shards.pidts("ddl", "retry", path, "--table", name, "--source", "one", "--yes")
    run.wait_until(lambda: (22, "e", 666) in shards.rows(), "what was refused")
    assert [one["source"] for one in shards.halts()] == ["two"]
    shards.pidts("ddl", "retry", path, "--table", name, "--yes")
    shards.has_all(run)
    assert (41, "g", 666) in shards.rows()
    assert shards.halts() == []
    shards.equal(run)
    assert run.stop() == 0
    assert shards.task.sync()["stage"] == "synced"


def test_a_shard_that_skipped_its_change_continues_when_it_is_run_for_the_others(
    make_shards: Callable[..., Shards],
) -> None:
    shards = make_shards("postgres")
    shards.on("one", "INSERT INTO {1}.orders_1 VALUES (1, 'a', 1)")
    run = shards.task.start("--json")
    run.wait_until(shards.are_copied, "all is copied")
    path = str(shards.task.path)
    shards.on("one", "ALTER TABLE {1}.orders_1 ADD c INT", "INSERT INTO {1}.orders_1 VALUES (11, 'd', 1, 5)")
    run.wait_until(lambda: [halt["code"] for halt in shards.halts()] == ["shard-awaits"], "it waits")
    shards.pidts("ddl", "skip", path, "--source", "one", "--yes")
    run.wait_until(lambda: {halt["code"] for halt in shards.halts()} == {"target-shape"}, "its rows do not fit")
    shards.on("two", "ALTER TABLE {1}.orders_2 ADD c INT")
    run.wait_until(lambda: "shard-awaits" in {halt["code"] for halt in shards.halts()}, "another one waits")
    shards.pidts("ddl", "unlock", path, "--table", f"{shards.target_schema}.orders", "--yes")
    run.wait_until(lambda: shards.halts() == [], "both go on")
    assert run.stop() == 0
