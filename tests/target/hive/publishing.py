"""A warehouse that a target session writes, without a source, and a real metastore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.captured import install_exception_handler
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, table

pytest.importorskip("pyiceberg")

from pidts.model import LoggedChanges, SourceTablesKey, TableName
from pidts.spark.metastore import Metastore, metastore
from pidts.target.hive.change_record import ChangeRecord, ChangeTable
from pidts.target.hive.places import folder_of
from pidts.target.hive.record import tables_folders
from pidts.target.hive.session import HiveSession
from pidts.target.iceberg.files import IO, files_in, folders_in
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.operate import publication

ORDERS = TableName("shop", "orders")
TASK = """\
name: to-hive
task-mode: all
target-database: {type: hive, warehouse: warehouse}
mysql-instances:
  - source-id: shop
    from: {host: 127.0.0.1, port: 1, user: nobody}
    block-allow-list: ours
block-allow-list: {ours: {do-dbs: [shop]}}
pidts: {hive: {changes: true}}
"""


@pytest.fixture(
    name="store",
    scope="module",
    params=["embedded", *(pytest.param(each, marks=pytest.mark.long) for each in ("thrift", "thrift-and-s3"))],
)
def store_of_a_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """Connects to one metastore for all tests of the file. Each test has its own warehouse, and drops its table."""
    address = "" if request.param == "embedded" else request.getfixturevalue("metastore")
    with store_at(address, tmp_path_factory) as found:
        yield found


@contextmanager
def store_at(address: str, folders: pytest.TempPathFactory) -> Iterator[Metastore]:
    """Connects to a metastore, or starts one."""
    install_exception_handler()  # makes this process like one whose Spark session and JVM have ended
    folder = folders.mktemp("metastore")
    with (folder / "lock").open("w") as lock, metastore(address, folder / "db", lock.fileno()) as found:
        yield found


class PublishedWarehouse:
    """A warehouse with one table, and the published states of this table."""

    def __init__(self, folder: Path, store: Metastore, files: str = "") -> None:
        (folder / "task.yaml").write_text(TASK)
        self.parts: tuple[TaskConfig, ...] = load_parts(folder / "task.yaml")
        self.store = store
        if files:  # A task file would have to name a metastore; the tests have one already.
            self.parts = tuple(replace(part, target=replace(part.target, files=files)) for part in self.parts)
        session = self.parts[0].target.server.connect()
        assert isinstance(session, HiveSession)
        self.session, self._place = session, 0
        self.table = table(ORDERS, {"id": INT, "v": INT})
        session.meta.prepare()
        start = checkpoint(4, task="to-hive", source="shop")
        session.meta.checkpoints.claim("to-hive", "shop", 1, start)
        create(session, self.table)
        session.begin()
        session.meta.structures.save("to-hive", SourceTablesKey("shop"), start.lsn, {ORDERS: self.table})
        session.commit()

    def write(self, *rows: tuple[int, int], logged: Sequence[LoggedChanges] = ()) -> str:
        """Commits rows with a checkpoint, and the changes that the log has of them; returns the Lsn."""
        (before,) = self.session.meta.checkpoints.read("to-hive", "shop")
        self._place += 100
        self.session.begin()
        self.session.meta.checkpoints.lock("to-hive", "shop", 0)
        self.session.write(replace(change(self.table, upserts=rows), logged=tuple(logged)))
        self.session.meta.checkpoints.save(replace(before, lsn=lsn(self._place)))
        self.session.commit()
        return str(lsn(self._place))

    def publish(self) -> None:
        """Publishes with a session of its own, as another process would."""
        with closing(self.parts[0].target.server.connect()) as session:
            assert isinstance(session, HiveSession)
            publication.publish(self.parts, session)

    def changes(self) -> ChangeTable:
        """Returns up to which Lsn the changes are published."""
        return ChangeRecord(self.session).of("to-hive")[ORDERS]

    def keep_changes(self, seconds: int) -> None:
        """Sets for how long the changes of a day are kept."""
        self.parts = tuple(replace(part, hive_keep_changes=seconds) for part in self.parts)

    def published(self) -> tuple[str, list[tuple[int, int]]]:
        """Returns the Lsn and the rows that a reader finds through the metastore."""
        found = self.store.table("shop", "orders")
        assert found is not None
        rows = pa.concat_tables(
            pq.read_table(IO.new_input(each).open()) for each in files_in(folder_of(found.location))
        ).sort_by("id")
        return found.properties["pidts.lsn"], list(zip(*(each.to_pylist() for each in rows.columns), strict=True))

    def folders(self) -> int:
        """Returns the number of folders with a state of the table."""
        return len(folders_in(f"{tables_folders(self.session)[0]}/shop/orders"))


@pytest.fixture(name="warehouse")
def warehouse_of_a_test(
    tmp_path: Path, store: Metastore, files: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PublishedWarehouse]:
    @contextmanager
    def shared(_address: str, _folder: Path, _lock: int) -> Iterator[Metastore]:
        yield store

    monkeypatch.setattr(publication, "metastore", shared)
    made = PublishedWarehouse(tmp_path, store, files)
    yield made
    made.session.close()
    for name in ("orders", "orders_changes"):
        remove(store, name)


def remove(store: Metastore, name: str) -> None:
    """Removes a table from the metastore, if it exists, as another program does."""
    store._client.dropTable("shop", name, False, True)
