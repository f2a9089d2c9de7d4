"""A check says before the copy which tables a metastore would refuse, and what a change table will lack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hive.conftest import RunSql, World
from tests.hive.publishing import store_at

from pidts.sandbox import Server
from pidts.spark.metastore import MetastoreTable
from pidts.task.checks.hive import image_findings
from pidts.task.config.task_file import load_task

pytest.importorskip("pyiceberg")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def world(mariadb: Server, tmp_path: Path, run_sql: RunSql, metastore: str) -> Iterator[World]:
    made = World(mariadb, tmp_path, run_sql, metastore=metastore)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_a_name_that_another_program_has_given_is_found(
    world: World, metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    world.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    with store_at(metastore, tmp_path_factory) as store:
        for name in ("orders_changes", "other"):
            location = f"file:///nowhere/{name}"
            taken = MetastoreTable(
                database=world.database, name=name, location=location, columns=[("id", "int")], properties={}
            )
            store.create(taken, "file:///nowhere")
    checked = world.pidts("check")
    assert checked.returncode != 0
    for name in ("orders_changes", "other"):
        assert f"has a table {world.database}.{name} already, at file:/nowhere/{name}" in checked.stdout
    assert f"{world.database}.orders already" not in checked.stdout


def test_rows_before_a_change_may_lack_values(world: World) -> None:
    config = load_task(world.file)
    assert [one.is_note for one in image_findings(config, "MINIMAL")] == [True]
    assert not list(image_findings(config, "FULL"))
    assert not list(image_findings(replace(config, target=replace(config.target, keeps_changes=False)), "MINIMAL"))
