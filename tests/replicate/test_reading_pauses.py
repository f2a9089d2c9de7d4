"""Small transactions that follow each other are received together; nothing else waits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from tests.binlog.logs.log_maker import LogMaker, rotate

from pidts.model import Position, Where
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.replicate.reading_pauses import FEW_BYTES, TOGETHER_SECONDS, ReadingPauses
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume
from pidts.source import BinlogStream, Block, BlockShape


class Clock:
    """A clock that only its own pauses and the test advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_after_few_bytes_there_is_a_pause_from_the_reading_on() -> None:
    clock = Clock()
    pauses = ReadingPauses(clock, clock.sleep)
    pauses.wait()
    assert clock.slept == []
    pauses.has_read(100)
    clock.now += TOGETHER_SECONDS / 4  # the events were stored meanwhile
    pauses.wait()
    assert clock.slept == [pytest.approx(TOGETHER_SECONDS * 3 / 4)]
    pauses.wait()
    assert len(clock.slept) == 1


def test_what_arrives_after_a_quiet_time_is_read_at_once() -> None:
    clock = Clock()
    pauses = ReadingPauses(clock, clock.sleep)
    pauses.has_read(100)
    clock.now += TOGETHER_SECONDS
    pauses.wait()
    assert clock.slept == []


@pytest.mark.parametrize("size", [0, FEW_BYTES, 1 << 20])
def test_after_heartbeats_or_many_bytes_there_is_no_pause(size: int) -> None:
    clock = Clock()
    pauses = ReadingPauses(clock, clock.sleep)
    pauses.has_read(100)
    pauses.has_read(size)
    pauses.wait()
    assert clock.slept == []


class Source:
    """A stream to which one transaction has come whenever enough time has passed since the last one."""

    def __init__(self, clock: Clock, transactions: Sequence[bytes], interval: float) -> None:
        self._clock, self._interval = clock, interval
        self._waiting = list(transactions)
        self._next = clock.now
        self.readings = 0

    def read_block(self, timeout: float) -> Block | None:
        assert timeout > 0
        self.readings += 1
        self._clock.now = max(self._clock.now, self._next)
        found = b""
        while self._waiting and self._next <= self._clock.now:
            found += self._waiting.pop(0)
            self._next += self._interval
        return Block(BlockShape.EVENTS, memoryview(found), 1)

    def read_burst(self, timeout: float) -> list[bytes]:
        raise AssertionError("the compiled reader is tested")

    @property
    def is_read(self) -> bool:
        return not self._waiting


@pytest.mark.parametrize(("interval", "most"), [(TOGETHER_SECONDS / 4, 12), (TOGETHER_SECONDS * 2, 40)])
def test_fast_small_transactions_take_few_readings_and_all_are_in_the_relay(
    tmp_path: Path, interval: float, most: int
) -> None:
    clock = Clock()
    log = LogMaker(random.Random(2), flavor="mysql")
    head = [rotate(log.file, 4), *log.events]
    transactions = []
    for _ in range(40):
        begin = len(log.events)
        log.ordinary(["a"], rows=1)
        transactions.append(b"".join(log.events[begin:]))
    source = Source(clock, transactions, interval)
    begin = Resume(Position(log.file, 4), Origin("server", "bin", 0), None, "")
    with closing(RelayWriter.open(tmp_path, "s")) as writer:
        receiver = Receiver(writer, begin, Where(source="s"), pauses=ReadingPauses(clock, clock.sleep))
        receiver._is_compiled = True
        receiver.take(head)
        while not source.is_read:
            receiver.receive(cast("BinlogStream", source), 1.0)
    assert source.readings <= most
    with closing(RelayReader(tmp_path, "s")) as reader:
        assert sum(entry.transaction.row_events > 0 for entry in reader.entries()) == 40
