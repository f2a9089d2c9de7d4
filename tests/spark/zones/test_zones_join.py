"""A zone joins zones to which programs write all the time, on real servers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.running import NOT_THERE
from tests.spark.commands import Run, Task

from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]
"""These tests take minutes: each has three servers and up to six tasks, and waits for all of them."""

RunSql = Callable[..., list[tuple[Any, ...]]]


class Shop:
    """A file of three zones with one database, and the writes of the programs in each of them."""

    def __init__(self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql) -> None:
        self.file, self.servers, self.database, self._run_sql = folder / "zones.yaml", servers, database, run_sql
        self.task = Task(self.file)
        self.numbers = {zone: itertools.count(1 + 1_000_000 * place) for place, zone in enumerate(servers)}

    def write_file(self, zones: str, joins: dict[str, str] | None = None, file: Path | None = None) -> None:
        servers: dict[str, dict[str, Any]] = {zone: _login(self.servers[zone]) for zone in zones}
        for zone, seed in (joins or {}).items():
            servers[zone]["joins"] = seed
        content = {
            "name": f"j_{self.database}",
            "block-allow-list": {"ours": {"do-dbs": [self.database]}},
            "pidts": {
                "zones": {"servers": servers, "rules": {"block-allow-list": "ours"}},
                "relay": "relay",
                "spark": {"master": "local[1,4]"},
            },
        }
        (file or self.file).write_text(json.dumps(content))

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def write(self, zone: str) -> None:
        """Writes a new row, changes rows of this zone, and removes a row."""
        number = next(self.numbers[zone])
        self.sql(zone, f"INSERT INTO t (id, n) VALUES ({number}, 0)")
        self.sql(zone, f"UPDATE t SET n = n + 1 WHERE id BETWEEN {number - 9} AND {number}")
        self.sql(zone, f"DELETE FROM t WHERE id = {number - 20}")

    def rows(self, zone: str) -> list[tuple[Any, ...]]:
        try:
            return self.sql(zone, "SELECT * FROM t ORDER BY id")
        except NOT_THERE:
            return []

    def are_equal(self, zones: str) -> bool:
        first = self.rows(zones[0])
        return bool(first) and all(self.rows(zone) == first for zone in zones[1:])

    def stages(self) -> set[str]:
        found = self.task.command("status", str(self.file), "--json")
        return {one["stage"] for one in json.loads(found.stdout)["directions"]}

    def start(self) -> Run:
        run = self.task.start("--json")
        run.wait_until(lambda: self.stages() == {"syncing"}, "all directions sync", 400)
        return run

    def purge_logs(self, zones: str) -> bool:
        """Removes all logs except the current ones, as if they had expired; False while a replicator reads an earlier
        log.
        """
        for zone in zones:
            self.sql(zone, "FLUSH LOGS")
            self.sql(zone, f"PURGE BINARY LOGS TO '{self.sql(zone, 'SHOW BINARY LOGS')[-1][0]}'")
        return all(len(self.sql(zone, "SHOW BINARY LOGS")) == 1 for zone in zones)

    def locks(self, zones: str) -> list[tuple[Any, ...]]:
        asked = f"SELECT task FROM pidts_meta.row_lock WHERE task LIKE '%{self.database}%'"
        return [lock for zone in zones for lock in self.sql(zone, asked)]


def _login(server: Server) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


@pytest.fixture
def shop(
    tmp_path: Path, mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql
) -> Iterator[Shop]:
    made = Shop(tmp_path, {"a": mariadb, "b": mysql97, "c": mysql56}, database, run_sql)
    made.sql("c", "SELECT 1")
    made.sql("a", "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
    made.sql("a", f"INSERT INTO t VALUES {', '.join(f'({-1 - number}, {number})' for number in range(500))}")
    yield made
    for run in made.task.runs:
        if run.process.poll() is None:
            run.stop()


@pytest.mark.timeout(1500)
def test_a_zone_joins_a_pair_that_is_written_to(shop: Shop, background: Callable[..., Any]) -> None:
    """The new zone is copied from zone a, and then gets changes from both directly.

    Programs write to all three zones, and all processes are killed.
    """
    shop.write_file("ab")
    run = shop.start()
    with ExitStack() as programs:
        for zone in "ab":
            programs.enter_context(background(lambda zone=zone: shop.write(zone), 0.5))
        time.sleep(2)
        assert run.stop() == 0
        shop.write_file("abc")
        refused = shop.task.command("run", str(shop.file))
        assert refused.returncode == 3, refused.stderr
        assert "zone-not-joined" in refused.stderr.decode()
        shop.write_file("abc", {"c": "a"})
        run = shop.start()
        programs.enter_context(background(lambda: shop.write("c"), 0.5))
        time.sleep(3)
        shop.write_file("abc")
        shown = shop.task.command("zones", "hand-over", str(shop.file), "c")
        assert shown.returncode == 0, shown.stderr
        done = shop.task.command("zones", "hand-over", str(shop.file), "c", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "gets the changes of b directly" in done.stdout.decode()
        time.sleep(2)
        run.kill()
        run = shop.start()
        time.sleep(3)
    run.wait_until(lambda: shop.are_equal("abc"), "all zones are equal")
    assert len(shop.rows("c")) > 500
    assert shop.locks("abc") == []
    shop.sql("b", "UPDATE t SET n = 77 WHERE id = -1")
    run.wait_until(lambda: shop.rows("c") == shop.rows("b") == shop.rows("a"), "a change of zone b comes to zone c")
    again = shop.task.command("zones", "hand-over", str(shop.file), "c", "--yes")
    assert "nothing to hand over" in again.stdout.decode()
    assert run.stop() == 0


@pytest.mark.timeout(1500)
def test_a_restored_zone_is_noticed_and_returns(shop: Shop, background: Callable[..., Any]) -> None:
    """Zone b is restored from a backup, is refused, and is filled from zone a, to which programs write all the time.

    `pidts zones return` is killed while it fills zone b. Then a program writes to zone b. When `pidts zones return`
    runs again, it counts this program's changes, too.
    """

    def run_direction(direction: str) -> Any:
        return shop.task.command("run", f"{shop.file}@{direction}", "--until-synced")

    command = [sys.executable, "-m", "pidts", "zones", "return", str(shop.file), "b"]

    def give_back(*words: str) -> Any:
        return subprocess.run([*command, *words], capture_output=True, check=False, timeout=600)

    def kill_while_it_is_filled() -> None:
        words = [*command, "--yes", "--discard-unsent"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as first:
            assert first.stderr is not None
            said = itertools.takewhile(lambda line: "step 3 of 4" not in line, first.stderr)
            assert [line for line in said if line.startswith("forgotten: task")]
            first.kill()

    shop.write_file("ab")
    run = shop.start()
    shop.write("b")
    run.wait_until(lambda: shop.are_equal("ab"), "a change of zone b")
    assert run.stop() == 0
    of_task = f"pidts_meta.checkpoint WHERE task = 'j_{shop.database}-a-b'"
    shop.sql("b", "CREATE TABLE pidts_meta.backup_t AS SELECT * FROM t")
    shop.sql("b", f"CREATE TABLE pidts_meta.backup_c AS SELECT * FROM {of_task}")
    shop.write("a")
    shop.write("b")
    run = shop.start()
    run.wait_until(lambda: shop.are_equal("ab"), "later changes of both")
    assert run.stop() == 0
    shop.sql("b", "DELETE FROM t")
    shop.sql("b", "INSERT INTO t SELECT * FROM pidts_meta.backup_t")
    shop.sql("b", f"DELETE FROM {of_task}")
    shop.sql("b", "INSERT INTO pidts_meta.checkpoint SELECT * FROM pidts_meta.backup_c")
    shop.sql("b", "DROP TABLE pidts_meta.backup_t, pidts_meta.backup_c")
    noticed = run_direction("a-b")
    assert noticed.returncode == 5, noticed.stderr
    assert "zone-restored" in noticed.stderr.decode()

    shop.write_file("ab", {"b": "a"})
    shown = give_back()
    assert shown.returncode == 0, shown.stderr
    assert "changed rows of" in shown.stdout.decode()
    refused = give_back("--yes")
    assert refused.returncode == 3, refused.stderr
    assert "zone-unsent" in refused.stderr.decode()
    with background(lambda: shop.write("a"), 0.5):
        shop.sql("b", "DELETE FROM t WHERE id < -400")
        shop.sql("b", "INSERT INTO t VALUES (-77777, 7)")
        kill_while_it_is_filled()
        shop.sql("b", "INSERT INTO t VALUES (-77778, 8)")
        noticed = give_back()
        assert "1 changed row of" in noticed.stdout.decode(), noticed.stdout + noticed.stderr
        # The processes that the killed command has started end a little later.
        deadline = time.monotonic() + 60
        while (returned := give_back("--yes", "--discard-unsent")).returncode == 3 and time.monotonic() < deadline:
            assert "[zone-tasks-run]" in returned.stderr.decode(), returned.stderr
        assert returned.returncode == 0, returned.stderr
        shop.write_file("ab")
        run = shop.start()
        with background(lambda: shop.write("b"), 0.5):
            time.sleep(4)
    run.wait_until(lambda: shop.are_equal("ab"), "both zones are equal")
    assert not {-77777, -77778} & {row[0] for row in shop.rows("a")}
    assert shop.locks("ab") == []
    assert run.stop() == 0


@pytest.mark.timeout(1500)
def test_a_zone_that_was_down_for_longer_than_logs_are_kept_is_filled_again(
    shop: Shop, background: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    """All servers purge their logs meanwhile, and programs write to the other two zones, whose tasks run all the time.

    Zone c then gets all rows from zone a, and all zones get each other's changes directly again.
    """

    def give_back(*words: str) -> Any:
        return shop.task.command("zones", "return", str(shop.file), "c", *words, timeout=600)

    shop.write_file("abc")
    run = shop.start()
    shop.write("c")
    run.wait_until(lambda: shop.are_equal("abc"), "a change of zone c")
    assert run.stop() == 0
    others = shop.file.with_name("others.yaml")
    shop.write_file("ab", file=others)
    shop.task.runs.append(pair := Task(others).start("--json"))
    for zone in "ab":
        shop.write(zone)
    pair.wait_until(lambda: shop.are_equal("ab"), "both tasks have begun")
    with background(lambda: shop.write("a"), 0.5), background(lambda: shop.write("b"), 0.5):
        time.sleep(3)
        shop.sql("c", "INSERT INTO t VALUES (-77777, 7)")
        shop.sql("a", "DELETE FROM t WHERE id < -450")
        eventually(lambda: shop.purge_logs("abc"), 60, "the logs are purged")
        time.sleep(1)
        lost = shop.task.command("run", f"{shop.file}@a-c", "--until-synced")
        assert lost.returncode == 5, lost.stderr
        assert "[position-lost]" in lost.stderr.decode()
        assert "pidts zones return" in lost.stderr.decode()

        shop.write_file("abc", {"c": "a"})
        shown = give_back()
        assert shown.returncode == 0, shown.stderr
        assert "not known, since its log is gone" in shown.stdout.decode()
        refused = give_back("--yes")
        assert refused.returncode == 3, refused.stderr
        assert "[zone-unsent]" in refused.stderr.decode()
        returned = give_back("--yes", "--discard-unsent")
        assert returned.returncode == 0, returned.stdout + returned.stderr
        assert pair.process.poll() is None, pair.log.read_text()
    pair.wait_until(lambda: shop.are_equal("ab"), "zones a and b are equal")
    assert pair.stop() == 0

    run = shop.start()
    with ExitStack() as programs:
        for zone in "abc":
            programs.enter_context(background(lambda zone=zone: shop.write(zone), 0.5))
        time.sleep(3)
        shop.write_file("abc")
        done = shop.task.command("zones", "hand-over", str(shop.file), "c", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        run.stop()
        run = shop.start()
        time.sleep(3)
    run.wait_until(lambda: shop.are_equal("abc"), "all zones are equal")
    keys = {row[0] for row in shop.rows("c")}
    assert not {-77777, -451} & keys
    assert -450 in keys
    assert shop.locks("abc") == []
    assert run.stop() == 0
