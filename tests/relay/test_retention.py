"""A relay removes only log that no task needs any more, whoever asks, and whether the task runs or not."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from pidts.model import Halted, Lsn, Transient
from pidts.relay import RelayReader, RelayWriter, list_segments, task_needs
from pidts.relay.folder import Folder
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.task_needs import Need, TaskNeed, forget_need, needs_locked, read_needs, write_need

from .sample_log import FORMAT_EVENT, START, Piece, sample_log, store

MakeWriter = Callable[..., RelayWriter]
ANYTHING = PurgeLimits(nobody_needs_it=True)


@pytest.fixture
def log(make_writer: MakeWriter) -> list[Piece]:
    """Writes a relay of at least a dozen segments, and returns its transactions."""
    pieces = sample_log(100)
    store(make_writer(segment_bytes=2_000), pieces)
    return pieces


def lsn(log: list[Piece], number: int) -> Lsn:
    return log[number].transaction.lsn


def numbers(relay: Path) -> list[int]:
    return [segment.number for segment in list_segments(relay, "s")]


def test_the_slowest_task_decides(relay: Path, log: list[Piece]) -> None:
    fast, slow = TaskNeed(relay, "s", "fast"), TaskNeed(relay, "s", "slow")
    fast.move(lsn(log, 90))
    slow.move(lsn(log, 40))
    found = release(relay, "s", PurgeLimits(checkpoints={"fast": lsn(log, 95)}))
    assert found.gone
    assert found.needed_from == lsn(log, 40)
    assert found.held_by == ("task slow",)
    entries = [entry.transaction for entry in RelayReader(relay, "s").entries(lsn(log, 40))]
    assert entries == [piece.transaction for piece in log[41:]]
    slow.move(lsn(log, 99))
    assert release(relay, "s", PurgeLimits()).held_by == ("task fast",)


def test_a_task_that_stopped_counts_until_it_is_forgotten(relay: Path, log: list[Piece]) -> None:
    TaskNeed(relay, "s", "stopped").move(lsn(log, 5))
    before = numbers(relay)
    everything = PurgeLimits(checkpoints={"running": lsn(log, 99)})
    assert [segment.number for segment in release(relay, "s", everything).gone] == before[
        : before.index(numbers(relay)[0])
    ]
    left = numbers(relay)
    assert release(relay, "s", everything).gone == ()
    assert not forget_need(relay, "s", "another")
    assert forget_need(relay, "s", "stopped")
    release(relay, "s", everything)
    assert numbers(relay) == left[-1:]


def test_a_task_that_begins_holds_everything_until_it_knows_its_place(relay: Path, log: list[Piece]) -> None:
    new = TaskNeed(relay, "s", "new")
    new.begin()
    found = release(relay, "s", PurgeLimits(checkpoints={"other": lsn(log, 99)}))
    assert (found.gone, found.needed_from, found.held_by) == ((), None, ("task new",))
    new.move(lsn(log, 50))
    new.begin()  # The task starts again: its old need keeps the same log.
    assert read_needs(Folder.of(relay, "s"))[0].lsn == lsn(log, 50)
    assert release(relay, "s", PurgeLimits(checkpoints={"other": lsn(log, 99)})).gone
    assert list_segments(relay, "s")[0].start <= lsn(log, 50)


def test_a_first_start_that_failed_holds_nothing(relay: Path, log: list[Piece]) -> None:
    new = TaskNeed(relay, "s", "new")
    new.begin()
    new.withdraw()
    assert read_needs(Folder.of(relay, "s")) == []
    new.move(lsn(log, 3))
    new.withdraw()
    assert len(read_needs(Folder.of(relay, "s"))) == 1


def test_an_unreadable_need_keeps_all_log(relay: Path, log: list[Piece]) -> None:
    TaskNeed(relay, "s", "shop").move(lsn(log, 99))
    (relay / "s" / "needs" / "shop.json").write_text('{"lsn": ')
    found = release(relay, "s", PurgeLimits(checkpoints={"other": lsn(log, 99)}))
    assert (found.gone, found.needed_from, found.held_by) == ((), None, ("task shop",))
    assert release(relay, "s", PurgeLimits(checkpoints={"shop": lsn(log, 99)})).gone


def test_a_relay_whose_tasks_are_unknown_is_not_purged(relay: Path, log: list[Piece]) -> None:
    assert release(relay, "s", PurgeLimits()).gone == ()
    assert release(relay, "s", PurgeLimits(), dry_run=True).held_by == ("no task has recorded what it needs",)
    assert release(relay, "s", ANYTHING).gone
    assert len(numbers(relay)) == 1


def test_a_dry_run_says_what_a_purge_does_and_does_nothing(relay: Path, log: list[Piece]) -> None:
    limits = PurgeLimits(checkpoints={"shop": lsn(log, 60)})
    files = {path: path.stat().st_mtime_ns for path in relay.rglob("*")}
    said = release(relay, "s", limits, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in relay.rglob("*")} == files
    assert said.gone
    assert release(relay, "s", limits) == said


def test_a_person_s_limit_is_kept_and_may_not_go_past_a_task(relay: Path, log: list[Piece]) -> None:
    checkpoints = {"shop": lsn(log, 80)}
    release(relay, "s", PurgeLimits(before=lsn(log, 30), checkpoints=checkpoints))
    assert list_segments(relay, "s")[0].start <= lsn(log, 30) < list_segments(relay, "s")[1].start
    left = numbers(relay)
    with pytest.raises(Halted, match="task shop still needs") as caught:
        release(relay, "s", PurgeLimits(before=lsn(log, 81), checkpoints=checkpoints))
    assert caught.value.code == "relay-still-needed"
    assert numbers(relay) == left


def test_log_that_is_younger_than_a_task_keeps_it_stays(relay: Path, log: list[Piece]) -> None:
    old = time.time() - 7200
    for number in numbers(relay)[:4]:
        os.utime(relay / "s" / f"{number:09}.index", (old, old))
    TaskNeed(relay, "s", "shop", keep_seconds=3600).move(lsn(log, 99))
    found = release(relay, "s", PurgeLimits(checkpoints={"shop": lsn(log, 99)}))
    assert [segment.number for segment in found.gone] == [1, 2, 3, 4]
    assert found.held_by == ("received less than 3600 s ago",)
    assert release(relay, "s", PurgeLimits(keep_seconds=10)).gone == ()


def test_a_purge_and_a_first_need_do_not_pass_by_each_other(relay: Path, log: list[Piece]) -> None:
    """A task whose need is recorded has all log that it needs, or notices at once that some of it is missing."""
    folder = Folder.of(relay, "s")
    with needs_locked(folder):
        thread = Thread(target=release, args=(relay, "s", PurgeLimits(checkpoints={"other": lsn(log, 99)})))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "the purge waits for the lock"
        write_need(folder, Need("new", lsn(log, 10)))
    thread.join()
    assert list_segments(relay, "s")[0].start <= lsn(log, 10)


def test_a_recorded_need_is_complete_or_missing(relay: Path, log: list[Piece], monkeypatch: pytest.MonkeyPatch) -> None:
    need = TaskNeed(relay, "s", "shop")
    need.move(lsn(log, 5))
    before = (relay / "s" / "needs" / "shop.json").read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(task_needs.os, "fsync", full)
    with pytest.raises(Transient) as caught:
        need.move(lsn(log, 6))
    assert caught.value.code == "relay-full"
    monkeypatch.undo()
    assert (relay / "s" / "needs" / "shop.json").read_bytes() == before
    assert sorted(path.name for path in (relay / "s" / "needs").iterdir()) == ["lock", "shop.json"]
    assert json.loads(before)["lsn"] == str(lsn(log, 5))


def take_the_relay(relay: Path, answer: multiprocessing.Queue[str]) -> None:
    try:
        writer = RelayWriter.open(relay, "s")
    except Halted as error:
        answer.put(str(error))
        return
    answer.put("taken")
    time.sleep(120)
    writer.close()


def test_a_second_process_may_write_when_the_first_is_killed(relay: Path) -> None:
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.Queue[str] = context.Queue()
    first = context.Process(target=take_the_relay, args=(relay, answer))
    first.start()
    assert answer.get(timeout=60) == "taken"
    second = context.Process(target=take_the_relay, args=(relay, answer))
    second.start()
    said = answer.get(timeout=60)
    assert "relay-in-use" in said
    assert f"process {first.pid}" in said
    second.join(60)
    first.kill()
    first.join(60)
    third = context.Process(target=take_the_relay, args=(relay, answer))
    third.start()
    assert answer.get(timeout=60) == "taken"
    third.kill()
    third.join(60)


def test_an_empty_segment_may_be_purged_under_a_reader(relay: Path, make_writer: MakeWriter) -> None:
    """A connection that ended before the first transaction leaves a segment without entries at the beginning."""
    pieces = sample_log(3)
    writer = make_writer()
    tail, middle, late = (RelayReader(relay, "s") for _ in range(3))
    assert tail.received == START
    assert list(middle.entries(START)) == []
    waiting = iter(late.entries(START))
    writer.start_segment(FORMAT_EVENT)
    store(writer, pieces)
    assert late.received == pieces[-1].transaction.lsn
    assert [segment.number for segment in release(relay, "s", PurgeLimits(checkpoints={"t": START})).gone] == [1]
    assert tail.received == pieces[-1].transaction.lsn
    for reader in (middle, tail, late):
        assert [entry.transaction for entry in reader.entries(START)] == [piece.transaction for piece in pieces]
        assert reader.find(START) is not None
    assert len(list(waiting)) == 3


def test_a_segment_that_was_read_to_its_end_may_be_purged_under_a_reader(relay: Path, log: list[Piece]) -> None:
    reader = RelayReader(relay, "s")
    entries = iter(reader.entries())
    read = [next(entries).transaction]
    second = list_segments(relay, "s")[1].start
    while read[-1].lsn < second:
        read.append(next(entries).transaction)
    release(relay, "s", PurgeLimits(checkpoints={"t": second}))
    read += [entry.transaction for entry in entries]
    assert read == [piece.transaction for piece in log]
    assert reader.find(second) is not None


def test_a_segment_that_was_not_read_is_missed(relay: Path, log: list[Piece]) -> None:
    reader = RelayReader(relay, "s")
    entries = iter(reader.entries())
    next(entries)
    release(relay, "s", PurgeLimits(checkpoints={"t": lsn(log, 60)}))
    with pytest.raises(Halted, match="relay-purged"):
        list(entries)
    with pytest.raises(Halted, match="relay-purged"):
        list(reader.entries(lsn(log, 3)))
    assert reader.received == lsn(log, 99)
