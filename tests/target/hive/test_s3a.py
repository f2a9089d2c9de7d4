"""Hive tables in an object store: metastore and Spark use Hadoop's own file system for S3."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.java_packages import packages
from tests.object_store import ObjectStore, store_server
from tests.running import PIDTS
from tests.target.hive.conftest import SECONDS, HiveTask, RunSql, metastore_server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]


class StoreTask(HiveTask):
    """A task whose files are in an object store, which new processes find by their environment."""

    def start(self, *more: str) -> Any:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*PIDTS, "run", str(self.file), "--json", *more], stdout=log, stderr=log)

    def pidts(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [*PIDTS, *command.split(), str(self.file), *more]
        return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def jars() -> Path:
    return packages(ROOT / "requirements" / "s3a" / "pom.xml", ROOT / ".venv-s3a")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """Starts a store without folders: Hadoop would take the folders of `filesystem-nio2` for files."""
    (tmp_path / "store").mkdir()
    with store_server(tmp_path / "store", "transient") as found:
        yield found


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql, store: ObjectStore, jars: Path) -> Iterator[StoreTask]:
    (tmp_path / "metastore").mkdir()
    with metastore_server(tmp_path / "metastore", str(jars)) as address:
        made = StoreTask(mariadb, tmp_path, run_sql, metastore=address)
        place = f"warehouse: warehouse, files: {store.bucket()}/w"
        made.file.write_text(made.file.read_text().replace("warehouse: warehouse", place))
        yield made
        made.sql(f"DROP DATABASE {made.database}", database=None)


def test_spark_reads_states_and_changes_in_an_object_store(task: StoreTask, store: ObjectStore, jars: Path) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, buyer VARCHAR(40), price DECIMAL(12,2))")
    task.sql("INSERT INTO orders (buyer, price) VALUES ('Ann', 1.25), ('Bob', 2.5), ('Cy', NULL)")
    checked = task.pidts("check")
    assert checked.returncode == 0, checked.stdout[-2000:]
    task.run()
    first = [[1, "Ann", "1.25"], [2, "Bob", "2.50"], [3, "Cy", None]]
    settings = {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.hadoop.fs.s3a.endpoint": store.environment["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.filesourceTableRelationCacheSize": "0",
    }
    rows = f"SELECT id, buyer, CAST(price AS STRING) FROM {task.database}.orders ORDER BY id"
    with task.reader(**settings) as reader:
        assert reader.rows(rows) == first
        task.sql("UPDATE orders SET price = 9 WHERE id = 1")
        task.sql("DELETE FROM orders WHERE id = 2")
        task.sql("ALTER TABLE orders RENAME COLUMN buyer TO customer, ADD COLUMN note VARCHAR(20) DEFAULT 'none'")
        task.sql("INSERT INTO orders (customer, note) VALUES ('Dan', 'new')")
        task.run()
        later = rows.replace("buyer", "customer").replace("AS STRING)", "AS STRING), note")
        for form in ("true", "false"):  # Spark's own reader reads first, then Hive's.
            reader.ask("set", "spark.sql.hive.convertMetastoreParquet", form)
            assert reader.rows(later) == [
                [1, "Ann", "9.00", "none"],
                [3, "Cy", None, "none"],
                [4, "Dan", None, "new"],
            ]
            changes = f"SELECT pidts_op, id, CAST(price AS STRING), note FROM {task.database}.orders_changes"
            assert reader.rows(f"{changes} ORDER BY pidts_lsn, pidts_op") == [
                ["update_from", 1, "1.25", None],
                ["update_to", 1, "9.00", None],
                ["delete", 2, "2.50", None],
                ["insert", 4, None, "new"],
            ]
        task.sql("TRUNCATE TABLE orders")
        task.run()
        for form in ("true", "false"):
            reader.ask("set", "spark.sql.hive.convertMetastoreParquet", form)
            assert reader.rows(later) == []
    for name in ("hive-tables", "hive-changes"):
        there = [each for each in (task.warehouse / name).rglob("*") if each.suffix == ".parquet"]
        assert not there, "published files are in the directory"
