"""A task from a real MariaDB writes a warehouse, and publishes it to the catalog of a real PostgreSQL."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.target.iceberg.test_warehouse import WarehouseTask

from pidts import sandbox
from pidts.sandbox import Server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

SECONDS = 90


class PublishedTask(WarehouseTask):
    """The task, whose tables are read through the server's catalog."""

    def __init__(self, server: Server, to: Server, database: str, folder: Path, run_sql: Callable[..., Any]) -> None:
        super().__init__(server, folder, run_sql)
        (folder / "to-password").write_text(to.password)
        (folder / "to-password").chmod(0o600)
        login = f"host: {to.host}, port: {to.port}, user: {to.user}, password-file: to-password, database: {database}"
        self.file.write_text(
            self.file.read_text().replace("warehouse: warehouse", f"warehouse: warehouse, publish-to: {{{login}}}")
        )
        self.uri = f"postgresql+psycopg://{to.user}:{to.password}@{to.host}:{to.port}/{database}"

    def there(self, table: str, order: str = "id") -> list[dict[str, Any]]:
        catalog = SqlCatalog("lake", uri=self.uri)
        try:
            return catalog.load_table((self.database, table)).scan().to_arrow().sort_by(order).to_pylist()
        finally:
            catalog.engine.dispose()

    def demand_equal(self, table: str) -> None:
        """Checks that the server's catalog has the source's columns and rows, in this order."""
        names = [name for name, *_ in self.sql(f"SHOW COLUMNS FROM {table}")]
        found = self.there(table)
        assert all(list(row) == names for row in found)
        assert [tuple(row.values()) for row in found] == self.here(table)

    def until(self, is_true: Callable[[], bool]) -> None:
        """Waits until the condition is true."""
        end = time.monotonic() + SECONDS
        while not is_true():
            assert time.monotonic() < end, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.3)

    def status(self) -> dict[str, Any]:
        done = self.pidts("status", "--json")
        return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def task(
    mariadb: Server, postgres: Server, database: str, tmp_path: Path, run_sql: Callable[..., Any]
) -> Iterator[PublishedTask]:
    made = PublishedTask(mariadb, postgres, database, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_rows_and_schema_changes_arrive_in_the_servers_catalog(task: PublishedTask) -> None:
    for name in ("t", "u", "w"):
        task.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20))")
        task.sql(f"INSERT INTO {name} VALUES (1, 1, 'one'), (2, 2, 'two')")
    checked = task.pidts("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "published to postgresql" in checked.stdout
    task.run()
    for name in ("t", "u", "w"):
        task.demand_equal(name)
    for statement in (
        "UPDATE t SET a = 5 WHERE id = 1",
        "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7",
        "INSERT INTO t VALUES (3, 3, 'three', 8)",
        "ALTER TABLE t RENAME COLUMN a TO aa, DROP COLUMN b",
        "DELETE FROM t WHERE id = 2",
        "DROP TABLE u",
        "RENAME TABLE w TO v, t TO w",
        "INSERT INTO v VALUES (4, 4, 'four')",
    ):
        task.sql(statement)
    task.run()
    task.demand_equal("v")
    task.demand_equal("w")
    for name in ("t", "u"):
        with pytest.raises(NoSuchTableError):
            task.there(name)
    found = task.status()["server_catalog"]
    assert found["place"].startswith("postgresql ")
    assert (found["tables"], found["behind"], found["lag_seconds"], found["problems"]) == (2, 0, 0, [])
    assert "published in" in task.pidts("status").stdout


@pytest.mark.long
def test_a_run_that_is_killed_leaves_a_servers_catalog_that_can_be_read_and_is_completed(task: PublishedTask) -> None:
    """Two tables change in the same transactions. The process is killed at any point of commits and publications."""
    chance = random.Random(os.environ.get("PIDTS_SEED", "1"))
    for name in ("t", "u"):
        task.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL)")
        task.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({number}, 0)" for number in range(100)))
    task.run()
    for attempt in range(4):
        run = task.start()
        task.sql(f"REPLACE INTO t VALUES ({1000 + attempt}, {attempt})")
        task.until(lambda number=1000 + attempt: _shows(task, number))
        end = time.monotonic() + chance.uniform(0.1, 2.5)
        while time.monotonic() < end:
            task.sql("UPDATE t JOIN u USING (id) SET t.v = t.v + 1, u.v = u.v + 1")
        os.kill(run.pid, signal.SIGKILL)
        assert run.wait(30) == -signal.SIGKILL
        shown = {name: {row["v"] for row in task.there(name) if row["id"] < 1000} for name in ("t", "u")}
        assert all(len(values) == 1 for values in shown.values()), shown
    task.run()
    task.demand_equal("t")
    task.demand_equal("u")
    assert task.status()["server_catalog"]["behind"] == 0


@pytest.mark.long
def test_the_task_continues_while_the_server_is_down_and_then_catches_up(
    mariadb: Server, tmp_path: Path, run_sql: Callable[..., Any]
) -> None:
    with sandbox.start_postgres() as to:
        task = PublishedTask(mariadb, to, "postgres", tmp_path, run_sql)
        task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        task.sql("INSERT INTO t VALUES (1, 1)")
        run = task.start()
        try:
            task.until(lambda: task.has("t", 1))
            task.until(lambda: _shows(task, 1))
            to.kill()
            task.sql("INSERT INTO t VALUES (2, 2)")
            task.until(lambda: task.status()["server_catalog"]["behind"] == 1)
            time.sleep(3)
            assert task.status()["server_catalog"]["lag_seconds"] >= 2
            assert "behind" in task.pidts("status").stdout
            task.sql("INSERT INTO t VALUES (3, 3)")
            to.start()
            task.until(lambda: _shows(task, 3))
            task.demand_equal("t")
            task.until(lambda: task.status()["server_catalog"]["behind"] == 0)
        finally:
            run.terminate()
            run.wait(SECONDS)
        task.sql(f"DROP DATABASE {task.database}", database=None)


def _shows(task: PublishedTask, number: int) -> bool:
    try:
        return any(row["id"] == number for row in task.there("t"))
    except NoSuchTableError:
        return False
