"""A schema change that fails halts its tables and waits for a ddl command; an error that concerns all tables ends the
run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import AttemptSuperseded
from pidts.ddl import ddl_threads
from pidts.ddl.ddl_threads import DdlThreads, DdlWaits
from pidts.ddl.outcome import ChangeDone
from pidts.ddl.planner_signals import Signals
from pidts.model import CommandKind, DdlCommand, DecodeError, Halted, Lsn, TableName, Transient, Where
from pidts.plan import PlanState, Relevance, RelevanceKind
from pidts.rules import Rules

T = TableName("shop", "t")
AT = Lsn(0, 1, 500)
NAMED = Where(table=str(T))
_numbers = itertools.count()


BUSY = object()
"""An error that occurs however often the target is tried."""


@dataclass
class Script:
    """The result of each attempt at the change, and the ddl commands that the attempts were given."""

    ends: list[Any]
    ordered: list[CommandKind | None] = field(default_factory=list)

    def __call__(self, *_: Any, command: DdlCommand | None, is_superseded: Callable[[], bool], **__: Any) -> Any:
        self.ordered.append(command.kind if command else None)
        end = self.ends.pop(0)
        while end is BUSY:
            time.sleep(0.01)
            end = AttemptSuperseded() if is_superseded() else BUSY
        if isinstance(end, Exception):
            raise end
        return end


class Log:
    """A log whose only entry is an ALTER TABLE."""

    def __init__(self, *_: Any) -> None:
        self.entry = SimpleNamespace(transaction=SimpleNamespace(lsn=AT, ddl="ALTER TABLE t ADD a INT"))

    def find(self, _: Lsn) -> Any:
        return self.entry

    def entries(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def position(self, _: Lsn) -> str:
        return "bin.000001:500"

    def close(self) -> None:
        pass


class RunOfOneChange:
    def __init__(self, script: Script, staging: Path, tables: frozenset[TableName] | None) -> None:
        self.target = ValuesTarget(f"ddl threads {next(_numbers)}")
        source = SimpleNamespace(source_id="s")
        self.context: Any = SimpleNamespace(
            task="t",
            source=source,
            target=self.target,
            relay=None,
            staging=staging,
            rules=Rules(),
            epoch=1,
            writing=SimpleNamespace(into_zone=None),
        )
        classifier: Any = _Classifier(tables)
        self.threads = DdlThreads(
            classifier, lambda error: error.code != "ddl-does-not-fit", waits=DdlWaits(command=0.02)
        )
        self.script = script
        self.threads.start(self.context, PlanState(AT, due=AT))

    def give(self, kind: CommandKind) -> None:
        with closing(self.target.connect()) as session:
            session.meta.ddl_commands.give("t", "s", DdlCommand(lsn=AT, kind=kind))

    def saved_halts(self) -> list[Any]:
        with closing(self.target.connect()) as session:
            return session.meta.halts.read("t", "s")

    def marks(self) -> tuple[bool, bool]:
        signals = Signals(self.context.staging)
        return bool(signals.halted([AT])), bool(signals.done([AT]))


@dataclass
class _Classifier:
    tables: frozenset[TableName] | None
    allow: Any = None

    def __call__(self, _: Any) -> Relevance:
        return Relevance(RelevanceKind.DDL, self.tables)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., RunOfOneChange]]:
    made: list[RunOfOneChange] = []
    monkeypatch.setattr(ddl_threads, "RelayReader", Log)

    def make(*ends: Any, tables: frozenset[TableName] | None = frozenset({T})) -> RunOfOneChange:
        script = Script(list(ends))
        monkeypatch.setattr(ddl_threads, "run_ddl", script)
        made.append(RunOfOneChange(script, tmp_path, tables))
        return made[-1]

    yield make
    for one in made:
        one.threads.close(5)
        one.target.forget()


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def refused(code: str = "target-refused", where: Where = NAMED) -> Halted:
    return Halted(code, "no", where=where, todo="mend it")


def test_a_failed_change_waits_for_a_ddl_command_and_then_continues(run: Callable[..., RunOfOneChange]) -> None:
    one = run(refused(), refused(), ChangeDone(structures={T: None}))
    one.threads.wait([AT], 10, lambda: False)
    assert one.threads.failure is None
    (halt,) = one.threads.halts.values()
    assert (halt.tables, halt.position, halt.code, halt.todo) == ((T,), "bin.000001:500", "target-refused", "mend it")
    assert one.saved_halts() == [halt]
    assert one.marks() == (True, False)
    time.sleep(0.1)
    assert one.script.ordered == [None], "nothing is tried before somebody says so"
    one.give(CommandKind.REPLACE)
    until(lambda: len(one.script.ordered) == 2)
    time.sleep(0.1)
    assert one.script.ordered == [None, CommandKind.REPLACE], "what was ordered fails, and is not tried again"
    one.give(CommandKind.SKIP)
    until(lambda: one.marks() == (False, True))
    assert one.script.ordered[2:] == [CommandKind.SKIP]
    assert (one.threads.halts, one.saved_halts()) == ({}, [])


def test_a_ddl_command_that_was_given_before_is_known_at_once(run: Callable[..., RunOfOneChange]) -> None:
    one = run(AttemptSuperseded(), ChangeDone())
    one.threads.wait([AT], 10, lambda: False)
    assert one.script.ordered == [None, None]
    assert one.marks() == (False, True)


def test_a_ddl_command_counts_although_an_older_one_fails_again_and_again(run: Callable[..., RunOfOneChange]) -> None:
    one = run(BUSY, BUSY, ChangeDone())
    until(lambda: one.script.ordered == [None])
    one.give(CommandKind.REPLACE)
    until(lambda: one.script.ordered == [None, CommandKind.REPLACE])
    time.sleep(0.1)
    assert len(one.script.ordered) == 2, "it is not begun anew for its own sake"
    one.give(CommandKind.SKIP)
    until(lambda: one.marks() == (False, True))
    assert one.script.ordered[2:] == [CommandKind.SKIP]


@pytest.mark.parametrize(
    ("error", "tables", "expected"),
    [
        (refused(where=Where()), frozenset({T}), 1),
        (refused("ddl-not-understood"), None, 1),
        (refused("ddl-does-not-fit"), frozenset({T}), 0),
        (DecodeError("no-statement", "gone", where=NAMED), frozenset({T}), 0),
        (Transient("target-lost", "gone", where=NAMED), frozenset({T}), 0),
    ],
)
def test_an_error_that_concerns_all_tables_ends_the_run(
    run: Callable[..., RunOfOneChange], error: Exception, tables: frozenset[TableName] | None, expected: int
) -> None:
    one = run(error, tables=tables)
    with pytest.raises(type(error)):
        one.threads.wait([AT], 10, lambda: False)
    assert one.threads.failure is error
    assert one.threads.halts == {}
    assert one.marks() == (False, False)
    assert [halt.tables for halt in one.saved_halts()] == [()] * expected


def test_a_run_that_ends_does_not_wait_for_an_operator(run: Callable[..., RunOfOneChange]) -> None:
    one = run(refused())
    one.threads.wait([AT], 10, lambda: False)
    began = time.monotonic()
    one.threads.close(10)
    assert time.monotonic() - began < 5
    assert one.threads.failure is None
