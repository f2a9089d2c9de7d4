"""Other programs can read a warehouse that a task has written, with a real MariaDB as its source.

Here, pyiceberg's own catalog reads the tables, without any code of PiDTS.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import loaded_programs

from pidts.forked import ForkedProcess
from pidts.sandbox import Server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from sqlalchemy.exc import OperationalError

RunSql = Callable[..., Any]
SECONDS = 150


class WarehouseTask:
    """A database of the source, a task and its warehouse."""

    def __init__(self, server: Server, folder: Path, run_sql: RunSql) -> None:
        self.server, self.folder, self._run_sql = server, folder, run_sql
        self.database = f"lake_{uuid.uuid4().hex[:8]}"
        self.sql(f"CREATE DATABASE {self.database}", database=None)
        self.file = folder / "task.yaml"
        password = folder / "password"
        password.write_text(server.password)
        password.chmod(0o600)
        self.file.write_text(
            f"""\
name: to-the-lake
task-mode: all
target-database: {{type: iceberg, warehouse: warehouse}}
mysql-instances:
  - source-id: shop
    from: {{host: {server.host}, port: {server.port}, user: {server.user}, password-file: password}}
    block-allow-list: ours
block-allow-list: {{ours: {{do-dbs: [{self.database}]}}}}
"""
        )

    def sql(self, statement: str, *values: object, database: str | None = "") -> Any:
        """Runs a statement on the source."""
        return self._run_sql(self.server, statement, *values, database=self.database if database == "" else database)

    def start(self, *more: str) -> ForkedProcess:
        """Starts a run."""
        with (self.folder / "log").open("ab") as log:
            return loaded_programs().start(["run", str(self.file), "--json", *more], log, log)

    def run(self) -> None:
        """Runs the task until the target has all rows of the source."""
        done = self.start("--until-synced").wait(SECONDS)
        assert done == 0, (self.folder / "log").read_text()[-3000:]

    def verified(self) -> dict[str, Any]:
        """Returns the output of `pidts verify`."""
        done = self.pidts("verify", "--json")
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def pidts(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Runs another command on the task file."""
        return loaded_programs().text([*command.split(), str(self.file), *more], SECONDS)

    def there(self, table: str, order: str = "id") -> list[dict[str, Any]]:
        """Returns the rows of a table, as any reader of Iceberg sees them."""
        from pyiceberg.catalog.sql import SqlCatalog

        place = self.folder / "warehouse"
        catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
        try:
            rows = catalog.load_table((self.database, table)).scan().to_arrow()
        finally:
            catalog.engine.dispose()
        return rows.sort_by(order).to_pylist()  # type: ignore[no-any-return]

    def has(self, table: str, number: int) -> bool:
        """Returns whether a reader sees this row; the run may not have created the table yet."""
        from pyiceberg.exceptions import NoSuchTableError

        if not (self.folder / "warehouse" / "catalog.db").exists():
            return False
        try:
            return any(row["id"] == number for row in self.there(table))
        except (NoSuchTableError, OperationalError):
            return False

    def here(self, table: str) -> list[tuple[Any, ...]]:
        """Returns the rows of the source."""
        return list(self.sql(f"SELECT * FROM {table} ORDER BY id"))


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql) -> Iterator[WarehouseTask]:
    made = WarehouseTask(mariadb, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def equal(task: WarehouseTask, table: str) -> bool:
    return [tuple(row.values()) for row in task.there(table)] == task.here(table)


def test_the_copy_the_log_and_schema_changes_arrive_and_others_read_them(task: WarehouseTask) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, buyer VARCHAR(40), price DECIMAL(12,2), n INT)")
    task.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    for first in range(0, 3000, 1000):
        task.sql(
            "INSERT INTO orders (buyer, price, n) VALUES "
            + ", ".join(f"('buyer {number}', {number}.25, {number % 7})" for number in range(first, first + 1000))
        )
    task.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    task.run()
    assert equal(task, "orders")
    assert equal(task, "keyless")
    task.sql("UPDATE orders SET price = price + 1 WHERE id % 3 = 0")
    task.sql("DELETE FROM orders WHERE id % 10 = 1")
    task.sql("DELETE FROM keyless WHERE v = 'a' LIMIT 1")
    task.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none', MODIFY n BIGINT")
    task.sql("INSERT INTO orders (buyer, price, n, note) VALUES ('late', 1, 5000000000, 'x')")
    task.sql("ALTER TABLE orders RENAME COLUMN buyer TO customer, DROP COLUMN price")
    task.sql("CREATE TABLE more (id INT PRIMARY KEY, t TIME(3), d DATETIME(6), b BIT(5), u BIGINT UNSIGNED)")
    task.sql("INSERT INTO more VALUES (1, '-12:30:00.5', '2026-01-02 03:04:05.000006', b'101', 18446744073709551615)")
    task.run()
    assert equal(task, "orders")
    assert equal(task, "keyless")
    (more,) = task.there("more")
    assert (more["t"], more["b"], int(more["u"])) == ("-12:30:00.500000", 5, 2**64 - 1)
    report = task.verified()
    assert report["equal"], report


def test_a_copy_without_spark_makes_few_snapshots(task: WarehouseTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy into a warehouse starts Spark only for more rows than a copy into a server."""
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.setenv("JAVA_HOME", str(task.folder / "no-java"))
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t SELECT seq, seq FROM seq_1_to_150000")
    task.run()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{task.folder}/warehouse/catalog.db")
    table = catalog.load_table((task.database, "t"))
    catalog.engine.dispose()
    assert len(table.scan().to_arrow()) == 150_000
    assert len(table.metadata.snapshots) <= 16  # A slow machine reads fewer rows at once, but at least 10,000.


def test_a_run_that_is_killed_while_it_commits_ends_with_the_source_s_rows(task: WarehouseTask) -> None:
    """Each run has committed something before it is killed at any point of a later commit."""
    chance = random.Random(os.environ.get("PIDTS_SEED", "1"))
    task.sql("CREATE TABLE accounts (id INT PRIMARY KEY, v INT NOT NULL)")
    task.sql("INSERT INTO accounts VALUES " + ", ".join(f"({number}, 0)" for number in range(500)))
    for attempt in range(3):
        task.sql(f"REPLACE INTO accounts VALUES ({1000 + attempt}, {attempt})")
        run = task.start()
        until = time.monotonic() + SECONDS
        while not task.has("accounts", 1000 + attempt):
            assert run.poll() is None, (task.folder / "log").read_text()[-3000:]
            assert time.monotonic() < until
            time.sleep(0.1)
        until = time.monotonic() + chance.uniform(0.1, 1.5)
        while time.monotonic() < until:
            task.sql(f"UPDATE accounts SET v = v + 1 WHERE id % 5 = {attempt}")
        os.kill(run.pid, signal.SIGKILL)
        assert run.wait(30) == -signal.SIGKILL
    task.run()
    assert equal(task, "accounts")
    assert task.verified()["equal"]


def test_a_lost_data_file_halts_and_a_new_copy_repairs_it(task: WarehouseTask) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    task.run()
    for lost in (task.folder / "warehouse").rglob("data/*.parquet"):
        lost.unlink()
    task.sql("UPDATE t SET v = 3 WHERE id = 1")
    assert task.start("--until-synced").wait(SECONDS) == 5
    log = (task.folder / "log").read_text()
    assert "target-damaged" in log
    assert str(lost) in log
    done = task.pidts("status")
    assert done.returncode == 5
    assert f"[target-damaged] a file of the warehouse is missing ({lost})" in done.stdout
    assert "do         Restore the file" in done.stdout
    assert "nothing is halted" not in done.stdout
    found = json.loads(task.pidts("status", "--json").stdout)
    assert (found["ended"]["code"], found["needs_operator"]) == ("target-damaged", True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{task.folder}/warehouse/catalog.db")
    catalog.drop_table((task.database, "t"))
    catalog.engine.dispose()
    assert task.start("--until-synced", "--resync").wait(SECONDS) == 0, (task.folder / "log").read_text()[-3000:]
    assert equal(task, "t")
    done = task.pidts("status")
    assert (done.returncode, "[target-damaged]" in done.stdout) == (0, False)


def test_only_a_run_makes_a_warehouse(task: WarehouseTask) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    place = task.folder / "warehouse"
    check = task.pidts("check")
    assert check.returncode == 0, check.stderr
    assert f"there is no warehouse at {place} yet" in check.stdout
    for command in ("status", "verify"):
        done = task.pidts(command)
        assert done.returncode == 5
        assert "no-warehouse" in done.stderr
    assert not place.exists()
    task.run()
    assert place.exists()
    task.file.write_text(task.file.read_text().replace("warehouse: warehouse", "warehouse: password"))
    check = task.pidts("check")
    assert check.returncode != 0
    assert f"{task.folder}/password is not a directory" in check.stdout
