"""pyiceberg reads the Iceberg tables of a warehouse through a real Hive metastore alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.samples import INT, change, create, table, text, write

pytest.importorskip("pyiceberg")
pytest.importorskip("thrift")

from pyiceberg.catalog.hive import HiveCatalog as Reader
from pyiceberg.exceptions import NoSuchTableError
from tests.crashes import break_at
from tests.target.iceberg.test_warehouse import WarehouseTask

from pidts.model import Column, TableName, Transient
from pidts.sandbox import Server
from pidts.target import IcebergTarget
from pidts.target.iceberg import hive_catalog
from pidts.target.iceberg.hive_catalog import HiveCatalog
from pidts.target.iceberg.publication import publish
from pidts.target.iceberg.server_catalog import CatalogUpdate
from pidts.target.iceberg.server_record import ServerRecord
from pidts.target.iceberg.session import IcebergSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
A, B = TableName("shop", "a"), TableName("shop", "b")


class WarehouseInMetastore:
    """A warehouse with one table, in a metastore."""

    def __init__(self, folder: Path, address: str) -> None:
        self.target = IcebergTarget(str(folder / "warehouse"))
        self.catalog = HiveCatalog(address)
        self.session: IcebergSession = self.target.connect()
        self.session.meta.prepare()
        self.record = ServerRecord(self.session)
        self.reader = Reader("hive", uri=address)
        self.create(A)

    def create(self, name: TableName) -> None:
        made = table(name, {"id": INT, "v": INT})
        create(self.session, made)

    def write(self, *rows: tuple[int, int], name: TableName = A) -> str:
        write(self.session, change(table(name, {"id": INT, "v": INT}), upserts=rows))
        return str(self.session.tables.location(name))

    def run(self, **step: Any) -> None:
        """Makes a schema change."""
        self.session.execute(json.dumps(step))

    def publish(self, *, whole: bool = False) -> bool:
        with closing(self.target.connect()) as session:
            return publish(session, self.catalog, whole=whole)

    def there(self, name: TableName = A) -> list[dict[str, Any]] | None:
        """Returns the rows that a reader finds; None if it finds no table."""
        try:
            found = self.reader.load_table((name.schema, name.name)).scan().to_arrow()
        except NoSuchTableError:
            return None
        return found.sort_by("id").to_pylist()

    def problem(self, name: TableName = A) -> str:
        return self.record.entries(self.catalog.place)[name].problem


@pytest.fixture
def warehouse(tmp_path: Path, metastore: str) -> Iterator[WarehouseInMetastore]:
    made = WarehouseInMetastore(tmp_path, metastore)
    yield made
    made.session.close()
    for each in made.reader.list_tables("shop"):
        made.reader.drop_table(each)


def test_rows_and_schema_changes_arrive(warehouse: WarehouseInMetastore) -> None:
    warehouse.write((1, 1), (2, 2))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    wider = table(A, {"id": INT, "v": INT})
    wider = replace(wider, columns=(Column("id", INT, nullable=False), Column("name", text()), Column("w", INT)))
    kept = {"id": "id", "w": "v"}
    warehouse.run(alter=wider.to_json(), known=["id", "v"], kept=kept, unfillable=[], executed_at=0)
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "name": None, "w": 1}, {"id": 2, "name": None, "w": 2}]
    warehouse.run(rename=["shop", "a"], to=["shop", "b"])
    warehouse.create(A)
    warehouse.write((7, 7))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 7, "v": 7}]
    assert warehouse.there(B) == [{"id": 1, "name": None, "w": 1}, {"id": 2, "name": None, "w": 2}]
    warehouse.run(drop=["shop", "a"])
    assert warehouse.publish()
    assert warehouse.there() is None
    assert warehouse.reader.list_tables("shop") == [("shop", "b")]
    warehouse.run(rename=["shop", "b"], to=["other", "c"])
    assert warehouse.publish()
    assert warehouse.publish(whole=True)
    assert warehouse.there(TableName("other", "c")) == [
        {"id": 1, "name": None, "w": 1},
        {"id": 2, "name": None, "w": 2},
    ]
    assert warehouse.there(B) is None
    warehouse.run(drop=["other", "c"])
    assert warehouse.publish()
    assert warehouse.record.entries(warehouse.catalog.place) == {}


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (ServerRecord, "put", 1, True),
        (hive_catalog, "_alter", 1, False),
        (hive_catalog, "_alter", 1, True),
        (hive_catalog, "_create", 1, True),
        (hive_catalog, "_alter", 2, True),
        (hive_catalog, "_drop_aside", 1, True),
        (ServerRecord, "moved", 1, True),
    ],
)
def test_a_broken_publication_is_completed_by_the_next_one(
    warehouse: WarehouseInMetastore, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    """One table has new rows, one table is new, and one is dropped."""
    c = TableName("shop", "c")
    warehouse.create(B)
    warehouse.write((1, 1))
    assert warehouse.publish()
    warehouse.write((1, 2))
    warehouse.run(drop=["shop", "b"])
    warehouse.create(c)
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    assert warehouse.there() in ([{"id": 1, "v": 1}], [{"id": 1, "v": 2}])
    warehouse.write((1, 3))
    assert warehouse.publish()
    assert (warehouse.there(), warehouse.there(B), warehouse.there(c)) == ([{"id": 1, "v": 3}], None, [])
    assert sorted(warehouse.reader.list_tables("shop")) == [("shop", "a"), ("shop", "c")], "no other name is left"
    assert not any(one.next for one in warehouse.record.entries(warehouse.catalog.place).values())


def test_a_late_call_of_a_killed_publisher_changes_nothing(warehouse: WarehouseInMetastore) -> None:
    first = warehouse.write((1, 1))
    assert warehouse.publish()
    second = warehouse.write((1, 2))
    assert warehouse.publish()
    warehouse.write((1, 3))
    assert warehouse.publish()
    with warehouse.catalog._client() as client:
        old = hive_catalog._table(client, "shop", "a")
        with pytest.raises(hive_catalog.MetaException):
            hive_catalog._alter(client, CatalogUpdate(A, second, first), old, first)
        old.parameters["metadata_location"] = first
        with pytest.raises(hive_catalog.MetaException):
            hive_catalog._remove(client, old, CatalogUpdate(A, None, first))
    assert warehouse.there() == [{"id": 1, "v": 3}]


def test_a_table_that_another_program_has_changed_stays(warehouse: WarehouseInMetastore) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    with warehouse.catalog._client() as client:
        found = hive_catalog._table(client, "shop", "a")
        rival = str(warehouse.session.tables.location(A)).replace("metadata.json", "x.metadata.json")
        Path(rival.removeprefix("file://")).write_bytes(
            Path(str(warehouse.session.tables.location(A)).removeprefix("file://")).read_bytes()
        )
        found.parameters["metadata_location"] = rival
        client.alter_table("shop", "a", found)
    warehouse.write((1, 2))
    assert not warehouse.publish()
    assert "another program has changed the table" in warehouse.problem()
    assert warehouse.there() == [{"id": 1, "v": 1}]
    warehouse.reader.drop_table(("shop", "a"))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "v": 2}]


def test_tables_of_others_and_names_that_a_metastore_does_not_know_are_refused_alone(
    warehouse: WarehouseInMetastore,
) -> None:
    big = TableName("shop", "Big")
    warehouse.create(big)
    warehouse.create(B)
    warehouse.reader.create_namespace_if_not_exists("shop")
    warehouse.reader.create_table(
        ("shop", "b"), pa.schema([("x", pa.int32())]), location=f"file://{warehouse.target.warehouse}/x"
    )
    warehouse.write((1, 1))
    assert not warehouse.publish()
    assert "use a route" in warehouse.problem(big)
    assert "does not publish" in warehouse.problem(B)
    assert warehouse.there() == [{"id": 1, "v": 1}]
    assert warehouse.reader.load_table(("shop", "b")).schema().column_names == ["x"]
    warehouse.run(drop=["shop", "Big"])
    warehouse.run(drop=["shop", "b"])
    assert warehouse.publish()
    assert warehouse.record.entries(warehouse.catalog.place).keys() == {A}


def test_a_metastore_that_does_not_answer_leaves_the_record(warehouse: WarehouseInMetastore) -> None:
    warehouse.write((1, 1))
    unknown_transactions = HiveCatalog("thrift://127.0.0.1:1")
    with closing(warehouse.target.connect()) as session, pytest.raises(Transient, match="no metastore answers"):
        publish(session, unknown_transactions)
    assert len(warehouse.record.entries(unknown_transactions.place)) == 1
    warehouse.catalog.check()


def test_a_task_publishes_to_a_metastore(
    mariadb: Server, metastore: str, tmp_path: Path, run_sql: Callable[..., Any]
) -> None:
    task = WarehouseTask(mariadb, tmp_path, run_sql)
    to = f"warehouse: warehouse, publish-to: {{type: hive, metastore: '{metastore}'}}"
    task.file.write_text(task.file.read_text().replace("warehouse: warehouse", to))
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    task.sql("INSERT INTO t VALUES (1, 1)")
    checked = task.pidts("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    task.run()
    for statement in (
        "ALTER TABLE t ADD COLUMN c VARCHAR(9) FIRST",
        "INSERT INTO t VALUES ('x', 2, 2)",
        "DROP TABLE u",
        "RENAME TABLE t TO v",
    ):
        task.sql(statement)
    task.run()
    reader = Reader("hive", uri=metastore)
    found = reader.load_table((task.database, "v")).scan().to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == task.here("v") == [(None, 1, 1), ("x", 2, 2)]
    assert reader.list_tables(task.database) == [(task.database, "v")]
    state = json.loads(task.pidts("status", "--json").stdout)["server_catalog"]
    assert (state["tables"], state["behind"], state["problems"]) == (1, 0, [])
    task.sql(f"DROP DATABASE {task.database}", database=None)
