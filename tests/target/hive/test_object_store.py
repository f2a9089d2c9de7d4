"""A task from a real MariaDB publishes its tables in an object store, where a reader finds them through a metastore."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.object_store import ObjectStore
from tests.running import PIDTS
from tests.target.hive.conftest import SECONDS, HiveTask, RunSql
from tests.target.hive.metastore_server import BUCKET

pytest.importorskip("pyiceberg")

from pidts.sandbox import Server
from pidts.spark.metastore import Metastore
from pidts.spark.metastore import metastore as connected
from pidts.target.hive.places import folder_of, inner_folders
from pidts.target.iceberg.files import IO, files_in

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


class StoreTask(HiveTask):
    """A warehouse whose tables are in an object store. New processes find the store by their environment."""

    files: str

    def start(self, *more: str) -> Any:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*PIDTS, "run", str(self.file), "--json", *more], stdout=log, stderr=log)

    def run(self) -> None:
        assert self.start("--until-synced").wait(SECONDS) == 0, self.log[-3000:]

    def pidts(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [*PIDTS, *command.split(), str(self.file), *more]
        return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)

    @contextmanager
    def store(self) -> Iterator[Metastore]:
        """Opens another connection to the metastore."""
        with (self.folder / "lock").open("w") as lock, connected(self.metastore, Path(), lock.fileno()) as found:
            yield found

    def published(self, name: str) -> list[tuple[Any, ...]]:
        """Returns the rows of a published table, from the files at the address that the metastore names."""
        with self.store() as store:
            found = store.table(self.database, name)
        assert found is not None
        assert found.location.startswith(f"s3a://{BUCKET}/")
        parts = [pq.read_table(IO.new_input(each).open()) for each in files_in(folder_of(found.location))]
        return [tuple(row.values()) for row in pa.concat_tables(parts).sort_by("id").to_pylist()]

    def here(self, name: str) -> list[tuple[Any, ...]]:
        """Returns the rows of the source."""
        return list(self.sql(f"SELECT * FROM {name} ORDER BY id"))


@pytest.fixture
def task(
    mariadb: Server, tmp_path: Path, run_sql: RunSql, metastore: str, object_store: ObjectStore
) -> Iterator[StoreTask]:
    made = StoreTask(mariadb, tmp_path, run_sql, metastore=metastore, refresh="1s")
    made.files = f"{object_store.bucket(BUCKET)}/{made.database}"
    text = made.file.read_text().replace("warehouse: warehouse", f"warehouse: warehouse, files: '{made.files}'")
    made.file.write_text(text)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_a_copy_changes_and_schema_changes_are_published_in_the_store(task: StoreTask) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), price DECIMAL(12,2))")
    task.sql("INSERT INTO orders SELECT seq, CONCAT('v', seq), seq / 4 FROM seq_1_to_3000")
    checked = task.pidts("check")
    assert checked.returncode == 0, checked.stdout[-2000:]
    task.run()
    assert task.published("orders") == task.here("orders")
    task.sql("UPDATE orders SET price = price + 1 WHERE id % 3 = 0")
    task.sql("DELETE FROM orders WHERE id % 7 = 0")
    task.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT 'none', RENAME COLUMN v TO name")
    task.sql("INSERT INTO orders (name, price, note) VALUES ('last', 1, 'new')")
    task.run()
    assert task.published("orders") == task.here("orders")
    with task.store() as store:
        days = store.partitions(task.database, "orders_changes")
        changes = store.table(task.database, "orders_changes")
        assert changes is not None
    files = [each for day in days for each in files_in(f"{folder_of(changes.location)}/pidts_day={day}")]
    ops = [op for each in files for op in pq.read_table(IO.new_input(each).open())["pidts_op"].to_pylist()]
    assert (ops.count("delete"), ops.count("insert"), ops.count("update_to")) == (428, 1, 1000)
    assert not list((task.folder / "warehouse").rglob("*.parquet")), "files of tables are in the directory"


def test_a_run_that_is_killed_again_and_again_publishes_whole_states(task: StoreTask) -> None:
    task.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT)")
    task.sql("INSERT INTO t (a, b) SELECT 0, 0 FROM seq_1_to_500")
    task.run()
    for round_ in range(4):
        run = task.start()
        until = time.monotonic() + 12 + 3 * round_
        while time.monotonic() < until:
            # Both columns change in one transaction, so between two transactions they have equal numbers.
            task.sql("UPDATE t SET a = a + 1, b = b + 1")
            time.sleep(0.2)
        run.send_signal(signal.SIGKILL)
        run.wait()
        rows = task.published("t")
        assert len(rows) == 500
        assert len({row[1:] for row in rows}) == 1
        assert all(a == b for _, a, b in rows)
    task.run()
    assert task.published("t") == task.here("t")
    assert inner_folders(f"{task.files}/hive-tables", 4)
