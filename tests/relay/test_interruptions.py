"""Wherever a writer is interrupted, readers see complete log up to some place, and the next writer completes the rest."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Halted
from pidts.model.errors import Transient
from pidts.relay import RelayReader, RelayWriter
from pidts.relay import writer as writer_module

from .sample_log import FORMAT_EVENT, ORIGIN, START, UUID, Piece, sample_log, store, with_xa

MakeWriter = Callable[..., RelayWriter]
LOG = sample_log(5, largest=60)
XA_LOG = with_xa(sample_log(9, largest=40), seed=6)
HEAD = 4 + len(FORMAT_EVENT)


def files(relay: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((relay / "s").glob("0*"))}


def what_is_read(relay: Path) -> list[bytes]:
    reader = RelayReader(relay, "s")
    try:
        return [
            reader.read(entry.extent) + (reader.read(entry.prepared) if entry.prepared else b"")
            for entry in reader.entries()
        ]
    finally:
        reader.close()


def completed(relay: Path, log: list[Piece], segment_bytes: int) -> None:
    """Opens the relay again, and appends the log after the relay's end."""
    writer = RelayWriter.open(relay, "s", segment_bytes=segment_bytes)
    try:
        if writer.state is None:
            writer.begin(ORIGIN, START, "")
            writer.start_segment(FORMAT_EVENT)
        at = writer.lsn
        assert at is not None
        store(writer, [piece for piece in log if piece.transaction.lsn > at])
        assert writer.state is not None
        assert writer.state.gtid_set == f"{UUID}:1-{len(log)}"
    finally:
        writer.close()


@pytest.mark.parametrize("log", [LOG, XA_LOG], ids=["plain", "xa"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
@pytest.mark.parametrize("kind", ["index", "log"])
def test_cut_at_every_byte(
    relay: Path, make_writer: MakeWriter, kind: str, segment_bytes: int, log: list[Piece]
) -> None:
    """A crash of the machine keeps only a first part of the written bytes, which ends anywhere in the last segment."""
    writer = make_writer(segment_bytes=segment_bytes)
    store(writer, log)
    writer.close()
    whole = files(relay)
    raw = [piece.all_raw for piece in log]
    last = max(name for name in whole if name.endswith(kind))
    shown = []
    # The head of the events file is durable before its index exists.
    everything = range(0 if kind == "index" else HEAD, len(whole[last]))
    # Cuts the last entry at every byte, and the entries before it at some bytes.
    for size in sorted({*everything[::19], *everything[-230:]}):
        shutil.rmtree(relay)
        (relay / "s").mkdir(parents=True)
        for name, data in whole.items():
            (relay / "s" / name).write_bytes(data[:size] if name == last else data)
        if kind == "index":
            seen = what_is_read(relay)
            assert seen == raw[: len(seen)]
            shown.append(len(seen))
        completed(relay, log, segment_bytes)
        assert what_is_read(relay) == raw
        assert files(relay) == whole
    assert shown == sorted(shown)


@pytest.mark.parametrize("filler", [b"\0", b"\xa5"])
def test_pages_that_were_never_written(relay: Path, make_writer: MakeWriter, filler: bytes) -> None:
    """A power loss may keep a file's size and lose its last bytes: then they are zeros, or earlier contents of the
    disk.
    """
    writer = make_writer()
    store(writer, LOG)
    writer.close()
    whole = files(relay)
    index = relay / "s" / "000000001.index"
    data = whole[index.name]
    for size in range(300, len(data), 3):
        for name, content in whole.items():
            (relay / "s" / name).write_bytes(content)
        index.write_bytes(data[:size] + filler * (len(data) - size))
        if filler == b"\0":
            seen = what_is_read(relay)
            assert seen == [piece.raw for piece in LOG][: len(seen)]
        completed(relay, LOG, 1 << 20)
        assert files(relay) == whole


def read_and_open(relay: Path) -> None:
    """Reads the relay, and then opens it to write: a reader sees no segment with an incomplete header, but the writer
    does.
    """
    list(RelayReader(relay, "s").entries())
    RelayWriter.open(relay, "s").close()


def test_one_flipped_bit_before_the_last_entry_is_reported(relay: Path, make_writer: MakeWriter) -> None:
    writer = make_writer()
    store(writer, LOG)
    index = relay / "s" / "000000001.index"
    data = index.read_bytes()
    entries = list(RelayReader(relay, "s").entries())
    writer.close()
    last = data.rindex(UUID.encode()) - 120  # a byte before the last entry
    for at in range(0, last, 3):
        index.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(Halted) as caught:
            read_and_open(relay)
        assert caught.value.code == "relay-corrupt"
    index.write_bytes(data)
    assert list(RelayReader(relay, "s").entries()) == entries


def test_damage_in_an_older_segment_never_looks_like_an_end(relay: Path, make_writer: MakeWriter) -> None:
    writer = make_writer(segment_bytes=300)
    store(writer, LOG)
    writer.close()
    index = relay / "s" / "000000001.index"
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(Halted) as caught:
        list(RelayReader(relay, "s").entries())
    assert caught.value.code == "relay-corrupt"


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    segment_bytes=st.integers(200, 3_000),
    every=st.integers(1, 5),
    cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 900)), max_size=4),
)
def test_any_number_of_interruptions(
    tmp_path_factory: pytest.TempPathFactory, seed: int, segment_bytes: int, every: int, cuts: list[tuple[int, int]]
) -> None:
    relay = tmp_path_factory.mktemp("relay")
    log = with_xa(sample_log(12, seed=seed), seed=seed)
    for number, (index_cut, log_cut) in enumerate(cuts):
        writer = RelayWriter.open(relay, "s", segment_bytes=segment_bytes)
        if writer.state is None:
            writer.begin(ORIGIN, START, "")
            writer.start_segment(FORMAT_EVENT)
        at = writer.lsn
        assert at is not None
        todo = [piece for piece in log if piece.transaction.lsn > at][: 3 * (number + 1)]
        store(writer, todo, every)
        writer.append(b"half")
        writer.close()
        newest = max((relay / "s").glob("*.index"))
        for path, cut, least in ((newest, index_cut, 0), (newest.with_suffix(".log"), log_cut, HEAD)):
            os.truncate(path, max(path.stat().st_size - cut, least))
    completed(relay, log, segment_bytes)
    assert what_is_read(relay) == [piece.all_raw for piece in log]
    assert [entry.transaction for entry in RelayReader(relay, "s").entries()] == [piece.transaction for piece in log]


WRITE_THE_LOG = """
import sys
from tests_sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store, with_xa
from pidts.relay import RelayWriter
writer = RelayWriter.open(sys.argv[1], "s", segment_bytes=30_000)
if writer.state is None:
    writer.begin(ORIGIN, START, "")
    writer.start_segment(FORMAT_EVENT)
log = with_xa(sample_log(1_000))
while todo := [piece for piece in log if piece.transaction.lsn > writer.lsn][:100]:
    print("ready", flush=True)
    sys.stdin.readline()
    store(writer, todo, every=1)
"""


@pytest.mark.slow
def test_kill_9_of_a_writing_process_again_and_again(relay: Path, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("sample_log.py"), tmp_path / "tests_sample_log.py")
    (tmp_path / "write.py").write_text(WRITE_THE_LOG)
    log = with_xa(sample_log(1_000))
    raw = [piece.all_raw for piece in log]
    seen: list[bytes] = []
    kills = 0
    while seen != raw:
        command = [sys.executable, tmp_path / "write.py", relay]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ready = (line for line in process.stdout if line == b"ready\n")
            for _ in itertools.islice(ready, 2):  # A hundred transactions are written, then a part of the next ones.
                process.stdin.write(b"\n")
                process.stdin.flush()
            time.sleep(0.001 * kills)
            process.send_signal(signal.SIGKILL)
        now = what_is_read(relay)
        assert now == raw[: len(now)]
        assert len(now) > len(seen)
        seen = now
        kills += 1
    assert seen == raw
    assert kills >= 5


class FullDisk:
    """Lets this number of bytes pass, then reports a full disk, as a write does: the part that fits is written."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, handle: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real_write(handle, data[: self.room])
        self.room -= count
        return count


real_write = os.write


def test_a_full_disk_at_every_byte(relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced log stays, and the same writer continues when there is room."""
    writer = make_writer(segment_bytes=400)
    store(writer, XA_LOG[:2])
    raw = [piece.all_raw for piece in XA_LOG]
    for room in range(0, 1_300, 13):
        shutil.rmtree(relay / "s")
        writer.close()
        writer = make_writer(segment_bytes=400)
        disk = FullDisk(1 << 30)
        monkeypatch.setattr(writer_module.os, "write", disk.write)
        store(writer, XA_LOG[:2])
        disk.room = room
        with suppress(Transient):  # The write raises no error if there is enough room.
            store(writer, XA_LOG[2:])
            assert disk.room > 0
        disk.room = 1 << 30
        seen = what_is_read(relay)
        assert seen == raw[: len(seen)]
        assert len(seen) >= 2
        at = writer.lsn
        assert at is not None
        store(writer, [piece for piece in XA_LOG if piece.transaction.lsn > at])
        assert what_is_read(relay) == raw
        monkeypatch.undo()


def test_another_error_of_the_disk_halts(make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = make_writer()

    def broken(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(writer_module.os, "fdatasync", broken)
    with pytest.raises(Halted) as caught:
        store(writer, LOG)
    assert caught.value.code == "relay-unwritable"


def test_a_place_that_a_power_loss_took_back_is_good_to_continue_from(relay: Path, make_writer: MakeWriter) -> None:
    """Readers may see an entry before it is flushed. When its events come again, empty entries may end elsewhere."""
    writer = make_writer()
    store(writer, LOG[:2])
    index = relay / "s" / "000000001.index"
    before = index.stat().st_size
    store(writer, LOG[2:4])
    after = list(RelayReader(relay, "s").entries())[2].transaction.lsn
    writer.close()
    os.truncate(index, before)
    writer = make_writer()
    joined = replace(LOG[3].transaction, prev_lsn=LOG[1].transaction.lsn)
    store(writer, [Piece(joined, [LOG[2].raw, LOG[3].raw]), *LOG[4:]])
    entries = list(RelayReader(relay, "s").entries(after))
    assert [entry.transaction for entry in entries] == [piece.transaction for piece in LOG[3:]]


def test_entries_that_a_reader_may_have_read_survive_a_full_disk(
    relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = make_writer(), RelayReader(relay, "s")
    for piece in LOG[:4]:
        writer.append(piece.raw)
        writer.commit(piece.transaction)
    disk = FullDisk(sum(len(piece.raw) for piece in LOG[:4]) + 400)
    monkeypatch.setattr(writer_module.os, "write", disk.write)
    with pytest.raises(Transient, match=r"relay-full.*Make room"):
        writer.sync()
    assert writer.lsn == reader.received == LOG[1].transaction.lsn
    disk.room = 1 << 20
    store(writer, LOG[2:])
    assert reader.received == LOG[-1].transaction.lsn
    assert what_is_read(relay) == [piece.raw for piece in LOG]
