"""Files that a server's catalog needs stay, however much later the state of the warehouse is."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.target.conformance.samples import INT, change, create, table, write

from pidts.model import Column, TableName
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")

from pyiceberg.table import StaticTable

from pidts.target.iceberg import sweep as sweeping
from pidts.target.iceberg.server_record import DROPPED, Entry, ServerRecord
from pidts.target.iceberg.session import IcebergSession

NAME = TableName("shop", "t")
KEYED = table(NAME, {"id": INT, "v": INT})
WIDER = replace(KEYED, columns=(*KEYED.columns, Column("w", INT)))
HOUR, DAY = 3700.0, 90_000.0
PLACE = "postgresql server/db"


@pytest.fixture
def target(memory_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(memory_path / "warehouse"))
    with closing(made.connect()) as session:
        session.meta.prepare()
        create(session, KEYED)
    return made


def commit(session: IcebergSession, key: int, value: int) -> str:
    """Changes a row; returns the table's metadata file."""
    write(session, change(KEYED, upserts=[(key, value)]))
    return str(session.tables.location(NAME))


def hours(session: IcebergSession, clock: list[float], count: int) -> None:
    """Lets hours pass, with commits, each of which removes files that are old enough, and with a sweep."""
    for number in range(count):
        clock[0] += HOUR
        commit(session, 1, 1000 + number)
        sweeping.sweep(session)


def rows(location: str) -> list[tuple[int, int]]:
    """Returns the rows that a reader finds by a metadata file."""
    found = StaticTable.from_metadata(location).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def is_there(location: str) -> bool:
    return Path(location.removeprefix("file://")).exists()


@pytest.mark.parametrize("which", ["metadata", "next"])
def test_the_state_of_a_server_stays_readable_until_an_hour_after_its_next_state(
    target: IcebergTarget, clock: list[float], which: str
) -> None:
    with closing(target.connect()) as session:
        record = ServerRecord(session)
        commit(session, 1, 1)
        shown = commit(session, 2, 2)
        entry = Entry(metadata=shown) if which == "metadata" else Entry(next=shown)
        record.put(PLACE, NAME, entry)
        hours(session, clock, 60)
        assert rows(shown) == [(1, 1), (2, 2)]
        newest = str(session.tables.location(NAME))
        record.moved(PLACE, NAME, Entry(metadata=shown, next=newest))
        assert record.entries(PLACE) == {NAME: Entry(metadata=newest)}
        clock[0] += 3000
        commit(session, 3, 3)
        sweeping.sweep(session)
        assert rows(shown) == [(1, 1), (2, 2)], "a reader may have begun just before the server's next state"
        hours(session, clock, 2)
        assert not is_there(shown)
        assert rows(newest)[0] == (1, 1059)


def test_a_schema_change_keeps_the_metadata_file_of_a_server(target: IcebergTarget, clock: list[float]) -> None:
    """Both metadata files have the same snapshots, so sequence numbers alone would not distinguish them."""
    with closing(target.connect()) as session:
        shown = commit(session, 1, 1)
        ServerRecord(session).put(PLACE, NAME, Entry(metadata=shown))
        step = {"alter": WIDER.to_json(), "known": ["id", "v"], "kept": {"id": "id", "v": "v"}}
        session.execute(json.dumps({**step, "unfillable": [], "executed_at": 0}))
        hours(session, clock, 3)
        assert rows(shown) == [(1, 1)]


def test_files_whose_records_are_lost_are_not_swept_while_a_server_needs_them(
    target: IcebergTarget, clock: list[float]
) -> None:
    with closing(target.connect()) as session:
        shown = commit(session, 1, 1)
        ServerRecord(session).put(PLACE, NAME, Entry(metadata=shown))
        for number in range(3):
            clock[0] += DAY
            commit(session, 1, 2 + number)
            session.run("DELETE FROM pidts_meta.retired_file", ())
            sweeping.sweep(session)
        assert rows(shown) == [(1, 1)]
        for _ in range(3):
            clock[0] += DAY
            ServerRecord(session).moved(PLACE, NAME, Entry(next=commit(session, 1, 3)))
            sweeping.sweep(session)
        with pytest.raises(FileNotFoundError):
            rows(shown)


def test_a_dropped_table_stays_until_a_day_after_it_has_left_the_server(
    target: IcebergTarget, clock: list[float]
) -> None:
    with closing(target.connect()) as session:
        record = ServerRecord(session)
        shown = commit(session, 1, 1)
        record.put(PLACE, NAME, Entry(metadata=shown))
        session.begin()
        session.own_database()
        session.tables.drop(NAME)
        session.commit()
        for _ in range(3):
            clock[0] += DAY
            sweeping.sweep(session)
        assert rows(shown) == [(1, 1)]
        record.moved(PLACE, NAME, Entry(metadata=shown, next=DROPPED))
        assert record.entries(PLACE) == {}
        clock[0] += HOUR
        sweeping.sweep(session)
        assert rows(shown) == [(1, 1)]
        clock[0] += DAY
        sweeping.sweep(session)
        assert not is_there(shown)


def test_another_meta_schema_protects_the_files_too(target: IcebergTarget, clock: list[float]) -> None:
    with closing(target.connect()) as session, closing(replace(target, meta_schema="other").connect()) as other:
        other.meta.prepare()
        shown = commit(session, 1, 1)
        ServerRecord(other).put(PLACE, NAME, Entry(metadata=shown))
        hours(session, clock, 3)
        assert rows(shown) == [(1, 1)]


def test_entries_of_a_place_to_which_no_task_publishes_are_forgotten(target: IcebergTarget) -> None:
    with closing(target.connect()) as session, closing(replace(target, meta_schema="other").connect()) as other:
        other.meta.prepare()
        record = ServerRecord(session)
        record.register(PLACE, "one")
        ServerRecord(other).register(PLACE, "one")
        record.put(PLACE, NAME, Entry(metadata="file:///m"))
        record.register("", "one")
        record.register("", "never published")
        assert record.entries(PLACE), "the other task publishes there"
        ServerRecord(other).register("elsewhere", "one")
        assert not record.entries(PLACE)
