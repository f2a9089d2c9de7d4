"""After many small commits, PiDTS and other readers find the right rows in few files."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.examples import seeds
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, rows, table, text, write

from pidts.apply import Committer
from pidts.model import Column, ColumnType, Kind, Table, TableName, calendar
from pidts.reduce import Counts, NetChange
from pidts.target import IcebergTarget

pytestmark = pytest.mark.slow

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

NAME = TableName("shop", "orders")
Model = dict[tuple[int, str], tuple[Any, ...]]


@pytest.fixture
def target(memory_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(memory_path))
    with closing(made.connect()) as session:
        session.meta.prepare()
    return made


def read(target: IcebergTarget, structure: Table) -> list[tuple[Any, ...]]:
    with closing(target.connect()) as session:
        assert session.count(structure.name) == session.read_rows(structure).num_rows
        return [tuple(row.values()) for row in session.read_rows(structure).to_pylist()]


def read_by_others(target: IcebergTarget) -> list[tuple[Any, ...]]:
    """Reads the table with pyiceberg's own catalog, without any code of PiDTS."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    try:
        found = catalog.load_table((NAME.schema, NAME.name)).scan().to_arrow()
    finally:
        catalog.engine.dispose()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def files(target: IcebergTarget) -> list[tuple[int, int]]:
    """Returns the rows and the bytes of each data file that a reader opens."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    try:
        found = [task.file for task in catalog.load_table((NAME.schema, NAME.name)).scan().plan_files()]
    finally:
        catalog.engine.dispose()
    return [(file.record_count, file.file_size_in_bytes) for file in found]


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


@pytest.mark.parametrize("kind", ["upserts", "deletes", "loads"])
def test_what_writes_small_files_anew_may_be_any_kind_of_change(target: IcebergTarget, kind: str) -> None:
    structure = table(NAME, {"id": INT, "v": INT})
    known = {number: number for number in range(40)}
    with closing(target.connect()) as session:
        create(session, structure)
        for number in range(0, 40, 2):
            write(session, change(structure, upserts=[(number, number), (number + 1, number + 1)]))
            session.begin()
            if kind == "upserts":
                known[number] = -1
                session.write(change(structure, upserts=[(number, -1)]))
            elif kind == "deletes":
                session.write(change(structure, deletes=[(number,)]))
                del known[number]
            else:
                known[100 + number] = 7
                assert session.load(structure, rows(structure, (100 + number, 7)))
            session.commit()
    assert read(target, structure) == read_by_others(target) == sorted(known.items())


@pytest.mark.parametrize("seed", seeds(3), ids=itertools.count())
def test_any_history_is_what_the_source_has_and_its_files_stay_few(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    # Nothing is kept for readers here, so if a file is removed too early, the next reader fails.
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


def test_a_commit_merges_no_more_small_files_than_it_may(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy leaves many small files. The changes after the copy do not wait until all of them are merged."""
    structure = table(NAME, {"id": INT, "v": INT})
    with closing(target.connect()) as session:
        create(session, structure)
        for number in range(40):
            session.begin()
            assert session.load(structure, rows(structure, (2 * number, 0), (2 * number + 1, 0)))
            session.commit()
        assert [count for count, _ in files(target)] == [2] * 40
        size = max(size for _, size in files(target))
        monkeypatch.setattr("pidts.target.iceberg.publish.MERGED_BYTES", 10 * size + size // 2)
        for number in range(2):
            write(session, change(structure, upserts=[(100 + number, 1)]))
    assert sorted(count for count, _ in files(target)) == [2] * 20 + [20 + 1, 20 + 1]
    assert len(read_by_others(target)) == 82


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
            write(session, change(structure, deletes=[(1,)], upserts=[(2, number), (3, number)]))
    assert sorted(row["id"] for row in reader.to_arrow().to_pylist()) == [1, 2]


def test_a_break_at_any_file_leaves_all_of_a_batch_or_nothing(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch changes two tables and the checkpoint. The process may end at each write to the disk."""
    one, two = (table(TableName("shop", name), {"id": INT, "v": INT}) for name in ("one", "two"))
    with closing(target.connect()) as session:
        for structure in (one, two):
            create(session, structure)
    sync, left = os.fsync, [0]

    def breaking(descriptor: int) -> None:
        if left[0] == 0:
            raise ProcessDied
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
        except ProcessDied:
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


def all_snapshots(target: IcebergTarget) -> list[int]:
    """Returns the number of rows of each snapshot that the table names; each snapshot must be readable."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    try:
        found = catalog.load_table((NAME.schema, NAME.name))
        return [found.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in found.metadata.snapshots]
    finally:
        catalog.engine.dispose()


def test_a_schema_change_leaves_the_files_of_snapshots_that_it_still_names(
    target: IcebergTarget, clock: list[float]
) -> None:
    before, after = (table(NAME, dict.fromkeys(names, INT)) for names in (("id", "v"), ("id", "v", "w")))
    with closing(target.connect()) as session:
        create(session, before)
        for number in range(3):
            write(session, change(before, upserts=[(number, number)], deletes=[(number - 1,)]))
            clock[0] += 1
        clock[0] += 7200
        kept = {"id": "id", "v": "v"}
        more = {"known": before.arrow.names, "kept": kept, "unfillable": [], "executed_at": 0}
        session.execute(json.dumps({"alter": after.to_json(), **more}))
        assert all_snapshots(target) == [1, 1, 1]
        for number in range(3, 5):
            write(session, change(after, upserts=[(number, number, 0)]))
            clock[0] += 7200
    assert all_snapshots(target) == [2, 3]


def test_a_clock_that_is_set_back_takes_no_file_of_a_snapshot(target: IcebergTarget, clock: list[float]) -> None:
    structure = table(NAME, {"id": INT, "v": INT})
    clock[0] += 7200
    with closing(target.connect()) as session:
        create(session, structure)
        for number in range(7):
            write(session, change(structure, upserts=[(1, number)]))
            clock[0] += -7200 if number == 2 else 1300
            assert set(all_snapshots(target)) == {1}


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_snapshot_that_a_user_has_named_stays_with_its_files(
    target: IcebergTarget, clock: list[float], kind: str
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    structure = table(NAME, {"id": INT, "v": INT})
    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    with closing(target.connect()) as session:
        create(session, structure)
        for number in range(30):
            write(session, change(structure, upserts=[(1, number), (number, number)]))
            if number == 5:
                named = catalog.load_table((NAME.schema, NAME.name))
                snapshot = named.current_snapshot()
                assert snapshot is not None
                manage = named.manage_snapshots()
                (manage.create_tag if kind == "tag" else manage.create_branch)(
                    snapshot.snapshot_id, "month-end"
                ).commit()
            clock[0] += 7200
    found = catalog.load_table((NAME.schema, NAME.name))
    assert "month-end" in found.refs()
    rows_then = found.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows_then) == [0, 1, 2, 3, 4, 5]
    assert len(found.metadata.snapshots) <= 4
    catalog.engine.dispose()


def keyless(kinds: dict[str, ColumnType]) -> Table:
    columns = tuple(Column(name, kind, nullable=True) for name, kind in kinds.items())
    return Table(NAME, columns, (), charset="utf8mb4", collation="utf8mb4_bin")


def counted(
    structure: Table, *, upserts: Sequence[Sequence[Any]] = (), deletes: Sequence[Sequence[Any]] = ()
) -> NetChange:
    """Returns a change of a table without a key. Of each row in `deletes`, one copy is removed."""
    counts = Counts(inserted=len(upserts), deleted=len(deletes))
    times = pa.array([1] * len(deletes), pa.int64())
    return NetChange(structure, rows(structure, *deletes), rows(structure, *upserts), counts, times=times)


def test_rows_without_a_key_that_are_equal_in_the_files_all_go(target: IcebergTarget) -> None:
    """A zero date and a partial date make two different rows on the source, and two equal rows in a warehouse."""
    structure = keyless({"a": INT, "d": ColumnType(Kind.DATE)})
    first, second = ((1, calendar.days(year, 0, 0)) for year in (0, 2024))
    with closing(target.connect()) as session:
        create(session, structure)
        write(session, counted(structure, upserts=[first, second, first]))
        write(session, counted(structure, deletes=[first, second]))
        assert session.count(NAME) == 1


def test_a_row_without_a_key_whose_first_column_is_null_is_found_among_others(target: IcebergTarget) -> None:
    structure = keyless({"a": INT, "b": INT})
    with closing(target.connect()) as session:
        create(session, structure)
        for some in ([(None, 1), (5, 1)], [(100, 2)]):
            write(session, counted(structure, upserts=some))
        write(session, counted(structure, deletes=[(None, 1), (100, 2)]))
    assert read_by_others(target) == [(5, 1)]


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
