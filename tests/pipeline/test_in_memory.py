"""Planner, reduce and committer carry changes from a source to a target in memory, without a server or Spark.

Histories, batches, the number of workers, a full copy meanwhile, and crashes at named points of the target's
transactions are random. The target becomes equal to the source, and a counter that only grows on the source never
becomes smaller on the target.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes, survive
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import Committer, DdlRunner, SchemaChange
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.decoding import copied
from pidts.batch.workers import Commit, Workers
from pidts.model import Checkpoint, Column, ColumnType, Key, Kind, Op, SourceTablesKey, Table, TableName, Transient
from pidts.plan import (
    CopyState,
    Limits,
    Phase,
    PlanState,
    Relevance,
    RelevanceKind,
    StagedChunk,
    next_state,
    plan_between,
)
from pidts.reduce import buckets
from pidts.schema import apply as structures_after
from pidts.schema import classify

from .values_source import ValuesSource

NAME = TableName("shop", "orders")
INT = ColumnType(Kind.INT)
TABLE = Table(
    NAME,
    (Column("id", INT, nullable=False), Column("counter", INT, nullable=False), Column("slot", INT)),
    (Key("PRIMARY", ("id",), unique=True, primary=True), Key("slot", ("slot",), unique=True)),
)
PLAIN = replace(TABLE, keys=TABLE.keys[:1])

numbers = itertools.count()


class Pipeline:
    """Does what the driver does, with log and rows in memory. Every `run` is a new process."""

    def __init__(
        self, source: ValuesSource, target: ValuesTarget, workers: int, limits: Limits, *, copy: bool, order=list
    ) -> None:
        self.order = order
        self.source, self.target, self.workers, self.limits = source, target, workers, limits
        self.first = Checkpoint(
            task="t",
            source="s",
            worker=0,
            lsn=source.received,
            copy=PlanState(source.received, {NAME: CopyState()}).copy_json() if copy else "",
        )

    def run(self, *, between=lambda: None) -> None:
        """Runs from the claim until there is nothing left to do. `between` lets the source change meanwhile."""
        session = self.target.connect()
        claimed = tuple(session.meta.checkpoints.claim("t", "s", self.workers, self.first))
        structures = session.meta.structures.load("t", SourceTablesKey("s"))
        session.close()
        workers, state, _ = Workers.claimed(claimed)
        committer = Committer(self.target, "t", "s", claimed[0].epoch, sleep=lambda _: None)
        chunks = {}
        while True:
            staged = {request.table: chunks[request][0] for request in state.reading}
            end = next_state(state, self.log, staged, self.limits, self.relevance, None, state.dues)
            if end is None:
                break
            plan = plan_between(state, end, self.log, self.relevance)
            moved = workers.moved(end)
            before, after = workers.checkpoints, moved.checkpoints
            commit = Commit(before, after)
            self.rows(state, plan, structures, chunks, committer, commit)
            for request in plan.read:
                chunks[request] = self.read(request, structures[NAME], between)
            between()
            state, workers = end, moved
            for due in state.dues:
                structures = {**structures, **self.schema_change(due, structures, claimed[0].epoch)}
        committer.close()

    def log(self, at, to=None):
        return self.source.entries(at, to)

    def schema_change(self, due, structures, epoch):
        """Makes the schema change, unless an earlier run has made it. Returns the changed structures."""
        runner = DdlRunner(self.target, "t", "s", epoch, sleep=lambda _: None)
        if runner.is_done(due):
            return {}
        text = next(entry.transaction.ddl for entry in self.log(self.first.lsn) if entry.transaction.lsn == due)
        statement = classify(text, "shop")
        changed = structures_after(statement, structures, {})
        before = {name: structures.get(name) for name in changed}
        runner.run(SchemaChange(statement=statement, text=text, before=before, after=changed, structures=changed), due)
        return changed

    def rows(self, state, plan, structures, chunks, committer, commit):
        blobs = [[] for _ in range(self.workers)]
        batches = [(0, batch) for request in plan.write for batch in copied(structures[NAME], chunks[request][1])]
        batches += [(1, batch) for batch in self.source.decode(state.lsn, plan.end.lsn, structures)]
        for order, batch in batches:
            for worker, part in enumerate(buckets(batch, self.workers)):
                if part is not None:
                    packed = Blob(worker, order, part).pack()
                    blobs[worker].append(Blob.unpack(worker, order, packed))
        for worker in self.order(range(self.workers)):
            apply(committer, commit, worker, blobs[worker])

    def read(self, request, table, between):
        """Reads rows. All of them wait for a batch: none is loaded in advance."""
        if request.phase is Phase.FINISH:
            return StagedChunk(request, self.source.received, 0, None, None, is_last=True), None
        everything = self.source.select_rows(table, None, 1_000_000)
        upto = request.upto or tuple(self.source.last_key(everything, table) or ()) or None
        between()
        rows = self.source.select_rows(table, request.after, request.limit)
        rows = rows.filter(pc.less_equal(rows["id"], upto[0])) if upto else rows.slice(0, 0)
        between()
        last = self.source.last_key(rows, table)
        done = rows.num_rows < request.limit
        read = rows.num_rows
        key = last and tuple(last)
        return StagedChunk(request, self.source.received, read, key, upto, done, waiting=read, largest=read), rows

    @staticmethod
    def relevance(entry):
        if entry.transaction.ddl:
            return Relevance(RelevanceKind.DDL)
        return Relevance(RelevanceKind.ROWS if entry.transaction.row_events else RelevanceKind.NOTHING)


steps = st.lists(
    st.tuples(st.sampled_from("iiuuudkst"), st.integers(0, 7), st.integers(0, 7), st.integers(0, 3)), max_size=30
)


def play(source: ValuesSource, step) -> None:
    """Makes one transaction that the source allows: insert, update, delete, change of a key, swap, or two of them."""
    kind, one, two, slot = step
    table = source.structures[NAME]
    rows = {row["id"]: row for row in source.rows(NAME)}
    taken = {row["slot"] for row in rows.values()}
    free = slot if table.secondary_unique and slot not in taken else None
    if kind == "i" and one not in rows:
        source.insert(NAME, {"id": one, "counter": source.clock(), "slot": free})
    elif kind == "u" and one in rows:
        source.update(NAME, (one,), counter=source.clock())
    elif kind == "d" and one in rows:
        source.delete(NAME, (one,))
    elif kind == "k" and one in rows and two not in rows:
        source.update(NAME, (one,), id=two, counter=source.clock())
    elif kind == "s" and one in rows and two in rows and one != two:
        a, b = rows[one], rows[two]
        nobody = {**a, "slot": None}
        source.commit(
            (
                NAME,
                [
                    (Op.UPDATE, a, nobody),
                    (Op.UPDATE, b, {**b, "slot": a["slot"], "counter": source.clock()}),
                    (Op.UPDATE, nobody, {**nobody, "slot": b["slot"], "counter": source.clock()}),
                ],
            )
        )
    elif kind == "t":
        source.rotate()


class ClockedSource(ValuesSource):
    """A source on which each value of `counter` is larger than all values before it."""

    def clock(self) -> int:
        self.ticks = getattr(self, "ticks", 0) + 1
        return self.ticks


def prepared(table: Table, *, transactional_ddl: bool) -> tuple[ClockedSource, ValuesTarget]:
    source = ClockedSource([table])
    target = ValuesTarget(f"pipeline {next(numbers)}", transactional_ddl=transactional_ddl)
    session = target.connect()
    create(session, table)
    session.begin()
    session.meta.structures.save("t", SourceTablesKey("s"), source.received, {NAME: table})
    session.commit()
    session.close()
    return source, target


@settings(max_examples=examples(60), deadline=None)
@given(
    before=steps,
    during=steps,
    table=st.sampled_from([TABLE, PLAIN]),
    workers=st.integers(1, 3),
    size=st.integers(1, 4),
    chunk=st.integers(1, 4),
    idle=st.sampled_from([1, 10_000]),
    crashes=st.lists(st.integers(0, 25), max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_the_target_ends_as_the_source_and_never_goes_back(
    before, during, table, workers, size, chunk, idle, crashes, chance
):
    source, target = prepared(table, transactional_ddl=True)
    for step in before:
        play(source, step)
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk, idle_entries=idle)
    shuffled = lambda those: chance.sample(list(those), len(those))  # noqa: E731 - workers run side by side
    pipeline = Pipeline(source, target, workers, limits, copy=True, order=shuffled)
    pending, seen = iter(during), {}
    dies = Crashes(crashes)

    def hook(point):
        if point == "commit:after":
            for row in target.store.content(NAME).values():
                highest = seen.get(row["id"], 0)
                assert row["counter"] >= highest, "a reader saw an older value"
                seen[row["id"]] = row["counter"]
        dies(point)

    target.store.hook = hook
    for _ in range(2):
        survive(lambda: pipeline.run(between=lambda: [play(source, step) for step in itertools.islice(pending, 1)]))
    target.store.hook = None
    for step in pending:
        play(source, step)
    pipeline.run()
    assert sorted(target.store.content(NAME).values(), key=lambda row: row["id"]) == source.rows(NAME)
    target.forget()


@pytest.mark.parametrize("transactional_ddl", [True, False])
@pytest.mark.parametrize("crash_at", range(30))
def test_a_crash_at_any_point_around_a_ddl_ends_right(crash_at, transactional_ddl):
    source, target = prepared(PLAIN, transactional_ddl=transactional_ddl)
    pipeline = Pipeline(source, target, 2, Limits(transactions=2, idle_entries=1), copy=False)
    for number in range(4):
        source.insert(NAME, {"id": number, "counter": number, "slot": None})
    wider = replace(PLAIN, columns=(*PLAIN.columns, Column("note", INT)))
    source.ddl("ALTER TABLE shop.orders ADD COLUMN note INT", {NAME: wider})
    source.update(NAME, (1,), note=5)
    source.insert(NAME, {"id": 9, "counter": 9, "slot": None, "note": 9})
    target.store.hook = Crashes([crash_at])
    survive(pipeline.run)
    assert sorted(target.store.content(NAME).values(), key=lambda row: row["id"]) == source.rows(NAME)
    target.forget()


def test_a_lost_answer_to_commit_is_found_out():
    source, target = prepared(PLAIN, transactional_ddl=True)
    source.insert(NAME, {"id": 1, "counter": 1, "slot": None})
    pipeline = Pipeline(source, target, 1, Limits(idle_entries=1), copy=True)
    lost = []

    def hook(point):
        if point == "commit:after" and len(lost) < 3:
            lost.append(point)
            raise Transient("target-lost", "the answer never came")

    target.store.hook = hook
    pipeline.run()
    assert lost
    assert list(target.store.content(NAME).values()) == source.rows(NAME)
    target.forget()
