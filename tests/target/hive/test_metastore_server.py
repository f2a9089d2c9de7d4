"""In a real metastore, late calls of a killed publisher do no harm, and names that other programs use are reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.target.conformance.samples import INT, table, text

pytest.importorskip("pyiceberg")

from tests.target.hive import conftest as of_a_run
from tests.target.hive.publishing import ORDERS, TASK, PublishedWarehouse, store_at, warehouse_of_a_test
from tests.target.hive.test_change_tables import NEXT_DAY, columns_of, inserted, logged, seen, waiting

from pidts.model import Op, Transient
from pidts.sandbox import Server
from pidts.spark.metastore import Metastore, MetastoreTable
from pidts.target.iceberg import connection
from pidts.task.checks.hive import image_findings
from pidts.task.config.task_file import load_task

__all__ = ["warehouse_of_a_test"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PUBLISHER = Path(__file__).with_name("killed_publisher.py")
ROOT = Path(__file__).parents[3]
ALTER = "alter_table_with_environmentContext"


@pytest.fixture(name="store", scope="module")
def store_of_a_server(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with store_at(metastore, tmp_path_factory) as found:
        yield found


def killed(warehouse: PublishedWarehouse, address: str, place: str, call: int, when: str) -> int:
    """Runs a process that publishes and is killed; returns the process id of its JVM, if the JVM is frozen."""
    file = warehouse.parts[0].path
    file.write_text(TASK.replace("warehouse: warehouse}", f"warehouse: warehouse, metastore: '{address}'}}"))
    command = [sys.executable, str(PUBLISHER), str(file), place, str(call), when]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    said = file.parent / "said"
    with said.open("w") as output:  # The output is not a pipe: the frozen JVM would keep a pipe open.
        done = subprocess.run(command, stdout=output, stderr=output, env=path, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, said.read_text()[-3000:]
    found = re.search(r"^jvm (\d+)$", said.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def change(warehouse: PublishedWarehouse) -> None:
    """Publishes a row. Then commits rows of two days, one of them with a new column, which wait for a publication."""
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    wide = table(ORDERS, {"id": INT, "v": INT, "note": text()})
    row = {"id": 3, "v": 30, "note": "x"}
    both = [inserted(warehouse, 20, 2), logged(wide, 30, (Op.INSERT, None, row))]
    both.append(logged(wide, 40, (Op.DELETE, row, None), time=NEXT_DAY))
    warehouse.write((2, 20), logged=both)


def look(warehouse: PublishedWarehouse) -> None:
    """Checks that every change exists once, and that each partition has all columns."""
    last = warehouse.write((4, 40), logged=[inserted(warehouse, 50, 4)])
    warehouse.publish()
    assert seen(warehouse, ("pidts_op", "id", "v", "note")) == [
        ("insert", 1, 10, None),
        ("insert", 2, 20, None),
        ("insert", 3, 30, "x"),
        ("delete", 3, 30, "x"),
        ("insert", 4, 40, None),
    ]
    assert waiting(warehouse) == 0
    for day in ("2026-03-04", "2026-03-05"):
        assert columns_of(warehouse, day)[6:] == ["id", "v", "note"]
    assert warehouse.published() == (last, [(1, 10), (2, 20), (4, 40)])


@pytest.mark.parametrize(
    ("place", "call", "when"),
    [
        pytest.param("put", 1, "after", id="the next state is recorded", marks=pytest.mark.long),
        pytest.param(ALTER, 1, "after", id="the table is switched", marks=pytest.mark.long),
        pytest.param("choose", 1, "after", id="files are chosen", marks=pytest.mark.long),
        pytest.param(ALTER, 2, "after", id="the change table has a new column", marks=pytest.mark.long),
        pytest.param("write_visible", 2, "after", id="a file is there", marks=pytest.mark.long),
        pytest.param("add_partitions", 3, "after", id="a partition is there", marks=pytest.mark.long),
        pytest.param("published", 2, "before", id="all is there, and the record does not say so"),
        pytest.param("published", 2, "after", id="the files that waited are there", marks=pytest.mark.long),
    ],
)
def test_a_publisher_that_is_killed_loses_and_doubles_nothing(
    warehouse: PublishedWarehouse, metastore: str, place: str, call: int, when: str
) -> None:
    """In `test_change_tables.py`, one process is interrupted at all of these points."""
    change(warehouse)
    killed(warehouse, metastore, place, call, when)
    look(warehouse)


@pytest.mark.parametrize(
    ("place", "call"),
    [
        pytest.param(ALTER, 1, marks=pytest.mark.long),
        pytest.param(ALTER, 2, marks=pytest.mark.long),
        pytest.param("add_partitions", 3, marks=pytest.mark.long),
    ],
)
def test_no_process_publishes_before_the_last_call_of_a_killed_publisher_has_ended(
    warehouse: PublishedWarehouse, metastore: str, monkeypatch: pytest.MonkeyPatch, place: str, call: int
) -> None:
    change(warehouse)
    jvm = killed(warehouse, metastore, place, call, "sent")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(connection, "LOCK_SECONDS", 0.3)
            with pytest.raises(Transient, match="holds the lock of publish"):
                warehouse.publish()
    finally:
        os.kill(jvm, signal.SIGCONT)
    look(warehouse)


def test_a_late_switch_is_refused(warehouse: PublishedWarehouse) -> None:
    """After another publisher has published, the metastore executes what the killed publisher had requested."""
    warehouse.write((1, 10))
    warehouse.publish()
    before = warehouse.store.table("shop", "orders")
    second = warehouse.write((2, 20))
    warehouse.publish()
    assert before is not None
    with pytest.raises(Transient, match="another program has changed the table"):
        warehouse.store.switch(before, before)
    with pytest.raises(Transient, match="another program has changed the table"):
        warehouse.store.drop(before)
    assert warehouse.published() == (second, [(1, 10), (2, 20)])


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: of_a_run.RunSql, metastore: str) -> Iterator[of_a_run.HiveTask]:
    made = of_a_run.HiveTask(mariadb, tmp_path, run_sql, metastore=metastore)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_a_check_finds_a_name_that_another_program_has_given(task: of_a_run.HiveTask, store: Metastore) -> None:
    task.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    task.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    for name in ("orders_changes", "other"):
        location = f"file:///nowhere/{name}"
        taken = MetastoreTable(
            database=task.database, name=name, location=location, columns=[("id", "int")], properties={}
        )
        store.create(taken, "file:///nowhere")
    checked = task.pidts("check")
    assert checked.returncode != 0
    for name in ("orders_changes", "other"):
        assert f"already has a table {task.database}.{name}, at file:/nowhere/{name}" in checked.stdout
    assert f"{task.database}.orders already" not in checked.stdout


def test_a_check_says_that_rows_before_a_change_may_lack_values(task: of_a_run.HiveTask) -> None:
    config = load_task(task.file)
    assert [one.is_note for one in image_findings(config, "MINIMAL")] == [True]
    assert not list(image_findings(config, "FULL"))
    assert not list(image_findings(replace(config, target=replace(config.target, keeps_changes=False)), "MINIMAL"))
