"""A task from a real MariaDB writes a warehouse whose files are in an object store, and pyiceberg reads the warehouse."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from tests.object_store import ObjectStore, object_store
from tests.running import PIDTS
from tests.target.iceberg.test_warehouse import SECONDS, RunSql, WarehouseTask, equal

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from pyiceberg.catalog.sql import SqlCatalog

from pidts.sandbox import Server
from pidts.target import IcebergTarget
from pidts.target.iceberg import files
from pidts.target.iceberg.sweep import ORPHAN_SECONDS, sweep

__all__ = ["object_store"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class StoreTask(WarehouseTask):
    """A warehouse whose files are in an object store. New processes find the store by their environment."""

    store: ObjectStore
    files: str

    def start(self, *more: str) -> Any:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*PIDTS, "run", str(self.file), "--json", *more], stdout=log, stderr=log)

    def pidts(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [*PIDTS, *command.split(), str(self.file), *more]
        return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)

    def there(self, table: str, order: str = "id") -> list[dict[str, Any]]:
        """Returns the rows of a table, as a reader of Iceberg that has the store's address sees them."""
        place, variables = self.folder / "warehouse", self.store.environment
        where = {"s3.endpoint": variables["AWS_ENDPOINT_URL"], "s3.region": variables["AWS_REGION"]}
        catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}", **where)
        try:
            rows = catalog.load_table((self.database, table)).scan().to_arrow()
        finally:
            catalog.engine.dispose()
        return rows.sort_by(order).to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql, object_store: ObjectStore) -> Iterator[StoreTask]:
    made = StoreTask(mariadb, tmp_path, run_sql)
    made.store, made.files = object_store, f"{object_store.bucket()}/w"
    made.file.write_text(
        made.file.read_text().replace("warehouse: warehouse}", f"warehouse: warehouse, files: {made.files}}}")
    )
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def objects(task: StoreTask) -> set[str]:
    """Returns the names of all objects."""
    root = task.files.removeprefix("s3://")
    store = files.IO.fs_by_scheme("s3", root.partition("/")[0])
    found = store.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    return {each.path for each in found if each.type == pafs.FileType.File}


def test_the_copy_the_log_and_schema_changes_arrive(task: StoreTask) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), price DECIMAL(12,2))")
    task.sql("INSERT INTO orders SELECT seq, CONCAT('v', seq), seq / 4 FROM seq_1_to_5000")
    task.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    task.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    checked = task.pidts("check")
    assert checked.returncode == 0, checked.stdout[-2000:]
    assert not objects(task), "a check has left an object"
    task.run()
    assert equal(task, "orders")
    task.sql("UPDATE orders SET price = price + 1 WHERE id % 3 = 0")
    task.sql("DELETE FROM orders WHERE id % 7 = 0")
    task.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT 'none'")
    task.sql("INSERT INTO orders (v, price, note) VALUES ('last', 1, 'new')")
    task.sql("DELETE FROM keyless WHERE id = 1 LIMIT 1")
    task.run()
    assert equal(task, "orders")
    assert equal(task, "keyless")
    report = task.verified()
    assert report["equal"], report
    there = [each for each in (task.folder / "warehouse").rglob("*") if each.suffix in (".parquet", ".avro", ".json")]
    assert not there, "files of tables are in the directory"


def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(task: StoreTask) -> None:
    task.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t (v) SELECT seq FROM seq_1_to_2000")
    for round_ in range(4):
        run = task.start()
        until = time.monotonic() + 2 + round_
        while time.monotonic() < until or not task.has("t", 1):
            task.sql("INSERT INTO t (v) VALUES (1), (2), (3)")
            task.sql("UPDATE t SET v = v + 1 WHERE id % 10 = 1")
            task.sql("DELETE FROM t WHERE id % 50 = 7 ORDER BY id LIMIT 1")
            time.sleep(0.05)
        run.send_signal(signal.SIGKILL)
        run.wait()
    task.run()
    assert equal(task, "t")


def test_a_run_continues_when_the_store_answers_again(task: StoreTask) -> None:
    task.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t (v) VALUES (1)")
    task.run()
    run = task.start()
    try:
        task.store.silence()
        for _ in range(10):
            task.sql("INSERT INTO t (v) SELECT v FROM t LIMIT 100")
            task.sql("UPDATE t SET v = v + 1")
            time.sleep(1)
        assert run.poll() is None
    finally:
        task.store.wake()
    until = time.monotonic() + SECONDS
    while not equal(task, "t"):
        assert time.monotonic() < until
        assert run.poll() is None
        time.sleep(0.5)
    run.send_signal(signal.SIGTERM)
    assert run.wait(SECONDS) == 0


def test_a_missing_object_halts_and_is_named(task: StoreTask) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t VALUES (1, 1)")
    task.run()
    (data,) = (each for each in objects(task) if each.endswith(".parquet"))
    files.remove(f"s3://{data}")
    task.sql("UPDATE t SET v = 2")
    assert task.start("--until-synced").wait(SECONDS) != 0
    said = (task.folder / "log").read_text()
    assert "target-damaged" in said
    assert f"s3://{data}" in said
    assert "AWS_ENDPOINT_URL" in said


def test_unneeded_files_are_swept(task: StoreTask, clock: list[float]) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    task.sql("INSERT INTO t VALUES (1, 1)")
    task.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    task.sql("INSERT INTO gone VALUES (1)")
    task.run()
    task.sql("DROP TABLE gone")
    task.run()
    place = task.folder / "warehouse"
    with closing(sqlite3.connect(place / "catalog.db")) as catalog:
        ((location,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    folder = location.rpartition("/metadata/")[0]
    orphan = f"{folder}/data/00000001-{'0' * 32}.parquet"
    files.write_bytes(orphan, b"of a run that was killed")
    before = objects(task)
    with closing(IcebergTarget(str(place), files=task.files).connect()) as session:
        sweep(session)
        assert objects(task) == before
        clock[0] += ORPHAN_SECONDS + SECONDS
        assert sweep(session) == 2  # it removes the file without a table, and the folder of the dropped table
    assert {each for each in before if "/gone-" in each}
    assert not {each for each in objects(task) if "/gone-" in each}
    assert not files.exists(orphan)
    assert equal(task, "t")


def test_a_check_finds_a_bucket_that_is_not_there(task: StoreTask) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    task.file.write_text(task.file.read_text().replace("/w}", "-of-nobody/w}"))
    checked = task.pidts("check", "--json")
    assert checked.returncode != 0
    assert "cannot be written to" in json.dumps(json.loads(checked.stdout))
