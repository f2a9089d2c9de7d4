"""Wherever a publication is interrupted, a real metastore names a complete state."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.crashes import ProcessDied, break_at
from tests.target.conformance.samples import checkpoint, lsn

pytest.importorskip("pyiceberg")

from tests.target.hive.publishing import (
    ORDERS,
    TASK,
    PublishedWarehouse,
    store_of_a_file,
    warehouse_of_a_test,
)

from pidts.model import SourceTablesKey
from pidts.spark.metastore import Metastore, MetastoreTable
from pidts.target.hive import state
from pidts.target.hive.record import PublicationRecord
from pidts.target.hive.session import HiveSession
from pidts.target.iceberg.files import path_of
from pidts.task.config.task_file import load_parts
from pidts.task.operate import publication

__all__ = ["store_of_a_file", "warehouse_of_a_test"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("owner", "name", "call", "after", "shows_new"),
    [
        (state, "_write", 1, True, False),
        (publication, "write_state", 1, True, False),
        (PublicationRecord, "put", 1, False, False),
        (PublicationRecord, "put", 1, True, False),
        (Metastore, "switch", 1, False, False),
        (Metastore, "switch", 1, True, True),
        (PublicationRecord, "put", 2, False, True),
        (PublicationRecord, "put", 2, True, True),
    ],
)
def test_a_broken_publication_leaves_a_whole_state_and_the_next_one_repairs_it(
    warehouse: PublishedWarehouse,
    monkeypatch: pytest.MonkeyPatch,
    clock: list[float],
    owner: Any,
    name: str,
    call: int,
    after: bool,
    shows_new: bool,
) -> None:
    first = warehouse.write((1, 1), (2, 2))
    warehouse.publish()
    assert warehouse.published() == (first, [(1, 1), (2, 2)])
    second = warehouse.write((2, 20), (3, 30))
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    states = {first: [(1, 1), (2, 2)], second: [(1, 1), (2, 20), (3, 30)]}
    seen = second if shows_new else first
    assert warehouse.published() == (seen, states[seen])
    third = warehouse.write((4, 4))
    warehouse.publish()
    assert warehouse.published() == (third, [(1, 1), (2, 20), (3, 30), (4, 4)])
    assert warehouse.session.published.of("to-hive")[ORDERS].lsn == third
    warehouse.publish()  # This publication records which folders are not needed any more.
    assert warehouse.folders() > 1, "readers that have begun keep their files"
    clock[0] += 3700
    warehouse.publish()
    assert warehouse.folders() == 1
    assert warehouse.published() == (third, [(1, 1), (2, 20), (3, 30), (4, 4)])


def test_a_state_that_was_named_by_the_metastore_alone_is_not_removed(
    warehouse: PublishedWarehouse, clock: list[float]
) -> None:
    """The warehouse's database comes from a backup, so its record names an earlier folder."""
    warehouse.write((1, 1))
    warehouse.publish()
    kept = warehouse.session.published.of("to-hive")[ORDERS]
    second = warehouse.write((2, 2))
    warehouse.publish()
    newest = warehouse.session.published.of("to-hive")[ORDERS]
    warehouse.session.published.put("to-hive", ORDERS, replace(newest, folder=kept.folder))
    warehouse.publish()
    clock[0] += 3700
    warehouse.publish()
    assert warehouse.published() == (second, [(1, 1), (2, 2)])


@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (Metastore, "drop", 1, False),
        (Metastore, "_alter", 1, False),
        (Metastore, "_alter", 1, True),
        (Metastore, "drop_aside", 2, True),
        (PublicationRecord, "remove", 1, True),
    ],
)
def test_a_dropped_table_leaves_the_metastore_whatever_is_interrupted(
    warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    warehouse.write((1, 1))
    warehouse.publish()
    warehouse.session.begin()
    warehouse.session.own_database()
    warehouse.session.tables.drop(ORDERS)
    warehouse.session.meta.structures.save("to-hive", SourceTablesKey("shop"), lsn(500), {ORDERS: None})
    warehouse.session.commit()
    with monkeypatch.context() as patch:
        break_at(patch, owner, name, call, after=after)
        with pytest.raises(ProcessDied):
            warehouse.publish()
    warehouse.publish()
    assert warehouse.store._client.getAllTables("shop").size() == 0
    assert warehouse.session.published.of("to-hive") == {}


def test_a_table_of_another_program_stays(warehouse: PublishedWarehouse) -> None:
    other = MetastoreTable(
        database="shop", name="orders", location="file:///nowhere/orders", columns=[("id", "int")], properties={}
    )
    warehouse.store.create(other, "file:///nowhere")
    warehouse.write((1, 1))
    warehouse.publish()
    found = warehouse.store.table("shop", "orders")
    assert found is not None
    assert path_of(found.location) == Path("/nowhere/orders")
    assert "does not publish" in warehouse.session.published.of("to-hive")[ORDERS].problem


def test_another_meta_schema_has_folders_of_its_own(warehouse: PublishedWarehouse, clock: list[float]) -> None:
    first = warehouse.write((1, 1))
    warehouse.publish()
    file = warehouse.parts[0].path
    file.write_text("meta-schema: other\n" + TASK.replace("to-hive", "other"))
    others = load_parts(file)
    with closing(others[0].target.server.connect()) as session:
        assert isinstance(session, HiveSession)
        session.meta.prepare()
        session.meta.checkpoints.claim("other", "shop", 1, checkpoint(4, task="other", source="shop"))
        for _ in range(3):
            publication.publish(others, session)
            clock[0] += 3700
    assert warehouse.published() == (first, [(1, 1)])


def test_a_table_that_leaves_the_task_stays_as_it_is(warehouse: PublishedWarehouse, clock: list[float]) -> None:
    first = warehouse.write((1, 1))
    warehouse.publish()
    warehouse.session.begin()
    warehouse.session.meta.structures.save("to-hive", SourceTablesKey("shop"), lsn(500), {ORDERS: None})
    warehouse.session.commit()
    for _ in range(3):
        warehouse.publish()
        clock[0] += 3700
    assert warehouse.session.published.of("to-hive") == {}
    assert warehouse.published() == (first, [(1, 1)])


def test_unchanged_files_are_written_once(warehouse: PublishedWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = state.write_published
    monkeypatch.setattr(state, "write_published", lambda rows, file: (written.append(rows.num_rows), write(rows, file)))
    warehouse.write((1, 1), (2, 1), (3, 1))
    warehouse.publish()
    last = warehouse.write((4, 2))
    warehouse.publish()
    assert written == [3, 1]
    assert warehouse.published() == (last, [(1, 1), (2, 1), (3, 1), (4, 2)])


def test_workers_at_different_places_publish_nothing(warehouse: PublishedWarehouse) -> None:
    warehouse.write((1, 1))
    warehouse.publish()
    (row,) = warehouse.session.meta.checkpoints.read("to-hive", "shop")
    warehouse.session.meta.checkpoints.claim("to-hive", "shop", 2, row)
    rows = warehouse.session.meta.checkpoints.read("to-hive", "shop")
    warehouse.session.begin()
    warehouse.session.meta.checkpoints.lock("to-hive", "shop", 1)
    warehouse.session.meta.checkpoints.save(replace(rows[1], lsn=lsn(9999)))
    warehouse.session.commit()
    assert publication.read_moment(warehouse.parts, warehouse.session).whole == {}
