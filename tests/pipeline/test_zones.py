"""Zones in memory, written to in each, with tasks between them that die anywhere: nothing comes back or is lost.

What a target commits is appended to its own log, as a server does: with the tables of the meta schema that the
transaction changes. So each task reads what the other one writes.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.values_target import ValuesTarget

from pidts.apply import Committer
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.relevance import Meaning
from pidts.batch.workers import Commit, Workers
from pidts.model import Checkpoint, Column, ColumnType, Key, Kind, LogEntry, Lsn, OfSource, Op, Table, TableName
from pidts.model.zone import mark_table
from pidts.plan import Limits, PlanState, next_state, plan_between
from pidts.reduce import Counts, NetChange, buckets
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.zones import Feed, carried

from .crashes import CrashError, Crashes
from .values_source import ValuesSource

NAME = TableName("shop", "orders")
INT = ColumnType(Kind.INT)
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
TABLE = Table(NAME, (Column("id", INT, nullable=False), Column("value", INT)), KEY)
META = {
    name: Table(TableName("pidts_meta", name), (Column("id", INT, nullable=False),), KEY)
    for name in ("checkpoint", *map(mark_table, "abcd"))
}
PAIR: list[Feed] = list(itertools.permutations("ab", 2))
SHAPES: dict[str, list[Feed]] = {
    "pair": PAIR,
    "mesh": list(itertools.permutations("abc", 2)),
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
    "star": [*itertools.product("a", "bcd"), *itertools.product("bcd", "a")],
    "line": [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")],
}
numbers = itertools.count()
Row = dict[str, Any]


class Zone:
    """A server: its rows, and its log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log = ValuesSource([TABLE, *META.values()])
        self.target = ValuesTarget(f"zone {name} {next(numbers)}", transactional_ddl=True)
        self.dies = Crashes([])
        self.applied: list[tuple[str, int, int | None]] = []
        """The zone that a task named as the origin of which value of which row; None: the row was removed."""
        self.meta: list[str] = []
        """The meta tables that the transactions of the writer change, apart from its mark."""
        self.writer = ""
        """The zone from which a task writes now; empty: a program does."""
        self.marks = True
        self._next = itertools.count()
        session = self.target.connect()
        for statement in session.schema.create_statements(TABLE).statements:
            session.execute(statement)
        session.begin()
        session.meta.structures.save("t", OfSource("s"), self.log.received, {NAME: TABLE})
        session.commit()
        session.close()
        self.target.store.hook = self._hook

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.log.rows(NAME)}

    def write(self, meta: list[str], rows: list[Row], removed: list[Row]) -> None:
        """What a program commits here, or a task of no zone: it changes these meta tables, too."""
        upserts, deletes = (pa.Table.from_pylist(those, schema=TABLE.arrow) for those in (rows, removed))
        self.meta, self.writer, dies, self.dies = meta, "", self.dies, Crashes([])
        session = self.target.connect()
        try:
            session.begin()
            session.write(NetChange(TABLE, deletes, upserts, Counts()))
            session.commit()
        finally:
            session.close()
            self.dies = dies

    def _hook(self, point: str) -> None:
        if point == "commit:after":
            self._append()
        self.dies(point)

    def _append(self) -> None:
        """Appends the difference between the rows and the log, which is what the last transaction has changed."""
        before, after = self.rows(), {row["id"]: row for row in self.target.store.content(NAME).values()}
        changes: list[tuple[Op, Row | None, Row | None]] = [
            (Op.DELETE, row, None) for key, row in before.items() if key not in after
        ]
        changes += [(Op.INSERT, None, row) for key, row in after.items() if key not in before]
        changes += [
            (Op.UPDATE, before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]
        ]
        meta = list(self.meta)
        origin = (self.target.store.origin or self.writer) if self.writer else ""
        if changes and origin and self.marks:
            meta.append(mark_table(origin))
        steps = [(META[name].name, [(Op.INSERT, None, {"id": next(self._next)})]) for name in meta]
        if changes:
            steps.append((NAME, changes))
            if origin:
                self.applied += [(origin, (new or old or {})["id"], new and new["value"]) for _, old, new in changes]
        if steps:
            self.log.commit(*steps)


class Direction:
    """A task from one zone to another; `step` goes on for a batch, in a new process after a crash."""

    def __init__(
        self,
        source: Zone,
        target: Zone,
        workers: int,
        limits: Limits,
        forwards: frozenset[str] = frozenset(),
        *,
        leaves_out: bool = True,
        marks: bool = True,
    ) -> None:
        self.source, self.target, self.workers = source, target, workers
        self.name = f"{source.name}{target.name}"
        self.marks = marks
        self.limits = replace(limits, one_origin=bool(forwards))
        self.meaning = Meaning(
            AllowList(do_dbs=("shop",)), Dialect(), marks_in="pidts_meta" if leaves_out else "", forwards=forwards
        )
        self.first = Checkpoint(task=self.name, source="s", worker=0, lsn=source.log.received)
        self.process: tuple[PlanState, Workers, Committer] | None = None

    def step(self) -> bool:
        """Whether there was something to do; True after a crash."""
        self.target.meta, self.target.writer, self.target.marks = ["checkpoint"], self.source.name, self.marks
        try:
            return self._step()
        except CrashError:
            self.process = None
            return True

    def _step(self) -> bool:
        if self.process is None:
            self.process = self._begun()
        state, workers, committer = self.process
        end = next_state(state, self._log, {}, self.limits, self.meaning)
        if end is None:
            return False
        plan = plan_between(state, end, self._log, self.meaning)
        moved = workers.moved(end)
        blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
        for piece in plan.log:
            last = Lsn(piece.begin.change_no, piece.begin.log_index, piece.extent.end + 1)
            for batch in self.source.log.decode(piece.begin, last, {NAME: TABLE}):
                for worker, part in enumerate(buckets(batch, self.workers)):
                    if part is not None:
                        blobs[worker].append(Blob(worker, Blob.first_order(piece.number), part))
        for worker in range(self.workers):
            apply(committer, Commit(workers.checkpoints, moved.checkpoints, plan.origin), worker, blobs[worker])
        self.process = end, moved, committer
        return True

    def _begun(self) -> tuple[PlanState, Workers, Committer]:
        session = self.target.target.connect()
        try:
            claimed = tuple(session.meta.checkpoints.claim(self.name, "s", self.workers, self.first))
        finally:
            session.close()
        workers, state, _ = Workers.claimed(claimed)
        return state, workers, Committer(self.target.target, self.name, "s", claimed[0].epoch, sleep=lambda _: None)

    def _log(self, at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return [one for one in self.source.log.entries(at) if to is None or one.transaction.lsn <= to]


def histories(
    chance: random.Random,
    *,
    feeds: Sequence[Feed] = PAIR,
    workers: int,
    size: int,
    idle: int,
    crashes: bool,
    leaves_out: bool = True,
    marks: bool = True,
    forgets: frozenset[str] = frozenset(),
) -> None:
    """One history, and all that has to hold of it: each zone writes rows of its own, and all end with all of them."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name) for name in names}
    # A batch without rows is a transaction for each worker in the other logs, so it has to stand for more than these.
    limits = Limits(transactions=2 * workers * (len(names) - 1) + size, idle_entries=idle * (len(names) - 1))
    tasks = [
        Direction(
            zones[name], zones[other], workers, limits, forwards - {name} - forgets, leaves_out=leaves_out, marks=marks
        )
        for (name, other), forwards in carried(feeds).items()
    ]
    wanted: dict[int, Row] = {}
    values = itertools.count(1)
    origin: dict[int, str] = {}
    for _ in range(chance.randrange(10, 40)):
        kind = chance.random()
        if kind < 0.5:
            name = chance.choice(names)
            meta = chance.choice([[], [], [], ["checkpoint"]])
            keys = {len(names) * chance.randrange(4) + names.index(name) for _ in range(chance.randrange(1, 3))}
            gone = [wanted.pop(key) for key in sorted(keys) if key in wanted and chance.random() < 0.3]
            rows = [{"id": key, "value": next(values)} for key in sorted(keys - {row["id"] for row in gone})]
            wanted |= {row["id"]: row for row in rows}
            origin |= {row["value"]: name for row in rows}
            zones[name].write(meta, rows, gone)
        else:
            chance.choice(tasks).step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    for zone in zones.values():
        zone.dies = Crashes([])
    for _ in range(150 * len(names)):
        moved = [task.step() for task in tasks]
        if not any(moved):
            break
    else:
        pytest.fail("the zones do not come to rest")
    ends = [zone.log.received for zone in zones.values()]
    assert not any(task.step() for task in tasks), "idle zones write"
    assert ends == [zone.log.received for zone in zones.values()]
    for name, zone in zones.items():
        assert zone.rows() == wanted, name
        applied = [one for one in zone.applied if one[2] is not None]
        assert all(origin[value] == by for by, _, value in applied), f"zone {name} got what was not written there"
        assert all(count == 1 for count in Counter(applied).values()), f"zone {name} got a change twice"
        zone.target.forget()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.sampled_from(list(SHAPES.values())),
    workers=st.integers(1, 3),
    size=st.integers(1, 6),
    idle=st.sampled_from([20, 10_000]),
    crashes=st.booleans(),
)
def test_each_change_reaches_each_other_zone_once_and_none_comes_back(
    seed: int, feeds: Sequence[Feed], workers: int, size: int, idle: int, crashes: bool
) -> None:
    histories(random.Random(seed), feeds=feeds, workers=workers, size=size, idle=idle, crashes=crashes)


@pytest.mark.long
def test_many_histories() -> None:
    for seed in range(10_000):
        chance = random.Random(seed)
        histories(
            chance,
            feeds=list(SHAPES.values())[seed % len(SHAPES)],
            workers=1 + seed // 5 % 3,
            size=1 + seed // 15 % 6,
            idle=(20, 10_000)[seed % 2],
            crashes=seed % 4 > 0,
        )


@pytest.mark.parametrize(
    "broken",
    [
        {"leaves_out": False},
        {"marks": False},
        {"feeds": SHAPES["ring"], "forgets": frozenset("c")},
        {"feeds": SHAPES["star"], "forgets": frozenset("b")},
    ],
)
def test_the_check_finds_what_comes_back_or_does_not_arrive(broken: dict[str, Any]) -> None:
    """A value that comes back unchanged is no harm, so not every history of a broken task fails."""
    found = 0
    for seed in range(20):
        with suppress(AssertionError, pytest.fail.Exception, ValueError):
            histories(random.Random(seed), workers=1, size=3, idle=10_000, crashes=False, **broken)
            continue
        found += 1
    assert found >= 10, found
