"""A large transaction that is read and written in parts is applied completely, or up to the place in its checkpoint.

The transaction changes two tables in turn, one of them without a key. The log is cut anywhere, the size of each part is
limited, and the process dies at any point of the target's transactions. The next process begins at the target's
checkpoint.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Committer
from pidts.batch import applying
from pidts.batch.blobs import Blob
from pidts.batch.log_parts import LogPart, parts
from pidts.batch.long_batch import LeftBatchError, LongBatch
from pidts.batch.workers import Commit, Workers
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    Key,
    Kind,
    Lsn,
    Op,
    Table,
    TableName,
    Transient,
    change_schema,
)
from pidts.plan import CopyState, HeldTables, PlanState, dealing_of
from pidts.reduce import buckets

INT = ColumnType(Kind.INT)
KEYED = Table(
    TableName("shop", "keyed"),
    (Column("id", INT, nullable=False), Column("n", INT), Column("u", INT)),
    (Key("PRIMARY", ("id",), unique=True, primary=True), Key("u", ("u",), unique=True)),
)
SPREAD = Table(TableName("shop", "spread"), KEYED.columns, KEYED.keys[:1])
LOOSE = Table(TableName("shop", "loose"), (Column("n", INT), Column("t", INT)))
TABLES = (KEYED, SPREAD, LOOSE)
START, BEGIN, END, FURTHER = Lsn(0, 1, 0), Lsn(0, 1, 4), Lsn(0, 1, 10_000_000), Lsn(0, 1, 20_000_000)
DONE = ("0-1-2", "bin.000001:9")
_numbers = itertools.count()

Row = dict[str, Any]
Change = tuple[Table, Lsn, Op, Row | None, Row | None]


class Transaction:
    """One large transaction: its changes in log order, and the rows that it leaves."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.changes: list[Change] = []
        self.rows: dict[TableName, list[Row]] = {table.name: [] for table in TABLES}
        for number in range(size):
            # Some rows of one event, then some rows of the next event.
            self._change(chance, Lsn(0, 1, 100 + 50 * (number // 3), number % 3))

    def _change(self, chance: random.Random, at: Lsn) -> None:
        table = chance.choice(TABLES)
        rows = self.rows[table.name]
        kind = chance.choice("iiiudk") if rows else "i"
        old = chance.choice(rows) if kind != "i" else None
        new = None
        if kind != "d":
            taken = {name: {row[name] for row in rows} for name in ("id", "u") if table.identity}
            free = {name: next(n for n in itertools.count() if n not in used) for name, used in taken.items()}
            new = {"n": chance.randrange(5), "t": chance.randrange(2)} if table is LOOSE else {"n": at.offset, **free}
            if old is not None and table is not LOOSE:
                new = {**new, "id": free["id"] if kind == "k" else old["id"]}
        if old is not None:
            rows.remove(old)
        if new is not None:
            rows.append({column.name: new[column.name] for column in table.columns})
        op = Op.INSERT if old is None else Op.DELETE if new is None else Op.UPDATE
        self.changes.append((table, at, op, old, new))

    def log_parts(
        self, cuts: Sequence[int], workers: int, worker: int, *, inside: Lsn | None = BEGIN
    ) -> Iterator[LogPart]:
        """Cuts the changes at `cuts`; each log part has the worker's changes of all tables."""
        for first, last in itertools.pairwise([0, *sorted(cuts), len(self.changes)]):
            mine = self.changes[first:last]
            batches = [batch_of(table, [c for c in mine if c[0] is table]) for table in TABLES]
            dealt = [buckets(batch, workers)[worker] for batch in batches]
            yield LogPart([batch for batch in dealt if batch is not None], inside)


def batch_of(table: Table, changes: Sequence[Change]) -> ChangeBatch:
    columns = [
        [at.to_bytes() for _, at, _, _, _ in changes],
        [int(op) for _, _, op, _, _ in changes],
        [old for _, _, _, old, _ in changes],
        [new for _, _, _, _, new in changes],
    ]
    schema = change_schema(table)
    return ChangeBatch.of(
        table, *(pa.array(values, field.type) for values, field in zip(columns, schema, strict=False))
    )


def bag(rows: Sequence[Row]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


class Run:
    """One task's target; every `attempt` is a new process that begins at the checkpoint."""

    def __init__(self, transaction: Transaction, cuts: Sequence[int], workers: int, split: int | None) -> None:
        self.transaction, self.cuts, self.workers, self.split = transaction, cuts, workers, split
        self.target = ValuesTarget(f"long {next(_numbers)}")
        session = self.target.connect()
        for table in TABLES:
            create(session, table)
        session.close()

    def attempt(self) -> None:
        session = self.target.connect()
        first = Checkpoint(task="t", source="s", worker=0, lsn=BEGIN, gtid="0-1-1", position="bin.000001:4")
        before = tuple(session.meta.checkpoints.claim("t", "s", self.workers, first))
        session.close()
        after = tuple(replace(c, lsn=END, batch=c.batch + 1, gtid=DONE[0], position=DONE[1]) for c in before)
        with Committer(self.target, "t", "s", before[0].epoch, sleep=lambda _: None) as committer:
            for worker in range(self.workers):
                if before[worker].lsn < END:
                    applying.apply_long(
                        committer,
                        Commit(before, after),
                        worker,
                        lambda w=worker: self.transaction.log_parts(self.cuts, self.workers, w),
                        self.split,
                    )

    @contextmanager
    def begun(self) -> Iterator[tuple[Committer, Checkpoint]]:
        """Yields a committer of one worker, and the checkpoint that it has itself written."""
        first = Checkpoint(task="t", source="s", worker=0, lsn=START)
        with closing(self.target.connect()) as session:
            (claimed,) = session.meta.checkpoints.claim("t", "s", 1, first)
        before = replace(claimed, lsn=BEGIN, batch=1, gtid="0-1-1", position="bin.000001:4")
        with Committer(self.target, "t", "s", claimed.epoch, sleep=lambda _: None) as committer:
            applying.apply(committer, Commit((claimed,), (before,)), 0, [])
            yield committer, before

    @property
    def nothing(self) -> dict[TableName, Counter[str]]:
        return {table.name: Counter() for table in TABLES}

    def bags(self) -> dict[TableName, Counter[str]]:
        return {table.name: bag(list(self.target.store.content(table.name).values())) for table in TABLES}

    @property
    def wanted(self) -> dict[TableName, Counter[str]]:
        return {name: bag(rows) for name, rows in self.transaction.rows.items()}


@settings(max_examples=examples(30), deadline=None)
@given(
    size=st.integers(0, 60),
    seed=st.integers(0, 2**16),
    workers=st.integers(1, 2),
    split=st.sampled_from([None, 1, 3, 10]),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    part=st.sampled_from([200, 2000, 1 << 20]),
)
def test_whatever_the_cuts_and_crashes_the_target_ends_right(size, seed, workers, split, crashes, part):
    chance = random.Random(seed)
    transaction = Transaction(chance, size)
    run = Run(transaction, sorted(chance.choices(range(size + 1), k=chance.randrange(6))), workers, split)
    empty = run.bags()
    countdown = iter(crashes)
    left = next(countdown, None)

    def hook(point: str) -> None:
        nonlocal left
        if split is None and workers == 1:
            assert run.bags() in (empty, run.wanted), "a reader sees a part of the transaction"
        for checkpoint in run.target.store.checkpoints.values():
            inside = checkpoint.lsn < END
            assert (checkpoint.gtid, checkpoint.position) == (("0-1-1", "bin.000001:4") if inside else DONE)
        if left is not None:
            left -= 1
            if left < 0:
                left = next(countdown, None)
                raise ProcessDied(point)

    run.target.store.hook = hook
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applying, "PART_BYTES", part)
        while True:
            try:
                run.attempt()
                break
            except ProcessDied:
                continue
    run.target.store.hook = None
    assert run.bags() == run.wanted
    session = run.target.connect()
    assert {(c.lsn, c.gtid, c.position) for c in session.meta.checkpoints.read("t", "s")} == {(END, *DONE)}
    session.close()
    run.target.forget()


@pytest.mark.parametrize("split", [None, 7])
def test_an_error_between_two_parts_begins_the_transaction_again(split, monkeypatch):
    monkeypatch.setattr(applying, "PART_BYTES", 500)
    run = Run(Transaction(random.Random(3), 60), range(0, 60, 5), 1, split)
    writes = itertools.count(1)
    failed = []

    def hook(point: str) -> None:
        if point == "write" and next(writes) in {5, 9, 20}:
            failed.append(point)
            raise Transient("target-busy", "deadlock")

    run.target.store.hook = hook
    run.attempt()
    assert len(failed) == 3
    assert run.bags() == run.wanted
    assert (run.target.store.commits > 3) == (split is not None)
    run.target.forget()


def test_a_committer_that_has_left_the_checkpoint_itself_applies_it_once_wherever_the_target_fails():
    """The driver's committer has written the batch before, so it does not read the checkpoint first."""
    transaction = Transaction(random.Random(4), 60)
    points: list[str] = []
    for failing in itertools.count():
        run = Run(transaction, range(0, 60, 5), 1, None)
        seen = itertools.count()
        points.clear()

        def hook(point: str, failing: int = failing, seen: Iterator[int] = seen, run: Run = run) -> None:
            points.append(point)
            assert run.bags() in (run.nothing, run.wanted), "a reader sees a part of the transaction"
            if next(seen) == failing:
                raise Transient("target-busy", "connection lost")

        with run.begun() as (committer, before):
            run.target.store.hook = hook
            after = replace(before, lsn=END, batch=before.batch + 1, gtid=DONE[0], position=DONE[1])
            log_parts = partial(transaction.log_parts, run.cuts, 1, 0)
            applying.apply_long(committer, Commit((before,), (after,)), 0, log_parts, part_bytes=2000)
        run.target.store.hook = None
        assert run.bags() == run.wanted, points
        run.target.forget()
        if failing == len(points):
            break
    assert "advance" in points
    assert points.count("write") > 3
    assert points[-1] == "commit:after"


def test_a_batch_that_is_left_between_two_parts_has_written_nothing():
    run = Run(Transaction(random.Random(4), 60), range(0, 60, 5), 1, None)
    written: list[str] = []
    seen: list[int] = []
    batch = LongBatch()

    def leave(operation: str) -> None:
        written.append(operation)
        seen.append(batch.written)
        batch.is_left = written.count("write") >= 3

    with run.begun() as (committer, before):
        commit = Commit((before,), (replace(before, lsn=END, batch=before.batch + 1),))

        def log_parts() -> Iterator[LogPart]:
            return batch.until_left(0, run.transaction.log_parts(run.cuts, 1, 0))

        run.target.store.hook = leave
        with pytest.raises(LeftBatchError):
            applying.apply_long(committer, commit, 0, log_parts, part_bytes=2000)
        assert written.count("write") >= 3
        assert run.bags() == run.nothing
        run.target.store.hook, batch.is_left = None, False
        applying.apply_long(committer, commit, 0, log_parts, part_bytes=2000)
    assert run.bags() == run.wanted
    assert seen == sorted(seen)
    assert 0 < seen[-1] < batch.written == sum(map(len, run.transaction.log_parts(run.cuts, 1, 0)))
    run.target.forget()


def test_split_commits_hold_no_more_rows_than_asked_and_are_in_log_order(monkeypatch):
    transaction = Transaction(random.Random(5), 100)
    found = list(parts(transaction.log_parts([40], 1, 0), 1 << 30, 8))
    assert [len(part) for part in found] == [8] * 5 + [8] * 7 + [4]
    bounds = [(first_of(part), part.end) for part in found]
    assert all(first <= last for first, last in bounds)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(bounds))


def first_of(part: LogPart) -> Lsn:
    return min(Lsn.from_bytes(batch.rows["lsn"][0].as_py()) for batch in part.changes if len(batch))


def test_small_transactions_are_not_split():
    transaction = Transaction(random.Random(5), 100)
    found = list(parts(transaction.log_parts([30, 60], 1, 0, inside=None), 1 << 30, 8))
    assert [len(part) for part in found] == [30, 30, 40]


def test_an_ordinary_batch_is_one_part_and_a_larger_one_is_cut_between_slices(monkeypatch):
    transaction = Transaction(random.Random(8), 40)
    blobs = [
        Blob(0, Blob.first_order(number) + place, batch)
        for number, log_part in enumerate(transaction.log_parts([10, 20, 30], 1, 0))
        for place, batch in enumerate(log_part.changes)
    ]
    for size, count in ((1 << 20, 1), (1, 4)):
        monkeypatch.setattr(applying, "_ORDINARY_BYTES", size)
        reduced: list[int] = []
        whole = applying.prepared
        monkeypatch.setattr(
            applying,
            "prepared",
            lambda session, batches, *more, seen=reduced, whole=whole: (
                seen.append(len(batches)) or whole(session, batches, *more)
            ),
        )
        run = Run(transaction, [], 1, None)
        session = run.target.connect()
        before = tuple(
            session.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=BEGIN))
        )
        session.close()
        after = (replace(before[0], lsn=END, batch=1),)
        with Committer(run.target, "t", "s", before[0].epoch) as committer:
            applying.apply(committer, Commit(before, after), 0, random.Random(1).sample(blobs, len(blobs)))
        assert len(reduced) == count
        assert run.bags() == run.wanted
        monkeypatch.setattr(applying, "prepared", whole)
        run.target.forget()


@pytest.mark.parametrize("split", [None, 1])
@pytest.mark.parametrize("inside", [None, Lsn(0, 1, 149)])
def test_rows_that_are_settled_in_one_part_never_collide_with_an_earlier_part(split, inside):
    """Row 1 was loaded as it is at the batch's end, and then has the value that row 2 has in the meantime."""
    history = Transaction(random.Random(0), 0)
    history.changes = [
        (KEYED, Lsn(0, 1, 100, 0), Op.UPDATE, {"id": 2, "n": 0, "u": 5}, {"id": 2, "n": 0, "u": 7}),
        (KEYED, Lsn(0, 1, 150, 0), Op.UPDATE, {"id": 2, "n": 0, "u": 7}, {"id": 2, "n": 0, "u": 8}),
        (KEYED, Lsn(0, 1, 200, 0), Op.UPDATE, {"id": 1, "n": 0, "u": 1}, {"id": 1, "n": 0, "u": 7}),
    ]
    history.rows[KEYED.name] = [{"id": 1, "n": 0, "u": 7}, {"id": 2, "n": 0, "u": 8}]
    run = Run(history, (1, 2), 1, split)
    loaded = [(KEYED, Lsn(0, 1, 5), Op.INSERT, None, row) for row in history.rows[KEYED.name]]
    read = CopyState(after=(2,), upto=(2,), reads=1)
    states = (read, replace(read, settled=1))
    texts = [PlanState(lsn, {KEYED.name: one}).copy_json() for lsn, one in zip((BEGIN, END), states, strict=True)]
    with run.begun() as (committer, begun):
        before = replace(begun, lsn=Lsn(0, 1, 5), batch=2, copy=texts[0])
        applying.apply(
            committer, Commit((begun,), (before,)), 0, [Blob(0, Blob.first_order(0), batch_of(KEYED, loaded))]
        )
        after = replace(before, lsn=END, batch=3, copy=texts[1])
        first, *large = history.log_parts(run.cuts, 1, 0, inside=None)
        log_parts = [first, *(replace(one, inside=inside) for one in large)]
        applying.apply_long(committer, Commit((before,), (after,)), 0, lambda: log_parts, split, part_bytes=1)
    assert run.bags() == run.wanted
    run.target.forget()


def test_the_checkpoint_of_a_part_says_how_its_own_rows_were_assigned_to_workers():
    """The target's keys were changed while the task was stopped. If a run is killed after this part, the next run has
    to assign rows as this run did.
    """
    run = Run(Transaction(random.Random(3), 40), range(0, 40, 5), 1, 5)
    stored: list[str] = []
    with run.begun() as (committer, begun):
        before = replace(begun, copy=PlanState(BEGIN).copy_json(1, "earlier keys"))
        after = replace(begun, lsn=END, batch=2, copy=PlanState(END).copy_json(2, "present keys"))
        applying.apply(committer, Commit((begun,), (before,)), 0, [])
        run.target.store.hook = lambda _: stored.extend(one.copy for one in run.target.store.checkpoints.values())
        applying.apply_long(
            committer, Commit((before,), (after,)), 0, partial(run.transaction.log_parts, run.cuts, 1, 0), 5
        )
    run.target.store.hook = None
    assert run.bags() == run.wanted
    inside = [text for text in stored if text not in {before.copy, after.copy}]
    assert {dealing_of(text) for text in inside} == {"present keys"}
    run.target.forget()


def test_a_transaction_is_not_divided_while_a_worker_that_is_ahead_catches_up_with_a_held_table():
    """The worker has committed a batch that held the table, and the others have not. Now nothing holds the table."""
    history = Transaction(random.Random(0), 0)
    history.changes = [(KEYED, Lsn(0, 1, 100, n), Op.INSERT, None, {"id": n, "n": n, "u": n}) for n in range(4)]
    history.rows[KEYED.name] = [row for *_, row in history.changes]
    run = Run(history, (2,), 1, 1)
    with run.begun() as (committer, begun):
        held = PlanState(FURTHER, held=(HeldTables(frozenset({KEYED.name}), BEGIN),))
        ahead = replace(begun, lsn=FURTHER, batch=2, copy=held.copy_json(1))
        applying.apply(committer, Commit((begun,), (ahead,)), 0, [])
        workers = Workers((ahead,))
        commit = Commit.of(workers, workers.moved(PlanState(END)))
        applying.apply_long(committer, commit, 0, partial(history.log_parts, run.cuts, 1, 0), 1)
    assert run.bags() == run.wanted
    (stored,) = run.target.store.checkpoints.values()
    assert PlanState.from_checkpoint(stored.lsn, stored.copy).at(KEYED.name) == END
    run.target.forget()
