"""A source begins while the other sources make a schema change of its shard group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.merged_task import Shards

from pidts.task.operate.ddl_commands import AS_BEFORE

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.server, pytest.mark.timeout(300)]

PLACES = ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3")


def test_waiting_shards_are_reported_from_one_run_to_the_next(make_shards: Callable[..., Shards]) -> None:
    """While a shard waits before its change, no status says that nothing waits."""
    shards = make_shards("postgres")
    run = shards.task.start()
    run.wait_until(shards.are_copied, "all is copied")
    waiting = {("one", "1.orders_1"), ("two", "2.orders_3")}
    for source, place in (("one", PLACES[0]), ("two", PLACES[2])):
        shards.on(source, f"ALTER TABLE {place} ADD COLUMN c INT NOT NULL DEFAULT 3")
    run.wait_until(lambda: shards.waiting() == waiting, "both wait")
    (before,) = shards.locks()
    run.kill()

    run = shards.task.start()
    shown: list[list[dict[str, Any]]] = []

    def have_arrived() -> bool:
        shown.append(shards.halts())
        return (
            len(shown[-1]) == 2 and not any(halt["what"].endswith(AS_BEFORE) for halt in shown[-1]) and len(shown) > 20
        )

    seen = lambda: any(halt["what"].endswith(AS_BEFORE) for halts in shown for halt in halts)  # noqa: E731
    run.wait_until(lambda: have_arrived() and seen(), "they have come again")
    (after,) = shards.locks()
    assert (after["target"], after["awaited"]) == (before["target"], before["awaited"])
    assert {len(halts) for halts in shown} <= {1, 2}, "one may be between two records"
    for source in shards.sources:
        for place in PLACES:
            if (source, place) not in {("one", PLACES[0]), ("two", PLACES[2])}:
                shards.on(source, f"ALTER TABLE {place} ADD COLUMN c INT NOT NULL DEFAULT 3")
    run.wait_until(lambda: "c" in shards.columns() and shards.halts() == [], "nothing waits")
    assert shards.locks() == []
    assert run.stop() == 0


def test_a_source_whose_first_start_did_not_come_through_begins_after_a_change(
    make_shards: Callable[..., Shards],
) -> None:
    """The other sources have the change only in their relays.

    The change does not wait for a source that has no rows on the target.
    """
    shards = make_shards("postgres")
    shards.on("one", "INSERT INTO {1}.orders_1 VALUES (1, 'a', 1)")
    shards.on("two", "INSERT INTO {2}.orders_3 VALUES (2, 'b', 2)")
    run = shards.task.start()
    run.wait_until(shards.are_copied, "all is copied")
    run.kill()
    for table in ("checkpoint", "structure"):
        shards.at_target(f"DELETE FROM pidts_meta.{table} WHERE source = 'two'")
    for source in shards.sources:
        for place in PLACES:
            shards.on(source, f"ALTER TABLE {place} ADD COLUMN c INT NOT NULL DEFAULT 3")
    shards.on("one", "INSERT INTO {1}.orders_1 VALUES (3, 'c', 3, 4)")
    shards.on("two", "INSERT INTO {1}.orders_1 VALUES (4, 'd', 4, 5)")
    run = shards.task.start()
    run.wait_until(lambda: len(shards.rows()) == 4 and shards.are_copied(), "both sources have all of it")
    assert shards.rows(columns="id, v, n, c") == [(1, "a", 1, 3), (2, "b", 2, 3), (3, "c", 3, 4), (4, "d", 4, 5)]
    shards.equal(run)
    assert run.stop() == 0
