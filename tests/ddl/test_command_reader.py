"""Changes that wait read the ddl commands of operators together, and no change misses a command."""

from __future__ import annotations

import time
from contextlib import closing
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from tests.values_target import ValuesTarget

from pidts.apply import SharedSession
from pidts.ddl.command_reader import CommandReader, ReadFailures, SharedCommands
from pidts.model import CommandKind, DdlCommand, Lsn, Transient

ONE, OTHER = Lsn(0, 1, 500), Lsn(0, 1, 900)


class CountingSession(SharedSession):
    def __init__(self) -> None:
        super().__init__()
        self.readings, self.seconds = 0, 0.0

    def ask(self, *args: Any) -> Any:
        self.readings += 1
        time.sleep(self.seconds)
        return super().ask(*args)


class CountingTarget:
    def __init__(self) -> None:
        self.target, self.connects = ValuesTarget("operator orders"), 0
        self.context: Any = SimpleNamespace(task="t", source=SimpleNamespace(source_id="a"), target=self)
        self.shared = SharedCommands()
        self.shared.records = self.session = CountingSession()

    def connect(self) -> Any:
        self.connects += 1
        return self.target.connect()

    def give(self, lsn: Lsn) -> None:
        with closing(self.target.connect()) as session:
            session.meta.ddl_commands.give("t", "a", DdlCommand(lsn=lsn, kind=CommandKind.UNLOCK))


@pytest.fixture
def counting():
    made = CountingTarget()
    yield made
    made.session.close()
    made.target.forget()


def test_one_reading_serves_all_changes_that_looked_before_it(counting: CountingTarget) -> None:
    places, shared = range(100, 200), counting.shared
    changes = [CommandReader(counting.context, Lsn(0, 1, place), lambda _: None, 1.0, shared) for place in places]
    looked = time.monotonic()
    assert not any(change.is_newer(None, looked) for change in changes)
    assert counting.session.readings == 1


def test_changes_that_look_while_one_of_them_reads_do_not_read_too(counting: CountingTarget) -> None:
    shared, looked, found = counting.shared, time.monotonic(), list[bool]()
    counting.give(ONE)
    counting.session.seconds = 0.1
    changes = [CommandReader(counting.context, ONE, lambda _: None, 1.0, shared) for _ in range(20)]
    threads = [Thread(target=lambda one: found.append(one.is_newer(None, looked)), args=(one,)) for one in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20
    assert counting.session.readings == 1


def test_a_command_that_is_given_after_a_look_is_found_by_the_next_look_but_one(counting: CountingTarget) -> None:
    shared = counting.shared
    one, other = (CommandReader(counting.context, lsn, lambda _: None, 1.0, shared) for lsn in (ONE, OTHER))
    begun = time.monotonic()
    assert not one.is_newer(None, begun)
    counting.give(OTHER)
    first = time.monotonic()
    assert not other.is_newer(None, begun)  # the shared reading was made before the command
    assert other.is_newer(None, first)
    assert not one.is_newer(None, first)
    assert counting.session.readings == 2


def test_changes_that_look_one_after_another_use_one_connection(counting: CountingTarget) -> None:
    for place in range(100, 200):
        assert CommandReader(counting.context, Lsn(0, 1, place), lambda _: None, 1.0, counting.shared).read() is None
    assert counting.connects == 1


def test_a_target_that_is_down_for_an_hour_is_logged_a_few_times_and_its_return_once() -> None:
    clock, hour = [0], 3600
    failures, error = ReadFailures(lambda: clock[0]), Transient("target-unreachable", "refused")
    with structlog.testing.capture_logs() as lines:
        for clock[0] in range(hour):
            failures.failed(ONE, error)
            failures.failed(OTHER, error)
        clock[0] = hour
        for _ in range(5):
            failures.succeeded()
    *down, up = lines
    assert {line["event"] for line in down} == {"ddl commands cannot be read"}
    assert [line["seconds"] for line in down] == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert (up["event"], up["seconds"]) == ("ddl commands can be read again", hour)


def test_a_reading_that_fails_is_logged_once_and_is_repeated_until_it_succeeds(counting: CountingTarget) -> None:
    connect, failing = counting.target.connect, [5]

    def refuse() -> Any:
        if not failing[0]:
            return connect()
        failing[0] -= 1
        raise Transient("target-unreachable", "refused")

    counting.connect = refuse  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as lines:
        assert CommandReader(counting.context, ONE, lambda _: None, 1.0, counting.shared).read() is None
    assert failing == [0]
    assert [line["event"] for line in lines] == ["ddl commands cannot be read", "ddl commands can be read again"]
