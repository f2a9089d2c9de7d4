"""Reads the rows after a key, and rows with neighbouring keys, from files that are sorted by key and from others."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import INT, change, create, rows, table, write
from tests.target.iceberg.test_faults import KEYED, NAME

from pidts.model import Table
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

from pidts.target.iceberg import open_table

PAIRS = table(NAME, {"id": INT, "part": INT, "v": INT}, key=("id", "part"))
MANY = 50_000


@pytest.fixture
def target(memory_path: Path) -> IcebergTarget:
    made = IcebergTarget(str(memory_path))
    with closing(made.connect()) as session:
        session.meta.prepare()
    return made


def looked_at(monkeypatch: pytest.MonkeyPatch, name: str, which: int) -> list[int]:
    """Records how many rows each call of the function `name` of `open_table` gets as its argument number `which`."""
    counts: list[int] = []
    usual = getattr(open_table, name)

    def noting(*values: Any) -> Any:
        counts.append(values[which].num_rows)
        return usual(*values)

    monkeypatch.setattr(open_table, name, noting)
    return counts


def appended_unsorted(target: IcebergTarget, found: list[tuple[int, int, int]]) -> None:
    """Adds a file that is not sorted by the key, as another program does."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{target.warehouse}/catalog.db")
    columns = [pa.array(values, pa.int32()) for values in zip(*found, strict=True)]
    catalog.load_table((NAME.schema, NAME.name)).append(pa.table(columns, names=["id", "part", "v"]))
    catalog.engine.dispose()


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
def test_pages_of_a_table_are_its_rows_in_the_order_of_their_keys(
    target: IcebergTarget, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("pidts.target.iceberg.publish.SMALL_FILES", 100)
    chance = random.Random(limit)
    expected: dict[tuple[int, int], int] = {}
    with closing(target.connect()) as session:
        create(session, PAIRS)
        for number in range(6):
            new = {(chance.randrange(20), chance.randrange(6)): number for _ in range(30)}
            gone = chance.sample(sorted(expected), len(expected) // 3)
            session.begin()
            session.write(change(PAIRS, deletes=gone, upserts=[(*key, value) for key, value in new.items()]))
            if number < 5:
                session.commit()
            expected = {key: value for key, value in expected.items() if key not in gone} | new
            if number == 2:
                foreign = {(each, 9): 9 for each in chance.sample(range(20), 10)}
                appended_unsorted(target, [(*key, value) for key, value in foreign.items()])
                expected |= foreign
        found: list[tuple[int, ...]] = []
        after: list[Any] = [-1, 0]
        while page := [tuple(row.values()) for row in session.read_rows(PAIRS, after=after, limit=limit).to_pylist()]:
            assert len(page) == min(limit, len(expected) - len(found))
            found += page
            after = list(page[-1][:2])
        session.rollback()
    assert found == [(*key, value) for key, value in sorted(expected.items())]


def test_parts_of_a_table_are_its_rows(target: IcebergTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts have the rows of committed files without removed rows, and the rows of the open transaction."""
    monkeypatch.setattr(open_table, "ROW_GROUP", 1000)
    filled(target, KEYED)
    with closing(target.connect()) as session:
        session.begin()
        session.write(change(KEYED, deletes=[(1,), (MANY - 1,)], upserts=[(2, 7), (MANY, 9)]))
        parts = list(session.read_portions(KEYED))
        whole = session.read_rows(KEYED)
        session.rollback()
    assert max(map(len, parts)) == 1000
    assert pa.concat_tables(parts).sort_by("id").to_pylist() == whole.to_pylist()
    assert len(whole) == MANY - MANY // 5 - 1


def filled(target: IcebergTarget, structure: Table) -> None:
    with closing(target.connect()) as session:
        create(session, structure)
        session.begin()
        assert session.load(structure, rows(structure, *((number, number) for number in range(MANY))))
        session.commit()
        write(session, change(structure, deletes=[(number,) for number in range(0, MANY, 5)]))


def test_a_page_reads_few_rows_of_a_large_file(target: IcebergTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(target, KEYED)
    seen = looked_at(monkeypatch, "_after", 0)
    with closing(target.connect()) as session:
        page = session.read_rows(KEYED, after=[MANY // 2], limit=100)
    assert page["id"].to_pylist() == [number for number in range(MANY // 2 + 1, MANY // 2 + 126) if number % 5]
    assert max(seen) < 1000


def test_a_change_of_neighbouring_rows_reads_few_rows(target: IcebergTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(target, KEYED)
    seen = looked_at(monkeypatch, "matches", 0)
    with closing(target.connect()) as session:
        write(session, change(KEYED, deletes=[(MANY - 3,)], upserts=[(MANY - 1, 7), (MANY - 2, 8), (MANY, 9)]))
        assert max(seen) < 100
        last = session.read_rows(KEYED, after=[MANY - 6], limit=10)
    assert [tuple(row.values()) for row in last.to_pylist()] == [
        (MANY - 4, MANY - 4),
        (MANY - 2, 8),
        (MANY - 1, 7),
        (MANY, 9),
    ]
