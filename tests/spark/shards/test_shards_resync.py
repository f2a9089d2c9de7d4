"""One shard is copied again: its own deleted rows are removed, and no rows of other shards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.spark.merged_task import Shards

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.server, pytest.mark.timeout(300)]

COLUMNS = "db, origin, part, id, v, n"
LEFT, OF_TWO = ("1", "one", "2", 902, "x", 0), ("1", "two", "1", 903, "x", 0)
"""Rows that no shard has; their values are those of other existing shards."""


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_rows_that_only_the_target_has_go_where_they_are_that_shard_s(
    make_shards: Callable[..., Shards], kind: str
) -> None:
    shards = make_shards(kind, extract=True)
    for source in shards.sources:
        for place in ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3"):
            shards.on(source, f"INSERT INTO {place} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    shards.task.sync()
    shards.at_target("DELETE FROM {0}.orders WHERE db = '1' AND origin = 'one' AND part = '1' AND id = 1")
    shards.at_target("UPDATE {0}.orders SET n = 7 WHERE db = '1' AND origin = 'one' AND part = '1' AND id = 2")
    shards.at_target("UPDATE {0}.orders SET n = 8 WHERE db = '1' AND origin = 'two' AND part = '1' AND id = 2")
    for db, origin, part, key, v, n in (("1", "one", "1", 901, "x", 0), LEFT, OF_TWO):
        shards.at_target(
            f"INSERT INTO {{0}}.orders ({COLUMNS}) VALUES ('{db}', '{origin}', '{part}', {key}, '{v}', {n})"
        )

    run = shards.task.start("--resync", f"one:{shards.schema}_1.orders_1")
    shards.on("one", "DELETE FROM {1}.orders_1 WHERE id = 3", "INSERT INTO {1}.orders_1 VALUES (4, 'd', 4)")
    shards.has_all(run)
    run.wait_until(shards.are_copied, "it is copied once more")
    found = {row[3:]: row for row in shards.rows(columns=COLUMNS) if row[:3] == ("1", "one", "1")}
    assert sorted(found) == [(1, "a", 1), (2, "b", 2), (4, "d", 4)]
    others = {row for row in shards.rows(columns=COLUMNS) if row[:3] != ("1", "one", "1")}
    assert others >= {LEFT, OF_TWO, ("1", "two", "1", 2, "b", 8)}, "nobody has asked for these"
    assert len(others) == 3 * 5 + 2
    assert run.stop() == 0
