"""Many small commits: the table stays what it is to be, and its files stay few, for our reader and for others."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.target.conformance.breaking import Died
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, rows, table, text

from pidts.apply import Committer
from pidts.model import Table, TableName
from pidts.reduce import NetChange
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

NAME = TableName("shop", "orders")
Model = dict[tuple[int, str], tuple[Any, ...]]


@pytest.fixture
def target(tmp_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(tmp_path))
    with closing(made.connect()) as session:
        session.meta.prepare()
    return made


def read(target: IcebergTarget, structure: Table) -> list[tuple[Any, ...]]:
    with closing(target.connect()) as session:
        assert session.count(structure.name) == session.read_rows(structure).num_rows
        return [tuple(row.values()) for row in session.read_rows(structure).to_pylist()]


def read_by_others(target: IcebergTarget) -> list[tuple[Any, ...]]:
    """As pyiceberg's own catalog reads the table, without any code of ours."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    try:
        found = catalog.load_table((NAME.schema, NAME.name)).scan().to_arrow()
    finally:
        catalog.engine.dispose()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def random_change(chance: random.Random, structure: Table, model: Model) -> NetChange:
    """Deletes some rows and writes some, and does the same to the model."""
    gone = chance.sample(sorted(model), min(len(model), chance.randrange(6)))
    new = {(chance.randrange(60), chance.choice("abc")): chance.randrange(1000) for _ in range(chance.randrange(1, 12))}
    if chance.random() < 0.05:
        gone = sorted(model)
    for key in gone:
        del model[key]
    upserts = [(*key, value) for key, value in sorted(new.items())]
    model.update({row[:2]: row for row in upserts})
    return change(structure, deletes=gone, upserts=upserts)


@pytest.mark.parametrize("seed", range(3))
def test_any_history_is_what_the_source_has_and_its_files_stay_few(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Nothing is kept for readers here, so that what is removed too early is missed.
    monkeypatch.setattr("pidts.target.iceberg.publish.KEPT_SECONDS", -3600)
    monkeypatch.setattr("pidts.target.iceberg.catalog.KEPT_SECONDS", -3600)
    chance, model = random.Random(seed), {}
    structure = table(NAME, {"id": INT, "k": text(), "v": INT}, key=("id", "k"))
    with closing(target.connect()) as session:
        create(session, structure)
        for number in range(60):
            session.begin()
            for _ in range(chance.randint(1, 2)):
                session.write(random_change(chance, structure, model))
            if chance.random() < 0.2:
                session.rollback()
                model = {row[:2]: row for row in read(target, structure)}
                continue
            session.commit()
            if number % 10 == 9:
                assert read(target, structure) == sorted(model.values())
                assert read_by_others(target) == sorted(model.values())
    assert read_by_others(target) == sorted(model.values())
    (place,) = (Path(target.warehouse) / "shop").iterdir()
    data = list((place / "data").glob("*.parquet"))
    assert len([one for one in data if "deletes" not in one.name]) < 40
    assert len(list((place / "metadata").iterdir())) < 60


def test_a_reader_that_began_before_finds_its_files(target: IcebergTarget) -> None:
    from pyiceberg.table import StaticTable

    structure = table(NAME, {"id": INT, "v": INT})
    with closing(target.connect()) as session:
        create(session, structure)
        session.begin()
        assert session.load(structure, rows(structure, (1, 1), (2, 2)))
        session.commit()
        place = session.tables.location(NAME)
        reader = StaticTable.from_metadata(str(place)).scan()
        for number in range(40):
            session.begin()
            session.write(change(structure, deletes=[(1,)], upserts=[(2, number), (3, number)]))
            session.commit()
    assert sorted(row["id"] for row in reader.to_arrow().to_pylist()) == [1, 2]


def test_a_break_at_any_file_leaves_all_of_a_batch_or_nothing(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables and the checkpoint: each wait for the disk is a place where the process may end."""
    one, two = (table(TableName("shop", name), {"id": INT, "v": INT}) for name in ("one", "two"))
    with closing(target.connect()) as session:
        for structure in (one, two):
            create(session, structure)
    sync, left = os.fsync, [0]

    def breaking(descriptor: int) -> None:
        if left[0] == 0:
            raise Died
        left[0] -= 1
        sync(descriptor)

    point, place, is_whole = 0, 100, False
    while not is_whole:
        with closing(target.connect()) as session:
            (row,) = session.meta.checkpoints.claim("t", "s", 1, checkpoint(100))
            before = [session.read_rows(structure).to_pylist() for structure in (one, two)]
        left[0] = point

        def changes(_: Any, number: int = point) -> list[NetChange]:
            return [
                change(each, deletes=[(number - 1,)], upserts=[(number, number), (-1, number)]) for each in (one, two)
            ]

        monkeypatch.setattr(os, "fsync", breaking)
        try:
            with Committer(target, "t", "s", row.epoch) as writer:
                writer.commit(0, row.lsn, checkpoint(place + 10), changes)
            is_whole = True
        except Died:
            pass
        monkeypatch.undo()
        with closing(target.connect()) as session:
            (stored,) = session.meta.checkpoints.read("t", "s")
            after = [session.read_rows(structure).to_pylist() for structure in (one, two)]
        if is_whole:
            place += 10
            assert after == [[{"id": -1, "v": point}, {"id": point, "v": point}]] * 2
        else:
            assert after == before
        assert stored.lsn == lsn(place)
        point += 1
    assert point > 10


def test_a_snapshot_says_which_place_of_the_log_it_has(target: IcebergTarget) -> None:
    structure = table(NAME, {"id": INT})
    with closing(target.connect()) as session:
        create(session, structure)
        (row,) = session.meta.checkpoints.claim("t", "s", 1, checkpoint(100))
    with Committer(target, "t", "s", row.epoch) as writer:
        writer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1,)])])
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    current = catalog.load_table((NAME.schema, NAME.name)).current_snapshot()
    catalog.engine.dispose()
    assert current is not None
    assert current.summary is not None
    said = current.summary.additional_properties
    assert (said["pidts.task"], said["pidts.source"], said["pidts.epoch"]) == ("t", "s", "1")
    assert said["pidts.lsn"] == str(lsn(200))


def test_the_catalog_s_tables_are_those_of_an_iceberg_client(target: IcebergTarget, tmp_path: Path) -> None:
    import sqlite3

    from pyiceberg.catalog.sql import SqlCatalog

    other = tmp_path / "other.db"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{other}")
    catalog.engine.dispose()

    def columns(file: Path) -> dict[str, list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(file)) as database:
            return {
                name: [row[1:3] + row[5:6] for row in database.execute(f"PRAGMA table_info({name})")]
                for name in ("iceberg_tables", "iceberg_namespace_properties")
            }

    assert columns(Path(target.warehouse) / "catalog.db") == columns(other)
