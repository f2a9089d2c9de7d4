"""Change tables have each change of the log once, whatever is interrupted, with a real metastore."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.crashes import ProcessDied, break_at
from tests.target.conformance.samples import INT, lsn, table, text

pytest.importorskip("pyiceberg")

from tests.target.hive.publishing import (
    ORDERS,
    PublishedWarehouse,
    remove,
    store_of_a_file,
    warehouse_of_a_test,
)

from pidts.model import ChangeBatch, ColumnType, Kind, LoggedChanges, Op, SourceTransaction, Table, TableName
from pidts.spark.metastore import Metastore
from pidts.target.hive import places
from pidts.target.hive.change_record import ChangeRecord, ChangeTable
from pidts.target.hive.changes import WaitingChanges, change_rows
from pidts.target.hive.places import folder_of
from pidts.target.hive.session import HiveSession
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.iceberg.files import IO, files_in, folders_in, name_of
from pidts.task.operate import change_publication
from pidts.task.operate.publications import PublishingTurns

__all__ = ["store_of_a_file", "warehouse_of_a_test"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOON = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp())
NEXT_DAY = NOON + 86_400

Logged = tuple[Op, dict[str, Any] | None, dict[str, Any] | None]


def logged(structure: Table, at: int, *changes: Logged, time: int = NOON) -> LoggedChanges:
    """Returns the changes of one transaction, at Lsns from `at` on."""
    ops, before, after = zip(*changes, strict=True)
    row = pa.struct(list(structure.arrow))
    batch = ChangeBatch.of(
        structure,
        pa.array([lsn(at + place).to_bytes() for place in range(len(ops))], pa.binary(lsn(1).SIZE)),
        pa.array(list(map(int, ops)), pa.int8()),
        pa.array(list(before), row),
        pa.array(list(after), row),
    )
    return LoggedChanges("to-hive", "shop", batch, [SourceTransaction("0-1-7", time)] * len(ops))


def inserted(warehouse: PublishedWarehouse, at: int, *ids: int, time: int = NOON) -> LoggedChanges:
    return logged(warehouse.table, at, *((Op.INSERT, None, {"id": each, "v": each * 10}) for each in ids), time=time)


def seen(warehouse: PublishedWarehouse, columns: Sequence[str] = ("pidts_op", "id", "v")) -> list[tuple[Any, ...]]:
    """Returns what a reader finds through the metastore, in log order."""
    found = warehouse.store.table("shop", "orders_changes")
    if found is None:
        return []
    rows = []
    for day in partitions(warehouse):
        for path in files_in(f"{folder_of(found.location)}/pidts_day={day}"):
            if not name_of(path).startswith("."):
                rows += pq.read_table(IO.new_input(path).open()).to_pylist()
    rows.sort(key=lambda row: (row["pidts_lsn"], row["pidts_op"]))
    return [tuple(row.get(name) for name in columns) for row in rows]


def partitions(warehouse: PublishedWarehouse) -> list[str]:
    return warehouse.store.partitions("shop", "orders_changes")


def columns_of(warehouse: PublishedWarehouse, day: str) -> list[str]:
    found = (
        warehouse.store._client.getPartition("shop", "orders_changes", warehouse.store._list([day])).getSd().getCols()
    )
    return [str(found.get(place).getName()) for place in range(found.size())]


def waiting(warehouse: PublishedWarehouse) -> int:
    folder = Path(warehouse.session.warehouse) / "hive-changes" / "pidts_meta" / ".waiting"
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_each_change_has_its_images_in_the_order_of_the_log() -> None:
    kinds = {
        "id": INT,
        "Name": text(),
        "price": ColumnType(Kind.DECIMAL, precision=9, scale=2),
        "t": ColumnType(Kind.TIME),
    }
    orders = table(ORDERS, kinds)
    one, two = ({"id": 1, "Name": name, "price": None, "t": None} for name in ("Ann", "Bob"))
    changes = logged(orders, 100, (Op.INSERT, None, one), (Op.UPDATE, one, two), (Op.DELETE, two, None))
    shard = replace(changes, batch=replace(changes.batch, upstream=TableName("shop_1", "orders_7")))
    rows = change_rows(shard).to_pylist()
    assert [(row["pidts_op"], row["id"], row["name"]) for row in rows] == [
        ("insert", 1, "Ann"),
        ("update_from", 1, "Ann"),
        ("update_to", 1, "Bob"),
        ("delete", 1, "Bob"),
    ]
    assert [row["pidts_lsn"] for row in rows] == [str(lsn(each)) for each in (100, 101, 101, 102)]
    assert rows == sorted(rows, key=lambda row: (row["pidts_lsn"], row["pidts_op"]))
    about = {(row["pidts_ts"], row["pidts_gtid"], row["pidts_source"], row["pidts_table"]) for row in rows}
    assert about == {(datetime(2026, 3, 4, 12), "0-1-7", "shop", "shop_1.orders_7")}


def test_a_batch_without_changes_has_no_rows() -> None:
    changes = logged(table(ORDERS, {"id": INT}), 1, (Op.INSERT, None, {"id": 1}))
    empty = replace(changes, batch=replace(changes.batch, rows=changes.batch.rows.slice(0, 0)), transactions=[])
    assert change_rows(empty).num_rows == 0


def test_changes_are_published_by_day_and_once(warehouse: PublishedWarehouse) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1), inserted(warehouse, 20, 2, time=NEXT_DAY)])
    warehouse.publish()
    warehouse.publish()
    assert partitions(warehouse) == ["2026-03-04", "2026-03-05"]
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20)]
    warehouse.write((3, 30), logged=[inserted(warehouse, 30, 3, time=NEXT_DAY)])
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20), ("insert", 3, 30)]
    assert waiting(warehouse) == 0
    assert warehouse.changes().lsn == str(lsn(30))


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (WaitingChanges, "write", 1, False),
        (WaitingChanges, "write", 1, True),
        (CatalogConnection, "commit", 1, False),
    ],
)
def test_a_transaction_that_is_interrupted_leaves_no_change(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        # A process that dies removes nothing.
        patch.setattr(WaitingChanges, "forget", lambda _self, **_: None)
        with pytest.raises(ProcessDied):
            warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2)])
    warehouse.session.waiting = WaitingChanges(warehouse.session)
    warehouse.session.rollback()
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]
    warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2)])
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20)]
    assert waiting(warehouse) == 0, "files that no record names are removed"


def test_a_transaction_that_is_undone_removes_its_files(warehouse: PublishedWarehouse) -> None:
    warehouse.session.begin()
    warehouse.session.waiting.add(inserted(warehouse, 10, 1))
    warehouse.session.waiting.write()
    assert waiting(warehouse) == 1
    warehouse.session.rollback()
    assert waiting(warehouse) == 0


def test_a_commit_without_an_answer_keeps_what_it_has_recorded(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_at(patch, CatalogConnection, "commit", 1, after=True)
        with pytest.raises(ProcessDied):
            warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.session.close()
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (ChangeRecord, "choose", 1, False),
        (ChangeRecord, "choose", 1, True),
        (Metastore, "switch", 2, True),
        (places, "write_published", 1, True),
        (change_publication, "write_visible", 1, True),
        (Metastore, "put_partition", 1, True),
        (change_publication, "write_visible", 2, False),
        (Metastore, "put_partition", 2, True),
        (ChangeRecord, "published", 1, False),
        (ChangeRecord, "published", 1, True),
    ],
)
def test_a_broken_publication_is_repaired_by_the_next_one(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    if owner is places and warehouse.session.files.startswith("s3:"):
        pytest.skip("an object has no other name before readers see it")
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    wide = table(ORDERS, {"id": INT, "v": INT, "note": text()})
    row = {"id": 3, "v": 30, "note": "x"}
    both = [inserted(warehouse, 20, 2), logged(wide, 30, (Op.INSERT, None, row), time=NOON)]
    both.append(logged(wide, 40, (Op.DELETE, row, None), time=NEXT_DAY))
    warehouse.write((2, 20), logged=both)
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    warehouse.write((4, 40), logged=[inserted(warehouse, 50, 4)])
    warehouse.publish()
    assert seen(warehouse, ("pidts_op", "id", "v", "note")) == [
        ("insert", 1, 10, None),
        ("insert", 2, 20, None),
        ("insert", 3, 30, "x"),
        ("delete", 3, 30, "x"),
        ("insert", 4, 40, None),
    ]
    assert waiting(warehouse) == 0


def test_columns_come_and_stay_and_another_type_has_a_column_of_its_own(warehouse: PublishedWarehouse) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    wide = table(ORDERS, {"id": INT, "v": ColumnType(Kind.BIGINT), "note": text()})
    narrow = table(ORDERS, {"id": INT, "note": text()})
    changes = [
        logged(wide, 20, (Op.INSERT, None, {"id": 2, "v": 2**40, "note": "a"})),
        logged(narrow, 30, (Op.INSERT, None, {"id": 3, "note": "b"})),
    ]
    warehouse.write((2, 20), logged=changes)
    warehouse.publish()
    found = warehouse.store.table("shop", "orders_changes")
    assert found is not None
    assert found.columns[6:] == [("id", "int"), ("v", "int"), ("v__bigint", "bigint"), ("note", "string")]
    assert seen(warehouse, ("id", "v", "v__bigint", "note")) == [
        (1, 10, None, None),
        (2, None, 2**40, "a"),
        (3, None, None, "b"),
    ]


def test_a_new_column_comes_into_all_partitions_with_the_table(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that adds the column to one partition alone could come late, and remove another column."""
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1), inserted(warehouse, 20, 2, time=NEXT_DAY)])
    warehouse.publish()
    wide = table(ORDERS, {"id": INT, "v": INT, "note": text()})
    warehouse.write(
        (2, 20), logged=[logged(wide, 30, (Op.INSERT, None, {"id": 3, "v": 30, "note": "x"}), time=NEXT_DAY)]
    )
    with monkeypatch.context() as patch:
        break_at(patch, Metastore, "switch", 2, after=True)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    for day in ("2026-03-04", "2026-03-05"):
        assert columns_of(warehouse, day)[6:] == ["id", "v", "note"]
    warehouse.publish()
    assert seen(warehouse, ("id", "note")) == [(1, None), (2, None), (3, "x")]


def test_a_change_table_without_the_property_of_its_table_continues(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version, which did not write the property, created the table."""
    with monkeypatch.context() as patch:
        patch.setattr(change_publication, "_TABLE", "pidts.unknown")
        warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
        warehouse.publish()
    warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2)])
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20)]
    found = warehouse.store.table("shop", "orders_changes")
    assert found is not None
    assert found.properties["pidts.table"] == "shop.orders"


def test_days_of_another_task_stay(warehouse: PublishedWarehouse) -> None:
    """A task whose change table was refused also has a record of the table, and removes no days of it."""
    now = int(datetime.now(UTC).timestamp())
    times = [now - 86_400 * days for days in (9, 0)]
    warehouse.write((1, 10), logged=[inserted(warehouse, 10 * (1 + n), n, time=time) for n, time in enumerate(times)])
    warehouse.publish()
    both = partitions(warehouse)
    warehouse.write((2, 20), logged=[replace(inserted(warehouse, 30, 2), task="other")])
    change_publication.ChangePublisher("other", warehouse.session, 86_400).run(warehouse.store)
    assert "does not publish" in ChangeRecord(warehouse.session).of("other")[ORDERS].problem
    assert partitions(warehouse) == both
    assert [row[1] for row in seen(warehouse)] == [0, 1]


def test_a_change_table_belongs_to_the_first_of_two_names_also_after_a_break(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    with monkeypatch.context() as patch:
        break_at(patch, Metastore, "put_partition", 1, after=True)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    upper = table(TableName("shop", "Orders"), {"id": INT, "v": INT})
    warehouse.session.begin()
    warehouse.session.waiting.add(logged(upper, 20, (Op.INSERT, None, {"id": 5, "v": 50})))
    warehouse.session.commit()
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]
    assert "has this change table" in ChangeRecord(warehouse.session).of("to-hive")[upper.name].problem


def test_a_day_that_comes_back_after_its_end_leaves_again(warehouse: PublishedWarehouse) -> None:
    """The metastore has executed late what a killed publisher had requested."""
    warehouse.keep_changes(86_400 * 3)
    now = int(datetime.now(UTC).timestamp())
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1, time=now)])
    warehouse.publish()
    found = warehouse.store.table("shop", "orders_changes")
    assert found is not None
    late = replace(found, partitions=[("pidts_day", "string")])
    warehouse.store.put_partition(late, "2026-01-01", f"{found.location}/pidts_day=2026-01-01")
    assert len(partitions(warehouse)) == 2
    warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2, time=now)])
    warehouse.publish()
    assert partitions(warehouse) == [datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")]


def test_days_end_after_the_time_that_they_are_kept(warehouse: PublishedWarehouse) -> None:
    warehouse.keep_changes(86_400 * 3)
    now = int(datetime.now(UTC).timestamp())
    times = [now - 86_400 * days for days in (9, 4, 3, 0)]
    warehouse.write((1, 10), logged=[inserted(warehouse, 10 * (1 + n), n, time=time) for n, time in enumerate(times)])
    warehouse.publish()
    kept = [datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d") for time in times[2:]]
    assert partitions(warehouse) == kept
    found = warehouse.store.table("shop", "orders_changes")
    assert found is not None
    there = sorted(name_of(each) for each in folders_in(folder_of(found.location)))
    late = datetime.fromtimestamp(times[1], UTC).strftime("%Y-%m-%d")
    assert there == [f"pidts_day={day}" for day in (late, *kept)], "readers that have begun keep a day's files"


def test_a_change_table_of_another_program_stays_and_the_changes_wait(warehouse: PublishedWarehouse) -> None:
    other = change_publication.MetastoreTable(
        database="shop", name="orders_changes", location="file:///nowhere/x", columns=[("id", "int")], properties={}
    )
    warehouse.store.create(other, "file:///nowhere")
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    assert "does not publish" in warehouse.changes().problem
    remove(warehouse.store, "orders_changes")
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]
    assert not warehouse.changes().problem


def test_files_of_another_task_stay(warehouse: PublishedWarehouse) -> None:
    changes = replace(inserted(warehouse, 10, 1), task="other")
    warehouse.write((1, 10), logged=[changes])
    warehouse.publish()
    warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2)])
    warehouse.publish()
    assert waiting(warehouse) == 1
    assert isinstance(warehouse.session, HiveSession)
    assert seen(warehouse) == [("insert", 2, 20)]


def test_changes_of_a_table_whose_name_differs_in_case_alone_wait(warehouse: PublishedWarehouse) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    upper = table(TableName("shop", "Orders"), {"id": INT, "v": INT})
    row = {"id": 5, "v": 50}
    warehouse.session.begin()
    warehouse.session.waiting.add(logged(upper, 20, (Op.INSERT, None, row)))
    warehouse.session.commit()
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]
    assert "has this change table" in ChangeRecord(warehouse.session).of("to-hive")[upper.name].problem
    warehouse.write((2, 30), logged=[inserted(warehouse, 30, 2)])
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20)], "a table that was refused stops the other one"


def test_a_column_never_gets_the_name_of_another_one(warehouse: PublishedWarehouse) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    wide = table(ORDERS, {"id": INT, "v": ColumnType(Kind.BIGINT), "v__bigint": ColumnType(Kind.BIGINT)})
    warehouse.write((2, 20), logged=[logged(wide, 20, (Op.INSERT, None, {"id": 2, "v": 3, "v__bigint": 4}))])
    warehouse.publish()
    assert seen(warehouse) == [("insert", 1, 10)]
    assert "two columns would have the name v__bigint" in warehouse.changes().problem


def test_changes_alone_are_published_as_seldom_as_tables(warehouse: PublishedWarehouse) -> None:
    """No table is complete yet. A publication every two seconds would write a file each time."""
    turns = PublishingTurns()
    assert turns.is_due(warehouse.parts[0], warehouse.session)
    warehouse.session.begin()
    warehouse.session.waiting.add(inserted(warehouse, 10, 1))
    warehouse.session.commit()
    ChangeRecord(warehouse.session).put("to-hive", ORDERS, ChangeTable(lsn="x", read_at=time.time()))
    assert not turns.is_due(warehouse.parts[0], warehouse.session)
