"""Each warehouse has its own folders for the files of published tables, even in a shared store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pidts.target import HiveTarget

pytest.importorskip("pyiceberg")

from pidts.target.hive.change_record import changes_folders
from pidts.target.hive.places import folder_of, location_of
from pidts.target.hive.record import tables_folders

STORE = "s3://lake/shop"


def roots(warehouse: Path) -> list[str]:
    with closing(HiveTarget(str(warehouse), files=STORE).connect()) as session:
        session.meta.prepare()
        return [*tables_folders(session), *changes_folders(session)]


def test_warehouses_that_share_a_store_have_folders_of_their_own(tmp_path: Path) -> None:
    one, other = roots(tmp_path / "one"), roots(tmp_path / "other")
    assert len({*one, *other}) == 8
    assert all(each.startswith((f"{STORE}/hive-", f"{tmp_path}/")) for each in (*one, *other))
    assert roots(tmp_path / "one") == one, "a later session has the same folders"


@pytest.mark.parametrize(
    ("folder", "location"), [("/lake/x", "file:///lake/x"), ("s3://lake/x", "s3a://lake/x")], ids=["here", "store"]
)
def test_a_metastore_has_another_name_for_a_folder(folder: str, location: str) -> None:
    assert location_of(folder) == location
    assert folder_of(location) == folder
