"""A table is copied again for a schema change only if the copy would not wait for something that waits for the copy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.crashes import Crashes, ProcessDied
from tests.values_target import ValuesTarget

from pidts.model import Column, ColumnType, Halt, Kind, Lsn, RowLock, Table, TableName
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.attempt.next_attempt import NextAttempt

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
def config(tmp_path: Path, target: ValuesTarget, monkeypatch: pytest.MonkeyPatch) -> TaskConfig:
    path = tmp_path / "t.yaml"
    path.write_text(FILE)
    config = load_task(path, {})
    monkeypatch.setattr(type(config.target), "server", target)
    return config


def test_a_table_with_locked_rows_waits_for_an_operator(config: TaskConfig, target: ValuesTarget) -> None:
    following = NextAttempt(None)
    assert following.may_copy_again(HALT, config)
    lock = RowLock(
        table=Table(NAME, (Column("id", ColumnType(Kind.INT)),)),
        id=f"{1:064}", key="", shown="id=1", origin=NAME, lsn=Lsn(0, 1, 1), why="so", since=1.0,
    )  # fmt: skip
    with closing(target.connect()) as session:
        session.begin()
        session.meta.row_locks.add("t", "s", [lock])
        session.commit()
    assert not following.may_copy_again(HALT, config)
    assert following.may_copy_again(replace(HALT, tables=(TableName("shop", "u"),)), config)


def test_a_requested_copy_is_remembered_until_it_begins(config: TaskConfig, target: ValuesTarget) -> None:
    following = NextAttempt(None)
    following.copy_again(HALT)
    with closing(target.connect()) as session:
        target.store.hook = Crashes([0])
        with pytest.raises(ProcessDied):
            following.replace_statement(session, config)
        target.store.hook = None
    with closing(target.connect()) as session:
        following.replace_statement(session, config)
        command = session.meta.ddl_commands.find("t", "s", HALT.lsn)
    assert command is not None
    assert command.statements == HALT.instead
