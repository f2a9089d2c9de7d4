"""A large transaction may give a key to a shard and take it away again, while another shard has a row with this key.

The transaction is written in parts. The target then has the rows that the source has, or the merged table halts.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.apply.table_history import INT, PRIMARY, Change, Row, batch_of, minimal
from tests.apply.test_on_servers import create, target_on
from tests.crashes import Crashes, ProcessDied
from tests.examples import run_histories
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer, Target
from pidts.batch.applying import apply_long
from pidts.batch.context import JobContext
from pidts.batch.lagging_merge import MovedKeysCleanup
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    Halted,
    Kind,
    Lsn,
    OnDivergence,
    Op,
    Table,
    TableName,
)
from pidts.plan import PlanState
from pidts.plan.state import held_at
from pidts.reduce import with_whole_keys
from pidts.rules import RouteRule, Routes, Rules
from pidts.schema import Dialect
from pidts.source import SourceConfig

SHARDS = tuple(TableName("s", f"t_{number}") for number in (1, 2, 3))
COLUMNS = (Column("id", INT, nullable=False), Column("a", INT), Column("b", INT))
WORD = Column(
    "id", ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci"), nullable=False
)
FIRST = Lsn(0, 1, 4)
_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)

Step = tuple[str, int, int] | tuple[str, int, int, int]
"""A step has a kind, the number of the shard, the key, and the new key if the row gets another one."""


@dataclass
class Source:
    """A server with three shards, and its log: some transactions are large."""

    rows: list[dict[int, Row]] = field(default_factory=lambda: [{}, {}, {}])
    transactions: list[tuple[bool, list[tuple[int, Change]]]] = field(default_factory=list)
    may_halt: bool = False
    """Whether a large transaction takes a key from the shard that got it last, and another shard keeps the key."""
    values: Iterator[int] = field(default_factory=itertools.count)

    def commit(self, *steps: Step, large: bool = True) -> None:
        """Executes a transaction. In the end, at most one shard has a row with a key."""
        events: list[tuple[int, Change]] = []
        had: dict[int, list[int]] = {key: [shard] for shard, mine in enumerate(self.rows) for key in mine}
        for kind, shard, key, *more in steps:
            self._step(events, had, kind, shard, key, *more, large=large)
        self.transactions.append((large, events))
        assert all(len(shards) <= 1 for shards in had.values())

    def _step(
        self,
        events: list[tuple[int, Change]],
        had: dict[int, list[int]],
        kind: str,
        shard: int,
        key: int,
        to: int | None = None,
        *,
        large: bool,
    ) -> None:
        mine = self.rows[shard]
        old = mine.pop(key, None)
        assert (old is None) == (kind == "insert")
        new: Row | None = None
        if kind != "delete":
            new = {"id": key if to is None else to, "a": next(self.values), "b": old["b"] if old else next(self.values)}
            mine[new["id"]] = new
        if old is not None and (new is None or new["id"] != key):
            others = had[key]
            self.may_halt |= large and len(others) > 1 and others[-1] == shard
            others.remove(shard)
        if new is not None and (old is None or new["id"] != key):
            had.setdefault(new["id"], []).append(shard)
        op = Op.INSERT if old is None else Op.DELETE if new is None else Op.UPDATE
        events.append((shard, (op, old, new)))

    def content(self) -> list[Row]:
        return sorted((row for mine in self.rows for row in mine.values()), key=lambda row: row["id"])


class Run:
    """A task whose processes may die, and its target."""

    def __init__(
        self,
        source: Source,
        chance: random.Random,
        *,
        split: int | None = None,
        partial: bool = False,
        lock: bool = False,
        target: Target | None = None,
        columns: tuple[Column, ...] = COLUMNS,
        part_bytes: int = 1,
    ) -> None:
        self.name, self.split, self.partial = f"keys_{next(_numbers)}", split, partial
        self.part_bytes = part_bytes
        self.memory = ValuesTarget(self.name) if target is None else None
        self.target: Target = self.memory or target
        self.table = Table(TableName(self.name, "t"), columns, (PRIMARY,))
        self.rules = ApplyRules(
            task=self.name,
            source="one",
            filters=Rules(routes=Routes((RouteRule("s", "t_*", self.name, "t"),), "one")),
            merged=frozenset({self.table.name}),
            on_divergence=OnDivergence.LOCK if lock else OnDivergence.OVERWRITE,
        )
        with closing(self.target.connect()) as session:
            session.meta.prepare()
            create(session, self.table)
        self.log_parts: list[LogPart] = []
        offset = 200
        for large, events in source.transactions:
            inside = Lsn(0, 1, offset - 1) if large else None
            cuts = chance.choices(range(len(events) + 1), k=chance.randrange(4)) if large else []
            for first, last in itertools.pairwise([0, *sorted(cuts), len(events)]):
                self.log_parts.append(LogPart(self._batches(events[first:last], offset + first), inside))
            offset += len(events) + 10
        self.end = Lsn(0, 1, offset)

    def _batches(self, events: Sequence[tuple[int, Change]], start: int) -> list[ChangeBatch]:
        found = []
        for shard, name in enumerate(SHARDS):
            ones = [
                batch_of(self.table, [change], start - 100 + place, [self._presence(change)])
                for place, (mine, change) in enumerate(events)
                if mine == shard
            ]
            if ones:
                whole = replace(ones[0], rows=pa.concat_batches([one.rows for one in ones]))
                found.append(replace(with_whole_keys(whole), upstream=name))
        return found

    def _presence(self, change: Change) -> tuple[Any, Any] | None:
        return minimal(self.table, change) if self.partial and change[0] is not Op.INSERT else None

    def claimed(self) -> Checkpoint:
        """Returns the checkpoint: its Lsn is the place that is committed."""
        first = Checkpoint(task=self.name, source="one", worker=0, lsn=FIRST, position="bin.000001:4")
        with closing(self.target.connect()) as session:
            (before,) = session.meta.checkpoints.claim(self.name, "one", 1, first)
            return before

    def attempt(self, held: Mapping[TableName, Lsn] | None = None) -> None:
        """Carries the log to its end, without the changes of the tables in `held`, which are at these places then."""
        before = self.claimed()
        copy = PlanState(self.end, {}, held_at(held or {}, self.end)).copy_json()
        about = self._context(before.epoch)
        cleanup = MovedKeysCleanup(about, (before,), lambda _: None)
        if (before.lsn, before.copy) == (self.end, copy):
            return
        place = f"bin.000001:{self.end.offset}"
        after = replace(before, lsn=self.end, batch=before.batch + 1, copy=copy, position=place)
        log_parts = [
            replace(one, changes=[batch for batch in one.changes if batch.origin not in (held or {})])
            for one in self.log_parts
        ]
        commit = Commit((before,), (after,))
        with Committer(
            self.target, self.name, "one", before.epoch, rules=self.rules, sleep=lambda _: None
        ) as committer:
            tables = {batch.origin for one in log_parts for batch in one.changes}
            apply_long(committer, commit, 0, lambda: log_parts, self.split, tables, self.part_bytes)
        cleanup.batch_done(about, commit, cut=True)

    def attempt_before_large(self) -> None:
        """Carries the log to the place before the large transaction."""
        end, (first, *large) = self.end, self.log_parts
        self.log_parts, self.end = [first], Lsn(0, 1, 205)
        self.attempt()
        self.log_parts, self.end = large, end

    def _context(self, epoch: int) -> JobContext:
        return JobContext(
            task=self.name, source=SourceConfig("memory", 1, "u", "p", source_id="one"), relay=Path(), staging=Path(),
            target=self.target, workers=1, epoch=epoch, change_no=0, structures={}, dialect=Dialect(),
            charsets={}, rules=self.rules.filters,
        )  # fmt: skip

    def after_crashes(self, crashes: Sequence[int]) -> None:
        """Carries the log to its end; for each number, a process dies after this many points of the target."""
        assert self.memory is not None
        for points in crashes:
            self.memory.store.hook = Crashes([points])
            with suppress(ProcessDied):
                self.attempt()
        self.memory.store.hook = None
        self.attempt()

    def content(self) -> list[Row]:
        with closing(self.target.connect()) as session:
            assert session.meta.moves.target_tables(self.name, "one") == []
            found: list[Row] = session.read_rows(self.table).sort_by("id").to_pylist()
            return found


BEFORE: tuple[Step, ...] = (("insert", 0, 1), ("insert", 0, 2))
RIGHT: dict[str, tuple[Step, ...]] = {
    "the other shard gets the key later": (("insert", 1, 3), ("insert", 0, 3), ("delete", 1, 3)),
    "it is lost, and then the other gets it": (("insert", 1, 3), ("delete", 1, 3), ("insert", 0, 3)),
    "the row moves": (("insert", 1, 1), ("delete", 0, 1)),
    "the moved row changes before it is deleted": (("insert", 1, 1), ("update", 0, 1), ("delete", 0, 1)),
    "the row moves and is deleted": (("insert", 1, 1), ("delete", 0, 1), ("delete", 1, 1)),
    "the row moves twice": (("insert", 1, 1), ("delete", 0, 1), ("insert", 2, 1), ("delete", 1, 1)),
    "an update gives the key of a row that moves": (("insert", 1, 3), ("update", 1, 3, 1), ("delete", 0, 1)),
    "the other row leaves the key": (("insert", 1, 1), ("update", 0, 1, 5), ("delete", 1, 1)),
}
HALTS: dict[str, tuple[Step, ...]] = {
    "inserted and deleted": (("insert", 1, 1), ("delete", 1, 1)),
    "the kept row changes in between": (("insert", 1, 1), ("update", 0, 1), ("delete", 1, 1)),
    "the kept row changes before": (("update", 0, 1), ("insert", 1, 1), ("delete", 1, 1)),
    "the new row changes in between": (("insert", 1, 1), ("update", 1, 1), ("delete", 1, 1)),
    "an update gives the key, another takes it": (("insert", 1, 3), ("update", 1, 3, 1), ("update", 1, 1, 3)),
    "two shards": (("insert", 1, 1), ("insert", 2, 1), ("delete", 1, 1), ("delete", 2, 1)),
}


def begun(*steps: Step, large: bool) -> Source:
    source = Source()
    source.commit(*BEFORE, large=False)
    source.commit(*steps, large=large)
    return source


def apart(source: Source, **settings: Any) -> Run:
    """Returns a run in which each change of a large transaction is a part of its own."""
    run = Run(source, random.Random(0), **settings)
    events = [len(events) for _, events in source.transactions]
    first, last = run._batches(source.transactions[0][1], 200), source.transactions[1][1]
    begin = 200 + events[0] + 10
    inside = Lsn(0, 1, begin - 1) if source.transactions[1][0] else None
    ones = [LogPart(run._batches([event], begin + place), inside) for place, event in enumerate(last)]
    run.log_parts = [LogPart(first), *ones] if inside else [LogPart(first), LogPart(run._batches(last, begin))]
    return run


@pytest.mark.parametrize("steps", [*RIGHT.values(), *HALTS.values()], ids=[*RIGHT, *HALTS])
def test_a_small_transaction_leaves_the_rows_of_the_source(steps: tuple[Step, ...]) -> None:
    source = begun(*steps, large=False)
    run = apart(source)
    run.attempt()
    assert run.content() == source.content()


@pytest.mark.parametrize("split", [None, 1])
@pytest.mark.parametrize("steps", RIGHT.values(), ids=RIGHT)
def test_a_large_transaction_leaves_the_same_rows(steps: tuple[Step, ...], split: int | None) -> None:
    source = begun(*steps, large=True)
    run = apart(source, split=split)
    run.attempt()
    assert run.content() == source.content()


@pytest.mark.parametrize("split", [None, 1])
@pytest.mark.parametrize("steps", HALTS.values(), ids=HALTS)
def test_a_large_transaction_halts_the_table_instead_of_losing_a_row(
    steps: tuple[Step, ...], split: int | None
) -> None:
    run = apart(begun(*steps, large=True), split=split)
    for _ in range(2):
        with pytest.raises(Halted) as caught:
            run.attempt()
        where = caught.value.where
        assert (caught.value.code, where.table, where.key) == ("key-in-two-shards", str(run.table.name), "id=1")


@pytest.mark.parametrize("split", [None, 1])
def test_a_shard_without_changes_in_the_batch_loses_no_row(split: int | None) -> None:
    for steps in ((*RIGHT["the row moves"], ("insert", 2, 3)), *HALTS.values()):
        source = begun(*steps, large=True)
        run = apart(source, split=split)
        run.attempt_before_large()
        if source.may_halt:
            with pytest.raises(Halted) as caught:
                run.attempt()
            assert caught.value.code == "key-in-two-shards"
        else:
            run.attempt()
            assert run.content() == source.content()


LOST_WHILE_IT_WAITS: tuple[Step, ...] = (("delete", 0, 1), ("insert", 1, 1), ("delete", 1, 1), ("insert", 0, 1))


@pytest.mark.parametrize("split", [None, 1])
@pytest.mark.parametrize("steps", [LOST_WHILE_IT_WAITS, HALTS["inserted and deleted"]], ids=["lost", "kept"])
def test_the_table_halts_again_only_if_the_shard_that_waited_still_has_the_key(
    steps: tuple[Step, ...], split: int | None
) -> None:
    source = begun(*steps, large=True)
    run = apart(source, split=split)
    run.attempt_before_large()
    waits = run.claimed().lsn
    with pytest.raises(Halted, match="If another shard still has the overwritten row") as caught:
        run.attempt({SHARDS[0]: waits})
    assert caught.value.code == "key-in-two-shards"
    others = dict.fromkeys(SHARDS[1:], run.claimed().lsn)
    run.attempt({SHARDS[0]: waits, **others})
    run.attempt(others)
    if source.may_halt:
        with pytest.raises(Halted) as caught:
            run.attempt()
        assert caught.value.code == "key-in-two-shards"
    else:
        run.attempt()
        assert run.content() == source.content()


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_row_whose_key_is_spelled_anew_moves_when_the_shard_that_waited_continues(
    request: pytest.FixtureRequest, server: str
) -> None:
    old, new = {"id": "a", "a": 1, "b": 1}, {"id": "A", "a": 1, "b": 2}
    run = Run(
        Source(), random.Random(0), target=target_on(request.getfixturevalue(server)), columns=(WORD, *COLUMNS[1:])
    )
    run.log_parts, run.end = [LogPart(run._batches([(0, (Op.INSERT, None, old))], 200))], Lsn(0, 1, 205)
    run.attempt()
    waits = run.claimed().lsn
    moved: list[tuple[int, Change]] = [(1, (Op.INSERT, None, new)), (0, (Op.DELETE, old, None))]
    run.log_parts, run.end = [LogPart(run._batches(moved, 300))], Lsn(0, 1, 1000)
    if server == "mariadb":
        with pytest.raises(Halted, match="would overwrite another row"):
            run.attempt({SHARDS[0]: waits})
        run.attempt({SHARDS[0]: waits, SHARDS[1]: waits})
    else:
        run.attempt({SHARDS[0]: waits})
    run.attempt()
    assert run.content() == [new]


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
@pytest.mark.parametrize("split", [None, 1])
def test_real_targets_lose_no_row(request: pytest.FixtureRequest, server: str, split: int | None) -> None:
    target = target_on(request.getfixturevalue(server))
    for steps in RIGHT.values():
        source = begun(*steps, large=True)
        run = apart(source, split=split, target=target)
        run.attempt()
        assert run.content() == source.content()
    for steps in HALTS.values():
        run = apart(begun(*steps, large=True), split=split, target=target)
        with pytest.raises(Halted) as caught:
            run.attempt()
        assert caught.value.code == "key-in-two-shards"


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", ["insert", "delete"])
def test_a_row_whose_key_is_spelled_anew_moves_or_halts(
    request: pytest.FixtureRequest, server: str, first: str, *, together: bool
) -> None:
    target = target_on(request.getfixturevalue(server))
    old, new = {"id": "a", "a": 1, "b": 1}, {"id": "A", "a": 1, "b": 2}
    moved: list[tuple[int, Change]] = [(1, (Op.INSERT, None, new)), (0, (Op.DELETE, old, None))]
    steps = moved if first == "insert" else moved[::-1]
    run = Run(Source(), random.Random(0), target=target, columns=(WORD, *COLUMNS[1:]))
    inside = Lsn(0, 1, 299)
    large = [run._batches(steps, 300)] if together else [run._batches([one], 300 + at) for at, one in enumerate(steps)]
    run.log_parts = [
        LogPart(run._batches([(0, (Op.INSERT, None, old))], 200)), *(LogPart(part, inside) for part in large),
    ]  # fmt: skip
    run.end = Lsn(0, 1, 1000)
    if (server, first, together) == ("mariadb", "insert", False):
        with pytest.raises(Halted, match="would overwrite another row"):
            run.attempt()
    else:
        run.attempt()
        assert run.content() == [new]


@pytest.mark.parametrize("safe", [False, True])
def test_a_key_with_the_spelling_of_another_shard_is_no_other_key_on_mariadb(
    request: pytest.FixtureRequest, *, safe: bool
) -> None:
    target = target_on(request.getfixturevalue("mariadb"))
    old, new = {"id": "a", "a": 1, "b": 1}, {"id": "A", "a": 1, "b": 2}
    steps: list[tuple[int, Change]] = [(1, (Op.INSERT, None, new)), (1, (Op.DELETE, new, None))]
    run = Run(Source(), random.Random(0), target=target, columns=(WORD, *COLUMNS[1:]))
    run.rules = replace(run.rules, safe=safe)
    large = [run._batches([one], 300 + at) for at, one in enumerate(steps)]
    run.log_parts = [
        LogPart(run._batches([(0, (Op.INSERT, None, old))], 200)), *(LogPart(part, Lsn(0, 1, 299)) for part in large),
    ]  # fmt: skip
    run.end = Lsn(0, 1, 1000)
    with pytest.raises(Halted) as caught:
        run.attempt()
    assert caught.value.code == ("key-in-two-shards" if safe else "target-refused")


@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_row_whose_key_is_spelled_anew_in_its_shard_may_be_deleted(
    request: pytest.FixtureRequest, server: str
) -> None:
    target = target_on(request.getfixturevalue(server))
    old, new = {"id": "a", "a": 1, "b": 1}, {"id": "A", "a": 1, "b": 2}
    steps: list[tuple[int, Change]] = [(0, (Op.UPDATE, old, new)), (0, (Op.DELETE, new, None))]
    run = Run(Source(), random.Random(0), target=target, columns=(WORD, *COLUMNS[1:]))
    large = [run._batches([one], 300 + at) for at, one in enumerate(steps)]
    run.log_parts = [
        LogPart(run._batches([(0, (Op.INSERT, None, old))], 200)), *(LogPart(part, Lsn(0, 1, 299)) for part in large),
    ]  # fmt: skip
    run.end = Lsn(0, 1, 1000)
    run.attempt()
    assert run.content() == []


def drawn(chance: random.Random) -> Source:
    """Returns a source whose transactions give keys to shards that other shards have at the same time."""
    source = Source()
    for _ in range(chance.randrange(1, 7)):
        steps: list[Step] = []
        rows = [set(mine) for mine in source.rows]
        for _ in range(chance.randrange(1, 12)):
            steps += [_step(chance, rows)]
        for key in chance.sample(range(3), 3):
            having = [shard for shard in range(3) if key in rows[shard]]
            steps += [("delete", shard, key) for shard in chance.sample(having, max(0, len(having) - 1))]
        source.commit(*steps, large=chance.random() < 0.7)
    return source


def _step(chance: random.Random, rows: Sequence[set[int]]) -> Step:
    shard, key, to = chance.randrange(3), chance.randrange(3), chance.randrange(3)
    mine = rows[shard]
    if key not in mine:
        mine.add(key)
        return "insert", shard, key
    if chance.random() < 0.4:
        mine.discard(key)
        return "delete", shard, key
    if to not in mine and chance.random() < 0.4:
        mine.symmetric_difference_update({key, to})
        return "update", shard, key, to
    return "update", shard, key


def _drawn_run(chance: random.Random, source: Source, splits: Sequence[int | None]) -> Run:
    partial, lock = chance.random() < 0.3, chance.random() < 0.3
    part_bytes = chance.choice((1, 1, 400, 1 << 20))
    return Run(source, chance, split=chance.choice(splits), partial=partial, lock=lock, part_bytes=part_bytes)


def killed(chance: random.Random) -> None:
    """One history, carried by several processes that die anywhere."""
    source = drawn(chance)
    run = _drawn_run(chance, source, (None, 1, 3))
    assert run.memory is not None
    try:
        run.after_crashes([chance.randrange(60) for _ in range(chance.randrange(3))])
        assert run.content() == source.content()
    except Halted as halt:
        # A row with MINIMAL images halts if it leaves a key that another shard has got.
        if not (source.may_halt or (run.partial and halt.code == "partial-row-image")):
            raise
    finally:
        run.memory.store.hook = None
        run.memory.forget()


@contextmanager
def _held_run(chance: random.Random) -> Iterator[tuple[Run, Source, Sequence[TableName]]]:
    """Yields a run, its source, and the shards that wait. The run may halt."""
    source = drawn(chance)
    run = _drawn_run(chance, source, (1, 3))
    assert run.memory is not None
    held = chance.choice([*([shard] for shard in SHARDS), SHARDS])
    try:
        yield run, source, held
    except Halted:
        pass
    finally:
        run.memory.store.hook = None
        run.memory.forget()


def retried(chance: random.Random) -> None:
    """One history whose merged table, or one of its shards, halts; then the history is applied again from its start."""
    with _held_run(chance) as (run, source, held):
        with suppress(Halted):
            run.attempt()
            return
        run.attempt(dict.fromkeys(held, FIRST))
        run.attempt()
        assert run.content() == source.content()


def waiting(chance: random.Random) -> None:
    """One history in which shards halt at the last committed part, for any reason, and continue after the others."""
    with _held_run(chance) as (run, source, held):
        assert run.memory is not None
        run.memory.store.hook = Crashes([chance.randrange(10, 80)])
        with suppress(Halted, ProcessDied):
            run.attempt()
        run.memory.store.hook = None
        run.attempt(dict.fromkeys(held, run.claimed().lsn))
        run.attempt()
        assert run.content() == source.content()


@pytest.mark.parametrize("history", [killed, retried, waiting])
def test_any_history_leaves_the_rows_of_the_source_or_halts(history: Callable[[random.Random], None]) -> None:
    run_histories(300, 0, history)
