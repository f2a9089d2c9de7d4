"""If a change waits for other shards, its table waits at once, operators see the change, and it continues without a
command.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from tests.values_target import ValuesTarget

from pidts.apply import AttemptSuperseded, MemberChange
from pidts.ddl import ddl_threads
from pidts.ddl.ddl_threads import DdlThreads, DdlWaits
from pidts.ddl.due_change import DueChange
from pidts.ddl.outcome import ChangeDone, ChangeWaits, Result
from pidts.ddl.planner_signals import Signals
from pidts.ddl.shards.arrivals import RunByLeader
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import (
    Arrival,
    Column,
    ColumnType,
    CommandKind,
    DdlCommand,
    Halt,
    Halted,
    Key,
    Kind,
    Lsn,
    Member,
    Table,
    TableName,
    Where,
)
from pidts.plan import PlanState, Relevance, RelevanceKind
from pidts.rules import Rules
from pidts.shards.decide import RunDecision, Wait

OWN, T = TableName("shard", "t"), TableName("all", "t")
AT = Lsn(0, 1, 500)
V0 = Table(
    T,
    (Column("id", ColumnType(Kind.INT), nullable=False),),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
V1 = Table(T, (*V0.columns, Column("c", ColumnType(Kind.INT))), V0.keys)
_numbers = itertools.count()


class Log:
    """A log whose only entry is an ALTER TABLE."""

    def __init__(self, *_: Any) -> None:
        self.entry = SimpleNamespace(transaction=SimpleNamespace(lsn=AT, ddl="ALTER TABLE t ADD c INT"))

    def find(self, _: Lsn) -> Any:
        return self.entry

    def entries(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def position(self, _: Lsn) -> str:
        return "bin.000001:500"

    def close(self) -> None:
        pass


SOON = DdlWaits(look=0.01, command=0.05)


class Part:
    """The schema changes of one source."""

    def __init__(self, process: ShardProcess, source: str) -> None:
        self.process, self.source = process, source
        self.staging = process.folder / f"{source} {next(_numbers)}"
        self.context: Any = SimpleNamespace(
            task="t",
            source=SimpleNamespace(source_id=source),
            target=process.target,
            relay=None,
            staging=self.staging,
            rules=Rules(),
            epoch=1,
            writing=SimpleNamespace(into_zone=None),
        )
        classifier: Any = _Classifier()
        process.groups.register(source, {OWN: V0})
        self.threads = DdlThreads(classifier, lambda _: True, process.groups, waits=process.waits)
        context: Any = self.context
        self.threads.start(context, PlanState(AT, due=AT))

    @property
    def marks(self) -> tuple[bool, bool]:
        signals = Signals(self.staging)
        return bool(signals.halted([AT])), bool(signals.done([AT]))

    def halts(self) -> list[Halt]:
        with closing(self.process.target.connect()) as session:
            return session.meta.halts.read("t", self.source)

    def give(self, kind: CommandKind) -> None:
        with closing(self.process.target.connect()) as session:
            session.meta.ddl_commands.give("t", self.source, DdlCommand(lsn=AT, kind=kind))


class _Classifier:
    allow = None

    def __call__(self, _: Any) -> Relevance:
        return Relevance(RelevanceKind.DDL, frozenset({OWN}))


class ShardProcess:
    """The parts of a task in one process.

    The schema changes of the parts arrive, but no statement is run; `fails` has the errors that the leader's next
    attempts raise.
    """

    def __init__(self, folder: Path, *sources: str, waits: DdlWaits) -> None:
        self.folder, self.target = folder, ValuesTarget(f"shard threads {next(_numbers)}")
        self.groups, self.waits = ShardGroups("", sources), waits
        self.fails: list[Exception | AttemptSuperseded] = []
        self.runs: list[RunDecision] = []
        self.parts: dict[str, Part] = {}

    def begin(self, source: str) -> Part:
        self.parts[source] = Part(self, source)
        return self.parts[source]

    def run_ddl(self, due: DueChange, *_: Any, command: DdlCommand | None, **__: Any) -> Result:
        source = due.source
        arrival = Arrival(
            member=Member(source, OWN),
            lsn=AT,
            text="ALTER",
            before=V0,
            after=V1,
            command=command.kind if command else None,
        )
        decision = self.groups.arrive(
            arrival, MemberChange(source=source, epoch=1, lsn=AT, text="ALTER"), lambda _: None
        )
        if isinstance(decision, Wait):
            return ChangeWaits(wait=decision, arrival=arrival)
        if isinstance(decision, RunDecision):
            self.runs.append(decision)
            if self.fails:
                self.groups.failed(decision)
                end = self.fails.pop(0)
                if isinstance(end, AttemptSuperseded):
                    return end
                raise end
            self.groups.ran(decision, {})
        assert isinstance(decision, RunDecision | RunByLeader)
        return ChangeDone({OWN: V1.renamed(OWN)})


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., ShardProcess]]:
    made: list[ShardProcess] = []
    monkeypatch.setattr(ddl_threads, "RelayReader", Log)

    def make(*sources: str, waits: DdlWaits = SOON) -> ShardProcess:
        made.append(ShardProcess(tmp_path, *sources, waits=waits))
        monkeypatch.setattr(ddl_threads, "run_ddl", made[-1].run_ddl)
        return made[-1]

    yield make
    for one in made:
        for part in one.parts.values():
            part.threads.close(0)
        one.target.forget()


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_waiting_table_is_held_at_once_and_continues_when_the_others_arrive(
    process: Callable[..., ShardProcess],
) -> None:
    one = process("a", "b")
    one.groups.register("b", {OWN: V0})
    first = one.begin("a")
    began = time.monotonic()
    first.threads.wait([AT], 10, lambda: False)
    assert time.monotonic() - began < 2, "nobody waits for what waits for others"
    assert first.marks == (True, False)
    (halt,) = first.halts()
    assert (halt.code, halt.awaits, halt.tables, halt.position) == (
        "shard-awaits", ("b: shard.t",), (OWN,), "bin.000001:500",
    )  # fmt: skip
    assert first.threads.waiting_for_others == {AT}
    second = one.begin("b")
    until(lambda: first.marks == second.marks == (False, True))
    assert len(one.runs) == 1
    assert first.halts() == second.halts() == []
    assert (first.threads.halts, first.threads.waiting_for_others) == ({}, frozenset())


def test_every_line_of_the_log_says_of_which_source(process: Callable[..., ShardProcess]) -> None:
    one = process("a", "b")
    one.fails = [Halted("target-refused", "no", where=Where(table=str(OWN)))]
    with capture_logs([merge_contextvars]) as lines:
        parts = [one.begin(source) for source in "ab"]
        until(lambda: [halt.code for halt in parts[0].halts()] == ["target-refused"])
        parts[0].give(CommandKind.SKIP)
        until(lambda: all(part.marks == (False, True) for part in parts))
    assert {line["event"] for line in lines} >= {
        "a schema change has failed, and its tables wait for an operator",
        "an operator has decided about a schema change",
    }
    assert all(line["source"] in "ab" for line in lines)


def test_an_unlock_lets_a_shard_continue_without_the_others(process: Callable[..., ShardProcess]) -> None:
    one = process("a", "b")
    one.groups.register("b", {OWN: V0})
    first = one.begin("a")
    until(lambda: first.marks == (True, False))
    first.give(CommandKind.UNLOCK)
    until(lambda: first.marks == (False, True))
    assert [run.leader.command for run in one.runs] == [CommandKind.UNLOCK]


def test_a_run_that_ends_does_not_wait_for_the_others(process: Callable[..., ShardProcess]) -> None:
    one = process("a", "b")
    one.groups.register("b", {OWN: V0})
    first = one.begin("a")
    until(lambda: first.marks == (True, False))
    began = time.monotonic()
    first.threads.close(10)
    one.groups.forget("a")
    assert time.monotonic() - began < 5
    assert first.threads.failure is None
    second = one.begin("b")
    until(lambda: second.marks == (True, False))
    again = one.begin("a")
    until(lambda: again.marks == second.marks == (False, True))


def test_where_the_leader_is_refused_it_waits_for_an_operator_and_the_others_for_it(
    process: Callable[..., ShardProcess],
) -> None:
    one = process("a", "b", waits=replace(SOON, leader=0.1))
    one.fails = [Halted("target-refused", "no", where=Where(table=str(OWN)))]
    parts = [one.begin(source) for source in "ab"]
    until(lambda: [halt.code for part in parts for halt in part.halts()] == ["target-refused", "shard-awaits"])
    until(lambda: all(part.marks == (True, False) for part in parts))
    until(lambda: parts[0].threads.waiting_for_others == parts[1].threads.waiting_for_others == {AT})
    parts[0].give(CommandKind.SKIP)
    until(lambda: all(part.marks == (False, True) for part in parts))
    assert [run.leader.command for run in one.runs] == [None, CommandKind.SKIP, None], "the other one's is its own"
    assert [len(run.arrivals) for run in one.runs] == [2, 1, 1]


def test_members_of_a_source_with_a_new_run_arrive_again(process: Callable[..., ShardProcess]) -> None:
    one = process("a", "b")
    one.fails = [AttemptSuperseded("b")]
    parts = [one.begin(source) for source in "ab"]
    until(lambda: all(part.marks == (False, True) for part in parts))
    assert len(one.runs) == 2
