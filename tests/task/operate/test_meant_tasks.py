"""The status of a task that has not begun names the tasks that may be meant; no record of another task ends it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Column, ColumnType, Halted, Kind, Lsn, SourceTablesKey, Table, TableName
from pidts.target.iceberg import IcebergTarget
from pidts.task.operate.status import KnownTask, meant_tasks

A = TableName("shop", "a")
SHOP: Any = [SimpleNamespace(name="shop", source=SimpleNamespace(source_id="s1"))]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[TargetSession]:
    with closing(IcebergTarget(str(tmp_path)).connect()) as session:
        session.meta.prepare()
        for task, source in (("shopp", "s2"), ("other", "s1"), ("another", "s3")):
            start = Checkpoint(task=task, source=source, worker=0, lsn=Lsn(0, 1, 4))
            session.meta.checkpoints.claim(task, source, 1, start)
            session.begin()
            table = Table(A, (Column("id", ColumnType(Kind.INT)),))
            session.meta.structures.save(task, SourceTablesKey(source), Lsn(0, 1, 4), {A: table})
            session.commit()
        yield session


class AlteredCheckpoints:
    """Checkpoints that cannot be read. Remembers whose they are."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def read(self, task: str, source: str) -> list[Checkpoint]:
        self.asked.append(f"{task} {source}")
        raise Halted("checkpoint-altered", "so")


def test_only_the_checkpoints_of_named_tasks_are_read_and_an_altered_one_shows_that_the_task_has_begun(
    target: TargetSession,
) -> None:
    expected = (KnownTask("shopp", ("s2",)), KnownTask("other", ("s1",)))
    assert meant_tasks(target, SHOP) == expected
    altered = AlteredCheckpoints()
    stub: Any = SimpleNamespace(meta=SimpleNamespace(structures=target.meta.structures, checkpoints=altered))
    assert meant_tasks(stub, SHOP) == expected
    assert altered.asked == ["shopp s2", "other s1"]


def test_an_altered_record_of_another_task_does_not_end_the_status(target: TargetSession, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as catalog, catalog:
        catalog.execute("UPDATE pidts_meta_structure SET source = '*x' WHERE task = 'another'")
    with pytest.raises(Halted, match="structure"):
        target.meta.structures.tables()
    assert target.meta.structures.tables("shopp") == [("shopp", SourceTablesKey("s2"), A)]
    assert meant_tasks(target, SHOP) == ()
