"""Merged shards, partial row images, version columns and locked rows work on a warehouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.target.iceberg.test_warehouse import WarehouseTask

from pidts.sandbox import Server

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read")
"""pyiceberg, which changes rows here as another program, writes files anew instead of adding deletes."""


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: Callable[..., Any]) -> Iterator[WarehouseTask]:
    made = WarehouseTask(mariadb, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_shards_and_their_schema_changes_meet_in_one_table(task: WarehouseTask) -> None:
    text = task.file.read_text().replace(
        "block-allow-list: ours\n", "block-allow-list: ours\n    route-rules: [all]\n", 1
    )
    task.file.write_text(
        f"{text}shard-mode: pessimistic\n"
        f"routes: {{all: {{schema-pattern: '{task.database}', table-pattern: 'orders_*', "
        f"target-schema: '{task.database}', target-table: orders}}}}\n"
    )
    for number in (1, 2):
        task.sql(f"CREATE TABLE orders_{number} (id INT PRIMARY KEY, v INT)")
        task.sql(f"INSERT INTO orders_{number} VALUES ({number}0, 1), ({number}1, 2)")
    task.run()
    assert [row["id"] for row in task.there("orders")] == [10, 11, 20, 21]
    task.sql("ALTER TABLE orders_1 ADD COLUMN w INT NOT NULL DEFAULT 5")
    task.sql("INSERT INTO orders_1 VALUES (12, 3, 6)")
    task.sql("UPDATE orders_2 SET v = 9 WHERE id = 20")
    task.sql("ALTER TABLE orders_2 ADD COLUMN w INT NOT NULL DEFAULT 5")
    task.sql("INSERT INTO orders_2 VALUES (22, 4, 7)")
    task.sql("DELETE FROM orders_1 WHERE id = 10")
    task.run()
    wanted = sorted([*task.here("orders_1"), *task.here("orders_2")])
    assert [tuple(row.values()) for row in task.there("orders")] == wanted
    report = task.verified()
    assert report["equal"], report


def test_partial_row_images_are_completed_from_the_files(
    task: WarehouseTask, in_one_session: Callable[..., None]
) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20) NOT NULL DEFAULT 'none', c DECIMAL(5,2))")
    task.sql("INSERT INTO t VALUES (1, 1, 'one', 1.5), (2, 2, 'two', 2.5), (3, 3, 'three', NULL)")
    task.run()
    changes = ("UPDATE t SET a = 20 WHERE id = 2", "INSERT INTO t (id) VALUES (4)", "UPDATE t SET id = 30 WHERE id = 3")
    minimal = ("SET SESSION binlog_row_image = 'MINIMAL'", *changes, "DELETE FROM t WHERE id = 1")
    in_one_session(task.server, task.database, *minimal)
    task.run()
    assert [tuple(row.values()) for row in task.there("t")] == task.here("t")
    assert task.verified()["equal"]


@pytest.mark.long
def test_a_version_column_leaves_newer_rows_alone(task: WarehouseTask) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    task.file.write_text(task.file.read_text() + "pidts: {version-column: v}\n")
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL, a INT)")
    task.sql("INSERT INTO t VALUES (1, 1, 1), (2, 1, 1), (3, 1, 1)")
    task.run()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{task.folder}/warehouse/catalog.db")
    table = catalog.load_table((task.database, "t"))
    rows = table.scan().to_arrow().to_pylist()
    newer = [{**row, "v": 9} if row["id"] == 1 else row for row in rows]
    table.overwrite(pa.Table.from_pylist(newer, schema=table.schema().as_arrow()))
    catalog.engine.dispose()
    task.sql("UPDATE t SET v = v + 1, a = 7")
    task.sql("DELETE FROM t WHERE id = 3")
    task.run()
    assert [tuple(row.values()) for row in task.there("t")] == [(1, 9, 1), (2, 2, 7)]


@pytest.mark.long
def test_a_row_that_differs_is_locked_and_kept(task: WarehouseTask) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    task.file.write_text(task.file.read_text() + "pidts: {on-divergence: lock}\n")
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    task.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    task.run()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{task.folder}/warehouse/catalog.db")
    catalog.load_table((task.database, "t")).delete("id = 2")
    catalog.engine.dispose()
    task.sql("UPDATE t SET a = a + 10")
    task.run()
    assert [tuple(row.values()) for row in task.there("t")] == [(1, 11), (3, 13)]
    (lock,) = json.loads(task.pidts("locks list", "--json").stdout)["locks"]
    done = task.pidts("locks resolve", lock["id"], "--take", "source", "--yes")
    assert done.returncode == 0, done.stderr
    task.run()
    assert [tuple(row.values()) for row in task.there("t")] == task.here("t")
