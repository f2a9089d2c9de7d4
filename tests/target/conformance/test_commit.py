"""A batch is written once, whatever happens to the connection, even if another process writes it, too."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Committer, Outcome, Retry, Target, TargetSession
from pidts.apply.checkpoint import demand_not_fenced
from pidts.model import Checkpoint, Fenced, Halted, Table, TableName, Transient
from pidts.reduce import NetChange
from pidts.target import IcebergTarget

from .breaking import Breaking
from .proxy import Wire
from .samples import INT, change, checkpoint, lsn, table

pytestmark = pytest.mark.repeats("mysql56", "mysql97")


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    made = table(name, {"id": INT, "v": INT})
    session = target.connect()
    create(session, made)
    session.close()
    return made


def claimed(target: Target, task: str, workers: int = 1) -> int:
    session = target.connect()
    rows = session.meta.checkpoints.claim(task, "s", workers, checkpoint(100))
    session.close()
    return rows[0].epoch


def committer(target: Any, task: str, epoch: int, attempts: int = 8) -> Committer:
    return Committer(target, task, "s", epoch, retry=Retry(attempts=attempts), sleep=lambda _: None)


def state(target: Target, task: str, structure: Table) -> tuple[list[Checkpoint], list[dict[str, Any]]]:
    session = target.connect()
    found = session.meta.checkpoints.read(task, "s"), session.read_rows(structure).to_pylist()
    session.close()
    return found


def test_rows_and_checkpoint_arrive_together_and_once(target: Target, task: str, structure: Table) -> None:
    with committer(target, task, claimed(target, task)) as writer:
        first = writer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 1)])])
        again = writer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 666)])])
        late = writer.commit(0, lsn(50), checkpoint(100), lambda _: [change(structure, upserts=[(1, 666)])])
    assert (first, again, late) == (Outcome.APPLIED, Outcome.ALREADY, Outcome.ALREADY)
    (row,), rows = state(target, task, structure)
    assert (row.lsn, rows) == (lsn(200), [{"id": 1, "v": 1}])


def test_a_gap_halts(target: Target, task: str, structure: Table) -> None:
    with committer(target, task, claimed(target, task)) as writer, pytest.raises(Halted, match="checkpoint-mismatch"):
        writer.commit(0, lsn(150), checkpoint(200), lambda _: [change(structure, upserts=[(1, 1)])])
    assert state(target, task, structure)[1] == []


def test_an_older_run_is_refused_after_a_take_over(target: Target, task: str, structure: Table) -> None:
    old = committer(target, task, claimed(target, task))
    old.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 1)])])
    with committer(target, task, claimed(target, task)) as new:
        new.commit(0, lsn(200), checkpoint(300), lambda _: [change(structure, upserts=[(1, 2)])])
    with pytest.raises(Fenced):
        old.commit(0, lsn(300), checkpoint(400), lambda _: [change(structure, upserts=[(1, 666)])])
    assert state(target, task, structure)[1] == [{"id": 1, "v": 2}]


@pytest.mark.parametrize(
    "error", [ProcessDied, lambda: Transient("target-lost", "gone")], ids=["process dies", "connection dies"]
)
def test_wherever_it_breaks_the_next_attempt_makes_it_whole(
    target: Target, task: str, structure: Table, error: Callable[[], BaseException]
) -> None:
    place, broken = 100, 0
    while True:
        watched = Breaking(target, broken, error)
        arguments = (
            0,
            lsn(place),
            checkpoint(place + 10),
            lambda _, at=place, tried=broken: [change(structure, deletes=[(at - 10,)], upserts=[(at, tried)])],
        )
        epoch = claimed(target, task)
        try:
            with committer(watched, task, epoch) as writer:
                outcome = writer.commit(*arguments)
            assert outcome is Outcome.APPLIED
        except ProcessDied:
            with committer(target, task, claimed(target, task)) as writer:
                done = watched.points[broken] == "commit:after"
                assert writer.commit(*arguments) is (Outcome.ALREADY if done else Outcome.APPLIED)
        (row,), rows = state(target, task, structure)
        assert (row.lsn, rows) == (lsn(place + 10), [{"id": place, "v": broken}])
        if broken >= len(watched.points):
            break
        place, broken = place + 10, broken + 1
    assert broken == 10  # two points for each: begin, lock, write, save, commit


@pytest.mark.parametrize(
    "error", [ProcessDied, lambda: Transient("target-lost", "gone")], ids=["process dies", "connection dies"]
)
def test_wherever_a_run_s_second_batch_breaks_the_next_attempt_makes_it_whole(
    kind: str, target: Target, task: str, structure: Table, error: Callable[[], BaseException]
) -> None:
    place, broken = 100, 0
    while True:
        watched = Breaking(target, error=error)
        arguments = (
            0,
            lsn(place + 10),
            checkpoint(place + 20),
            lambda _, at=place, tried=broken: [change(structure, deletes=[(at - 20,)], upserts=[(at, tried)])],
        )
        epoch = claimed(target, task)
        try:
            with committer(watched, task, epoch) as writer:
                writer.commit(0, lsn(place), checkpoint(place + 10), lambda _: [])
                watched.points.clear()
                watched.broken = broken
                assert writer.commit(*arguments) is Outcome.APPLIED
        except ProcessDied:
            with committer(target, task, claimed(target, task)) as writer:
                done = watched.points[broken] == "commit:after"
                assert writer.commit(*arguments) is (Outcome.ALREADY if done else Outcome.APPLIED)
        (row,), rows = state(target, task, structure)
        assert (row.lsn, rows) == (lsn(place + 20), [{"id": place, "v": broken}])
        if broken >= len(watched.points):
            break
        place, broken = place + 20, broken + 1
    assert "meta.checkpoints.advance:after" in watched.points
    assert ("meta.checkpoints.lock:after" in watched.points) == (kind in ("iceberg", "tidb"))


def test_a_batch_that_a_second_attempt_has_committed_is_not_written_again(
    target: Target, task: str, structure: Table
) -> None:
    epoch = claimed(target, task)
    with committer(target, task, epoch) as one, committer(target, task, epoch) as other:
        assert one.commit(0, lsn(100), checkpoint(200), lambda _: []) is Outcome.APPLIED
        batch = (0, lsn(200), checkpoint(300))
        assert other.commit(*batch, lambda _: [change(structure, upserts=[(1, 1)])]) is Outcome.APPLIED
        assert one.commit(*batch, lambda _: [change(structure, upserts=[(1, 666)])]) is Outcome.ALREADY
        later = (0, lsn(300), checkpoint(400))
        assert one.commit(*later, lambda _: [change(structure, upserts=[(2, 2)])]) is Outcome.APPLIED
    assert state(target, task, structure)[1] == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


@pytest.mark.parametrize("column", ["batch", "lsn", "gtid", "log_position", "copy_progress", "epoch", ""])
def test_a_checkpoint_that_was_changed_by_hand_between_two_batches_is_noticed(
    kind: str, target: Target, task: str, structure: Table, column: str, request: pytest.FixtureRequest
) -> None:
    values = {"batch": "77", "epoch": "77", "copy_progress": f'{{"digest": "{"0" * 32}"}}'}
    changed = f"SET {column} = '{values.get(column, lsn(150))}'"
    where = f"WHERE task = '{task}'"
    with committer(target, task, claimed(target, task)) as writer:
        writer.commit(0, lsn(100), checkpoint(200), lambda _: [])
        if isinstance(target, ValuesTarget):
            rows = target.store.checkpoints
            (key,) = (key for key in rows if key[0] == task)
            altered = replace(rows[key], altered="by hand") if column != "epoch" else replace(rows[key], epoch=77)
            rows.update({key: altered}) if column else rows.pop(key)
        elif isinstance(target, IcebergTarget):
            with closing(sqlite3.connect(f"{target.warehouse}/catalog.db")) as catalog, catalog:
                table_name = "pidts_meta_checkpoint"
                catalog.execute(
                    f"UPDATE {table_name} {changed} {where}" if column else f"DELETE FROM {table_name} {where}"
                )
        else:
            sql = f"UPDATE pidts_meta.checkpoint {changed} {where}"
            sql = sql if column else f"DELETE FROM pidts_meta.checkpoint {where}"
            request.getfixturevalue("run_sql")(request.getfixturevalue(kind), sql)
        expected = "checkpoint-altered" if column not in ("epoch", "") else "fenced"
        with pytest.raises((Halted, Fenced), match=expected):
            writer.commit(0, lsn(200), checkpoint(300), lambda _: [change(structure, upserts=[(1, 666)])])
    assert state(target, task, structure)[1] == []


@pytest.mark.parametrize("kind", ["postgres", *MYSQL_KINDS])
@pytest.mark.parametrize("winner", ["another run", "the same batch"])
def test_a_second_batch_waits_for_who_has_locked_the_checkpoint(
    target: Target, task: str, structure: Table, winner: str
) -> None:
    epoch = claimed(target, task)
    rival = target.connect()
    with committer(target, task, epoch) as writer, ThreadPoolExecutor(1) as pool:
        writer.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 1)])])
        rival.begin()
        row = rival.meta.checkpoints.lock(task, "s", 0)
        begun = Event()

        def changes(_: TargetSession) -> list[NetChange]:
            begun.set()
            return [change(structure, upserts=[(2, 666)])]

        waiting = pool.submit(writer.commit, 0, lsn(200), checkpoint(300), changes)
        begun.wait(10)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        if winner == "the same batch":
            rival.write(change(structure, upserts=[(2, 2)]))
            rival.meta.checkpoints.save(replace(row, lsn=lsn(300)))
            rival.commit()
            assert waiting.result(10) is Outcome.ALREADY
        else:
            rival.rollback()
            waiting.result(10)
            assert claimed(target, task) == epoch + 1
            with pytest.raises(Fenced):
                writer.commit(0, lsn(300), checkpoint(400), changes)
    rival.close()
    found = {row["id"]: row["v"] for row in state(target, task, structure)[1]}
    assert found == {1: 1, 2: 2 if winner == "the same batch" else 666}


@pytest.mark.parametrize("kind", ["values", "postgres", *MYSQL_KINDS])
def test_a_run_s_second_batch_is_one_round_trip(kind: str, target: Target, task: str, structure: Table) -> None:
    trips = []
    with committer(target, task, claimed(target, task)) as writer:
        for number in range(3):
            batch = [change(structure, deletes=[(number - 1,)], upserts=[(number, 1), (number + 10, 1)])]
            writer.commit(0, lsn(100 + number), checkpoint(101 + number), lambda _, batch=batch: batch)
            trips.append(writer.times.reading().trips - sum(trips))
    # On TiDB, the row of the checkpoint is read first. The values target has one each for begin, advance, save and
    # write, and two for commit.
    assert trips[2] == {"tidb": 2, "values": 6}.get(kind, 1)
    assert len(state(target, task, structure)[1]) == 4


@pytest.mark.parametrize(("cut", "writes"), [("request", 2), ("answer", 1)])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    target: Target, task: str, structure: Table, cut: str, writes: int
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("no connection lies between this target and the task")
    epoch = claimed(target, task)
    wire = None if isinstance(target, ValuesTarget) else Wire(target.host, target.port)
    watched = Breaking(target if wire is None else replace(target, host="127.0.0.1", port=wire.port))

    def cut_once(point: str) -> None:
        if point == "commit:before":
            watched.watch = lambda _: None
            if wire is None:
                target.store.hook = hook
            else:
                wire.cut = cut

    def hook(point: str) -> None:
        if point == {"request": "commit:before", "answer": "commit:after"}[cut]:
            target.store.hook = None
            raise Transient("target-lost", "cut")

    with committer(watched, task, epoch) as writer:
        writer.commit(0, lsn(100), checkpoint(200), lambda _: [])
        watched.points.clear()
        watched.watch = cut_once
        assert (
            writer.commit(0, lsn(200), checkpoint(300), lambda _: [change(structure, upserts=[(1, 1)])])
            is Outcome.APPLIED
        )
    if wire:
        assert wire.connections == 2
        wire.close()
    assert watched.points.count("write:after") == writes
    (row,), rows = state(target, task, structure)
    assert (row.lsn, rows) == (lsn(300), [{"id": 1, "v": 1}])


@pytest.mark.parametrize("kind", ["postgres", *MYSQL_KINDS])
@pytest.mark.parametrize(("cut", "reached"), [("request", 1), ("answer", 2)])
def test_a_claim_whose_answer_is_lost_does_not_fence_its_own_run(
    target: Target, task: str, kind: str, cut: str, reached: int
) -> None:
    """Crash points: the connection dies before the server commits the claim, or before its answer arrives."""
    first = claimed(target, task)
    wire = Wire(target.host, target.port)
    claims = []

    def note(epoch: int) -> None:
        claims.append(epoch)
        wire.cut = cut

    with closing(replace(target, host="127.0.0.1", port=wire.port).connect()) as session:
        session.meta.checkpoints.read(task, "s")
        with pytest.raises(Transient):
            session.meta.checkpoints.claim(task, "s", 1, checkpoint(100), read=first, on_claim=note)
    wire.close()
    with closing(target.connect()) as again:
        stored = again.meta.checkpoints.read(task, "s")
        assert [row.epoch for row in stored] == [reached]
        demand_not_fenced(stored, task, "s", claims[0])
        rows = again.meta.checkpoints.claim(task, "s", 1, checkpoint(100), read=reached, on_claim=claims.append)
    assert claims == [2, reached + 1]
    assert [(row.epoch, row.lsn) for row in rows] == [(reached + 1, lsn(100))]
    with committer(target, task, first) as old, pytest.raises(Fenced):
        old.commit(0, lsn(100), checkpoint(200), lambda _: [])


def test_a_copy_batch_moves_by_its_progress(target: Target, task: str, structure: Table) -> None:
    with committer(target, task, claimed(target, task)) as writer:
        chunk = [change(structure, upserts=[(1, 1)])]
        first = writer.commit(0, lsn(100), checkpoint(100, batch=1, copy='{"one": 1}'), lambda _: chunk)
        again = writer.commit(0, lsn(100), checkpoint(100, batch=1, copy='{"one": 1}'), lambda _: chunk)
        second = writer.commit(
            0, lsn(100), checkpoint(100, batch=2, copy='{"two": 2}'), lambda _: [change(structure, upserts=[(2, 2)])]
        )
        assert (first, again, second) == (Outcome.APPLIED, Outcome.ALREADY, Outcome.APPLIED)
        with pytest.raises(Halted, match="neither"):
            writer.commit(0, lsn(100), checkpoint(100, batch=3, copy='{"two": 2}'), lambda _: chunk)
    assert len(state(target, task, structure)[1]) == 2


def test_two_tables_and_two_workers_move_alone(target: Target, task: str, structure: Table) -> None:
    epoch = claimed(target, task, workers=2)
    with committer(target, task, epoch) as one, committer(target, task, epoch) as two:
        one.commit(0, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(1, 1)])])
        two.commit(1, lsn(100), checkpoint(200), lambda _: [change(structure, upserts=[(2, 2)])])
        one.commit(0, lsn(200), checkpoint(300), lambda _: [])
    rows, found = state(target, task, structure)
    assert [row.lsn for row in rows] == [lsn(300), lsn(200)]
    assert len(found) == 2


def test_a_commit_gives_up_after_some_attempts_and_says_what_is_open(
    target: Target, task: str, structure: Table
) -> None:
    class Unreachable:
        def connect(self) -> Any:
            raise Transient("target-unreachable", "no answer")

    pauses: list[float] = []
    with (
        Committer(Unreachable(), task, "s", 1, retry=Retry(attempts=4), sleep=pauses.append) as writer,
        pytest.raises(Transient, match="4 attempts"),
    ):
        writer.commit(0, lsn(100), checkpoint(200), lambda _: [])
    assert len(pauses) == 3
    assert pauses == sorted(pauses) or max(pauses) <= 0.4
