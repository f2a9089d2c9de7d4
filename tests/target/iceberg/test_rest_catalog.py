"""pyiceberg reads the tables of a warehouse through a real REST catalog alone, Iceberg's own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.java_packages import packages
from tests.target.conformance.samples import INT, change, create, table, text, write

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.rest import RestCatalog as Reader
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from tests.crashes import break_at
from tests.target.iceberg.test_warehouse import WarehouseTask

from pidts.model import Column, TableName, Transient
from pidts.sandbox import Server
from pidts.target import IcebergTarget
from pidts.target.iceberg import rest_catalog
from pidts.target.iceberg import sweep as sweeping
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.target.iceberg.publication import publish
from pidts.target.iceberg.rest_catalog import RestCatalog
from pidts.target.iceberg.server_catalog import CatalogUpdate
from pidts.target.iceberg.server_record import ServerRecord
from pidts.target.iceberg.session import IcebergSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).with_name("rest_server.py")
SECONDS = 120
A, B = TableName("shop", "a"), TableName("shop", "b")


class WarehouseInRestCatalog:
    """A warehouse with one table, in a REST catalog."""

    def __init__(self, folder: Path, address: str) -> None:
        self.target = IcebergTarget(str(folder / "warehouse"))
        self.catalog = RestCatalog(address, user="pidts", password="secret")
        self.session: IcebergSession = self.target.connect()
        self.session.meta.prepare()
        self.record = ServerRecord(self.session)
        self.reader = Reader("reader", uri=address)
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

    def rename(self, column: str, to: str) -> None:
        """Renames the second column."""
        after = replace(table(A, {"id": INT, to: INT}), columns=(Column("id", INT, nullable=False), Column(to, INT)))
        self.run(
            alter=after.to_json(), known=["id", column], kept={"id": "id", to: column}, unfillable=[], executed_at=0
        )

    def publish(self, *, whole: bool = False) -> bool:
        with closing(self.target.connect()) as session:
            return publish(session, self.catalog, whole=whole)

    def there(self, name: TableName = A) -> list[dict[str, Any]] | None:
        """Returns the rows that a reader finds; None if it finds no table."""
        try:
            found = self.reader.load_table((name.schema, name.name))
        except NoSuchTableError:
            return None
        local = MetadataFile.read(name, str(found.metadata.properties["pidts.metadata"])).metadata
        assert found.metadata.snapshots == local.snapshots
        assert found.metadata.schemas == local.schemas
        assert found.metadata.current_schema_id == local.current_schema_id
        return list(found.scan().to_arrow().sort_by("id").to_pylist())

    def problem(self, name: TableName = A) -> str:
        return self.record.entries(self.catalog.place)[name].problem


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jars = packages(ROOT / "requirements" / "rest" / "pom.xml", ROOT / ".venv-rest")
    folder = tmp_path_factory.mktemp("rest")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        words = [sys.executable, str(SERVER), str(port), str(folder), str(jars)]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder)
    address = f"http://127.0.0.1:{port}"
    end = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/v1/config", timeout=5).close()
            break
        except OSError:
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.2)
    yield address
    server.communicate(timeout=SECONDS)


@pytest.fixture
def warehouse(memory_path: Path, address: str) -> Iterator[WarehouseInRestCatalog]:
    made = WarehouseInRestCatalog(memory_path, address)
    yield made
    made.session.close()
    for namespace in made.reader.list_namespaces():
        for each in made.reader.list_tables(namespace):
            made.reader.drop_table(each)


def test_rows_and_schema_changes_arrive(warehouse: WarehouseInRestCatalog) -> None:
    assert warehouse.publish()
    assert warehouse.there() == []
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
    before = warehouse.reader.load_table(("other", "c")).metadata_location
    assert warehouse.publish(whole=True)
    assert warehouse.reader.load_table(("other", "c")).metadata_location == before, "nothing has changed"
    assert warehouse.there(TableName("other", "c")) == [
        {"id": 1, "name": None, "w": 1},
        {"id": 2, "name": None, "w": 2},
    ]
    assert warehouse.there(B) is None
    warehouse.run(drop=["other", "c"])
    assert warehouse.publish()
    assert warehouse.record.entries(warehouse.catalog.place) == {}


def test_a_schema_that_was_current_before_arrives(warehouse: WarehouseInRestCatalog) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    for column, to in (("v", "w"), ("w", "v"), ("v", "w")):
        warehouse.rename(column, to)
        assert warehouse.publish()
        assert warehouse.there() == [{"id": 1, to: 1}]


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (ServerRecord, "put", 1, True),
        (rest_catalog, "_replace", 1, False),
        (rest_catalog, "_replace", 1, True),
        (rest_catalog, "write_bytes", 1, True),
        (rest_catalog, "_create", 1, True),
        (rest_catalog, "_remove", 1, False),
        (rest_catalog, "_remove", 1, True),
        (rest_catalog, "_remove", 2, True),
        (ServerRecord, "moved", 1, True),
    ],
)
def test_a_broken_publication_is_completed_by_the_next_one(
    warehouse: WarehouseInRestCatalog, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    """One table has new rows, one table is new, one is dropped, and one is another table of the same name."""
    c, d = TableName("shop", "c"), TableName("shop", "d")
    warehouse.create(B)
    warehouse.create(d)
    warehouse.write((1, 1))
    assert warehouse.publish()
    warehouse.write((1, 2))
    warehouse.run(drop=["shop", "b"])
    warehouse.create(c)
    warehouse.run(drop=["shop", "d"])
    warehouse.create(d)
    warehouse.write((5, 5), name=d)
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    assert warehouse.there() in ([{"id": 1, "v": 1}], [{"id": 1, "v": 2}])
    assert warehouse.there(d) in (None, [], [{"id": 5, "v": 5}])
    warehouse.write((1, 3))
    assert warehouse.publish()
    assert (warehouse.there(), warehouse.there(B), warehouse.there(c)) == ([{"id": 1, "v": 3}], None, [])
    assert warehouse.there(d) == [{"id": 5, "v": 5}]
    assert sorted(warehouse.reader.list_tables("shop")) == [("shop", "a"), ("shop", "c"), ("shop", "d")]
    assert not any(one.next for one in warehouse.record.entries(warehouse.catalog.place).values())


def test_a_late_call_of_a_killed_publisher_changes_nothing(
    warehouse: WarehouseInRestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late call is a commit or a creation. Only the schema has changed since it was sent."""
    warehouse.write((1, 1))
    assert warehouse.publish()
    with warehouse.catalog._client() as client:
        first = client.load_table(("shop", "a"))
        warehouse.rename("v", "w")
        second = CatalogUpdate(
            A, warehouse.session.tables.location(A), str(first.metadata.properties["pidts.metadata"])
        )
        assert warehouse.publish()
        warehouse.rename("w", "x")
        assert warehouse.publish()
        for late in (second, replace(second, goal=second.former)):
            with pytest.raises(CommitFailedException):
                rest_catalog._replace(client, first, late)
            with pytest.raises(CommitFailedException):
                rest_catalog._create(client, late)
    assert warehouse.there() == [{"id": 1, "x": 1}]


@pytest.mark.parametrize("how", ["append", "rename"])
def test_a_table_that_another_program_has_changed_stays(
    clock: list[float], warehouse: WarehouseInRestCatalog, how: str
) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    rival = warehouse.reader.load_table(("shop", "a"))
    if how == "append":
        rival.append(pa.table({"id": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
    else:
        with rival.update_schema() as update:
            update.rename_column("v", "theirs")
    theirs = warehouse.reader.load_table(("shop", "a"))
    for number in range(3):
        warehouse.write((1, 2 + number))
        assert not warehouse.publish()
        clock[0] += 4000
        sweeping.sweep(warehouse.session)
    assert "another program has changed the table" in warehouse.problem()
    found = warehouse.reader.load_table(("shop", "a"))
    assert found.metadata_location == theirs.metadata_location
    assert len(found.scan().to_arrow()) == len(theirs.scan().to_arrow())
    warehouse.reader.drop_table(("shop", "a"))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "v": 4}]


def test_a_change_of_another_program_at_the_same_moment_is_kept(
    warehouse: WarehouseInRestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    warehouse.write((1, 2))
    real = rest_catalog._replace

    def after_a_rival(*words: Any) -> str:
        rival = warehouse.reader.load_table(("shop", "a"))
        rival.append(pa.table({"id": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
        return real(*words)

    monkeypatch.setattr(rest_catalog, "_replace", after_a_rival)
    with pytest.raises(Transient, match="REST catalog answers"):
        warehouse.publish()
    monkeypatch.undo()
    assert not warehouse.publish()
    assert "another program has changed the table" in warehouse.problem()


def test_a_table_of_another_program_is_not_replaced(warehouse: WarehouseInRestCatalog) -> None:
    warehouse.create(B)
    warehouse.reader.create_namespace_if_not_exists("shop")
    warehouse.reader.create_table(
        ("shop", "b"), pa.schema([("x", pa.int32())]), location=f"file://{warehouse.target.warehouse}/x"
    )
    warehouse.write((1, 1))
    assert not warehouse.publish()
    assert "does not publish" in warehouse.problem(B)
    assert warehouse.there() == [{"id": 1, "v": 1}]
    assert warehouse.reader.load_table(("shop", "b")).schema().column_names == ["x"]
    warehouse.run(drop=["shop", "b"])
    assert warehouse.publish()
    assert warehouse.record.entries(warehouse.catalog.place).keys() == {A}


def test_expired_snapshots_go_and_the_server_removes_no_file_of_the_warehouse(
    warehouse: WarehouseInRestCatalog,
) -> None:
    """The server removes metadata files that leave a table's log. The warehouse's metadata files are not in this log."""
    first = warehouse.write((1, 0))
    files = set(Path(first.removeprefix("file://")).parent.iterdir())
    assert warehouse.publish()
    for number in range(4):
        with warehouse.reader.load_table(("shop", "a")).transaction() as rival:
            rival.set_properties({"write.metadata.previous-versions-max": "1", "theirs": str(number)})
    assert all(each.exists() for each in files)
    for number in range(1, 105):
        warehouse.write((1, number))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "v": 104}]
    found = warehouse.reader.load_table(("shop", "a")).metadata
    assert 100 <= len(found.snapshots) < 105
    assert sorted(found.refs) == ["main", rest_catalog._tag(str(found.properties["pidts.metadata"]))]


def test_a_task_that_publishes_again_takes_its_former_tables_over(warehouse: WarehouseInRestCatalog) -> None:
    warehouse.record.register(warehouse.catalog.place, "t")
    warehouse.write((1, 1))
    warehouse.publish()
    warehouse.record.register("", "t")
    assert not warehouse.record.entries(warehouse.catalog.place)
    warehouse.write((1, 2))
    assert warehouse.publish()
    assert warehouse.there() == [{"id": 1, "v": 2}]


def test_a_server_that_does_not_answer_leaves_the_record(warehouse: WarehouseInRestCatalog) -> None:
    warehouse.write((1, 1))
    unknown_transactions = RestCatalog("http://127.0.0.1:1")
    with closing(warehouse.target.connect()) as session, pytest.raises(Transient, match="does not answer"):
        publish(session, unknown_transactions)
    assert len(warehouse.record.entries(unknown_transactions.place)) == 1
    with pytest.raises(Transient, match="does not answer"):
        unknown_transactions.check()
    warehouse.catalog.check()


def test_a_task_publishes_to_a_rest_catalog(
    mariadb: Server, address: str, tmp_path: Path, run_sql: Callable[..., Any]
) -> None:
    task = WarehouseTask(mariadb, tmp_path, run_sql)
    (tmp_path / "secret").write_text("secret")
    to = f"warehouse: warehouse, publish-to: {{type: rest, uri: '{address}', user: pidts, password-file: secret}}"
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
    reader = Reader("reader", uri=address)
    found = reader.load_table((task.database, "v")).scan().to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == task.here("v") == [(None, 1, 1), ("x", 2, 2)]
    assert reader.list_tables(task.database) == [(task.database, "v")]
    state = json.loads(task.pidts("status", "--json").stdout)["server_catalog"]
    assert (state["tables"], state["behind"], state["problems"]) == (1, 0, [])
    task.sql(f"DROP DATABASE {task.database}", database=None)
