"""Files that nobody needs are removed, and no other files, wherever a sweep is interrupted."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.crashes import ProcessDied
from tests.examples import seeds
from tests.target.conformance.samples import INT, change, create, rows, table, write

from pidts.model import Column, Table, TableName, Transient
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from tests.target.iceberg.test_faults import NAME, append, current, manage, scanned

from pidts.target.iceberg import sweep as sweeping
from pidts.target.iceberg.connection import CatalogConnection

KEYED = table(NAME, {"id": INT, "v": INT})
KEYLESS = Table(NAME, (Column("id", INT), Column("v", INT)), (), charset="utf8mb4", collation="utf8mb4_bin")
DAY = 90_000


@pytest.fixture
def target(memory_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(memory_path / "warehouse"))
    with closing(made.connect()) as session:
        session.meta.prepare()
    return made


def swept(target: IcebergTarget) -> int:
    with closing(target.connect()) as session:
        return sweeping.sweep(session)


def files(target: IcebergTarget) -> set[Path]:
    return {each for each in (Path(target.warehouse) / "shop").rglob("*") if each.is_file()}


def broken_off(target: IcebergTarget, number: int) -> None:
    """Writes all files of a transaction that does not commit."""
    with closing(target.connect()) as session:
        session.begin()
        session.write(change(KEYED, upserts=[(number, 0)], deletes=[(2,)]))
        session._settle()
        session.rollback()


def every_snapshot_is_readable(target: IcebergTarget) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    for one in catalog.load_table((NAME.schema, NAME.name)).metadata.snapshots:
        scanned(target, one.snapshot_id)
    catalog.engine.dispose()


def test_orphans_go_after_a_day_and_nothing_else_does(target: IcebergTarget, clock: list[float]) -> None:
    with closing(target.connect()) as session:
        create(session, KEYED)
        for number in range(3):
            write(session, change(KEYED, upserts=[(number, 0)], deletes=[(number - 1,)]))
    before = files(target)
    broken_off(target, 100)
    folder = next(iter(before)).parent.parent
    foreign = {
        folder / "data" / "00000-0-of-another-program.parquet",
        folder / "metadata" / "12345678-9abc-4def-8123-456789abcdef-m0.avro",
    }
    for each in foreign:
        each.write_bytes(b"")
    assert len(files(target)) > len(before) + 4
    assert swept(target) == 0
    clock[0] += DAY / 2
    assert swept(target) == 0
    clock[0] += DAY
    assert swept(target) >= 3
    assert files(target) == before | foreign
    every_snapshot_is_readable(target)
    assert scanned(target) == [2]


def test_a_file_that_was_noted_and_is_committed_later_stays(
    target: IcebergTarget, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.target.iceberg.session._LOADED_BYTES", 1)
    with closing(target.connect()) as session:
        create(session, KEYLESS)
        session.begin()
        session.load(KEYLESS, rows(KEYLESS, (1, 1)))  # The row's file is written, and no metadata names the file.
        swept(target)
        clock[0] += DAY
        session.commit()
        assert swept(target) == 0
        assert session.read_rows(KEYLESS).num_rows == 1
    assert scanned(target) == [1]


def test_rows_whose_file_was_removed_before_their_commit_are_not_lost(
    target: IcebergTarget, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is frozen for more than a day between writing the file and its COMMIT."""
    monkeypatch.setattr("pidts.target.iceberg.session._LOADED_BYTES", 1)
    with closing(target.connect()) as session:
        create(session, KEYLESS)
        session.begin()
        session.load(KEYLESS, rows(KEYLESS, (1, 1)))
        swept(target)
        clock[0] += DAY
        assert swept(target) == 1
        with pytest.raises(Transient):
            session.commit()
        session.rollback()
        assert session.count(NAME) == 0
        session.begin()
        session.load(KEYLESS, rows(KEYLESS, (1, 1)))
        session.commit()
    assert scanned(target) == [1]


def test_the_folder_of_a_dropped_table_goes_after_a_day(target: IcebergTarget, clock: list[float]) -> None:
    with closing(target.connect()) as session:
        create(session, KEYED)
        write(session, change(KEYED, upserts=[(1, 1)]))
        old = files(target)
        session.execute(json.dumps({"drop": [NAME.schema, NAME.name]}))
        create(session, KEYED)
        write(session, change(KEYED, upserts=[(2, 2)]))
        swept(target)
        assert old <= files(target)
        clock[0] += DAY
        assert swept(target) == 1
        assert not old & files(target)
    assert scanned(target) == [2]
    assert not list((Path(target.warehouse) / ".pidts").glob("dropped-*"))


@pytest.mark.parametrize("is_made_by_link", [True, False])
def test_a_warehouse_is_swept_by_each_of_its_paths(
    target: IcebergTarget, clock: list[float], tmp_path: Path, is_made_by_link: bool
) -> None:
    gone = table(TableName("shop", "gone"), {"id": INT})
    (tmp_path / "other").symlink_to(target.warehouse)
    other = replace(target, warehouse=str(tmp_path / "other"))
    maker, sweeper = (other, target) if is_made_by_link else (target, other)
    with closing(maker.connect()) as session:
        create(session, KEYED)
        create(session, gone)
        write(session, change(KEYED, upserts=[(1, 1)]))
        session.execute(json.dumps({"drop": ["shop", "gone"]}))
    before = {each for each in files(target) if "gone-" not in str(each)}
    broken_off(sweeper, 2)
    assert swept(sweeper) == 0
    clock[0] += DAY
    assert swept(sweeper) > 1
    assert files(target) == before
    every_snapshot_is_readable(target)


def test_a_table_registered_under_another_path_stays(target: IcebergTarget, clock: list[float], tmp_path: Path) -> None:
    """Two tables share a folder: one was left behind, the other is registered in another catalog, by another path."""
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "other").symlink_to(target.warehouse)
    with closing(target.connect()) as session:
        create(session, KEYED)
        write(session, change(KEYED, upserts=[(1, 1)]))
        place = str(session.tables.location(NAME))
    catalog = SqlCatalog("other", uri=f"sqlite:///{target.warehouse}/catalog.db")
    catalog.create_namespace("kept")
    catalog.register_table("kept.t", place.replace(target.warehouse, str(tmp_path / "other")))
    with closing(target.connect()) as session:
        session.execute(json.dumps({"drop": [NAME.schema, NAME.name]}))
    swept(target)
    clock[0] += DAY
    swept(target)
    assert catalog.load_table("kept.t").scan().to_arrow().num_rows == 1
    catalog.engine.dispose()


def test_a_dropped_table_that_another_program_has_registered_again_stays(
    target: IcebergTarget, clock: list[float]
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(target.connect()) as session:
        create(session, KEYED)
        write(session, change(KEYED, upserts=[(1, 1)]))
        place = session.tables.location(NAME)
        session.execute(json.dumps({"drop": [NAME.schema, NAME.name]}))
    catalog = SqlCatalog("other", uri=f"sqlite:///{target.warehouse}/catalog.db")
    catalog.create_namespace("kept")
    catalog.register_table("kept.t", str(place))
    swept(target)
    clock[0] += DAY
    swept(target)
    assert catalog.load_table("kept.t").scan().to_arrow().num_rows == 1
    catalog.engine.dispose()


def test_a_sweep_may_break_off_anywhere(
    target: IcebergTarget, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = table(TableName("shop", "gone"), {"id": INT})
    with closing(target.connect()) as session:
        create(session, KEYED)
        create(session, gone)
        write(session, change(KEYED, upserts=[(1, 1)]))
    for number in range(3):
        broken_off(target, number)
    with closing(target.connect()) as session:
        session.execute(json.dumps({"drop": ["shop", "gone"]}))
    swept(target)
    clock[0] += DAY
    left = [0]

    def breaking(real: Any) -> Any:
        def call(*values: Any, **named: Any) -> Any:
            if left[0] == 0:
                raise ProcessDied
            left[0] -= 1
            return real(*values, **named)

        return call

    point, is_whole = 0, False
    while not is_whole:
        left[0] = point
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", breaking(Path.unlink))
            patched.setattr(Path, "rename", breaking(Path.rename))
            patched.setattr("shutil.rmtree", breaking(shutil.rmtree))
            patched.setattr(
                "pidts.target.iceberg.connection.CatalogConnection.commit",
                breaking(CatalogConnection.commit),
            )
            with suppress(ProcessDied):
                swept(target)
                is_whole = True
        every_snapshot_is_readable(target)
        point += 1
    assert point > 5
    assert scanned(target) == [1]
    with closing(target.connect()) as session:
        for record in ("orphan", "dropped_table"):
            assert session.run(f"SELECT * FROM pidts_meta.{record}", ())[0] == []
    assert not list((Path(target.warehouse) / ".pidts").glob("dropped-*"))
    assert len(list((Path(target.warehouse) / "shop").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4), ids=itertools.count())
def test_any_history_of_pidts_and_other_programs_keeps_every_named_snapshot(
    target: IcebergTarget, clock: list[float], monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    """Files are removed without delay, so if a file is removed too early, the next reader of its snapshot fails."""
    monkeypatch.setattr(sweeping, "ORPHAN_SECONDS", -1)
    chance = random.Random(seed)
    with closing(target.connect()) as session:
        create(session, KEYED)
        write(session, change(KEYED, upserts=[(0, 0)]))
    branches: list[str] = []
    for number in range(1, 60):
        clock[0] += chance.choice([1, 1000, 5000])
        match chance.randrange(12):
            case 0:
                broken_off(target, number)
            case 1:
                manage(target, "create_tag", current(target), f"tag{number}")
            case 2:
                branches.append(f"branch{number}")
                manage(target, "create_branch", current(target), branches[-1])
            case 3 if branches:
                append(target, -number, chance.choice(branches))
            case 4 if branches:
                name = branches.pop()
                manage(target, "create_tag", current(target, name), f"of-{name}")
                manage(target, "remove_branch", name)
            case 5:
                manage(target, "create_tag", current(target), f"back{number}")
                append(target, -number, "main")
                manage(target, "set_current_snapshot", current(target, f"back{number}"))
            case 6 | 7:
                swept(target)
                every_snapshot_is_readable(target)
            case _:
                with closing(target.connect()) as session:
                    write(session, change(KEYED, upserts=[(number, 0), (0, number)], deletes=[(number - 2,)]))
    swept(target)
    every_snapshot_is_readable(target)
    with closing(target.connect()) as session:
        assert sorted(session.read_rows(KEYED)["id"].to_pylist()) == scanned(target)
