"""Events that a server sends a second time, after a reconnect by GTID, are stored once."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import monotonic

from tests.binlog.logs.log_maker import LogMaker, rotate

from pidts.binlog import EventType
from pidts.model import MySqlGtidSet, Position, Where
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume
from pidts.source import Block, BlockShape

ORIGIN = Origin("server", "bin", 0)


def fill(folder: Path, *connections: tuple[Resume, list[bytes]]) -> bytes:
    """Receives the events of the connections. Returns the events of the relay's first segment."""
    for resume, events in connections:
        with closing(RelayWriter.open(folder, "s")) as writer:
            receiver = Receiver(writer, resume, Where(source="s"))
            receiver.take(events)
            receiver.sync()
    with closing(RelayReader(folder, "s")) as reader:
        entries = [entry.transaction for entry in reader.entries()]
        assert [entry.prev_lsn for entry in entries[1:]] == [entry.lsn for entry in entries[:-1]]
        return reader.folder.log(1).read_bytes()


def test_a_resume_by_gtid_just_after_a_files_head_stores_the_head_once(tmp_path: Path) -> None:
    log = LogMaker(random.Random(1), product="mysql")
    log.put(EventType.PREVIOUS_GTIDS, bytes(8))
    head = list(log.events)
    log.ordinary(["a"], rows=1)
    rest = log.events[len(head) :]
    begin = Resume(Position(log.file, 4), ORIGIN, None, "")
    again = Resume(MySqlGtidSet.parse(""))
    first = [rotate(log.file, 4)]
    whole = fill(tmp_path / "whole", (begin, first + head + rest))
    assert whole.endswith(b"".join([*head[1:], *rest]))
    assert fill(tmp_path / "twice", (begin, first + head), (again, first + head + rest)) == whole


class Stream:
    """Gives one burst of events at each read, and notes when it was read."""

    def __init__(self, *bursts: list[bytes]) -> None:
        self._bursts, self.read_at = iter(bursts), list[float]()

    def read_burst(self, _timeout: float) -> list[bytes]:
        self.read_at.append(monotonic())
        return next(self._bursts, [])

    def read_block(self, timeout: float) -> Block | None:
        burst = self.read_burst(timeout)
        return Block(BlockShape.EVENTS, memoryview(b"".join(burst)), len(burst)) if burst else None


def received(folder: Path, transactions: int) -> tuple[Receiver, Stream]:
    """Receives these transactions, each of which arrives as soon as it is asked for."""
    log, bursts = LogMaker(random.Random(2), product="mysql"), list[list[bytes]]()
    for _ in range(transactions):
        known = len(log.events)
        log.ordinary(["a"], rows=1)
        bursts.append(log.events[known:])
    bursts[0] = log.events[: len(log.events) - sum(map(len, bursts[1:]))]
    begin, stream = Resume(Position(log.file, 4), ORIGIN, None, ""), Stream(*bursts)
    with closing(RelayWriter.open(folder, "s")) as writer:
        receiver = Receiver(writer, begin, Where(source="s"))
        for _ in bursts:
            receiver.receive(stream, 1.0)  # type: ignore[arg-type]
    return receiver, stream


def test_small_transactions_are_left_in_the_socket_for_a_moment_so_that_they_are_stored_together(
    tmp_path: Path,
) -> None:
    _, stream = received(tmp_path, 20)
    assert all(later - earlier >= 0.003 for earlier, later in pairwise(stream.read_at))


def test_a_small_transaction_long_after_the_last_one_is_read_at_once(tmp_path: Path) -> None:
    before = monotonic()
    receiver, _ = received(tmp_path, 1)
    assert receiver.pause(before) > 0
    assert receiver.pause(monotonic() + 0.003) <= 0


def test_the_first_events_and_many_bytes_are_read_at_once(tmp_path: Path) -> None:
    with closing(RelayWriter.open(tmp_path / "new", "s")) as writer:
        assert Receiver(writer, Resume(Position("bin.000001", 4)), Where(source="s")).pause(monotonic()) <= 0
    log = LogMaker(random.Random(3), product="mysql")
    while sum(map(len, log.events)) <= 16 << 10:
        log.ordinary(["a"], rows=3)
    begin = Resume(Position(log.file, 4), ORIGIN, None, "")
    with closing(RelayWriter.open(tmp_path / "many", "s")) as writer:
        receiver = Receiver(writer, begin, Where(source="s"))
        receiver.take(log.events)
        assert receiver.pause(monotonic()) <= 0
