"""Zones with rows of their own begin, or join others, while programs write to all of them, on real servers."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.running import NOT_THERE
from tests.spark.commands import Run, Task

from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

RunSql = Callable[..., list[tuple[Any, ...]]]
OLD, NEW = "2020-01-01 00:00:00.000001", "2021-01-01 00:00:00.000001"
ROWS = 3000


class Shop:
    """Zones a and b, or a and c. Rows 1 to 1000 are only in a, 2001 to 3000 only in the other, and the rest in both."""

    def __init__(self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql) -> None:
        self.file, self.servers, self.database, self._run_sql = folder / "zones.yaml", servers, database, run_sql
        self.task = Task(self.file)
        self.chance = {zone: random.Random(zone) for zone in servers}
        self.numbers = {zone: itertools.count(10_000 * place) for place, zone in enumerate(servers, 1)}
        self.other = max(servers)
        self.have_begun = False
        self.write_file(zones="".join(servers), both=True)
        for zone in servers:
            self.sql(zone, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, changed DATETIME(6) NOT NULL)")
        self.fill("a", range(1, 1001), OLD, 1)
        self.fill(self.other, range(2001, ROWS + 1), OLD, 2)
        for number in range(1001, 2001, 500):
            newer, older = ("a", self.other) if number == 1001 else (self.other, "a")
            self.fill(newer, range(number, number + 500), NEW, 3)
            self.fill(older, range(number, number + 500), OLD, 4)

    def write_file(self, *, both: bool, zones: str = "ab", joins: str = "") -> None:
        servers = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in self.servers.items()
            if zone in zones
        }
        if joins:
            servers[joins]["joins"] = "a"
        content = {
            "name": f"r_{self.database}",
            "block-allow-list": {"ours": {"do-dbs": [self.database]}},
            "pidts": {
                "zones": {"servers": servers, "rules": {"block-allow-list": "ours"}},
                "conflict": "version",
                "version-column": "changed",
                **({"both-have-rows": True} if both else {}),
                "chunk-rows": 50,
                "copy-rate": 300,
                "relay": "relay",
                "spark": {"master": "local[1,4]"},
            },
        }
        self.file.write_text(json.dumps(content))

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def fill(self, zone: str, keys: range, changed: str, value: int) -> None:
        self.sql(zone, f"INSERT INTO t VALUES {', '.join(f'({key}, {value}, {changed!r})' for key in keys)}")

    def write(self, zone: str) -> None:
        """Inserts a row, and changes and removes rows that may be anywhere. The zones change different rows."""
        number, chance = next(self.numbers[zone]), self.chance[zone]
        self.sql(zone, f"INSERT INTO t VALUES ({number}, 0, NOW(6))")
        odd = zone == self.other
        changed, gone = (2 * chance.randrange(1, ROWS // 2) + odd for _ in range(2))
        later = "changed = GREATEST(NOW(6), changed + INTERVAL 1 MICROSECOND)"
        self.sql(zone, f"UPDATE t SET n = n + 10, {later} WHERE id IN ({changed}, {number - 3})")
        # A DELETE before the tasks begin is not carried, so the other zone's row of this key would come.
        if not self.have_begun and len(self.servers) == 2:
            return
        both = chance.randrange(1, ROWS)
        self.sql(zone, f"UPDATE t SET n = n + 1000, {later} WHERE id = {both}")
        self.sql(zone, f"DELETE FROM t WHERE id IN ({gone}, {number - 9})")

    def rows(self, zone: str) -> list[tuple[Any, ...]]:
        return self.sql(zone, "SELECT * FROM t ORDER BY id")

    def status(self) -> list[dict[str, Any]]:
        found = self.task.command("status", str(self.file), "--json")
        directions: list[dict[str, Any]] = json.loads(found.stdout)["directions"]
        return directions

    def start(self) -> Run:
        return self.task.start("--json")

    def begun(self) -> bool:
        """Whether the tasks of both directions have their places in the logs of zone a and the other zone."""
        asked = f"SELECT 1 FROM pidts_meta.note WHERE task LIKE '%{self.database}%' AND table_name = 'both have rows'"
        with suppress(*NOT_THERE):
            self.have_begun = self.have_begun or all(self.sql(zone, asked) for zone in ("a", self.other))
        return self.have_begun


@pytest.fixture
def shop(tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql) -> Iterator[Shop]:
    made = Shop(tmp_path, {"a": mariadb, "b": mysql97}, database, run_sql)
    yield made
    for run in made.task.runs:
        if run.process.poll() is None:
            run.stop()


@pytest.mark.timeout(900)
def test_both_zones_keep_their_rows_and_become_equal(shop: Shop, background: Callable[..., Any]) -> None:
    shop.write_file(both=False)
    refused = shop.task.command("run", f"{shop.file}@a-b")
    assert refused.returncode == 3
    assert "both-have-rows" in refused.stderr.decode()
    shop.write_file(both=True)
    before = {zone: {row[0]: row[1:] for row in shop.rows(zone)} for zone in "ab"}
    with ExitStack() as programs:
        for zone in "ab":
            programs.enter_context(background(lambda zone=zone: shop.write(zone), 0.2))
        copied = []
        for _ in range(2):
            run = shop.start()
            run.wait_until(shop.begun, "both tasks have begun", 200)
            more = len(copied) and copied[-1]
            run.wait_until(lambda more=more: len(shop.rows("b")) > 2050 + more, "rows of a are in b", 200)
            time.sleep(1)
            run.kill()
            copied.append(len(shop.rows("b")) - 2000)
        run = shop.start()
        run.wait_until(lambda: {one["stage"] for one in shop.status()} == {"syncing"}, "all rows are copied", 300)
        time.sleep(2)
    run.wait_until(lambda: shop.rows("a") == shop.rows("b"), "both zones are equal", 120)
    assert copied[0] < 1000, "the first run was killed within the copy"
    after = {row[0]: row[1:] for row in shop.rows("a")}
    untouched = {key: row for key, row in after.items() if row[0] in {1, 2, 3, 4}}
    for key, (value, _) in untouched.items():
        there = [rows[key] for rows in before.values() if key in rows]
        assert value == max(there, key=lambda row: row[1])[0], key
    assert {row[0] for row in untouched.values()} == {1, 2, 3}
    assert len(untouched) > 1500
    shop.sql("b", "UPDATE t SET n = 77, changed = NOW(6) WHERE id = (SELECT x.id FROM (SELECT MAX(id) id FROM t) x)")
    run.wait_until(lambda: shop.rows("a") == shop.rows("b"), "a change of b comes to a")
    for zone in "ab":
        assert shop.sql(zone, f"SELECT 1 FROM pidts_meta.row_lock WHERE task LIKE '%{shop.database}%'") == []
    assert run.stop() == 0


def has_note(shop: Shop, asked: str) -> bool:
    try:
        return bool(shop.sql("b", asked))
    except NOT_THERE:
        return False


@pytest.mark.timeout(600)
def test_a_direction_writes_nothing_before_the_other_has_begun(shop: Shop) -> None:
    before = {zone: shop.rows(zone) for zone in "ab"}
    alone = Task(Path(f"{shop.file}@a-b")).start("--json")
    try:
        asked = f"SELECT 1 FROM pidts_meta.note WHERE task LIKE '%{shop.database}%' AND table_name = 'both have rows'"
        alone.wait_until(lambda: has_note(shop, asked), "the task has begun", 200)
        time.sleep(3)
        assert {zone: shop.rows(zone) for zone in "ab"} == before
        other = Task(Path(f"{shop.file}@b-a")).start("--json")
        try:
            alone.wait_until(lambda: len(shop.rows("a")) == len(shop.rows("b")) == ROWS, "all rows are in both", 200)
            alone.wait_until(lambda: shop.rows("a") == shop.rows("b"), "both zones are equal", 200)
        finally:
            other.stop()
    finally:
        alone.stop()


@pytest.fixture
def shop_of_three(
    tmp_path: Path, mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> Iterator[Shop]:
    made = Shop(tmp_path, {"a": mariadb, "b": mysql97, "c": mysql56}, database, run_sql)
    yield made
    for run in made.task.runs:
        if run.process.poll() is None:
            run.stop()


@pytest.mark.timeout(1500)
def test_a_zone_with_rows_joins_two_zones_that_have_tasks(shop_of_three: Shop, background: Callable[..., Any]) -> None:
    """Programs write to all zones, processes are killed, and at last all zones feed each other directly."""
    shop = shop_of_three
    shop.write_file(both=False)
    run = shop.start()
    with ExitStack() as programs:
        run.wait_until(lambda: shop.rows("a") == shop.rows("b"), "zones a and b are equal", 300)
        shop.fill("c", range(3001, 3021), OLD, 5)
        shop.fill("a", range(3001, 3021), NEW, 6)
        run.wait_until(lambda: shop.rows("a") == shop.rows("b"), "zones a and b are equal", 300)
        # A DELETE in b before the task out of b has begun is not carried.
        run.wait_until(lambda: [one["stage"] for one in shop.status()] == ["syncing"] * 2, "both tasks have begun", 300)
        shop.sql("b", "DELETE FROM t WHERE id BETWEEN 3001 AND 3010")
        run.wait_until(lambda: shop.rows("a") == shop.rows("b"), "zones a and b are equal", 300)
        for zone in "ab":
            programs.enter_context(background(lambda zone=zone: shop.write(zone), 0.3))
        time.sleep(1)
        shop.sql("a", "DELETE FROM t WHERE id BETWEEN 3011 AND 3020")
        assert run.stop() == 0
        shop.write_file(zones="abc", joins="c", both=True)
        run = shop.start()
        run.wait_until(shop.begun, "the tasks of zone c have begun", 300)
        programs.enter_context(background(lambda: shop.write("c"), 0.3))
        run.wait_until(lambda: len(shop.rows("c")) > 2100, "rows of a are in c", 300)
        run.kill()
        run = shop.start()
        run.wait_until(lambda: {one["stage"] for one in shop.status()} == {"syncing"}, "all rows are copied", 400)
        shop.write_file(zones="abc", both=False)
        for zone in "cb":
            done = shop.task.command("zones", "hand-over", str(shop.file), zone, "--yes", timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "directly" in done.stdout.decode()
        run.kill()
        run = shop.start()
        time.sleep(3)
    run.wait_until(lambda: shop.rows("a") == shop.rows("b") == shop.rows("c"), "all zones are equal", 300)
    after = {row[0] for row in shop.rows("c")}
    assert not after & {*range(3001, 3021)}, "zone c had older rows of deleted keys"
    assert len(after & {*range(2001, 3001)}) > 500
    shop.sql("b", "INSERT INTO t VALUES (-1, 7, NOW(6))")
    shop.sql("c", "INSERT INTO t VALUES (-2, 7, NOW(6))")
    run.wait_until(lambda: {-1, -2} <= {row[0] for row in shop.rows("a")}, "changes of b and c come to a", 100)
    run.wait_until(lambda: shop.rows("a") == shop.rows("b") == shop.rows("c"), "all zones are equal", 100)
    assert run.stop() == 0
