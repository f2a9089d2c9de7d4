"""If versions would decide about locked rows after a schema change, the change waits until the locks are resolved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules
from pidts.ddl.runner import _carry_locks
from pidts.model import Column, ColumnType, Halted, Key, Kind, Lsn, RowLock, Table, TableName, Where
from pidts.schema import AddColumn, AlterTable

INT = ColumnType(Kind.INT)
BEFORE = Table(
    TableName("shop", "t"),
    (Column("id", INT, nullable=False),),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
AFTER = replace(BEFORE, columns=(*BEFORE.columns, Column("v", INT)))


@pytest.fixture
def target() -> Iterator[ValuesTarget]:
    made = ValuesTarget(f"locked-{time.time_ns()}")
    with closing(made.connect()) as session:
        session.meta.prepare()
        session.begin()
        lock = RowLock(
            table=BEFORE, id=f"{1:064}", key="", shown="id=1", origin=BEFORE.name, lsn=Lsn(0, 1, 1), why="so", since=1.0
        )
        session.meta.row_locks.add("t", "s", [lock])
        session.commit()
    yield made
    made.forget()


def test_a_version_column_is_not_added_while_rows_are_locked(target: ValuesTarget) -> None:
    writing = ApplyRules(task="t", source="s", version_column="v", converges=True, has_locks=True)
    context: Any = SimpleNamespace(writing=writing, target=target, task="t", epoch=1)
    statement = AlterTable(BEFORE.name, (AddColumn(AFTER.columns[1]),))
    change: Any = SimpleNamespace(
        statement=statement, before={BEFORE.name: BEFORE}, after={BEFORE.name: AFTER}, command=None
    )
    due: Any = SimpleNamespace(source="s", comes_back=False, statement=statement, where=Where())
    with pytest.raises(Halted, match="the row with the later version stays"):
        _carry_locks(context, change, due)
