"""Batches that are applied with many crashes leave the same rows as without crashes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Committer, Outcome, Retry
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    Halted,
    Key,
    Kind,
    Lsn,
    OtherCheckpoint,
    Table,
    TableName,
    Transient,
    Where,
)
from pidts.reduce import Counts, NetChange

TABLE = Table(
    TableName("d", "t"),
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("v", ColumnType(Kind.INT))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
POINTS = ("connect", "begin", "lock", "advance", "write", "save", "commit:before", "commit:after")


def net(batch: int, ids: list[int]) -> NetChange:
    keys = pa.array(ids, pa.int32())
    deletes = pa.table({"id": pa.array([ids[0]], pa.int32())})
    return NetChange(
        TABLE, deletes, pa.table({"id": keys, "v": pa.array([batch] * len(ids), pa.int32())}), Counts(updated=len(ids))
    )


def start() -> Checkpoint:
    return Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 0))


BATCHES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), min_size=1, max_size=6)
FAULTS = st.lists(st.tuples(st.sampled_from(POINTS), st.sampled_from([ProcessDied, Transient])), max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(BATCHES, FAULTS)
def test_crashes_change_nothing(batches, faults):
    target = ValuesTarget("exactly-once")
    target.forget()
    left = list(faults)
    moves: list[Lsn] = []

    def hook(point):
        if left and left[0][0] == point:
            _, kind = left.pop(0)
            raise kind("gone", "gone") if kind is Transient else kind

    session = target.connect()
    create(session, TABLE)
    target.store.hook = hook
    finished = False
    while not finished:
        try:
            session = target.connect()
            (row,) = session.meta.checkpoints.claim("t", "s", 1, start())
            session.close()
            with Committer(target, "t", "s", row.epoch, retry=Retry(attempts=20), sleep=lambda _: None) as writer:
                for number in range(row.lsn.offset, len(batches)):
                    new = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, number + 1), batch=number)
                    outcome = writer.commit(0, Lsn(0, 1, number), new, lambda _, n=number: [net(n, batches[n])])
                    assert outcome is Outcome.APPLIED
                    moves.append(new.lsn)
            finished = True
        except (ProcessDied, Transient):
            continue
    target.store.hook = None
    wanted: dict[int, int] = {}
    for number, ids in enumerate(batches):
        wanted |= dict.fromkeys(ids, number)
    assert {key[0]: row["v"] for key, row in target.store.content(TABLE.name).items()} == wanted
    assert target.store.commits == len(batches)
    assert moves == sorted(set(moves))
    target.forget()


@pytest.mark.parametrize(
    ("origin", "named", "expected"),
    [
        (TableName("d", "t_1"), "d.t", "d.t_1"),
        (None, "d.t", "d.t"),
        (TableName("d", "t_1"), "", ""),
    ],
)
def test_a_refusal_is_reported_for_the_refused_table_alone(origin, named, expected):
    target = ValuesTarget("refused-of-one")
    target.forget()
    session = target.connect()
    create(session, TABLE)
    (claimed,) = session.meta.checkpoints.claim("t", "s", 1, start())

    def hook(point):
        if point == "write":
            raise Halted("target-refused", "no", where=Where(table=named))

    target.store.hook = hook
    change = replace(net(1, [1]), origin=origin)
    with Committer(target, "t", "s", claimed.epoch) as committer, pytest.raises(Halted) as caught:
        committer.commit(0, claimed.lsn, replace(start(), lsn=Lsn(0, 1, 9)), lambda _: [change])
    assert caught.value.where.table == expected
    target.forget()


def committed(batches: list[Checkpoint], hook) -> list[str]:
    """Commits the batches in one run; returns the points at which `hook` was called."""
    target = ValuesTarget("advances")
    target.forget()
    session = target.connect()
    create(session, TABLE)
    (row,) = session.meta.checkpoints.claim("t", "s", 1, start())
    session.close()
    points: list[str] = []

    def note(point):
        points.append(point)
        hook(point)

    target.store.hook = note
    with Committer(target, "t", "s", row.epoch, sleep=lambda _: None) as writer:
        for number, new in enumerate(batches):
            changes = [net(number, [number])]
            assert writer.commit(0, Lsn(0, 1, number), new, lambda _, made=changes: made) is Outcome.APPLIED
    target.store.hook = None
    assert len(target.store.content(TABLE.name)) == len(batches) == target.store.commits
    target.forget()
    return points


def test_a_row_with_large_texts_is_read_before_it_is_saved():
    """A statement that advances a checkpoint row has the row's texts twice, and could be larger than the server
    accepts.
    """

    def copying(size: int) -> list[Checkpoint]:
        return [
            replace(start(), lsn=Lsn(0, 1, number + 1), batch=number, copy=f'{{"x": "{"x" * size}"}}')
            for number in range(4)
        ]

    assert committed(copying(8_000), lambda _: None).count("advance") == 3
    assert committed(copying(9_000), lambda _: None).count("advance") == 0


def test_a_target_that_cannot_compare_the_row_is_asked_once():
    def refuse(point):
        if point == "advance":
            raise OtherCheckpoint("task-taken", "the statement fails for a reason of its own")

    batches = [replace(start(), lsn=Lsn(0, 1, number + 1), batch=number) for number in range(5)]
    assert committed(batches, refuse).count("advance") == 1
