"""A run that only copies ends by itself, tables that are created while a task runs are carried, and all tables are
copied again when the log is lost.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from tests.running import NO_TABLE

from pidts.sandbox import Server, start_mariadb

from .commands import Task

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]


def rows_of(run_sql: RunSql, server: Server, schema: str, table: str) -> list[tuple[Any, ...]]:
    """Returns the sorted rows; empty if the table does not exist yet."""
    try:
        return sorted(run_sql(server, f"SELECT * FROM {schema}.{table}"), key=repr)
    except NO_TABLE:
        return []


def test_a_full_copy_ends_by_itself_and_shows_how_far_it_is(
    make_task: Callable[..., Task],
    mariadb: Server,
    target_server: Callable[[str], Server],
    database: str,
    run_sql: RunSql,
) -> None:
    target = target_server("postgres")
    for sql in (
        "CREATE TABLE big (id INT PRIMARY KEY, a VARCHAR(40), KEY (a))",
        "INSERT INTO big SELECT seq, CONCAT('row ', seq) FROM seq_1_to_30000",
        "CREATE TABLE keyless (a INT)",
        "INSERT INTO keyless VALUES (1), (1), (2)",
        "CREATE TABLE empty (id INT PRIMARY KEY)",
        "ANALYZE TABLE big",
    ):
        run_sql(mariadb, sql, database=database)
    task = make_task(mariadb, target, [database], **{"task-mode": "full"})
    run = task.start("--json")
    assert run.process.wait(120) == 0, task.logs()
    found = json.loads(run.log.read_text().splitlines()[-1])
    assert (found["stage"], found["eta_seconds"], found["rows"]["copied"]) == ("synced", 0, 30003)
    tables = {table["name"].partition(".")[2]: table for table in found["tables"]}
    assert {name: (table["copied"], table["done"]) for name, table in tables.items()} == {
        "big": (30000, True),
        "empty": (0, True),
        "keyless": (3, True),
    }
    assert 20000 < tables["big"]["estimate"] < 40000
    for table in tables:
        assert rows_of(run_sql, target, database, table) == rows_of(run_sql, mariadb, database, table)
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = %s AND tablename = 'big'"
    assert run_sql(target, indexes, database) == [(2,)]


@dataclass
class Shop:
    """Three tables on a source server that no other test uses, a target, and the rows of both."""

    source: Server
    target: Server
    run_sql: RunSql

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.source, statement, database="shop")

    def is_equal(self, *tables: str) -> bool:
        return all(
            rows_of(self.run_sql, self.source, "shop", table) == rows_of(self.run_sql, self.target, "shop", table)
            for table in tables
        )

    def purge(self) -> None:
        """Purges all but the last file of the log."""
        self.sql("FLUSH BINARY LOGS")
        (last,) = self.run_sql(self.source, "SHOW MASTER STATUS")
        deadline = time.monotonic() + 60
        while self.run_sql(self.source, "SHOW BINARY LOGS")[0][0] != last[0]:
            # The server purges nothing as long as a connection of the replicator remains.
            self.sql(f"PURGE BINARY LOGS TO '{last[0]}'")
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def shop(target_server: Callable[[str], Server], run_sql: RunSql) -> Iterator[Shop]:
    with start_mariadb() as source:
        made = Shop(source, target_server("postgres"), run_sql)
        run_sql(source, "CREATE DATABASE shop")
        for table in ("t", "u", "x"):
            made.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT UNIQUE)")
            made.sql(f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_3000")
        yield made
        source.kill()


@pytest.mark.long
@pytest.mark.timeout(500)
def test_tables_come_by_the_task_file_and_by_rename(make_task: Callable[..., Task], shop: Shop) -> None:
    task = make_task(shop.source, shop.target, ["shop"], spark={"direct-rows": 0})
    follow(task, "t")
    run = task.start("--json")
    run.wait_until(lambda: shop.is_equal("t"), "the copy")
    assert rows_of(shop.run_sql, shop.target, "shop", "u") == []
    jvm = run.jvm()
    assert jvm

    follow(task, "t", "u", "renamed")
    run.wait_until(lambda: shop.is_equal("u"), "the table that the task file names now")
    shop.sql(
        "UPDATE u SET a = a + 10000 WHERE id <= 10", "DELETE FROM u WHERE id = 3000", "INSERT INTO t VALUES (0, 0)"
    )
    shop.sql("RENAME TABLE x TO renamed", "INSERT INTO renamed VALUES (0, 0)", "ALTER TABLE renamed ADD b INT")
    shop.sql("UPDATE renamed SET b = 1 WHERE id < 100")
    run.wait_until(lambda: shop.is_equal("t", "u", "renamed"), "the table that was renamed")
    follow(task, "t", "u", "renamed", more="syncer-thread: 3")
    run.wait_until(lambda: "will take effect at the next start" in run.log.read_text(), "the refusal")
    assert run.jvm() == jvm, "another attempt needs no other Spark"
    found = run.summary()
    assert {table["name"] for table in found["tables"]} == {"shop.t", "shop.u", "shop.renamed"}


@pytest.mark.long
@pytest.mark.timeout(500)
def test_when_the_log_is_lost_it_is_said_and_all_tables_are_put_right_while_they_are_read(
    make_task: Callable[..., Task], shop: Shop
) -> None:
    task = make_task(shop.source, shop.target, ["shop"])
    task.sync()
    shop.sql("DELETE FROM t WHERE id < 50", "UPDATE u SET a = -id WHERE id < 50")
    shop.purge()
    shop.sql("INSERT INTO t VALUES (5, 5)")
    lost = task.start("--json")
    assert lost.process.wait(120) == 5, task.logs()
    error = json.loads(lost.log.read_text().splitlines()[-1])["error"]
    assert error["code"] == "position-lost"
    found = r"changes of shop\.t, shop\.u, shop\.x after bin\.000001:\d+ \(20[^)]*\) and before bin\.000002:4 \(20"
    assert re.search(found, error["what"])
    assert f"pidts run {task.path} --resync" in error["todo"]

    least = 10**9
    run = task.start("--resync", "--until-synced", "--json")
    while run.process.poll() is None:
        least = min(least, int(shop.run_sql(shop.target, "SELECT count(*) FROM shop.t")[0][0]))
        time.sleep(0.2)
    assert run.process.returncode == 0, task.logs()
    assert shop.is_equal("t", "u", "x")
    assert least > 2900, "nobody saw the table without its rows"


def follow(task: Task, *tables: str, more: str = "") -> None:
    """Writes the task file anew."""
    about = yaml.safe_load(task.path.read_text())
    about["block-allow-list"]["ours"] = {"do-tables": [{"db-name": "shop", "tbl-name": table} for table in tables]}
    about["mysql-instances"][0] |= yaml.safe_load(more) if more else {}
    if not more:
        about["mysql-instances"][0].pop("syncer-thread", None)
    task.path.write_text(yaml.safe_dump(about))
