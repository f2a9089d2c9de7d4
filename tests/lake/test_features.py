"""Merged shards, partial row images, version columns and locked rows work on a warehouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lake.test_warehouse import WarehouseTask

from pidts.sandbox import Server

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read")
"""pyiceberg, which changes rows here as another program, writes files anew instead of adding deletes."""


@pytest.fixture
def world(mariadb: Server, tmp_path: Path, run_sql: Callable[..., Any]) -> Iterator[WarehouseTask]:
    made = WarehouseTask(mariadb, tmp_path, run_sql)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_shards_and_their_schema_changes_meet_in_one_table(world: WarehouseTask) -> None:
    text = world.file.read_text().replace(
        "block-allow-list: ours\n", "block-allow-list: ours\n    route-rules: [all]\n", 1
    )
    world.file.write_text(
        f"{text}shard-mode: pessimistic\n"
        f"routes: {{all: {{schema-pattern: '{world.database}', table-pattern: 'orders_*', "
        f"target-schema: '{world.database}', target-table: orders}}}}\n"
    )
    for number in (1, 2):
        world.sql(f"CREATE TABLE orders_{number} (id INT PRIMARY KEY, v INT)")
        world.sql(f"INSERT INTO orders_{number} VALUES ({number}0, 1), ({number}1, 2)")
    world.run()
    assert [row["id"] for row in world.there("orders")] == [10, 11, 20, 21]
    world.sql("ALTER TABLE orders_1 ADD COLUMN w INT NOT NULL DEFAULT 5")
    world.sql("INSERT INTO orders_1 VALUES (12, 3, 6)")
    world.sql("UPDATE orders_2 SET v = 9 WHERE id = 20")
    world.sql("ALTER TABLE orders_2 ADD COLUMN w INT NOT NULL DEFAULT 5")
    world.sql("INSERT INTO orders_2 VALUES (22, 4, 7)")
    world.sql("DELETE FROM orders_1 WHERE id = 10")
    world.run()
    wanted = sorted([*world.here("orders_1"), *world.here("orders_2")])
    assert [tuple(row.values()) for row in world.there("orders")] == wanted
    report = world.verified()
    assert report["equal"], report


def test_partial_row_images_are_completed_from_the_files(
    world: WarehouseTask, in_one_session: Callable[..., None]
) -> None:
    world.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20) NOT NULL DEFAULT 'none', c DECIMAL(5,2))")
    world.sql("INSERT INTO t VALUES (1, 1, 'one', 1.5), (2, 2, 'two', 2.5), (3, 3, 'three', NULL)")
    world.run()
    changes = ("UPDATE t SET a = 20 WHERE id = 2", "INSERT INTO t (id) VALUES (4)", "UPDATE t SET id = 30 WHERE id = 3")
    minimal = ("SET SESSION binlog_row_image = 'MINIMAL'", *changes, "DELETE FROM t WHERE id = 1")
    in_one_session(world.server, world.database, *minimal)
    world.run()
    assert [tuple(row.values()) for row in world.there("t")] == world.here("t")
    assert world.verified()["equal"]


@pytest.mark.long
def test_a_version_column_leaves_newer_rows_alone(world: WarehouseTask) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    world.file.write_text(world.file.read_text() + "pidts: {version-column: v}\n")
    world.sql("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL, a INT)")
    world.sql("INSERT INTO t VALUES (1, 1, 1), (2, 1, 1), (3, 1, 1)")
    world.run()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{world.folder}/warehouse/catalog.db")
    table = catalog.load_table((world.database, "t"))
    rows = table.scan().to_arrow().to_pylist()
    newer = [{**row, "v": 9} if row["id"] == 1 else row for row in rows]
    table.overwrite(pa.Table.from_pylist(newer, schema=table.schema().as_arrow()))
    catalog.engine.dispose()
    world.sql("UPDATE t SET v = v + 1, a = 7")
    world.sql("DELETE FROM t WHERE id = 3")
    world.run()
    assert [tuple(row.values()) for row in world.there("t")] == [(1, 9, 1), (2, 2, 7)]


@pytest.mark.long
def test_a_row_that_differs_is_locked_and_kept(world: WarehouseTask) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    world.file.write_text(world.file.read_text() + "pidts: {on-divergence: lock}\n")
    world.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    world.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    world.run()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{world.folder}/warehouse/catalog.db")
    catalog.load_table((world.database, "t")).delete("id = 2")
    catalog.engine.dispose()
    world.sql("UPDATE t SET a = a + 10")
    world.run()
    assert [tuple(row.values()) for row in world.there("t")] == [(1, 11), (3, 13)]
    (lock,) = json.loads(world.pidts("locks list", "--json").stdout)["locks"]
    done = world.pidts("locks resolve", lock["id"], "--take", "source", "--yes")
    assert done.returncode == 0, done.stderr
    world.run()
    assert [tuple(row.values()) for row in world.there("t")] == world.here("t")
