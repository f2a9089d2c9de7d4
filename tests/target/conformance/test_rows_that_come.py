"""A row that comes to a new key: its key is not read first, and the outcome is that of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pidts.apply import ApplyRules, Target, TargetSession, prepared
from pidts.model import ColumnType, Kind, OnDivergence, Op, Table, TableName
from pidts.target import MySqlTarget, PostgresTarget

from .samples import INT, create, table, text
from .test_row_locks import Task, content, locks, logged, put

pytestmark = pytest.mark.parametrize("kind", ["postgres", "mariadb", "mysql97", "mysql56"])


@pytest.fixture
def session(target: Target) -> Iterator[TargetSession]:
    made = target.connect()
    yield made
    made.close()


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    made = table(name, {"id": INT, "s": text()})
    with closing(target.connect()) as session:
        create(session, made)
        put(session, made, (1, "a"), (2, "b"), (3, "c"))
    return made


@pytest.mark.parametrize("count", [1, 600])
@pytest.mark.parametrize("theirs", [None, "theirs", "new"])
def test_a_row_that_comes_meets_what_is_there(
    session: TargetSession, target: Target, task: str, structure: Table, count: int, theirs: str | None
) -> None:
    if theirs is not None:
        put(session, structure, (10, theirs))
    running = Task(target, task)
    coming = range(10, 10 + count)
    running.apply(
        structure, *((Op.INSERT, None, (number, "new")) for number in coming), (Op.UPDATE, (1, "a"), (1, "aa"))
    )
    found = content(session, structure)
    assert found[:3] == [(1, "aa"), (2, "b"), (3, "c")]
    assert found[3:] == [(number, theirs if theirs and number == 10 else "new") for number in coming]
    held = [lock.why for lock in locks(session, task, structure)]
    assert held == (["the target already has a row of this key, with other values"] if theirs == "theirs" else [])
    assert isinstance(target, MySqlTarget | PostgresTarget)
    assert target.caution.holds is (theirs is not None), "a second attempt reads all keys, and only then"


def test_a_row_with_an_invalid_label_comes_where_another_is(
    session: TargetSession, target: Target, task: str, name: TableName
) -> None:
    label = ColumnType(Kind.ENUM, labels=("x", "y"), charset="utf8mb4", collation="utf8mb4_bin")
    structure = table(name, {"id": INT, "e": label})
    create(session, structure)
    put(session, structure, (1, "x"))
    running = Task(target, task)
    running.apply(structure, (Op.INSERT, None, (1, "")), (Op.INSERT, None, (2, "")))
    assert content(session, structure) == [(1, "x"), (2, "")]
    assert [lock.shown for lock in locks(session, task, structure)] == ["id=1"]


def test_a_row_that_comes_and_goes_within_a_batch_is_compared(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    put(session, structure, (10, "theirs"), (11, "theirs"))
    Task(target, task).apply(
        structure,
        (Op.INSERT, None, (10, "new")),
        (Op.DELETE, (10, "new"), None),
        (Op.UPDATE, (1, "a"), (11, "a")),
        (Op.INSERT, None, (12, "new")),
    )
    assert content(session, structure) == [(2, "b"), (3, "c"), (10, "theirs"), (11, "theirs"), (12, "new")]
    assert [lock.shown for lock in locks(session, task, structure)] == ["id=10", "id=11"]


def test_a_batch_goes_on_with_rows_that_its_own_transaction_has_added(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    """A batch in parts is one transaction: what came in one part is changed, removed and added again in others."""
    rules = ApplyRules(task=task, source="s", on_divergence=OnDivergence.LOCK)
    parts = [
        [(Op.INSERT, None, (10, "x")), (Op.INSERT, None, (11, "y"))],
        [(Op.UPDATE, (10, "x"), (10, "xx")), (Op.DELETE, (11, "y"), None), (Op.INSERT, None, (12, "z"))],
        [(Op.INSERT, None, (11, "again")), (Op.UPDATE, (12, "z"), (13, "z")), (Op.UPDATE, (1, "a"), (1, "aa"))],
        [(Op.UPDATE, (11, "again"), (11, "more")), (Op.DELETE, (10, "xx"), None)],
    ]
    session.begin()
    for number, changes in enumerate(parts):
        for net in prepared(session, [logged(structure, 100 * number + 1, *changes)], rules):
            session.write(net)
    session.commit()
    assert content(session, structure) == [(1, "aa"), (2, "b"), (3, "c"), (11, "more"), (13, "z")]
    assert locks(session, task, structure) == []
