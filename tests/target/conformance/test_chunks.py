"""A chunk is loaded as a whole or not at all, and only if no worker is after the place at which the chunk was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.apply.load import LoadRequest, load_chunk, load_whole
from pidts.model import Fenced, Halted, SourceTablesKey, Table, TableName, Transient
from pidts.target import IcebergTarget, PostgresTarget

from .breaking import Breaking
from .conftest import KINDS
from .proxy import Wire
from .samples import INT, checkpoint, lsn, rows, table

pytestmark = pytest.mark.repeats("mysql56", "mysql97")


@pytest.fixture
def structure(session: TargetSession, task: str, name: TableName) -> Table:
    """Creates a table, and claims a task with two workers at place 100."""
    made = table(name, {"id": INT, "v": INT})
    create(session, made)
    session.meta.checkpoints.claim(task, "s", 2, checkpoint(100))
    return made


def chunk(structure: Table, first: int, behind: int, v: int = 1) -> pa.Table:
    return rows(structure, *((number, v) for number in range(first, behind)))


def asked(task: str, low: int = 100, *, epoch: int = 1, batch: int = 0) -> LoadRequest:
    return LoadRequest(task, "s", epoch, batch, lsn(low))


def load(session: TargetSession, task: str, structure: Table, *batches: pa.Table, **about: int) -> bool:
    return load_chunk(session, asked(task, **about), structure, batches)


def whole(
    session: TargetSession, task: str, structure: Table, *batches: pa.Table, answer: str = "", **about: int
) -> str | None:
    return load_whole(session, asked(task, **about), structure, batches, lambda: answer)


def move(target: Target, task: str, worker: int, offset: int, *, batches: int = 0) -> None:
    session = target.connect()
    try:
        session.begin()
        row = session.meta.checkpoints.lock(task, "s", worker)
        session.meta.checkpoints.save(replace(row, lsn=lsn(offset), batch=row.batch + batches))
        session.commit()
    finally:
        session.close()


def test_a_chunk_is_loaded_once(session: TargetSession, task: str, structure: Table) -> None:
    assert load(session, task, structure, chunk(structure, 0, 50), chunk(structure, 50, 60))
    assert load(session, task, structure, low=100)
    assert not load(session, task, structure, chunk(structure, 100, 150), chunk(structure, 59, 60))
    assert load(session, task, structure, chunk(structure, 60, 70), low=120)
    assert session.count(structure.name) == 70


def test_a_chunk_that_comes_late_is_refused(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    move(target, task, 1, 200)
    with pytest.raises(Transient, match="chunk-too-late"):
        load(session, task, structure, chunk(structure, 0, 50), low=199)
    assert session.count(structure.name) == 0
    assert load(session, task, structure, chunk(structure, 0, 50), low=200)


def test_a_run_that_was_taken_over_loads_nothing(session: TargetSession, task: str, structure: Table) -> None:
    session.meta.checkpoints.claim(task, "s", 2, checkpoint(0))
    for loads in (load, whole):
        with pytest.raises(Fenced, match="epoch 2"):
            loads(session, task, structure, chunk(structure, 0, 50))
    with pytest.raises(Fenced, match="has no checkpoint"):
        load(session, task + "?", structure, chunk(structure, 0, 50))
    assert session.count(structure.name) == 0
    assert load(session, task, structure, chunk(structure, 0, 50), epoch=2)


def test_a_chunk_whose_request_is_settled_is_refused_though_nothing_has_happened(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    move(target, task, 1, 100, batches=1)
    for loads in (load, whole):
        with pytest.raises(Transient, match="the request that they were read for is already done"):
            loads(session, task, structure, chunk(structure, 0, 50), batch=0)
    assert session.count(structure.name) == 0
    assert load(session, task, structure, chunk(structure, 0, 50), batch=1)


def test_a_table_that_is_read_whole_takes_the_place_of_what_was_there(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    assert load(session, task, structure, chunk(structure, 0, 50))
    assert whole(session, task, structure, chunk(structure, 0, 20, 2), chunk(structure, 5, 6)) is None
    assert session.count(structure.name) == 50
    assert whole(session, task, structure, chunk(structure, 0, 20, 2), chunk(structure, 20, 30, 2)) == ""
    assert session.read_rows(structure)["v"].to_pylist() == [2] * 30
    move(target, task, 0, 200)
    with pytest.raises(Transient, match="chunk-too-late"):
        whole(session, task, structure, chunk(structure, 0, 20, 3), batch=1)


def test_a_batch_has_a_table_loaded_whole_once_by_whoever_comes_first(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    """Only the first attempt counts.

    A second one with an older snapshot would remove rows that the log has inserted since.
    """
    for v, found, about in (
        (1, "first", {"low": 120}),
        (2, "first", {"low": 100}),
        (3, "first", {"low": 140}),
        (4, "other", {"low": 120, "batch": 1}),
    ):
        expected = v if found != "first" else 1
        assert whole(session, task, structure, chunk(structure, 0, 5, v), answer=found, **about) == found
        assert session.read_rows(structure)["v"].to_pylist() == [expected] * 5


def test_the_first_attempts_record_stays_after_a_lost_answer_until_the_run_ends(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    assert whole(session, task, structure, chunk(structure, 0, 5), answer="first") == "first"
    move(target, task, 0, 110)
    other = target.connect()
    assert whole(other, task, structure, chunk(structure, 0, 9), answer="second") == "first"
    other.meta.checkpoints.claim(task, "s", 2, checkpoint(0))
    assert whole(other, task, structure, chunk(structure, 0, 9), answer="third", low=110, epoch=2) == "third"
    other.close()


def test_an_attempt_that_is_interrupted_leaves_the_table_to_the_next(
    session: TargetSession, task: str, structure: Table
) -> None:
    def batches() -> Iterator[pa.Table]:
        yield chunk(structure, 0, 5)
        raise Halted("target-refused", "the source is gone")

    with pytest.raises(Halted, match="the source is gone"):
        load_whole(session, asked(task), structure, batches(), lambda: "first")
    assert session.meta.notes.read(task, SourceTablesKey("s"), structure.name) == ""
    assert whole(session, task, structure, chunk(structure, 0, 9), answer="second") == "second"


def test_chunks_are_loaded_side_by_side_and_no_checkpoint_moves_meanwhile(
    session: TargetSession, target: Target, task: str, structure: Table, impatient: None
) -> None:
    other = target.connect()

    def batches() -> Iterator[pa.Table]:
        yield chunk(structure, 0, 50)
        assert load(other, task, structure, chunk(structure, 50, 100))
        with pytest.raises(Transient):
            move(target, task, 1, 200)
        yield chunk(structure, 100, 150)

    assert load_chunk(session, asked(task), structure, batches())
    move(target, task, 1, 200)
    assert session.count(structure.name) == 150
    other.close()


def test_an_error_in_the_middle_leaves_nothing_and_holds_nothing(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    def batches() -> Iterator[pa.Table]:
        yield chunk(structure, 0, 50)
        raise Halted("target-refused", "the source is gone")

    with pytest.raises(Halted, match="the source is gone"):
        load_chunk(session, asked(task), structure, batches())
    move(target, task, 0, 200)
    assert session.count(structure.name) == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith(("values", "iceberg"))])
def test_a_connection_that_is_killed_in_the_middle_leaves_nothing(
    session: TargetSession, target: Target, task: str, structure: Table
) -> None:
    loading = target.connect()
    postgres = isinstance(target, PostgresTarget)
    ((number,),) = loading.run("SELECT pg_backend_pid()" if postgres else "SELECT CONNECTION_ID()", ())[0]

    def batches() -> Iterator[pa.Table]:
        yield chunk(structure, 0, 50)
        session.run(f"SELECT pg_terminate_backend({number})" if postgres else f"KILL {number}", ())
        yield chunk(structure, 50, 20_000)

    with pytest.raises(Transient):
        load_chunk(loading, asked(task), structure, batches())
    loading.close()
    move(target, task, 0, 200)
    assert session.count(structure.name) == 0


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_a_chunk_whose_commit_had_no_answer_is_loaded_again_or_conflicts(
    session: TargetSession, target: Target, task: str, structure: Table, cut: str
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("no connection lies between this target and the task")
    wire = None if isinstance(target, ValuesTarget) else Wire(target.host, target.port)
    watched = Breaking(target if wire is None else replace(target, host="127.0.0.1", port=wire.port))

    def hook(point: str) -> None:
        if point == {"request": "commit:before", "answer": "commit:after"}[cut]:
            target.store.hook = None
            raise Transient("target-lost", "cut")

    def cut_once(point: str) -> None:
        if point == "commit:before":
            if wire is None:
                target.store.hook = hook
            else:
                wire.cut = cut

    watched.watch = cut_once
    loading = watched.connect()
    with pytest.raises(Transient):
        load(loading, task, structure, chunk(structure, 0, 50))
    loading.close()
    move(target, task, 0, 100)  # This waits until the open transactions have ended.
    assert load(session, task, structure, chunk(structure, 0, 50)) is (cut == "request")
    assert session.count(structure.name) == 50
    if wire:
        wire.close()
