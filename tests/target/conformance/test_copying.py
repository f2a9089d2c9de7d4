"""A target empties tables, keeps checkpoints, and creates keys at the end. A copy needs all of this, in addition to
loading.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName, Transient
from pidts.target import IcebergTarget, MySqlTarget, PostgresTarget

from .samples import INT, checkpoint, create, load, rows, table, text

pytestmark = pytest.mark.repeats("mysql56", "mysql97")


def test_all_rows_go_and_others_come_in_one_transaction(
    session: TargetSession, target: Target, name: TableName
) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    assert load(session, structure, (1, 1), (2, 1))
    other = target.connect()
    session.begin()
    session.clear(name)
    assert session.load(structure, rows(structure, (1, 2)))
    assert other.count(name) == 2
    session.commit()
    assert other.read_rows(structure).to_pylist() == [{"id": 1, "v": 2}]
    session.begin()
    session.clear(name)
    session.rollback()
    assert other.count(name) == 1
    other.close()


def test_many_sessions_share_the_lock_of_the_checkpoints_and_none_moves_one(
    target: Target, task: str, impatient: None
) -> None:
    first, second, mover, claimer = (target.connect() for _ in range(4))
    first.begin()
    assert first.meta.checkpoints.lock_shared(task, "s") == []
    assert first.meta.checkpoints.lock_places(task, "s") == []
    first.rollback()
    claimed = first.meta.checkpoints.claim(task, "s", 2, checkpoint(100))
    for holder in (first, second):
        holder.begin()
        assert holder.meta.checkpoints.lock_shared(task, "s") == claimed
        assert holder.meta.checkpoints.lock_places(task, "s") == claimed
    mover.begin()
    with ThreadPoolExecutor(2) as threads:
        waiting = [
            threads.submit(mover.meta.checkpoints.lock, task, "s", 1),
            threads.submit(claimer.meta.checkpoints.claim, task, "s", 2, checkpoint(0)),
        ]
    for each in waiting:
        with pytest.raises(Transient):
            each.result()
    mover.close()
    claimer.close()
    first.commit()
    second.close()
    mover, late = target.connect(), target.connect()
    mover.begin()
    assert mover.meta.checkpoints.lock(task, "s", 1) == claimed[1]
    late.begin()
    with pytest.raises(Transient):
        late.meta.checkpoints.lock_places(task, "s")
    for session in (late, mover, first):
        session.close()


def test_keys_left_for_later_are_made_when_the_rows_are_there(
    session: TargetSession, target: Target, name: TableName
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table keeps keys as a description only: none is made later")
    columns = (
        Column("id", ColumnType(Kind.INT), nullable=False, auto_increment=True),
        Column("u", text()),
        Column("v", INT),
        Column("w", INT),
    )
    keys = (
        Key("PRIMARY", ("id",), unique=True, primary=True),
        Key("u", ("u",), unique=True),
        Key("v", ("v",)),
        Key("wv", ("w", "v")),
    )
    structure = Table(name, columns, keys, charset="utf8mb4", collation="utf8mb4_bin")
    create(session, structure, before_copy=True)
    assert load(session, structure, *((number, f"u{number}", number % 7, None) for number in range(1, 101)))

    def found() -> set[tuple[tuple[str, ...], bool]]:
        made = session.schema.structure(name)
        assert made is not None
        return {(key.columns, key.unique) for key in made.keys}

    whole = {(key.columns, key.unique) for key in keys}
    assert found() == (whole if isinstance(target, MySqlTarget) else {(("id",), True)})
    for _ in range(2):
        rendered = session.schema.finish_statements(structure)
        for sql in (*rendered.statements, *rendered.later):
            session.execute(sql)
        assert found() == whole
    assert not load(session, structure, (1000, "u7", 1, 1))
    if not isinstance(target, ValuesTarget):
        quote = '"' if isinstance(target, PostgresTarget) else "`"
        session.execute(f"INSERT INTO {quote}{name.schema}{quote}.{quote}{name.name}{quote} (v) VALUES (1)")
        assert session.read_rows(structure, after=[100], limit=1)["id"].to_pylist() == [101]


def test_rows_of_one_shard_are_read_page_by_page(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "part": text(), "v": INT}, key=("id", "part"))
    create(session, structure)
    parts = ("1", "it's 100%", "")
    assert load(session, structure, *((number, part, 0) for number in range(5) for part in parts))
    for part in parts:
        found, after = [], None
        while True:
            page = session.read_rows(structure, after=after, limit=2, only={"part": part})
            found += page["id"].to_pylist()
            assert set(page["part"].to_pylist()) <= {part}
            if page.num_rows < 2:
                break
            after = [found[-1], part]
        assert found == list(range(5))
    assert session.read_rows(structure, only={"part": "2"}).num_rows == 0


def test_a_table_that_another_program_has_made_keeps_its_keys(
    session: TargetSession, target: Target, name: TableName
) -> None:
    if not isinstance(target, PostgresTarget):
        return  # Other targets leave nothing for later.
    structure = table(name, {"id": INT, "u": text()}, unique=["u"])
    for sql in session.schema.create_statements(structure, before_copy=True).statements:
        session.execute(sql)
    for sql in session.schema.finish_statements(structure).statements:
        session.execute(sql)
    found = session.schema.structure(name)
    assert found is not None
    assert [key.columns for key in found.keys] == [("id",)]


def test_a_session_that_dies_while_it_loads_leaves_nothing(
    target: Target, session: TargetSession, task: str, name: TableName
) -> None:
    structure = table(name, {"id": INT})
    create(session, structure)
    session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    loading = target.connect()
    loading.begin()
    loading.meta.checkpoints.lock_shared(task, "s")
    assert loading.load(structure, rows(structure, *((number,) for number in range(1000))))
    loading.close()
    session.begin()
    session.meta.checkpoints.lock(task, "s", 0)
    session.commit()
    assert session.count(name) == 0
