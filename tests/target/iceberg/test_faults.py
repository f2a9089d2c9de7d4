"""Damaged files halt the task, wrong paths create no warehouse, and needed files stay if another program has changed a
table's history.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, rows, table, write

from pidts.apply import Committer
from pidts.durable_folder import make_folder
from pidts.model import Column, Halted, Table, TableName, Transient
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

NAME = TableName("shop", "t")
KEYED = table(NAME, {"id": INT, "v": INT})
KEYLESS = Table(NAME, (Column("id", INT), Column("v", INT)), (), charset="utf8mb4", collation="utf8mb4_bin")


@pytest.fixture
def target(memory_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(memory_path / "deep" / "warehouse"))
    with closing(made.connect()) as session:
        session.meta.prepare()
    return made


def forget_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empties the caches, as they are in a new process."""
    from pidts.target.iceberg import files, metadata_file

    for module in (files, metadata_file):
        for name, each in list(vars(module).items()):
            if isinstance(each, files.Cache):
                monkeypatch.setattr(module, name, files.Cache(1))


@pytest.mark.parametrize("how", ["missing", "cut", "empty"])
@pytest.mark.parametrize("which", ["data/*.parquet", "metadata/*-2-*.avro", "metadata/*snap.avro", "metadata/*.json"])
def test_a_missing_or_damaged_file_halts_and_is_named(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch, which: str, how: str
) -> None:
    with closing(target.connect()) as session:
        create(session, KEYED)
        for number in range(2):
            write(session, change(KEYED, upserts=[(1, number), (2, number)]))
        place = Path(str(session.tables.location(NAME)).removeprefix("file://"))
    path = place if which.endswith("json") else max(place.parent.parent.glob(which))
    data = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(data[: len(data) // 2] if how == "cut" else b"")
    forget_files(monkeypatch)
    with closing(target.connect()) as session, pytest.raises(Halted) as caught:
        session.read_rows(KEYED)
    assert (caught.value.code, caught.value.where.file) == ("target-damaged", str(path))
    with closing(target.connect()) as session:
        session.begin()
        with pytest.raises(Halted):
            session.write(change(KEYED, upserts=[(1, 7)]))


def test_no_look_makes_a_warehouse(tmp_path: Path) -> None:
    place = tmp_path / "mistyped"
    with closing(IcebergTarget(str(place)).connect()) as session:
        assert session.meta.checkpoints.read("t", "s") == []
        assert session.schema.structure(NAME) is None
        assert not session.is_shown("run", "t", "s")
        with pytest.raises(Halted) as caught:
            session.begin()
        assert caught.value.code == "no-warehouse"
        assert not place.exists()
        with closing(IcebergTarget(str(place)).connect()) as other:
            other.meta.prepare()
            create(other, KEYED)
        assert session.schema.structure(NAME) is not None


def test_all_new_folders_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    make_folder(tmp_path / "a" / "b" / "c")
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_a_disk_that_takes_no_more_is_tried_again(target: IcebergTarget, request: pytest.FixtureRequest) -> None:
    """The write fails at any byte: the system refuses files that grow beyond a limit, as a full disk would."""
    with closing(target.connect()) as session:
        create(session, KEYED)
        (row,) = session.meta.checkpoints.claim("t", "s", 1, checkpoint(100))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    failures = []
    # The database creates further files with its first session. Without a session, it would fail before any other
    # file.
    request.addfinalizer(target.connect().close)
    for limit in (1, 600, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7000, 10_000):
        with closing(target.connect()) as session:
            before = session.read_rows(KEYED)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))
            with (
                pytest.raises(Transient) as caught,
                Committer(target, "t", "s", row.epoch, sleep=lambda _: None) as writer,
            ):
                writer.commit(
                    0, row.lsn, checkpoint(100 + limit), lambda _, n=limit: [change(KEYED, upserts=[(n, n), (-1, n)])]
                )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        failures.append(caught.value.what)
        with closing(target.connect()) as session:
            assert session.read_rows(KEYED) == before
            (row,) = session.meta.checkpoints.read("t", "s")
            assert row.lsn == lsn(100)
    assert any(os.strerror(errno.EFBIG) in what for what in failures), failures
    with Committer(target, "t", "s", row.epoch) as writer:
        writer.commit(0, row.lsn, checkpoint(20_000), lambda _: [change(KEYED, upserts=[(1, 1)])])


def test_the_copy_of_a_table_without_a_key_blocks_no_other_program(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.target.iceberg.connection.LOCK_SECONDS", 0.2)
    monkeypatch.setattr("pidts.target.iceberg.session._LOADED_BYTES", 10)
    other_table = table(TableName("shop", "other"), {"id": INT, "v": INT})
    with closing(target.connect()) as session, closing(target.connect()) as other:
        create(session, KEYLESS)
        create(session, other_table)
        session.begin()
        session.load(KEYLESS, rows(KEYLESS, (0, 0)))
        session.commit()
        session.begin()
        session.clear(NAME)
        for number in range(1, 4):
            assert session.load(KEYLESS, rows(KEYLESS, (number, number), (number, number)))
            other.begin()
            other.write(change(other_table, upserts=[(number, number)]))
            assert other.load(KEYLESS, rows(KEYLESS, (9, number)))
            other.commit()
        session.commit()
        assert sorted(session.read_rows(KEYLESS)["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]
        assert session.count(NAME) == 6
        assert session.count(other_table.name) == 3


def append(target: IcebergTarget, number: int, branch: str) -> None:
    """Adds a row to a branch, as another program does."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    found = catalog.load_table((NAME.schema, NAME.name))
    found.append(pa.table({"id": pa.array([number], pa.int32()), "v": pa.array([0], pa.int32())}), branch=branch)
    catalog.engine.dispose()


def scanned(target: IcebergTarget, snapshot: int | None = None) -> list[int]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    try:
        found = catalog.load_table((NAME.schema, NAME.name))
        return sorted(found.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())
    finally:
        catalog.engine.dispose()


def manage(target: IcebergTarget, what: str, *values: object) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    with catalog.load_table((NAME.schema, NAME.name)).manage_snapshots() as changes:
        getattr(changes, what)(*values)
    catalog.engine.dispose()


def current(target: IcebergTarget, branch: str = "main") -> int:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    found = catalog.load_table((NAME.schema, NAME.name)).snapshot_by_name(branch)
    catalog.engine.dispose()
    assert found is not None
    return found.snapshot_id


def committed(target: IcebergTarget, clock: list[float], *numbers: int) -> None:
    with closing(target.connect()) as session:
        for number in numbers:
            write(session, change(KEYED, upserts=[(number, 0)]))
            clock[0] += 1300


def test_a_tag_on_a_branch_that_was_dropped_keeps_its_files(target: IcebergTarget, clock: list[float]) -> None:
    with closing(target.connect()) as session:
        create(session, KEYED)
    committed(target, clock, *range(10))
    manage(target, "create_branch", current(target), "side")
    # The small files become one file: only the branch still needs the small ones.
    committed(target, clock, *range(10, 26))
    append(target, 99, "side")
    kept = current(target, "side")
    manage(target, "create_tag", kept, "audit")
    manage(target, "remove_branch", "side")
    committed(target, clock, *range(26, 50))
    assert scanned(target, kept) == [*range(10), 99]
    assert scanned(target) == list(range(50))


def gone_back(target: IcebergTarget, clock: list[float]) -> None:
    """Makes an early snapshot the current one, as another program does: the table then has the rows 0 to 13."""
    with closing(target.connect()) as session:
        create(session, KEYED)
    committed(target, clock, *range(14))
    early = current(target)
    manage(target, "create_tag", early, "early")
    committed(target, clock, *range(14, 20))  # The small files become one file.
    manage(target, "set_current_snapshot", early)
    manage(target, "remove_tag", "early")


def test_files_of_a_snapshot_that_another_program_went_back_to_stay(target: IcebergTarget, clock: list[float]) -> None:
    gone_back(target, clock)
    committed(target, clock, 100, 101, 102, 103, 104, 105)
    assert set(range(14)) <= set(scanned(target))
    with closing(target.connect()) as session:
        assert sorted(session.read_rows(KEYED)["id"].to_pylist()) == scanned(target)


def test_files_of_a_snapshot_that_another_program_went_back_to_and_wrote_on_stay(
    target: IcebergTarget, clock: list[float]
) -> None:
    """After the other program's write, the newest snapshot is the current one, as if no program had gone back."""
    gone_back(target, clock)
    append(target, 99, "main")
    committed(target, clock, 100, 101, 102, 103, 104, 105)
    assert set(scanned(target)) == {*range(14), 99, *range(100, 106)}
    with closing(target.connect()) as session:
        assert sorted(session.read_rows(KEYED)["id"].to_pylist()) == scanned(target)
