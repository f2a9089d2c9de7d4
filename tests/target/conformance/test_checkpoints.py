"""Checkpoints are locked, saved with the rows, and taken over by the next run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Committer, Target
from pidts.model import Checkpoint, Fenced, Halted, SourceTablesKey, TableName, Transient, epoch_before_first
from pidts.target import IcebergTarget

from .samples import INT, checkpoint, lsn, table

RunSql = Callable[..., list[tuple[Any, ...]]]

pytestmark = pytest.mark.repeats("mysql56", "mysql97")


def claim(target: Target, task: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
    session = target.connect()
    try:
        return session.meta.checkpoints.claim(task, "s", workers, start)
    finally:
        session.close()


def test_a_first_claim_begins_at_the_start_given(target: Target, task: str) -> None:
    start = checkpoint(100, gtid="0-1-2,1-1-5", position="bin.000001:100", copy='{"done": ["ä"]}', batch=7)
    rows = claim(target, task, 2, start)
    assert [(row.worker, row.lsn, row.gtid, row.position, row.copy, row.batch, row.epoch) for row in rows] == [
        (worker, lsn(100), "0-1-2,1-1-5", "bin.000001:100", '{"done": ["ä"]}', 7, 1) for worker in (0, 1)
    ]
    session = target.connect()
    assert session.meta.checkpoints.read(task, "s") == rows
    assert session.meta.checkpoints.read(task, "other source") == []
    session.close()


def test_each_claim_raises_the_epoch_and_keeps_the_place(target: Target, task: str) -> None:
    claim(target, task, 2, checkpoint(100))
    rows = claim(target, task, 2, checkpoint(999))
    assert [(row.lsn, row.epoch) for row in rows] == [(lsn(100), 2)] * 2


@pytest.mark.parametrize("kind", ["postgres", *MYSQL_KINDS])
def test_a_claim_after_the_checkpoints_were_deleted_fences_the_earlier_run(
    kind: str, target: Target, task: str, run_sql: RunSql, request: pytest.FixtureRequest
) -> None:
    first = claim(target, task, 2, replace(checkpoint(100), epoch=epoch_before_first()))
    server = request.getfixturevalue(kind)
    run_sql(server, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task}'")
    time.sleep(0.01)  # epochs are hundredths of a second; no program begins a task so soon after another run of it
    again = claim(target, task, 2, replace(checkpoint(100), epoch=epoch_before_first(), copy='{"done": ["t"]}'))
    assert again[0].epoch > first[0].epoch
    with Committer(target, task, "s", first[0].epoch) as earlier, pytest.raises(Fenced):
        earlier.commit(0, lsn(100), checkpoint(200), lambda _: [])
    with closing(target.connect()) as session:
        assert session.meta.checkpoints.read(task, "s") == again


def test_no_claim_is_made_if_the_checkpoints_that_the_caller_has_read_were_deleted(target: Target, task: str) -> None:
    with closing(target.connect()) as session, pytest.raises(Transient, match="was deleted while"):
        session.meta.checkpoints.claim(task, "s", 2, checkpoint(100), read=7)
    assert claim(target, task, 1, checkpoint(100))[0].lsn == lsn(100)


def test_no_claim_is_made_after_another_one_that_the_caller_has_not_read(target: Target, task: str) -> None:
    claim(target, task, 2, checkpoint(100))
    session = target.connect()
    told: list[int] = []
    rows = session.meta.checkpoints.claim(task, "s", 2, checkpoint(0), read=1, on_claim=told.append)
    assert told == [row.epoch for row in rows[:1]] == [2]
    with pytest.raises(Transient, match="task-taken") as refused:
        session.meta.checkpoints.claim(task, "s", 2, checkpoint(0), read=1, on_claim=told.append)
    assert "stop one of the two" in refused.value.todo
    assert told == [2]
    assert [row.epoch for row in session.meta.checkpoints.read(task, "s")] == [2, 2]
    session.close()


def test_the_number_of_workers_may_change_if_all_are_at_one_place(target: Target, task: str) -> None:
    claim(target, task, 2, checkpoint(100))
    assert [(row.worker, row.lsn, row.epoch) for row in claim(target, task, 3, checkpoint(0))] == [
        (0, lsn(100), 2),
        (1, lsn(100), 2),
        (2, lsn(100), 2),
    ]
    assert len(claim(target, task, 1, checkpoint(0))) == 1
    session = target.connect()
    session.begin()
    with pytest.raises(Fenced):
        session.meta.checkpoints.lock(task, "s", 2)
    session.rollback()
    session.close()


def test_the_number_of_workers_may_not_change_in_the_middle_of_a_batch(target: Target, task: str) -> None:
    (first, _) = claim(target, task, 2, checkpoint(100))
    session = target.connect()
    session.begin()
    session.meta.checkpoints.lock(task, "s", 0)
    session.meta.checkpoints.save(Checkpoint(task=task, source="s", worker=0, lsn=lsn(200), epoch=first.epoch))
    session.commit()
    with pytest.raises(Halted, match="worker-count-changed"):
        session.meta.checkpoints.claim(task, "s", 3, checkpoint(0))
    session.close()
    assert [row.lsn for row in claim(target, task, 2, checkpoint(0))] == [lsn(200), lsn(100)]


def test_a_saved_checkpoint_is_read_back(target: Target, task: str) -> None:
    (row,) = claim(target, task, 1, checkpoint(100))
    new = Checkpoint(
        task=task,
        source="s",
        worker=0,
        batch=2**40,
        lsn=lsn(10**11),
        gtid="x" * 5000,
        position="bin.000002:5",
        epoch=row.epoch,
        copy="{}",
    )
    session = target.connect()
    session.begin()
    session.meta.checkpoints.lock(task, "s", 0)
    session.meta.checkpoints.save(new)
    session.commit()
    session.begin()
    assert session.meta.checkpoints.lock(task, "s", 0) == new
    session.rollback()
    session.close()


def test_a_locked_row_keeps_a_second_session_out(target: Target, task: str, impatient: None) -> None:
    claim(target, task, 1, checkpoint(100))
    first, second = target.connect(), target.connect()
    first.begin()
    first.meta.checkpoints.lock(task, "s", 0)
    second.begin()
    with pytest.raises(Transient):
        second.meta.checkpoints.lock(task, "s", 0)
    second.close()
    first.rollback()
    third = target.connect()
    third.begin()
    assert third.meta.checkpoints.lock(task, "s", 0).lsn == lsn(100)
    third.close()
    first.close()


def test_a_session_that_dies_leaves_neither_rows_nor_locks(target: Target, task: str, name: TableName) -> None:
    claim(target, task, 1, checkpoint(100))
    structure = table(name, {"id": INT})
    first = target.connect()
    create(first, structure)
    first.begin()
    row = first.meta.checkpoints.lock(task, "s", 0)
    first.meta.checkpoints.save(Checkpoint(task=task, source="s", worker=0, lsn=lsn(200), epoch=row.epoch))
    first.close()
    second = target.connect()
    second.begin()
    assert second.meta.checkpoints.lock(task, "s", 0).lsn == lsn(100)
    second.close()


def test_structures_are_remembered_and_forgotten(target: Target, task: str) -> None:
    one, two = TableName("Shop", "ä'`\""), TableName("shop", "b")
    structure = table(one, {"id": INT})
    session = target.connect()
    session.begin()
    session.meta.structures.save(task, SourceTablesKey("s"), lsn(1), {one: structure, two: structure.renamed(two)})
    session.commit()
    assert session.meta.structures.load(task, SourceTablesKey("s")) == {one: structure, two: structure.renamed(two)}
    session.begin()
    session.meta.structures.save(task, SourceTablesKey("s"), lsn(2), {two: None})
    session.commit()
    assert session.meta.structures.load(task, SourceTablesKey("s")) == {one: structure}
    assert session.meta.structures.load(task, SourceTablesKey("t")) == {}
    session.close()


def test_an_altered_row_is_claimed_only_by_who_knows_that_it_is(kind: str, target: Target, task: str, request) -> None:
    start = checkpoint(100, position="bin.000001:100")
    claim(target, task, 2, start)
    if isinstance(target, ValuesTarget):
        rows = target.store.checkpoints
        rows.update({key: replace(row, altered="by hand") for key, row in rows.items() if key[0] == task})
    elif isinstance(target, IcebergTarget):
        with closing(sqlite3.connect(f"{target.warehouse}/catalog.db")) as catalog, catalog:
            catalog.execute("UPDATE pidts_meta_checkpoint SET lsn = ? WHERE task = ?", (str(lsn(4)), task))
    else:
        run_sql = request.getfixturevalue("run_sql")
        back = f"UPDATE pidts_meta.checkpoint SET lsn = '{lsn(4)}' WHERE task = '{task}'"
        run_sql(request.getfixturevalue(kind), back)
    session = target.connect()
    stored = session.meta.checkpoints.read(task, "s")
    assert all(row.altered for row in stored)
    with pytest.raises(Transient, match="task-taken"):
        session.meta.checkpoints.claim(task, "s", 2, start)
    # The claim commits by itself: a run that ends after the claim must not have made wrong checkpoints valid.
    for workers in (2, 3):
        claimed = session.meta.checkpoints.claim(task, "s", workers, stored[0])
        assert len(claimed) == workers
        assert all(row.altered for row in claimed)
        assert all(row.altered for row in session.meta.checkpoints.read(task, "s"))
    session.begin()
    for row in claimed:
        session.meta.checkpoints.save(replace(row, lsn=lsn(200), position="bin.000001:200", altered=""))
    session.commit()
    assert [row.altered for row in session.meta.checkpoints.read(task, "s")] == ["", "", ""]
    session.close()
