"""pyiceberg reads the tables of a warehouse through the catalog of a real PostgreSQL or MariaDB alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest
from tests.crashes import ProcessDied, break_at
from tests.target.conformance.samples import INT, change, create, table, write

from pidts.model import PidtsError, TableName
from pidts.sandbox import Server
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")
pytest.importorskip("thrift")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from tests.target.iceberg.test_faults import forget_files

from pidts.target.iceberg import sweep as sweeping
from pidts.target.iceberg.hive_catalog import HiveCatalog
from pidts.target.iceberg.jdbc_catalog import JdbcCatalog, MySqlCatalog, PostgresCatalog
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.target.iceberg.publication import publish, server_state
from pidts.target.iceberg.rest_catalog import RestCatalog
from pidts.target.iceberg.server_catalog import CatalogUpdate, step
from pidts.target.iceberg.server_record import Entry, ServerRecord
from pidts.target.iceberg.session import IcebergSession

A, B = TableName("shop", "a"), TableName("shop", "b")
KILLED = """
import os, signal, sys
from pidts.target import IcebergTarget
from pidts.target.iceberg import jdbc_catalog
from pidts.target.iceberg.publication import publish

warehouse, kind, host, port, user, password, database, when = sys.argv[1:]
catalog = getattr(jdbc_catalog, kind)
real = catalog.move

def move(*words):
    if when == "after":
        real(*words)
    os.kill(os.getpid(), signal.SIGKILL)

catalog.move = move
publish(IcebergTarget(warehouse).connect(), catalog(host, int(port), user, database, "lake", password))
"""
"""A program that publishes, and is killed when the next states are recorded, or when the server has them."""

Rows = list[tuple[int, int]]


class WarehouseInCatalog:
    """A warehouse with two tables, and the catalog of a server."""

    def __init__(self, folder: Path, server: Server, database: str) -> None:
        self.server, self.database = server, database
        self.target = IcebergTarget(str(folder / "warehouse"))
        kind = PostgresCatalog if server.kind == "postgres" else MySqlCatalog
        self.catalog = kind(server.host, server.port, server.user, database, "lake", server.password)
        self.session: IcebergSession = self.target.connect()
        self.session.meta.prepare()
        self.record = ServerRecord(self.session)
        self.tables = {name: table(name, {"id": INT, "v": INT}) for name in (A, B)}
        for name in (A, B):
            self.create(name)

    @cached_property
    def reader(self) -> SqlCatalog:
        """Returns the catalog of another program. It would create the server's tables if they were missing."""
        server = self.server
        address = f"{server.user}:{server.password}@{server.host}:{server.port}/{self.database}"
        scheme = "postgresql+psycopg" if server.kind == "postgres" else "mysql+pymysql"
        return SqlCatalog("lake", uri=f"{scheme}://{address}")

    def create(self, name: TableName) -> None:
        create(self.session, self.tables[name])

    def write(self, *rows: tuple[int, int]) -> None:
        """Commits these rows to both tables."""
        self.session.begin()
        for each in self.tables.values():
            self.session.write(change(each, upserts=rows))
        self.session.commit()

    def run(self, **step: Any) -> None:
        """Makes a schema change."""
        self.session.execute(json.dumps(step))

    def publish(self, *, whole: bool = False) -> bool:
        """Publishes with a session of its own, as another process would."""
        with closing(self.target.connect()) as session:
            return publish(session, self.catalog, whole=whole)

    def rows(self, name: TableName = A) -> Rows | None:
        """Returns the rows that a reader finds through the server's catalog; None if it finds no table."""
        try:
            found = self.reader.load_table((name.schema, name.name)).scan().to_arrow()
        except NoSuchTableError:
            return None
        return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs a statement on the server."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            found = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return found

    def connect(self) -> Any:
        server = self.server
        login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        if server.kind == "postgres":
            return psycopg.connect(dbname=self.database, **login)
        return pymysql.connect(database=self.database, **login)


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.long)])
def warehouse(
    request: pytest.FixtureRequest, memory_path: Path, run_sql: Callable[..., Any]
) -> Iterator[WarehouseInCatalog]:
    server: Server = request.getfixturevalue(request.param)
    database = f"catalog_{uuid.uuid4().hex[:8]}"
    run_sql(server, f"CREATE DATABASE {database}")
    made = WarehouseInCatalog(memory_path, server, database)
    yield made
    made.session.close()
    made.reader.engine.dispose()
    run_sql(server, f"DROP DATABASE {database}")


def test_the_server_has_the_rows_and_the_schema_changes_of_the_warehouse(warehouse: WarehouseInCatalog) -> None:
    warehouse.write((1, 1), (2, 2))
    assert warehouse.publish()
    assert (warehouse.rows(A), warehouse.rows(B)) == ([(1, 1), (2, 2)], [(1, 1), (2, 2)])
    assert warehouse.reader.list_tables("shop") == [("shop", "a"), ("shop", "b")]
    warehouse.run(drop=["shop", "b"])
    warehouse.run(rename=["shop", "a"], to=["shop", "b"])
    warehouse.create(A)
    assert (warehouse.rows(A), warehouse.rows(B)) == ([(1, 1), (2, 2)], [(1, 1), (2, 2)])
    assert warehouse.publish()
    assert (warehouse.rows(A), warehouse.rows(B)) == ([], [(1, 1), (2, 2)])
    warehouse.write((3, 3))
    warehouse.run(drop=["shop", "a"])
    assert warehouse.publish()
    assert (warehouse.rows(A), warehouse.rows(B)) == (None, [(1, 1), (2, 2), (3, 3)])
    warehouse.run(rename=["shop", "b"], to=["other", "c"])
    assert warehouse.publish()
    assert warehouse.rows(B) is None
    assert warehouse.rows(TableName("other", "c")) == [(1, 1), (2, 2), (3, 3)]
    assert warehouse.record.entries(warehouse.catalog.place).keys() == {TableName("other", "c")}
    before = warehouse.sql("SELECT * FROM iceberg_tables")
    assert warehouse.publish()
    assert warehouse.publish(whole=True)
    assert warehouse.sql("SELECT * FROM iceberg_tables") == before, "nothing has changed"


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (ServerRecord, "put", 1, True),
        (JdbcCatalog, "move", 1, False),
        (JdbcCatalog, "_make", 1, True),
        (JdbcCatalog, "move", 1, True),
        (ServerRecord, "moved", 1, True),
        (ServerRecord, "moved", 2, True),
    ],
)
def test_a_broken_publication_shows_one_moment_of_all_tables_and_the_next_one_completes_it(
    warehouse: WarehouseInCatalog, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    warehouse.write((1, 2))
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    assert warehouse.rows(A) == warehouse.rows(B)
    assert warehouse.rows(A) in ([(1, 1)], [(1, 2)])
    warehouse.write((1, 3))
    assert warehouse.publish()
    assert (warehouse.rows(A), warehouse.rows(B)) == ([(1, 3)], [(1, 3)])
    assert all(not one.next for one in warehouse.record.entries(warehouse.catalog.place).values())


def test_a_killed_publisher_leaves_files_that_the_server_may_need(
    warehouse: WarehouseInCatalog, clock: list[float]
) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    server = warehouse.server
    for number, when in enumerate(("before", "after"), start=2):
        warehouse.write((1, number))
        words = [
            type(warehouse.catalog).__name__,
            server.host,
            str(server.port),
            server.user,
            server.password,
            warehouse.database,
            when,
        ]
        subprocess.run([sys.executable, "-c", KILLED, warehouse.target.warehouse, *words], check=False)
        entry = warehouse.record.entries(warehouse.catalog.place)[A]
        assert entry.next == warehouse.session.tables.location(A)
        shown = [(1, 1)] if when == "before" else [(1, number)]
        for _ in range(3):
            clock[0] += 4000
            warehouse.write((2, number))
            sweeping.sweep(warehouse.session)
        assert warehouse.rows(A) == warehouse.rows(B) == shown
        assert warehouse.publish()
        assert warehouse.rows(A) == warehouse.rows(B) == [(1, number), (2, number)]
        warehouse.write((1, 1))
        warehouse.session.begin()
        for each in warehouse.tables.values():
            warehouse.session.write(change(each, deletes=[(2,)]))
        warehouse.session.commit()
        assert warehouse.publish()


def test_a_table_that_another_program_has_changed_stays_and_can_be_dropped(
    warehouse: WarehouseInCatalog, clock: list[float]
) -> None:
    warehouse.write((1, 1))
    assert warehouse.publish()
    rival = warehouse.reader.load_table(("shop", "a"))
    rival.append(pa.table({"id": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
    theirs = warehouse.sql("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'a'")
    for number in range(3):
        warehouse.write((1, 2 + number))
        assert not warehouse.publish()
        clock[0] += 4000
        sweeping.sweep(warehouse.session)
    assert warehouse.sql("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'a'") == theirs
    assert (warehouse.rows(A), warehouse.rows(B)) == ([(1, 1), (9, 9)], [(1, 4)])
    assert "another program has changed the table" in warehouse.record.entries(warehouse.catalog.place)[A].problem
    warehouse.reader.drop_table(("shop", "a"))
    assert warehouse.publish()
    assert (warehouse.rows(A), warehouse.rows(B)) == ([(1, 4)], [(1, 4)])


def test_a_table_of_another_program_is_not_replaced(warehouse: WarehouseInCatalog) -> None:
    warehouse.publish()
    warehouse.run(drop=["shop", "a"])
    warehouse.publish()
    warehouse.reader.create_table(
        ("shop", "a"), pa.schema([("x", pa.int32())]), location=f"file://{warehouse.target.warehouse}/x"
    )
    warehouse.create(A)
    warehouse.write((1, 1))
    assert not warehouse.publish()
    assert "does not publish" in warehouse.record.entries(warehouse.catalog.place)[A].problem
    assert warehouse.reader.load_table(("shop", "a")).schema().column_names == ["x"]
    warehouse.run(drop=["shop", "a"])
    assert warehouse.publish()
    assert warehouse.record.entries(warehouse.catalog.place).keys() == {B}
    assert warehouse.reader.load_table(("shop", "a")).schema().column_names == ["x"]


def test_a_table_that_is_none_of_iceberg_is_not_replaced() -> None:
    """A metastore has tables of Hive, too. Like a table that was never published, they have no metadata file."""
    said = step(CatalogUpdate(A, "file:///w/shop/a/metadata/00000001-x.metadata.json"), "")
    assert isinstance(said, str)
    assert "no Iceberg table" in said


def test_each_catalog_of_a_warehouse_has_a_place_of_its_own() -> None:
    """A catalog's records decide which of its tables are dropped, so no other catalog may have the same records."""
    assert HiveCatalog("thrift://h:1", "lake").place != HiveCatalog("thrift://h:1", "other").place
    assert RestCatalog("https://h", catalog="lake").place != RestCatalog("https://h", catalog="other").place


def test_a_table_that_is_missing_at_the_server_is_created_again(warehouse: WarehouseInCatalog) -> None:
    warehouse.write((1, 1))
    warehouse.publish()
    warehouse.reader.drop_table(("shop", "a"))
    assert warehouse.publish(whole=True)
    assert warehouse.rows(A) == [(1, 1)]


def test_a_task_that_publishes_again_takes_its_former_tables_over(warehouse: WarehouseInCatalog) -> None:
    warehouse.record.register(warehouse.catalog.place, "t")
    warehouse.write((1, 1))
    warehouse.publish()
    warehouse.record.register("", "t")
    assert not warehouse.record.entries(warehouse.catalog.place)
    warehouse.write((1, 2))
    assert warehouse.publish()
    assert warehouse.rows(A) == [(1, 2)]


def test_a_late_transaction_of_a_killed_publisher_changes_nothing(warehouse: WarehouseInCatalog) -> None:
    """The server still executes the transaction: the next publication waits for its outcome."""
    warehouse.write((1, 1))
    warehouse.publish()
    place = warehouse.catalog.place
    first = warehouse.record.entries(place)[A]
    warehouse.write((1, 2))
    second = str(warehouse.session.tables.location(A))
    warehouse.record.put(place, A, Entry(metadata=first.metadata, next=second))
    warehouse.write((1, 3))
    swap = "UPDATE iceberg_tables SET metadata_location = %s WHERE table_name = 'a' AND metadata_location = %s"
    with closing(warehouse.connect()) as late, late.cursor() as cursor:
        cursor.execute(swap, (second, first.metadata))
        assert cursor.rowcount == 1
        others = threading.Thread(target=warehouse.publish)
        others.start()
        time.sleep(0.5)
        assert others.is_alive()
        late.commit()
        others.join(60)
        assert warehouse.rows(A) == warehouse.rows(B) == [(1, 3)]
        cursor.execute(swap, (second, first.metadata))
        assert cursor.rowcount == 0
        late.commit()


def test_a_check_leaves_no_tables(warehouse: WarehouseInCatalog) -> None:
    warehouse.catalog.check()
    there = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'iceberg_tables' AND table_schema IN "
    assert warehouse.sql(f"{there} ('public', %s)", warehouse.database) == [(0,)]
    warehouse.write((1, 1))
    assert warehouse.publish()
    warehouse.catalog.check()
    assert warehouse.rows() == [(1, 1)]


def test_a_publication_reads_only_what_has_changed(
    warehouse: WarehouseInCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse may have thousands of tables, each with a metadata file in a distant store."""
    warehouse.write((1, 1))
    warehouse.publish()
    forget_files(monkeypatch)
    seen: list[TableName] = []
    real = MetadataFile.read
    monkeypatch.setattr(MetadataFile, "read", lambda name, location: [seen.append(name), real(name, location)][1])
    write(warehouse.session, change(warehouse.tables[A], upserts=[(1, 2)]))
    seen.clear()
    assert warehouse.publish()
    assert server_state(warehouse.session, warehouse.catalog.place).behind == 0
    assert B not in seen
    assert warehouse.rows(A) == [(1, 2)]


def test_an_error_of_the_server_leaves_the_record_and_names_no_password(warehouse: WarehouseInCatalog) -> None:
    warehouse.write((1, 1))
    warehouse.publish()
    server = warehouse.server
    wrong = type(warehouse.catalog)(server.host, server.port, server.user, "nowhere", "lake", "secret-word")
    with closing(warehouse.target.connect()) as session, pytest.raises(PidtsError) as caught:
        publish(session, wrong)
    assert "secret-word" not in f"{caught.value}{wrong}"
    assert len(warehouse.record.entries(wrong.place)) == 2
    warehouse.catalog.check()
    assert warehouse.sql("SELECT count(*) FROM iceberg_namespace_properties WHERE namespace = 'pidts_check'") == [(0,)]
