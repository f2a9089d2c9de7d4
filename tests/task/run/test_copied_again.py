"""A table is copied again for a schema change only if the copy would not wait for something that waits for the copy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.crashes import Crashes, ProcessDied
from tests.values_target import ValuesTarget

from pidts.model import Column, ColumnType, Halt, Kind, Lsn, RowLock, Table, TableName
from pidts.task.config.task_file import load_task
from pidts.task.run.attempts import Attempts

FILE = """
name: t
task-mode: all
target-database: {type: mysql, host: 127.0.0.1, port: 9, user: root}
mysql-instances: [{source-id: s, from: {host: 127.0.0.1, port: 9, user: root}}]
"""
NAME = TableName("shop", "t")
HALT = Halt(tables=(NAME,), lsn=Lsn(0, 1, 500), code="column-values", what="so", instead=("ALTER TABLE t",))
_numbers = itertools.count()


@pytest.fixture
def target() -> Iterator[ValuesTarget]:
    made = ValuesTarget(f"copied again {next(_numbers)}")
    yield made
    made.forget()


@pytest.fixture
def attempts(tmp_path: Path, target: ValuesTarget, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "t.yaml"
    path.write_text(FILE)
    config = load_task(path, {})
    monkeypatch.setattr(type(config.target), "server", target)
    nothing: Any = SimpleNamespace(alerts=None, note=lambda _: None)
    return Attempts(config, nothing, tmp_path, nothing, nothing, threading.Event(), None)


def test_a_table_with_locked_rows_waits_for_an_operator(attempts: Any, target: ValuesTarget) -> None:
    assert attempts._may_copy_again(HALT)
    lock = RowLock(
        table=Table(NAME, (Column("id", ColumnType(Kind.INT)),)),
        id=f"{1:064}", key="", shown="id=1", origin=NAME, lsn=Lsn(0, 1, 1), why="so", since=1.0,
    )  # fmt: skip
    with closing(target.connect()) as session:
        session.begin()
        session.meta.row_locks.add("t", "s", [lock])
        session.commit()
    assert not attempts._may_copy_again(HALT)
    assert attempts._may_copy_again(replace(HALT, tables=(TableName("shop", "u"),)))


def test_a_requested_copy_is_remembered_until_it_begins(attempts: Any, target: ValuesTarget) -> None:
    attempts._copy_again(HALT)
    with closing(target.connect()) as session:
        target.store.hook = Crashes([0])
        with pytest.raises(ProcessDied):
            attempts._order_statements(session)
        target.store.hook = None
    with closing(target.connect()) as session:
        attempts._order_statements(session)
        order = session.meta.orders.find("t", "s", HALT.lsn)
    assert order is not None
    assert order.statements == HALT.instead
