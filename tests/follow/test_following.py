"""A copy is equal to the relay, byte for byte, whatever happens to either machine or to the connection."""

from __future__ import annotations

import errno
import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.relay.sample_log import START, Piece, sample_log, store, with_xa
from tests.replicate.proxy import Proxy

from pidts.follow import served_relay
from pidts.model import Halted, Lsn
from pidts.relay import RelayReader, copy_writer, list_segments
from pidts.relay.folder import Folder
from pidts.relay.refetch import ask_to_refetch, read_refetches
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.segments.index import frame, payloads
from pidts.relay.task_needs import TaskNeed, forget_need, read_needs
from pidts.replicate import AppliedPlace

from .conftest import Copying, Served, files

MakeCopy = Callable[..., Copying]


def end_of(log: list[Piece]) -> Lsn:
    return log[-1].transaction.lsn


def begin(**more: object) -> dict[str, object]:
    return {"start": AppliedPlace(START, "", ""), **more}


OTHER = "11111111-71ca-11e1-9e33-c80aa9429562:1-4"


def test_a_copy_grows_with_the_relay_over_many_segments(served: Served, copying: MakeCopy) -> None:
    log = with_xa(sample_log(300))
    with closing(served.writer(3_000)) as writer, served.serving():
        copy = copying(**begin())
        for at in range(0, 300, 20):
            store(writer, log[at : at + 20])
            copy.until_at(log[at + 19].transaction.lsn)
    assert len(list_segments(served.relay, "s")) > 10
    assert files(copy.relay) == files(served.relay)


def test_a_transaction_longer_than_a_piece_comes_in_several(
    served: Served, copying: MakeCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_relay, "_LOG_BYTES", 1000)
    log = sample_log(9, largest=30_000)
    with closing(served.writer()) as writer, served.serving():
        store(writer, log)
        copy = copying(**begin())
        copy.until_at(end_of(log))
    assert files(copy.relay) == files(served.relay)


def test_both_sides_may_end_and_start_again(served: Served, copying: MakeCopy) -> None:
    log = sample_log(90)
    with closing(served.writer(3_000)) as writer:
        with served.serving() as url:
            store(writer, log[:30])
            first = copying(**begin())
            first.until_at(log[29].transaction.lsn)
        first.until_failing("relay-server-lost")
        store(writer, log[30:60])
        with served.serving(url.removeprefix("http://")):
            first.until_at(log[59].transaction.lsn)
            first.stop()
            store(writer, log[60:])
            second = copying()
            second.until_at(end_of(log))
    assert files(second.relay) == files(served.relay)


@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_connection_that_breaks_within_a_piece_does_no_harm(served: Served, copying: MakeCopy, harm: str) -> None:
    log = sample_log(60, largest=3000)
    with closing(served.writer(20_000)) as writer, served.serving() as url:
        store(writer, log)
        with Proxy(int(url.rpartition(":")[2])) as proxy:
            if harm == "flip":
                proxy.flip_after(30_000)
                copy = copying(url=f"http://127.0.0.1:{proxy.port}", **begin())
            else:
                proxy.freeze_after(30_000)
                copy = copying(url=f"http://127.0.0.1:{proxy.port}", **begin())
                copy.until(lambda: copy.follower.state().connected)
                proxy.thaw()
            copy.until_at(end_of(log))
            copy.until(lambda: copy.follower.state().reconnects or harm == "flip")
            copy.stop()
    assert files(copy.relay) == files(served.relay)


def states_after_a_kill(relay: Path) -> list[tuple[int, int]]:
    """Returns the sizes of the last segment's events and index that a kill may leave.

    The index has records only of complete events.
    """
    folder = Folder.of(relay, "s")
    number = folder.numbers()[-1]
    log, index = folder.log(number).read_bytes(), folder.index(number).read_bytes()
    ends = [after for after, _ in payloads(index)]
    found = [
        (0, 0),
        (3, 0),
        (len(log) // 2, 0),
        (len(log), 0),
        (len(log), 5),
        (len(log), ends[0] - 1),
        (len(log), ends[0]),
    ]
    for end in (*ends[:3], ends[-1]):
        found += [(len(log), end - 1), (len(log), end), (len(log) - 1, ends[0])]
    return found


@pytest.mark.slow
def test_a_follower_killed_at_any_point_completes_its_copy(served: Served, copying: MakeCopy, tmp_path: Path) -> None:
    log = sample_log(12)
    with closing(served.writer(1500)) as writer, served.serving():
        store(writer, log)
        whole = copying("whole", **begin())
        whole.until_at(end_of(log))
        whole.stop()
        expected, number = files(served.relay), Folder.of(whole.relay, "s").numbers()[-1]
        for at, (log_bytes, index_bytes) in enumerate(states_after_a_kill(whole.relay)):
            shutil.copytree(whole.relay, tmp_path / f"killed-{at}")
            folder = Folder.of(tmp_path / f"killed-{at}", "s")
            for path, size in ((folder.log(number), log_bytes), (folder.index(number), index_bytes)):
                with path.open("r+b") as file:
                    file.truncate(size)
            again = copying(f"killed-{at}")
            again.until_at(end_of(log))
            again.stop()
            assert files(again.relay) == expected, (log_bytes, index_bytes)


def test_a_full_disk_is_waited_for(served: Served, copying: MakeCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write, full = sample_log(40), copy_writer.write_all, [True]
    with closing(served.writer(3000)) as writer, served.serving():
        store(writer, log[:20])
        copy = copying(**begin())
        copy.until_at(log[19].transaction.lsn)

        def half(handle: int, data: bytes) -> None:
            write(handle, data[: len(data) // 2] if full[0] else data)
            if full[0]:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(copy_writer, "write_all", half)
        store(writer, log[20:])
        copy.until_failing("relay-full")
        full[0] = False
        copy.until_at(end_of(log))
    assert files(copy.relay) == files(served.relay)


def test_log_that_a_power_loss_has_removed_is_cut_off_the_copy(served: Served, copying: MakeCopy) -> None:
    log = sample_log(30)
    with closing(served.writer(2000)) as writer, served.serving() as url:
        store(writer, log[:25])
        copy = copying(**begin())
        copy.until_at(log[24].transaction.lsn)
        copy.stop()
    folder = Folder.of(served.relay, "s")
    number = folder.numbers()[-1]
    *_, (before, _), (_, _) = payloads(folder.index(number).read_bytes())
    with folder.index(number).open("r+b") as file:
        file.truncate(before)
    other = sample_log(30, seed=1, after=RelayReader(served.relay, "s").received or START, largest=100)
    with closing(served.writer(2000)) as writer, served.serving(url.removeprefix("http://")):
        store(writer, other)
        again = copying()
        again.until_at(end_of(other))
    assert files(again.relay) == files(served.relay)
    assert [one.why for one in read_refetches(Folder.of(again.relay, "s")).done] == ["relay-copy-differs"]


def test_another_relay_is_refused(served: Served, copying: MakeCopy) -> None:
    with closing(served.writer()) as writer, served.serving():
        store(writer, sample_log(5))
        copy = copying(**begin())
        copy.until_at(end_of(sample_log(5)))
        copy.stop()
    kept = files(copy.relay)
    shutil.rmtree(served.relay)
    with closing(served.writer()) as writer:
        writer.rollback()
        store(writer, sample_log(9, seed=2))
        folder = Folder.of(served.relay, "s")
        header, *rest = payloads(folder.index(1).read_bytes())
        folder.index(1).write_bytes(
            frame(header[1].replace(b"server-a", b"server-b")) + b"".join(frame(p) for _, p in rest)
        )
        with served.serving():
            again = copying()
            error = again.ends_with()
    assert isinstance(error, Halted)
    assert error.code == "relay-copy-differs"
    assert files(copy.relay) == kept


def test_an_empty_copy_begins_at_the_segment_of_the_checkpoint(served: Served, copying: MakeCopy) -> None:
    log = sample_log(60)
    with closing(served.writer(2000)) as writer, served.serving():
        store(writer, log)
        copy = copying(start=AppliedPlace(log[40].transaction.lsn, "", ""))
        copy.until_at(end_of(log))
    theirs, ours = files(served.relay), files(copy.relay)
    assert set(ours) < set(theirs)
    assert all(theirs[name] == data for name, data in ours.items())
    assert [one.transaction for one in RelayReader(copy.relay, "s").entries(log[40].transaction.lsn)] == [
        piece.transaction for piece in log[41:]
    ]


def test_a_copy_begins_at_a_checkpoint_that_has_the_transactions_of_a_backup(served: Served, copying: MakeCopy) -> None:
    """A first start stores MySQL's executed set, which has more than the log of a server that was made from a backup."""
    log = sample_log(20)
    with closing(served.writer()) as writer, served.serving():
        store(writer, log)
        before = RelayReader(served.relay, "s").gtid_set(log[9].transaction.lsn)
        copy = copying(start=AppliedPlace(log[9].transaction.lsn, "", f"{before},{OTHER}"))
        copy.until_at(end_of(log))


def test_a_checkpoint_of_another_history_is_refused(served: Served, copying: MakeCopy) -> None:
    log = sample_log(20)
    with closing(served.writer()) as writer, served.serving():
        store(writer, log)
        error = copying(start=AppliedPlace(log[9].transaction.lsn, "bin.000001:99", OTHER)).ends_with()
    assert isinstance(error, Halted)
    assert error.code == "relay-of-other-source"


@pytest.mark.slow
def test_the_relay_keeps_what_the_slowest_follower_needs(served: Served, copying: MakeCopy) -> None:
    log = sample_log(60)
    with closing(served.writer(2000)) as writer, served.serving():
        store(writer, log)
        slow, fast = (TaskNeed(served.relay.parent / name, "s", name) for name in ("slow", "fast"))
        slow.begin()
        fast.begin()
        copies = [copying(name, **begin()) for name in ("slow", "fast")]
        for copy in copies:
            copy.until_at(end_of(log))
        fast.move(end_of(log))
        slow.move(log[20].transaction.lsn)

        def needs() -> dict[str, Lsn | None]:
            return {need.task: need.lsn for need in read_needs(Folder.of(served.relay, "s"))}

        copies[0].until(lambda: needs() == {"slow@m": log[20].transaction.lsn, "fast@m": end_of(log)})
        found = release(served.relay, "s", PurgeLimits())
        assert found.held_by == ("task slow@m",)
        assert found.gone
        assert found.kept[0].start <= log[20].transaction.lsn
        for copy in copies:
            copy.stop()
        # A follower that never returns is removed by name, and only then is its log removed.
        assert forget_need(served.relay, "s", "slow@m")
        assert [one.number for one in release(served.relay, "s", PurgeLimits()).kept] == [
            list_segments(served.relay, "s")[-1].number
        ]
        # The fast follower's copy ends at the current beginning of the relay, or earlier within the same segment.
        more = sample_log(80)[60:]
        assert more[0].transaction.prev_lsn == end_of(log)
        store(writer, more)
        again = copying("fast")
        again.until_at(end_of(more))


def test_a_copy_that_ends_before_the_relay_begins_is_refused(served: Served, copying: MakeCopy) -> None:
    log = sample_log(60)
    with closing(served.writer(2000)) as writer, served.serving():
        store(writer, log[:20])
        copy = copying(**begin())
        copy.until_at(log[19].transaction.lsn)
        copy.stop()
        store(writer, log[20:])
        release(served.relay, "s", PurgeLimits(nobody_needs_it=True))
        error = copying().ends_with()
    assert isinstance(error, Halted)
    assert error.code == "relay-purged"


def test_a_cut_of_the_relay_is_a_cut_of_the_copy(served: Served, copying: MakeCopy) -> None:
    log = sample_log(40)
    with served.serving():
        with closing(served.writer(2000)) as writer:
            store(writer, log[:30])
            copy = copying(**begin())
            copy.until_at(log[29].transaction.lsn)
        ask_to_refetch(Folder.of(served.relay, "s"), log[9].transaction.lsn, log[29].transaction.lsn, "relay-corrupt")
        with closing(served.writer(5000)) as writer:
            store(writer, log[10:])
            copy.until_at(end_of(log))
            copy.until(lambda: files(copy.relay) == files(served.relay))


def test_damage_in_the_copy_is_fetched_again_and_the_server_looks_at_its_own(served: Served, copying: MakeCopy) -> None:
    log = sample_log(40)
    with closing(served.writer(2000)) as writer, served.serving():
        store(writer, log)
        copy = copying(**begin())
        copy.until_at(end_of(log))
        folder, after = Folder.of(copy.relay, "s"), log[19].transaction.lsn
        ask_to_refetch(folder, after, end_of(log), "relay-corrupt")
        copy.until(lambda: read_refetches(folder).pending is None and copy.reader.received == end_of(log))
        copy.until(lambda: files(copy.relay) == files(served.relay))
        # For the relay server, these invented events are not events: all of them are damaged.
        assert served.asked


def test_the_reason_for_which_nothing_is_received_reaches_the_other_machine(served: Served, copying: MakeCopy) -> None:
    with closing(served.writer()) as writer, served.serving():
        store(writer, sample_log(5))
        copy = copying(**begin())
        copy.until_at(end_of(sample_log(5)))
        error = {"code": "connection-lost", "what": "the source is gone", "where": {}, "todo": "Start it"}
        status = {"connected": False, "error": error, "time": time.time(), "warning": "soon purged"}
        (served.relay / "s" / "status.json").write_text(json.dumps(status))
        copy.until_failing("connection-lost")
        assert copy.follower.state().warning == "soon purged"


def test_a_server_that_has_ended_touches_no_file(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def running() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    monkeypatch.setattr(served_relay, "_BELL_SECONDS", 1.5)

    with closing(served.writer()), served.serving():
        assert {"bell s", "purge s", "relay server"} <= running()
    assert not {"bell s", "purge s", "relay server"} & running()


def test_a_relay_is_purged_again_after_an_error_of_its_disk(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def failing(*_: object) -> None:
        asked.append(time.monotonic())
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(served_relay, "_PURGE_SECONDS", 0.01)
    monkeypatch.setattr(served_relay, "release", failing)
    with served.serving():
        deadline = time.monotonic() + 10
        while len(asked) < 3:
            assert time.monotonic() < deadline, "the thread has ended"
            time.sleep(0.01)
