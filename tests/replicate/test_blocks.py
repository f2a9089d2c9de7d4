"""A relay that is filled block by block has exactly the bytes of a relay that is filled event by event."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.binlog.logs.log_maker import LogMaker, random_log
from tests.examples import examples

from pidts.model import PidtsError, Position, Where
from pidts.model.errors import Transient
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume
from pidts.source import Block, BlockShape

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def receiver_into(folder: Path, log: LogMaker, segment_bytes: int) -> tuple[RelayWriter, Receiver]:
    writer = RelayWriter.open(folder, "s", segment_bytes=segment_bytes)
    gtid_set = "" if log.product == "mariadb" else None
    if writer.state is None:
        start = Resume(Position(log.file, 4), Origin(SERVER, "bin", 0), None, gtid_set)
    else:
        start = Resume(writer.state.position or Position(log.file, 4))
    return writer, Receiver(writer, start, Where(source="s"))


def fill(folder: Path, log: LogMaker, segment_bytes: int, feed: Callable[[Receiver], None]) -> str:
    writer, receiver = receiver_into(folder, log, segment_bytes)
    error = ""
    try:
        feed(receiver)
    except PidtsError as caught:
        error = str(caught)
        receiver.sync()
    writer.close()
    return error


def feed_blocks(receiver: Receiver, blocks: list[list[bytes]], piece: int) -> None:
    for events in blocks:
        if len(events) == 1 and len(events[0]) > piece:
            raw = memoryview(events[0])
            for at in range(0, len(raw), piece):
                shape = BlockShape.LAST_PIECE if at + piece >= len(raw) else BlockShape.PIECE
                receiver.take_block(Block(shape, raw[at : at + piece], 1))
        else:
            receiver.take_block(Block(BlockShape.EVENTS, memoryview(b"".join(events)), len(events)))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "s").iterdir() if path.suffix in {".log", ".index"}}


def cut(events: list[bytes], chance: random.Random) -> list[list[bytes]]:
    blocks, often = [events[:1]], chance.choice([0.05, 0.3, 1.0])
    for raw in events[1:]:
        if chance.random() < often or len(blocks[-1][-1]) > 1000 or len(raw) > 1000:
            blocks.append([])
        blocks[-1].append(raw)
    return blocks


def from_the_middle(format_event: bytes) -> bytes:
    """Returns the format event as a server sends it if it is asked to start within a file."""
    raw = format_event[:13] + bytes(4) + format_event[17:-4]
    return raw + zlib.crc32(raw).to_bytes(4, "little")


@pytest.fixture(autouse=True)
def never_durable(monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    def make() -> tuple[Path, Path]:
        return tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("blocks")

    return make


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_files(folders, seed):
    chance = random.Random(seed)
    log = random_log(chance, chance.randint(1, 40))
    if chance.random() < 0.5:
        log.ordinary(rows=2, row_size=5000)
    blocks, segment_bytes = cut(log.events, chance), chance.choice([300, 2000, 1 << 20])
    plain, fast = folders()

    def event_by_event(receiver: Receiver) -> None:
        for events in blocks:
            receiver.take(events)

    found = fill(plain, log, segment_bytes, event_by_event)
    assert fill(fast, log, segment_bytes, lambda receiver: feed_blocks(receiver, blocks, 1001)) == found
    assert files(fast) == files(plain)
    # Whatever is refused later, the first transaction of the log is an ordinary one.
    assert any(not entry.transaction.is_empty for entry in RelayReader(plain, "s").entries())


@pytest.mark.parametrize("segment_bytes", [300, 2000, 1 << 20])
@pytest.mark.parametrize("way", ["events", "blocks"])
@pytest.mark.parametrize("product", ["mariadb", "mysql", "old"])
def test_the_relay_has_exactly_the_received_events(folders, product, way, segment_bytes):
    """Each segment begins with the format event, and each transaction's entry names the bytes of its events."""
    log = LogMaker(random.Random(3), product=product)
    ends = [len(log.events)]
    for _ in range(30):
        log.ordinary()
        ends.append(len(log.events))
    relay, _ = folders()
    feeds = {
        "events": lambda receiver: receiver.take(log.events),
        "blocks": lambda receiver: feed_blocks(receiver, cut(log.events, random.Random(4)), 1001),
    }
    assert fill(relay, log, segment_bytes, feeds[way]) == ""
    head, rest = b"\xfebin" + log.events[0], b""
    logs = sorted((relay / "s").glob("*.log"))
    for path in logs:
        assert path.read_bytes().startswith(head)
        rest += path.read_bytes().removeprefix(head)
    assert rest == b"".join(log.events[1:])
    assert (len(logs) > 1) is (segment_bytes < 1 << 20)
    entries = [entry for entry in RelayReader(relay, "s").entries() if not entry.transaction.is_empty]
    held = [
        (relay / "s" / f"{one.extent.segment:09}.log").read_bytes()[one.extent.offset : one.extent.end]
        for one in entries
    ]
    assert held == [b"".join(log.events[begin:end]) for begin, end in pairwise(ends)]


def test_gtids_found_in_blocks_are_kept_when_the_relay_is_opened_again(folders):
    log = LogMaker(random.Random(2), product="mariadb")
    for _ in range(50):
        log.ordinary()
    relay, _ = folders()
    writer, receiver = receiver_into(relay, log, 3000)
    feed_blocks(receiver, [log.events], 1 << 20)
    state = writer.state
    writer.close()
    again = RelayWriter.open(relay, "s", segment_bytes=3000)
    assert again.state == state
    again.close()
    entries = [entry for entry in RelayReader(relay, "s").entries() if not entry.transaction.is_empty]
    assert len(entries) == 50
    assert state.segment == 9


def with_steps(log: LogMaker, chance: random.Random, count: int) -> None:
    """Adds steps of XA transactions, some of which stay undecided for long, and a few ordinary transactions."""
    undecided: list[bytes] = []
    for number in range(count):
        if chance.random() < 0.1:
            log.ordinary()
        elif undecided and chance.random() < 0.5:
            gtrid = undecided.pop(chance.randrange(len(undecided)))
            log.decide(gtrid, chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        else:
            undecided.append(b"%d" % (number % 7))
            log.prepare(undecided[-1], chance.choices("ab", k=chance.randint(1, 2)))


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_files_with_steps_of_xa_transactions(folders, seed):
    chance = random.Random(seed)
    log = LogMaker(chance, product=chance.choice(["mariadb", "mysql"]))
    with_steps(log, chance, 60)
    blocks, segment_bytes = cut(log.events, chance), chance.choice([300, 2000, 1 << 20])
    plain, fast = folders()

    def event_by_event(receiver: Receiver) -> None:
        for events in blocks:
            receiver.take(events)

    assert fill(plain, log, segment_bytes, event_by_event) == ""
    assert fill(fast, log, segment_bytes, lambda receiver: feed_blocks(receiver, blocks, 1001)) == ""
    assert files(fast) == files(plain)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("fits", [0, 1, 11, 100, 113, 500, 900, 1700])
def test_a_disk_that_fills_up_among_entries(folders, monkeypatch, fits, steps):
    """Complete entries of the index count; the rest is received again."""
    log = LogMaker(random.Random(2), product="mysql")
    for _ in range(20):
        log.ordinary()
    if steps:
        log = LogMaker(random.Random(2), product="mysql")
        with_steps(log, random.Random(5), 40)
    plain, relay = folders()
    fill(plain, log, 1 << 20, lambda receiver: receiver.take(log.events))
    writer, receiver = receiver_into(relay, log, 1 << 20)
    real, room = os.write, [1 << 30]

    def write(handle: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(28, "full")
        taken = real(handle, data[: room[0]])
        room[0] -= taken
        return taken

    receiver.take_block(Block(BlockShape.EVENTS, memoryview(b"".join(log.events[:40])), 40))
    monkeypatch.setattr(os, "write", write)
    body = memoryview(b"".join(log.events[40:]))
    room[0] = len(body) + fits
    with pytest.raises(Transient):
        receiver.take_block(Block(BlockShape.EVENTS, body, len(log.events) - 40))
    room[0] = 1 << 30
    kept = writer.state
    again = Receiver(writer, Resume(kept.position), Where(source="s"))
    behind = [raw for raw in log.events if int.from_bytes(raw[13:17], "little") > kept.position.offset]
    again.take_block(Block(BlockShape.EVENTS, memoryview(from_the_middle(log.events[0])), 1))
    again.take_block(Block(BlockShape.EVENTS, memoryview(b"".join(behind)), len(behind)))
    assert files(relay) == files(plain)
    writer.close()
