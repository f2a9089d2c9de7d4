"""Held changes that cannot be read: the advice names the table as the source does, which `--resync` expects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pidts.apply.locks.held_changes import held_batch
from pidts.model import Column, ColumnType, Halted, HeldChanges, Key, Kind, Lsn, RowLock, Table, TableName, Transient
from pidts.target.row_locks import RowLockRecord

LOCK = RowLock(
    table=Table(
        TableName("warehouse", "orders"),
        (Column("id", ColumnType(Kind.INT), nullable=False),),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    ),
    id="0123",
    key="",
    shown="id=7",
    origin=TableName("shop", "orders"),
    lsn=Lsn(0, 1, 100),
    why="the target does not have the row",
    since=1.0,
)


def test_changes_with_types_of_another_version() -> None:
    with pytest.raises(Halted) as found:
        held_batch(LOCK, HeldChanges(LOCK.id, LOCK.lsn, json.dumps({"types": "others", "rows": ""})))
    assert found.value.todo.endswith("pidts run TASK --resync shop.orders")


def test_changes_whose_structure_is_gone() -> None:
    def run(sql: str, _: Any) -> tuple[list[tuple[Any, ...]], int]:
        return ([(LOCK.id, LOCK.dumps())] if "row_lock" in sql else []), 0

    with pytest.raises(Transient) as found:
        RowLockRecord(run, lambda *_: None).read("task", "source", LOCK.table.name)
    assert found.value.todo.endswith("pidts run TASK --resync TABLE")
