"""A row of the target whose key is the same value as a change's, in other words: it is compared, never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pidts.apply import Target, TargetSession
from pidts.model import ColumnType, Kind, Op, Table, TableName

from .samples import INT, create, table
from .test_row_locks import Task, content, locks, put


@pytest.fixture
def session(target: Target) -> Iterator[TargetSession]:
    with closing(target.connect()) as made:
        yield made


LOW, HIGH = "0a1b2c3d-0000-4000-8000-00000000abcd", "0A1B2C3D-0000-4000-8000-00000000ABCD"


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("change", [(Op.INSERT, None, (HIGH, 5)), (Op.DELETE, (HIGH, 1), None)])
def test_the_target_has_another_type(
    session: TargetSession, target: Target, task: str, name: TableName, change: tuple[Op, object, object]
) -> None:
    structure = table(name, {"id": ColumnType(Kind.CHAR, length=36, charset="ascii", collation="ascii_bin"), "v": INT})
    create(session, structure)
    session.execute(f"ALTER TABLE {name} ALTER COLUMN id TYPE uuid USING id::uuid")
    put(session, structure, (LOW, 99))
    Task(target, task).apply(structure, change)
    assert content(session, structure) == [(LOW, 99)]
    assert len(locks(session, task, structure)) == 1


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
@pytest.mark.parametrize("change", [(Op.INSERT, None, ("a", 5)), (Op.DELETE, ("a", 1), None)])
def test_spaces_at_the_end_count_for_nothing(
    session: TargetSession, target: Target, task: str, name: TableName, change: tuple[Op, object, object]
) -> None:
    kind = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
    structure: Table = table(name, {"id": kind, "v": INT})
    create(session, structure)
    put(session, structure, ("a ", 99))
    Task(target, task).apply(structure, change)
    assert content(session, structure) == [("a ", 99)]
    assert len(locks(session, task, structure)) == 1
