"""A task gets an object store after it has published tables in the warehouse's directory: its publications move there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from tests.object_store import ObjectStore
from tests.target.hive.metastore_server import BUCKET
from tests.target.hive.publishing import PublishedWarehouse, store_at, warehouse_of_a_test
from tests.target.hive.test_change_tables import inserted, seen

from pidts.spark.metastore import Metastore

__all__ = ["warehouse_of_a_test"]

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(name="store", scope="module")
def store_of_a_server(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    with store_at(metastore, tmp_path_factory) as found:
        yield found


def test_states_move_changes_continue_and_former_states_are_removed(
    warehouse: PublishedWarehouse, object_store: ObjectStore, clock: list[float]
) -> None:
    warehouse.write((1, 10), logged=[inserted(warehouse, 10, 1)])
    warehouse.publish()
    directory = Path(warehouse.session.warehouse) / "hive-tables" / "pidts_meta" / "shop" / "orders"
    assert len(list(directory.iterdir())) == 1
    files = f"{object_store.bucket(BUCKET)}/{uuid.uuid4().hex}"
    warehouse.parts = tuple(replace(part, target=replace(part.target, files=files)) for part in warehouse.parts)
    last = warehouse.write((2, 20), logged=[inserted(warehouse, 20, 2)])
    warehouse.publish()
    assert warehouse.published() == (last, [(1, 10), (2, 20)])
    found = warehouse.store.table("shop", "orders")
    assert found is not None
    assert found.location.startswith(f"s3a://{files.removeprefix('s3://')}/hive-tables/")
    assert seen(warehouse) == [("insert", 1, 10), ("insert", 2, 20)]
    assert not warehouse.changes().problem
    warehouse.publish()
    clock[0] += 3700
    warehouse.publish()
    assert not list(directory.iterdir())
    assert warehouse.published() == (last, [(1, 10), (2, 20)])
