"""After a power loss, the relay has every entry that a reader has seen, although not every entry is flushed at once."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.binlog.logs.log_maker import LogMaker
from tests.crashes import ProcessDied
from tests.examples import examples

from pidts.binlog import EventType
from pidts.model import LogEntry, Position, Where
from pidts.model.errors import Transient
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.relay import writer as writer_module
from pidts.relay.folder import Folder
from pidts.relay.refetch import ask_to_refetch
from pidts.relay.segments import index_rebuild
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume
from pidts.source import Block, BlockShape

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
Files = dict[str, bytes]
_UNFLUSHED_BYTES = 3000


class Disk:
    """Knows how much of each file is flushed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed: dict[str, int] = {}
        self.flushes: dict[str, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._flush)

    def _flush(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_file():
            self.flushed[str(path)] = os.fstat(handle).st_size
            self.flushes[path.suffix] = self.flushes.get(path.suffix, 0) + 1

    def after_power_loss(self, folder: Path, chance: random.Random) -> Files:
        """Returns what is left of the files: all that was flushed, and of the rest a part, zeros or old bytes."""
        left = {}
        for path in folder.glob("0*"):
            data, flushed = path.read_bytes(), self.flushed[str(path)]
            kept = chance.choice([flushed, flushed, len(data), chance.randint(flushed, len(data))])
            lost = chance.choice([b"", bytes(len(data) - kept), bytes(chance.choices(b"\0\xa5", k=len(data) - kept))])
            left[path.name] = data[:kept] + lost
        return left


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    # The logs of these tests are small, so the limit has to be small, too.
    monkeypatch.setattr(writer_module, "UNFLUSHED_BYTES", _UNFLUSHED_BYTES)
    monkeypatch.setattr(index_rebuild, "UNFLUSHED_BYTES", _UNFLUSHED_BYTES)
    return Disk(monkeypatch)


def log_of(chance: random.Random, transactions: int, *, product: str, checksums: bool = True) -> LogMaker:
    """Returns a log of mostly ordinary transactions, with XA transactions, statements and other events between them."""
    log = LogMaker(chance, product=product, checksums=checksums)
    for _ in range(transactions):
        match chance.choice(["ordinary"] * 8 + ["prepare", "commit", "statement", "other"]):
            case "ordinary":
                log.ordinary(row_size=chance.choice([0, 0, 0, 4000]))
            case "prepare" if product != "old":
                log.prepare(chance.choice([b"1", b"2"]), ["a"])
            case "commit" if product != "old":
                log.decide(chance.choice([b"1", b"2"]))
            case "statement":
                log.plain_query("ALTER TABLE a ADD COLUMN c INT")
            case _:
                log.put(EventType.BINLOG_CHECKPOINT, b"\x0a\0\0\0bin.000007")
    return log


def opened(relay: Path, log: LogMaker, segment_bytes: int) -> tuple[RelayWriter, Receiver]:
    writer = RelayWriter.open(relay, "s", segment_bytes=segment_bytes)
    gtid_set = "" if log.product == "mariadb" else None
    start = Resume(Position(log.file, 4), Origin(SERVER, "bin", 0), None, gtid_set)
    return writer, Receiver(writer, start, Where(source="s"))


def block(events: list[bytes]) -> Block:
    return Block(BlockShape.EVENTS, memoryview(b"".join(events)), len(events))


def bursts(events: list[bytes], chance: random.Random) -> Iterator[list[bytes]]:
    at = 0
    while at < len(events):
        size = chance.choice([1, 2, 4, 5, 9, 30])
        yield events[at : at + size]
        at += size


def entries(relay: Path) -> list[LogEntry]:
    reader = RelayReader(relay, "s")
    try:
        return list(reader.entries())
    finally:
        reader.close()


def files(relay: Path) -> Files:
    return {path.name: path.read_bytes() for path in (relay / "s").glob("0*")}


def put(relay: Path, left: Files) -> None:
    (relay / "s").mkdir(parents=True)
    for name, data in left.items():
        (relay / "s" / name).write_bytes(data)


@pytest.mark.parametrize("checksums", [True, False])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_what_was_visible_is_there_after_a_power_loss(
    disk: Disk, tmp_path_factory: pytest.TempPathFactory, seed: int, *, checksums: bool
) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("relay")
    log = log_of(chance, 25, product=chance.choice(["mariadb", "mysql", "old"]), checksums=checksums)
    segment_bytes = chance.choice([700, 5000, 1 << 20])
    writer, receiver = opened(folder / "whole", log, segment_bytes)
    moments = []
    for burst in bursts(log.events, chance):
        receiver.take_block(block(burst))
        left = disk.after_power_loss(folder / "whole" / "s", chance)
        moments.append((entries(folder / "whole"), writer.state, left))
    writer.close()
    every = transactions(entries(folder / "whole"))
    for number, (visible, state, left) in enumerate(chance.sample(moments, min(len(moments), 12))):
        relay = folder / str(number)
        put(relay, left)
        with closing(RelayWriter.open(relay, "s")) as writer:
            kept = entries(relay)
            assert kept[: len(visible)] == visible
            # Transactions that nobody has seen yet may be complete on the disk, too.
            assert transactions(kept) == every[: len(transactions(kept))]
            assert len(kept) > len(visible) or writer.state == state


def transactions(found: list[LogEntry]) -> list[LogEntry]:
    """Returns all entries except empty ones. An empty entry may end at another place when its events are received again."""
    return [entry for entry in found if not entry.transaction.is_empty]


@pytest.fixture
def steady(disk: Disk, tmp_path: Path) -> Iterator[LogMaker]:
    """Yields a log of ordinary transactions that a relay has received one by one."""
    log = LogMaker(random.Random(4), product="mariadb")
    writer, receiver = opened(tmp_path / "relay", log, 1 << 20)
    receiver.take_block(block(log.events))
    for _ in range(20):
        begin = len(log.events)
        log.ordinary(["a"], rows=1)
        receiver.take_block(block(log.events[begin:]))
    writer.close()
    return log


def test_the_index_is_flushed_less_often_than_the_events(disk: Disk, steady: LogMaker, tmp_path: Path) -> None:
    size = sum(map(len, steady.events))
    assert disk.flushes[".log"] > 20
    assert 2 <= disk.flushes[".index"] <= 3 + size // _UNFLUSHED_BYTES
    index, log = (tmp_path / "relay" / "s" / f"000000001.{kind}" for kind in ("index", "log"))
    assert disk.flushed[str(index)] < index.stat().st_size
    assert disk.flushed[str(log)] == log.stat().st_size


def test_an_opening_that_is_interrupted_anywhere_is_repeated(
    disk: Disk, steady: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = tmp_path / "relay"
    whole, index = files(relay), relay / "s" / "000000001.index"
    left = whole | {index.name: whole[index.name][: disk.flushed[str(index)]]}
    sizes = set()
    for room in range(0, 10_000, 37):
        for name, data in left.items():
            (relay / "s" / name).write_bytes(data)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", Crash(room).write)
            with suppress(ProcessDied):
                RelayWriter.open(relay, "s").close()
        sizes.add(index.stat().st_size)
        assert files(relay)["000000001.log"] == whole["000000001.log"]
        RelayWriter.open(relay, "s").close()
        assert files(relay) == whole
    assert len(sizes) > 10


class Crash:
    """Lets a given number of bytes be written, and then kills the process."""

    def __init__(self, room: int) -> None:
        self._room, self._real = room, os.write

    def write(self, handle: int, data: memoryview) -> int:
        taken = self._real(handle, data[: self._room])
        self._room -= taken
        if taken < len(data):
            raise ProcessDied
        return taken


def test_a_relay_that_was_cut_back_does_not_take_the_removed_entries_again(steady: LogMaker, tmp_path: Path) -> None:
    relay = tmp_path / "relay"
    before = entries(relay)
    place = before[-3].transaction.lsn
    ask_to_refetch(Folder.of(relay, "s"), place, before[-1].transaction.lsn, "relay-gap")
    writer = RelayWriter.open(relay, "s")
    assert writer.lsn == place
    writer.close()
    assert entries(relay) == before[:-2]


def test_a_full_disk_while_the_relay_is_opened_is_only_a_reason_to_wait(
    disk: Disk, steady: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = tmp_path / "relay"
    whole, index = files(relay), relay / "s" / "000000001.index"
    index.write_bytes(whole[index.name][: disk.flushed[str(index)]])

    def write(_: int, __: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(Transient) as caught:
            RelayWriter.open(relay, "s")
    assert caught.value.code == "relay-full"
    RelayWriter.open(relay, "s").close()
    assert files(relay) == whole
