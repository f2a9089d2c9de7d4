"""Tables of two sources, MariaDB and MySQL, are merged: their schema changes wait for each other, and nothing else
waits.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.spark.commands import Run
from tests.spark.conftest import Background
from tests.spark.merged_task import Delays, Shards

pytestmark = [pytest.mark.spark, pytest.mark.server]

SECONDS = 4.0
"""For this number of seconds, delays are measured."""


def orders(source: int, table: int, *numbers: int) -> list[int]:
    """Returns the keys of a shard's rows with these numbers: no two shards have equal keys."""
    return [source * 10_000 + table * 1000 + number for number in numbers]


def scraped(run: Run, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """Returns the series of one metric of the run."""
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", run.log.read_text())
    assert url
    with urlopen(url[0], timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {frozenset(sample.labels.items()): sample.value for sample in found}


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_change_waits_for_the_others_and_nothing_else_waits(
    make_shards: Callable[..., Shards], background: type[Background]
) -> None:
    shards = make_shards("postgres")
    shards.on("one", "CREATE TABLE {1}.other (id BIGINT PRIMARY KEY)")
    for source, name in enumerate(shards.sources, 1):
        for table, place in enumerate(("{1}.orders_1", "{1}.orders_2", "{2}.orders_3"), 1):
            first, second = orders(source, table, 1, 2)
            shards.on(name, f"INSERT INTO {place} VALUES ({first}, 'copied', 1), ({second}, 'copied', 2)")
    run = shards.task.start("--json", "--metrics", "0")
    run.wait_until(shards.are_copied, "all is copied")
    copied = [key for source in (1, 2) for table in (1, 2, 3) for key in orders(source, table, 1, 2)]
    assert [key for (key,) in shards.rows(columns="id")] == copied

    # These tables are written all the time: a table that is not merged, and a shard group that changes meanwhile.
    places = (f"{shards.schema}_1.other (id)", f"{shards.schema}_1.items_1 (id)")
    watched = (f"{shards.schema}_1.other", f"{shards.target_schema}.items")
    delays = Delays(shards.session(shards.sources["one"]), shards.session(shards.target_server), places, watched)
    with background(delays.step, pause=0.03):
        time.sleep(SECONDS)
        quiet = delays.count()
        shards.on("one", "ALTER TABLE {1}.orders_1 ADD COLUMN c INT DEFAULT 5")
        shards.on("one", "INSERT INTO {1}.orders_1 VALUES (11003, 'held', 3, 3)")
        shards.on("one", "ALTER TABLE {1}.orders_1 ADD COLUMN d INT")
        shards.on("one", "UPDATE {1}.orders_1 SET d = id", "UPDATE {1}.orders_2 SET v = 'flows'")
        shards.on("two", "ALTER TABLE {2}.orders_3 ADD COLUMN c INT DEFAULT 5", "DELETE FROM {2}.orders_3")
        at_work = {("one", "1.orders_1"), ("two", "2.orders_3")}
        run.wait_until(lambda: shards.waiting() == at_work, "both wait")
        for source in shards.sources:
            shards.on(source, "ALTER TABLE {1}.items_1 ADD COLUMN w INT DEFAULT 8")
        run.wait_until(lambda: "w" in shards.columns("items"), "the other group has changed")
        time.sleep(SECONDS)
        later = [delays.since(table, quiet) for table in watched]
    before = [delays.since(table, 0)[: len(delays.seen[table])] for table in watched]
    for usual, meanwhile in zip(before, later, strict=True):
        found = f"{statistics.median(usual):.3f} s, at most {usual[-1]:.3f} s; then {statistics.median(meanwhile):.3f} s, {meanwhile[-1]:.3f} s"
        # The shard waits for longer than these measurements take. Half a second is allowed for the pauses of a busy
        # machine.
        assert statistics.median(meanwhile) < 2 * statistics.median(usual) + 0.5, found
        assert meanwhile[-1] < usual[-1] + 8, found

    assert shards.columns() == ["id", "n", "v"]
    assert [row for row in shards.rows() if row[0] in orders(1, 2, 1)] == [(*orders(1, 2, 1), "flows", 1)]
    assert {key for (key,) in shards.rows(columns="id")} >= set(orders(2, 3, 1, 2)), (
        "its rows go when the others are there"
    )
    (lock,) = shards.locks()
    table = lambda number, schema=1: f"{shards.schema}_{schema}.orders_{number}"  # noqa: E731
    assert lock["target"] == f"{shards.target_schema}.orders"
    assert {(one["source"], *one["tables"]) for one in lock["arrived"]} == {("one", table(1)), ("two", table(3, 2))}
    awaited = {f"one: {table(2)}", f"one: {table(3, 2)}", f"two: {table(1)}", f"two: {table(2)}"}
    assert set(lock["awaited"]) == awaited
    assert (lock["owner"], lock["disagrees"]) == (lock["arrived"][0]["source"], False)
    assert time.time() - 120 < lock["since"] < time.time()

    # `pidts status` and other commands show the same shards.
    path = str(shards.task.path)
    found = shards.pidts("status", path)
    (other,) = found["locks"]
    assert all(other[key] == lock[key] for key in ("target", "owner", "since", "awaited", "awaited_since"))
    assert set(lock["awaited_since"].values()) == {lock["since"]}
    held = {(source["source"], name) for source in found["sources"] for name in source["held"]["tables"]}
    assert held == {("one", table(1)), ("two", table(3, 2))}
    assert found["held_bytes"] > 0
    assert [(source["copy"]["done"], source["copy"]["of"]) for source in found["sources"]] == [(5, 5), (4, 4)]
    assert all(time.time() - 60 < source["moved_at"] < time.time() + 5 for source in found["sources"])
    assert scraped(run, "pidts_shard_awaited_since_seconds") == {
        frozenset({("task", "t"), ("shard", name)}): pytest.approx(lock["since"]) for name in awaited
    }
    stages = {frozenset({("task", "t"), ("source", name), ("stage", "sync")}): 1 for name in shards.sources}
    assert scraped(run, "pidts_stage") == stages

    # A shard with a different change is reported at once, and can be corrected.
    shards.on("two", "ALTER TABLE {1}.orders_2 ADD COLUMN c BIGINT DEFAULT 5")
    run.wait_until(lambda: {"shards-disagree"} <= {halt["code"] for halt in shards.halts()}, "it is reported")
    (lock,) = shards.locks()
    assert lock["disagrees"]
    assert shards.pidts("status", path, code=5)["needs_operator"]
    (found,) = [halt for halt in shards.halts() if halt["source"] == "two" and halt["tables"] == [table(2)]]
    assert (found["code"], "column c" in found["what"], table(1) in found["what"]) == ("shards-disagree", True, True)
    shown = shards.pidts("ddl", "skip", path, "--at", found["lsn"])
    assert shown["given"] is False
    shards.pidts("ddl", "skip", path, "--at", found["lsn"], "--yes")
    shards.on("two", "ALTER TABLE {1}.orders_2 MODIFY c INT DEFAULT 5", "UPDATE {1}.orders_2 SET c = 22")
    run.wait_until(
        lambda: (
            {"shards-disagree"}.isdisjoint(halt["code"] for halt in shards.halts())
            and ("two", "1.orders_2") in shards.waiting()
        ),
        "it waits with the others",
    )

    # While a lock is open, a changed route that would send rows to another table is refused.
    about = yaml.safe_load(shards.task.path.read_text())
    kept = shards.task.path.read_text()
    about["routes"]["orders"]["target-table"] = "elsewhere"
    shards.task.path.write_text(yaml.safe_dump(about))
    run.wait_until(lambda: "shard-lock-open" in run.log.read_text(), "the change of a route is refused")
    shards.task.path.write_text(kept)

    # All shards but one have arrived. An operator does not wait for the last one.
    shards.on("one", "ALTER TABLE {1}.orders_2 ADD c INT DEFAULT 5", "ALTER TABLE {2}.orders_3 ADD c INT DEFAULT 5")
    run.wait_until(lambda: ("one", "2.orders_3") in shards.waiting(), "all but one are there")
    (lock,) = shards.locks()
    assert lock["awaited"] == [f"two: {table(1)}"]
    shown = shards.pidts("ddl", "unlock", path)
    assert shown["given"] is False
    shards.pidts("ddl", "unlock", path, "--yes")
    run.wait_until(lambda: "c" in shards.columns(), "it is run without the last one")
    shards.on("two", "INSERT INTO {1}.orders_1 VALUES (21003, 'late', 3)")
    run.wait_until(lambda: (21003, 5) in shards.rows(columns="id, c"), "rows of the last one")
    shards.on("two", "ALTER TABLE {1}.orders_1 ADD COLUMN c INT DEFAULT 5", "UPDATE {1}.orders_1 SET c = 1 WHERE n = 3")
    run.wait_until(lambda: (21003, 1) in shards.rows(columns="id, c"), "the last one has come")
    run.wait_until(lambda: shards.waiting() == {("one", "1.orders_1")}, "one is ahead by another change")
    assert (11003, 3) in shards.rows(columns="id, c")
    for source in shards.sources:
        for place in ("{1}.orders_1", "{1}.orders_2", "{2}.orders_3")[source == "one" :]:
            shards.on(source, f"ALTER TABLE {place} ADD COLUMN d INT")
    shards.has_all(run)
    assert (11003, 3, 11003) in shards.rows(columns="id, c, d")
    assert not {key for (key,) in shards.rows(columns="id")} & set(orders(2, 3, 1, 2))
    assert shards.locks() == []

    # Values that are unique in each shard may not be unique in all of them: the target refuses the key, and nothing of
    # it stays.
    shards.on("one", "UPDATE {1}.items_1 SET w = id", "ALTER TABLE {1}.items_1 ADD UNIQUE KEY u (w)")
    shards.on("two", "INSERT INTO {1}.items_1 VALUES (5000000, 1)", "ALTER TABLE {1}.items_1 ADD UNIQUE KEY u (w)")
    refused = lambda: {(halt["source"], halt["lsn"]) for halt in shards.halts() if halt["code"] == "target-refused"}  # noqa: E731
    skipped: set[tuple[str, str]] = set()
    for _ in shards.sources:  # Each shard continues alone.
        run.wait_until(lambda: refused() - skipped, "the target refuses it")
        ((source, lsn),) = refused() - skipped
        shards.pidts("ddl", "skip", path, "--source", source, "--at", lsn, "--yes")
        skipped.add((source, lsn))
    shards.on("one", "INSERT INTO {1}.items_1 VALUES (5000001, 3000000)")
    shards.on("two", "INSERT INTO {1}.items_1 VALUES (5000002, 3000000)")
    shards.has_all(run)
    assert {(5000001, 3000000), (5000002, 3000000)} <= set(shards.rows("items"))
    assert (shards.locks(), shards.halts()) == ([], [])
    assert scraped(run, "pidts_shard_awaited_since_seconds") == {}
    shards.equal(run)
    assert len(run.jvm()) <= 1, "the sources share one Spark, if one of them needs it"
    said = run.summary()
    assert {source["source"] for source in said["sources"]} == {"one", "two"}
    assert shards.task.sync()["stage"] == "synced"


def test_reasons_against_a_merge_are_reported_before_it_begins(make_shards: Callable[..., Shards]) -> None:
    shards = make_shards("postgres")
    path = str(shards.task.path)
    assert all(finding["ok"] for finding in shards.pidts("check", path)["findings"])
    shards.on("one", "ALTER TABLE {1}.orders_2 ADD COLUMN c INT")
    for source in shards.sources:
        shards.on(source, "ALTER TABLE {1}.items_1 MODIFY id BIGINT AUTO_INCREMENT")
    findings = shards.pidts("check", path, code=3)["findings"]
    failed = {finding["item"]: finding for finding in findings if not finding["ok"]}
    assert set(failed) == {"schema_of_shard_tables", "auto_increment_ID"}
    assert f"{shards.schema}_1.orders_2" in failed["schema_of_shard_tables"]["message"]
    assert f"{shards.schema}_1.items_1" in failed["auto_increment_ID"]["message"]
    assert all(finding["fix"] for finding in failed.values())
    run = shards.task.start("--json")
    assert run.process.wait(60) == 3
