"""Threads share one connection for records, and nothing is lost if the connection is lost or busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import SharedSession, TargetSession
from pidts.model import Halted, Transient


class CountingTarget:
    def __init__(self) -> None:
        self.target = ValuesTarget("shared session")
        self.made: list[TargetSession] = []

    def connect(self) -> Any:
        self.made.append(self.target.connect())
        return self.made[-1]


@pytest.fixture
def target() -> Iterator[Any]:
    made = CountingTarget()
    yield made
    made.target.forget()


@pytest.fixture
def shared() -> Iterator[SharedSession]:
    made = SharedSession()
    yield made
    made.close()


def test_all_work_is_done_on_one_connection(shared: SharedSession, target: Any) -> None:
    assert {id(shared.ask(target, lambda session: session)) for _ in range(10)} == {id(target.made[0])}
    assert len(target.made) == 1


def test_work_on_a_lost_connection_is_done_again_on_a_new_one(shared: SharedSession, target: Any) -> None:
    first = shared.ask(target, lambda session: session)

    def work(session: TargetSession) -> TargetSession:
        if session is first:
            raise Transient("target-lost", "gone")
        return session

    assert shared.ask(target, work) is target.made[1]
    assert shared.ask(target, lambda session: session) is target.made[1]


@pytest.mark.parametrize("code", ["target-busy", "target-full"])
def test_work_that_has_waited_in_vain_does_not_wait_twice(shared: SharedSession, target: Any, code: str) -> None:
    shared.ask(target, lambda session: session)
    calls: list[TargetSession] = []

    def waits(session: TargetSession) -> None:
        calls.append(session)
        raise Transient(code, "a record is locked")

    with pytest.raises(Transient, match="a record is locked"):
        shared.ask(target, waits)
    assert calls == target.made[:1]
    assert shared.ask(target, lambda session: session) is target.made[1], "a transaction may be open on the first one"


def test_an_error_on_a_new_connection_is_raised_and_the_connection_is_not_used_again(
    shared: SharedSession, target: Any
) -> None:
    def fails(_: TargetSession) -> None:
        raise Halted("target-refused", "no")

    with pytest.raises(Halted):
        shared.ask(target, fails)
    assert shared.ask(target, lambda session: session) is target.made[1]


def test_work_does_not_wait_for_work_that_takes_long(target: Any) -> None:
    shared = SharedSession(busy_seconds=0.05)
    begun, over = threading.Event(), threading.Event()

    def waits(_: TargetSession) -> None:
        begun.set()
        over.wait(10)

    thread = threading.Thread(target=shared.ask, args=(target, waits))
    thread.start()
    assert begun.wait(10)
    assert shared.ask(target, lambda session: session) is target.made[1]
    over.set()
    thread.join()
    shared.close()


def test_work_of_many_threads_waits_for_its_turn(target: Any) -> None:
    shared = SharedSession(busy_seconds=0.2)
    threads = [threading.Thread(target=shared.ask, args=(target, lambda _: time.sleep(0.02))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(target.made) == 1
    shared.close()
