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
from tests.lake.test_warehouse import SECONDS, RunSql, WarehouseTask, equal
from tests.object_store import ObjectStore, object_store
from tests.running import PIDTS

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
def world(mariadb: Server, tmp_path: Path, run_sql: RunSql, object_store: ObjectStore) -> Iterator[StoreTask]:
    made = StoreTask(mariadb, tmp_path, run_sql)
    made.store, made.files = object_store, f"{object_store.bucket()}/w"
    made.file.write_text(
        made.file.read_text().replace("warehouse: warehouse}", f"warehouse: warehouse, files: {made.files}}}")
    )
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def objects(world: StoreTask) -> set[str]:
    """Returns the names of all objects."""
    root = world.files.removeprefix("s3://")
    store = files.IO.fs_by_scheme("s3", root.partition("/")[0])
    found = store.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    return {each.path for each in found if each.type == pafs.FileType.File}


def test_the_copy_the_log_and_schema_changes_arrive(world: StoreTask) -> None:
    world.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), price DECIMAL(12,2))")
    world.sql("INSERT INTO orders SELECT seq, CONCAT('v', seq), seq / 4 FROM seq_1_to_5000")
    world.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    world.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    checked = world.pidts("check")
    assert checked.returncode == 0, checked.stdout[-2000:]
    assert not objects(world), "a check has left an object"
    world.run()
    assert equal(world, "orders")
    world.sql("UPDATE orders SET price = price + 1 WHERE id % 3 = 0")
    world.sql("DELETE FROM orders WHERE id % 7 = 0")
    world.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT 'none'")
    world.sql("INSERT INTO orders (v, price, note) VALUES ('last', 1, 'new')")
    world.sql("DELETE FROM keyless WHERE id = 1 LIMIT 1")
    world.run()
    assert equal(world, "orders")
    assert equal(world, "keyless")
    report = world.verified()
    assert report["equal"], report
    there = [each for each in (world.folder / "warehouse").rglob("*") if each.suffix in (".parquet", ".avro", ".json")]
    assert not there, "files of tables are in the directory"


def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(world: StoreTask) -> None:
    world.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    world.sql("INSERT INTO t (v) SELECT seq FROM seq_1_to_2000")
    for round_ in range(4):
        run = world.start()
        until = time.monotonic() + 2 + round_
        while time.monotonic() < until or not world.has("t", 1):
            world.sql("INSERT INTO t (v) VALUES (1), (2), (3)")
            world.sql("UPDATE t SET v = v + 1 WHERE id % 10 = 1")
            world.sql("DELETE FROM t WHERE id % 50 = 7 ORDER BY id LIMIT 1")
            time.sleep(0.05)
        run.send_signal(signal.SIGKILL)
        run.wait()
    world.run()
    assert equal(world, "t")


def test_a_run_continues_when_the_store_answers_again(world: StoreTask) -> None:
    world.sql("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    world.sql("INSERT INTO t (v) VALUES (1)")
    world.run()
    run = world.start()
    try:
        world.store.silence()
        for _ in range(10):
            world.sql("INSERT INTO t (v) SELECT v FROM t LIMIT 100")
            world.sql("UPDATE t SET v = v + 1")
            time.sleep(1)
        assert run.poll() is None
    finally:
        world.store.wake()
    until = time.monotonic() + SECONDS
    while not equal(world, "t"):
        assert time.monotonic() < until
        assert run.poll() is None
        time.sleep(0.5)
    run.send_signal(signal.SIGTERM)
    assert run.wait(SECONDS) == 0


def test_a_missing_object_halts_and_is_named(world: StoreTask) -> None:
    world.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    world.sql("INSERT INTO t VALUES (1, 1)")
    world.run()
    (data,) = (each for each in objects(world) if each.endswith(".parquet"))
    files.remove(f"s3://{data}")
    world.sql("UPDATE t SET v = 2")
    assert world.start("--until-synced").wait(SECONDS) != 0
    said = (world.folder / "log").read_text()
    assert "target-damaged" in said
    assert f"s3://{data}" in said
    assert "AWS_ENDPOINT_URL" in said


def test_unneeded_files_are_swept(world: StoreTask, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    world.sql("INSERT INTO t VALUES (1, 1)")
    world.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    world.sql("INSERT INTO gone VALUES (1)")
    world.run()
    world.sql("DROP TABLE gone")
    world.run()
    place = world.folder / "warehouse"
    with closing(sqlite3.connect(place / "catalog.db")) as catalog:
        ((location,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    folder = location.rpartition("/metadata/")[0]
    orphan = f"{folder}/data/00000001-{'0' * 32}.parquet"
    files.write_bytes(orphan, b"of a run that was killed")
    before = objects(world)
    now = [time.time()]
    monkeypatch.setattr("time.time", lambda: now[0])
    with closing(IcebergTarget(str(place), files=world.files).connect()) as session:
        sweep(session)
        assert objects(world) == before
        now[0] += ORPHAN_SECONDS + 10
        assert sweep(session) == 2  # it removes the file without a table, and the folder of the dropped table
    assert {each for each in before if "/gone-" in each}
    assert not {each for each in objects(world) if "/gone-" in each}
    assert not files.exists(orphan)
    assert equal(world, "t")


def test_a_check_finds_a_bucket_that_is_not_there(world: StoreTask) -> None:
    world.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    world.file.write_text(world.file.read_text().replace("/w}", "-of-nobody/w}"))
    checked = world.pidts("check", "--json")
    assert checked.returncode != 0
    assert "cannot be written to" in json.dumps(json.loads(checked.stdout))
