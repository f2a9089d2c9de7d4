"""A merged table lags in a commit if one of its shards is at an earlier place than another, or if a transaction is cut
into parts. Records about moved rows are removed when all shards are at one place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer
from pidts.batch import applying
from pidts.batch.context import JobContext
from pidts.batch.lagging_merge import MovedKeysCleanup, lagging_in
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    Fenced,
    Key,
    Kind,
    Lsn,
    MovedKey,
    Op,
    Table,
    TableName,
    Transient,
    change_schema,
)
from pidts.plan import PlanState
from pidts.plan.state import held_at
from pidts.rules import RouteRule, Routes, Rules
from pidts.schema import Dialect
from pidts.source import SourceConfig

INT = ColumnType(Kind.INT)
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
LANDED, A, B, ALONE = TableName("all", "t"), TableName("s", "t_1"), TableName("s", "t_2"), TableName("alone", "x")
TABLE = Table(LANDED, (Column("id", INT, nullable=False), Column("v", INT)), (PRIMARY,))
ROUTED = Rules(routes=Routes((RouteRule("s", "t_*", "all", "t"),), "one"))
RULES = ApplyRules(task="t", source="one", filters=ROUTED, merged=frozenset({LANDED}))
BEGIN, END = Lsn(0, 1, 4), Lsn(0, 1, 1_000_000)
_numbers = itertools.count()


def at(offset: int, position: str | None = None, **behind: int) -> Checkpoint:
    """Returns a worker's checkpoint, with the places of waiting tables."""
    names = {"a": A, "b": B, "x": ALONE}
    lsn = Lsn(0, 1, offset)
    held = held_at({names[name]: Lsn(0, 1, place) for name, place in behind.items()}, lsn)
    copy = PlanState(lsn, {}, held).copy_json()
    place = f"bin.000001:{offset}" if position is None else position
    return Checkpoint(task="t", source="one", worker=0, lsn=lsn, copy=copy, position=place)


def commit(*places: tuple[Checkpoint, Checkpoint]) -> Commit:
    before, after = zip(*places, strict=True)
    return Commit(before, after)


@pytest.mark.parametrize(
    ("places", "noted", "looked"),
    [
        ([(at(10), at(20))], set(), set()),
        ([(at(10), at(20, a=10))], {LANDED}, set()),
        ([(at(10), at(20, a=15))], {LANDED}, {LANDED}),
        ([(at(10, a=5), at(20, a=5))], {LANDED}, set()),
        ([(at(10, a=5), at(20, a=7))], {LANDED}, {LANDED}),
        ([(at(10, a=5), at(20))], {LANDED}, {LANDED}),
        ([(at(10, a=5), at(20, b=10))], {LANDED}, {LANDED}),
        ([(at(20), at(20)), (at(20, a=5), at(20, a=5))], {LANDED}, set()),
        ([(at(15), at(20)), (at(10), at(20))], {LANDED}, set()),
        ([(at(10, x=5), at(20))], {ALONE}, {ALONE}),
    ],
)
def test_a_table_lags_while_a_member_is_at_an_earlier_lsn_or_workers_are_at_different_ones(places, noted, looked):
    found = lagging_in(RULES, commit(*places), 0)
    assert (set(), set()) == (noted, looked) if found is None else (found.noted, found.looked) == (noted, looked)


def test_a_table_does_not_lag_if_the_key_distinguishes_members_or_nothing_is_routed():
    waits = commit((at(10, a=5), at(20)))
    assert lagging_in(replace(RULES, filters=replace(ROUTED, keyed=frozenset({LANDED}))), waits, 0) is None
    assert lagging_in(replace(RULES, filters=Rules()), waits, 0) is None
    assert lagging_in(replace(RULES, filters=replace(ROUTED, keyed=frozenset({LANDED}))), waits, 0, (A, B)) is None


def changes(member: TableName, first: int, op: Op, keys: range) -> ChangeBatch:
    rows = [{"id": key, "v": first} for key in keys]
    none = [None] * len(rows)
    before, after = (none, rows) if op is Op.INSERT else (rows, none)
    lsns = [Lsn(0, 1, first + 10 * place).to_bytes() for place in range(len(rows))]
    columns = (lsns, [int(op)] * len(rows), before, after)
    arrays = (pa.array(values, field.type) for values, field in zip(columns, change_schema(TABLE), strict=False))
    return replace(ChangeBatch.of(TABLE, *arrays), upstream=member)


def cut() -> Iterator[LogPart]:
    """Returns one transaction, INSERT INTO t_2 SELECT * FROM t_1; DELETE FROM t_1, and a second one after it."""
    yield LogPart([changes(A, 100, Op.INSERT, range(10))])
    for first in (0, 5):
        yield LogPart([changes(B, 1_000 + first * 10, Op.INSERT, range(first, first + 5))], inside=BEGIN)
    for first in (0, 5):
        yield LogPart([changes(A, 2_000 + first * 10, Op.DELETE, range(first, first + 5))], inside=BEGIN)
    yield LogPart([changes(B, 3_000, Op.DELETE, range(1))])


@pytest.mark.parametrize("crash", [None, *range(0, 40, 3)])
@pytest.mark.parametrize("split", [None, 3])
def test_rows_that_move_in_a_transaction_that_is_cut_into_parts(monkeypatch, split, crash):
    monkeypatch.setattr(applying, "PART_BYTES", 1)
    target = ValuesTarget(f"cut {next(_numbers)}")
    session = target.connect()
    create(session, TABLE)
    left = [crash]

    def hook(point: str) -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                left[0] = None
                raise RuntimeError(point)

    def attempt() -> None:
        (before,) = session.meta.checkpoints.claim("t", "one", 1, at(4))
        kept = MovedKeysCleanup(context(target, before.epoch), (before,), lambda _: None)
        after = replace(before, lsn=END, batch=before.batch + 1, position="bin.000001:1000000")
        target.store.hook = hook
        with Committer(target, "t", "one", before.epoch, rules=RULES, sleep=lambda _: None) as committer:
            applying.apply_long(committer, Commit((before,), (after,)), 0, cut, split, (A, B))
        target.store.hook = None
        kept.batch_done(context(target, before.epoch), Commit((before,), (after,)), cut=True)

    try:
        attempt()
    except RuntimeError:
        target.store.hook = None
        attempt()
    assert sorted(row["id"] for row in target.store.content(LANDED).values()) == list(range(1, 10))
    assert target.store.moves == {}
    target.forget()


def context(target: ValuesTarget, epoch: int) -> JobContext:
    return JobContext(
        task="t", source=SourceConfig("memory", 1, "u", "p", source_id="one"), relay=Path(), staging=Path(),
        target=target, workers=1, epoch=epoch, change_no=0, structures={}, dialect=Dialect(),
        charsets={}, rules=ROUTED,
    )  # fmt: skip


class Remembering:
    """A target with records about two tables."""

    def __init__(self) -> None:
        self.target = ValuesTarget(f"remembering {next(_numbers)}")
        self.session = self.target.connect()
        self.session.meta.checkpoints.claim("t", "one", 1, at(4))
        self.epoch = self.session.meta.checkpoints.claim("t", "one", 1, at(4))[0].epoch
        self.note()

    def note(self) -> None:
        for name in (LANDED, ALONE):
            self.session.meta.moves.add("t", "one", name, [MovedKey(A, "1|", BEGIN)])

    def kept(self, *places: Checkpoint, epoch: int | None = None) -> MovedKeysCleanup:
        return MovedKeysCleanup(context(self.target, epoch or self.epoch), places, lambda _: None)

    @property
    def left(self) -> list[TableName]:
        return self.session.meta.moves.target_tables("t", "one")


def test_a_run_begins_by_removing_records_that_are_not_needed():
    for places, left in (
        ([at(10), at(10)], []),
        ([at(10), at(20)], [ALONE, LANDED]),
        ([at(10), at(10, a=5)], [ALONE, LANDED]),
        ([at(10, a=5), at(10, a=5)], [LANDED]),
        ([at(10, "bin.000001:7")], [ALONE, LANDED]),
        ([at(10, "")], []),
    ):
        there = Remembering()
        there.kept(*places)
        assert there.left == sorted(left), places


def test_moves_are_forgotten_when_all_workers_are_at_one_lsn():
    there = Remembering()
    kept = there.kept(at(10), at(20))
    there.note()
    together = commit((at(10), at(20)), (at(20), at(20)))
    kept.batch_done(context(there.target, there.epoch), together, cut=False)
    assert there.left == []


def test_moves_are_forgotten_after_the_batch_in_which_the_last_member_catches_up():
    there = Remembering()
    kept = there.kept(at(10, a=5))
    there.note()
    about = context(there.target, there.epoch)
    kept.batch_done(about, commit((at(10, a=5), at(20, a=7))), cut=False)
    assert LANDED in there.left
    kept.batch_done(about, commit((at(20, a=7), at(30))), cut=False)
    assert there.left == []
    there.note()
    kept.batch_done(about, commit((at(30), at(40))), cut=False)
    assert there.left, "it is not even asked"


def test_a_run_that_was_replaced_removes_no_moves():
    there = Remembering()
    with pytest.raises(Fenced):
        there.kept(at(10), epoch=there.epoch - 1)
    assert there.left == sorted([ALONE, LANDED])


def test_forgetting_moves_is_tried_again():
    there = Remembering()
    left = [2]

    def hook(point: str) -> None:
        if point == "lock" and left[0]:
            left[0] -= 1
            raise Transient("target-busy", "deadlock")

    there.target.store.hook = hook
    there.kept(at(10))
    assert there.left == []
