"""Each kind of damage of a relay is recognized. To repair it, the relay is cut after the last good entry.

The index records that these tests write into a relay have valid checksums. So the file is not damaged, but it says
something that is not true of the source's log.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.crashes import ProcessDied

from pidts.model import Halted, Lsn, Transient, XaStep
from pidts.plan.continuity import Discontinuity, UpToBreak, Verdict, judge
from pidts.relay import RelayReader, RelayWriter, list_segments
from pidts.relay import refetch as refetch_module
from pidts.relay.breaks import first_break
from pidts.relay.folder import Folder
from pidts.relay.refetch import ask_to_refetch, read_refetches
from pidts.relay.segments import records
from pidts.relay.segments.index import entry_key, frame, payloads

from .sample_log import FORMAT, ORIGIN, START, Piece, sample_log, sealed_log, store, xa_piece

MakeWriter = Callable[..., RelayWriter]


def tamper(index: Path, change: Callable[[list[bytes]], None]) -> None:
    """Lets `change` change the entries of an index, as payloads; writes the result with valid checksums."""
    found = [payload for _, payload in payloads(index.read_bytes())]
    first = next(at for at, payload in enumerate(found) if entry_key(payload) is not None)
    entries = found[first:]
    change(entries)
    index.write_bytes(b"".join(map(frame, found[:first] + entries)))


def remove(at: int) -> Callable[[list[bytes]], None]:
    return lambda entries: entries.__delitem__(at)


def swap(at: int) -> Callable[[list[bytes]], None]:
    def change(entries: list[bytes]) -> None:
        entries[at], entries[at + 1] = entries[at + 1], entries[at]

    return change


def repeat(at: int, later: int = 1) -> Callable[[list[bytes]], None]:
    return lambda entries: entries.insert(at + later, entries[at])


def lsns(pieces: list[Piece]) -> list[Lsn]:
    return [piece.transaction.lsn for piece in pieces]


def read(reader: RelayReader, after: Lsn | None = None) -> tuple[list[Lsn], Discontinuity | None]:
    entries = UpToBreak(reader.entries(after))
    return [entry.transaction.lsn for entry in entries], entries.broken


def fetch_again(relay: Path, log: list[Piece]) -> None:
    """Does what the replicator does: opens the relay, which cuts it, and continues from its end."""
    writer = RelayWriter.open(relay, "s", segment_bytes=700)
    if writer.state is None:
        writer.begin(ORIGIN, START, "")
        writer.start_segment(FORMAT)
    lsn = writer.lsn
    assert lsn is not None
    store(writer, [piece for piece in log if piece.transaction.lsn > lsn])
    writer.close()


def test_every_kind_of_entry_is_distinguished() -> None:
    one, two, three, four = (piece.transaction for piece in sample_log(4))
    assert judge(one.lsn, two) is Verdict.NEXT
    assert judge(two.lsn, two) is Verdict.REPEAT
    assert judge(three.lsn, two) is Verdict.REPEAT
    assert judge(one.lsn, three) is Verdict.GAP
    longer = replace(three, lsn=four.lsn)
    assert judge(three.lsn, longer) is Verdict.DISORDER
    assert judge(three.lsn, longer, inside=True) is Verdict.NEXT
    assert judge(three.lsn, replace(four, prev_lsn=one.lsn)) is Verdict.NEXT
    assert judge(one.lsn, replace(two, lsn=one.lsn)) is Verdict.DISORDER


@pytest.mark.parametrize(
    ("change", "code", "sound"),
    [
        (remove(4), "relay-gap", 4),
        (swap(4), "relay-disorder", 4),
        (lambda entries: entries.append(entries.pop(4)), "relay-disorder", 4),
        (lambda entries: entries.pop(0), "relay-gap", 0),
    ],
)
def test_loss_and_disorder_end_what_is_read(
    relay: Path, make_writer: MakeWriter, change: Callable[[list[bytes]], None], code: str, sound: int
) -> None:
    log = sample_log(10)
    store(make_writer(), log)
    tamper(relay / "s" / "000000001.index", change)
    found, broken = read(RelayReader(relay, "s"))
    assert found == lsns(log)[:sound]
    assert broken is not None
    assert (broken.code, broken.after) == (code, lsns(log)[sound - 1] if sound else START)
    again = pickle.loads(pickle.dumps(broken))
    assert (type(again), again.code, again.after) == (Discontinuity, code, broken.after)


@pytest.mark.parametrize("later", [1, 2, 5])
def test_repeated_entries_are_skipped_and_counted(relay: Path, make_writer: MakeWriter, later: int) -> None:
    log = sample_log(10)
    store(make_writer(), log)
    tamper(relay / "s" / "000000001.index", repeat(3, later))
    for after in (None, *lsns(log)[:4]):
        reader = RelayReader(relay, "s")
        found, broken = read(reader, after)
        assert (found, broken) == ([lsn for lsn in lsns(log) if after is None or lsn > after], None)
        assert reader.repeats == (1 if after is None or after < lsns(log)[3] or later > 1 else 0)


@pytest.mark.parametrize("later", [1, 2, 5])
def test_one_reader_continues_at_any_place_that_it_has_seen(
    relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """It continues even if the relay has entries twice, and reading cannot continue from the end of the second copy."""
    monkeypatch.setattr(records, "_RECENT", 4)
    log = sample_log(30)
    store(make_writer(segment_bytes=2000), log)
    assert len(list_segments(relay, "s")) > 2
    tamper(relay / "s" / "000000001.index", repeat(2, later))
    reader, order = RelayReader(relay, "s"), random.Random(later)
    for _ in range(100):
        at = order.randrange(30)
        if order.random() < 0.3:
            assert reader.received == lsns(log)[-1]
        found = [entry.transaction.lsn for entry in itertools.islice(reader.entries(lsns(log)[at]), order.randrange(9))]
        assert found == lsns(log)[at + 1 :][: len(found)]


def test_a_small_batch_walks_no_entry_of_those_before_it(
    relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sample_log(40)
    store(make_writer(), log)
    reader = RelayReader(relay, "s")
    assert read(reader) == (lsns(log), None)
    walked: list[bytes] = []

    def noted(data: bytes) -> Iterator[tuple[int, bytes]]:
        for place, payload in payloads(data):
            walked.append(payload)
            yield place, payload

    monkeypatch.setattr(records, "payloads", noted)
    assert read(reader, lsns(log)[29]) == (lsns(log)[30:], None)
    assert len(walked) == 10


def test_a_resent_range_is_no_break(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(10)
    store(make_writer(), log)
    tamper(relay / "s" / "000000001.index", lambda entries: entries.extend(entries[2:7]))
    reader = RelayReader(relay, "s")
    assert read(reader) == (lsns(log), None)
    assert reader.repeats == 5


def damages(relay: Path, log: list[Piece]) -> dict[str, Callable[[], None]]:
    """Returns ways to damage a relay. In most of them, the first entry of segment 2 is the first lost one."""
    first, second = (Folder.of(relay, "s").log(number) for number in (1, 2))

    def flip(path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x20
        path.write_bytes(data)

    return {
        "entry removed": lambda: tamper(second.with_suffix(".index"), remove(1)),
        "entries swapped": lambda: tamper(second.with_suffix(".index"), swap(0)),
        "segment missing": lambda: (second.unlink(), second.with_suffix(".index").unlink()),  # type: ignore[func-returns-value]
        "index missing": lambda: second.with_suffix(".index").unlink(),
        "events missing": second.unlink,
        "events damaged": lambda: flip(second, second.stat().st_size - 30),
        "head damaged": lambda: flip(second, 30),
        "events cut short": lambda: os.truncate(second, second.stat().st_size - 10),
        "index damaged": lambda: flip(second.with_suffix(".index"), 200),
        "index's header damaged": lambda: flip(second.with_suffix(".index"), 20),
        "first segment's events damaged": lambda: flip(first, first.stat().st_size - 30),
        "last segment's events damaged": lambda: flip(max(relay.glob("s/*.log")), 170),
    }


@pytest.mark.parametrize("what", damages(Path(), []))
def test_any_break_is_cut_off_and_fetched_again(relay: Path, log: list[Piece], what: str) -> None:
    """A reader that was in the middle of the damage continues, from any place."""
    everything = [piece.raw for piece in log]
    starts = [segment.start for segment in list_segments(relay, "s")]
    readers = [(after, RelayReader(relay, "s")) for after in (START, *lsns(log))]
    for after, reader in readers:
        read(reader, after)
    damages(relay, log)[what]()
    since = lsns(log)[0]
    reader = RelayReader(relay, "s")
    broken = first_break(reader, since)
    assert broken is not None
    assert broken.after is not None
    assert broken.after >= starts[0 if what.startswith("first") else -1 if what.startswith("last") else 1]
    assert broken.after in [START, *lsns(log)]
    ask_to_refetch(reader.folder, broken.after, lsns(log)[-1], broken.code)
    for after, held in readers:
        found, stopped = read(held, after)
        assert (found, stopped) == ([lsn for lsn in lsns(log) if after < lsn <= broken.after], None)
        assert (held.received or START) <= broken.after
    fetch_again(relay, log)
    for after, held in [*readers, (START, RelayReader(relay, "s"))]:
        entries = list(held.entries(after))
        assert [entry.transaction.lsn for entry in entries] == [lsn for lsn in lsns(log) if lsn > after]
        assert [held.read(entry.extent) for entry in entries] == everything[len(everything) - len(entries) :]
        assert held.received == lsns(log)[-1]
        held.close()
    assert first_break(RelayReader(relay, "s"), since) is None
    (done,) = read_refetches(reader.folder).done
    assert [done.after < lsn <= done.to for lsn in lsns(log)] == [lsn > broken.after for lsn in lsns(log)]


def test_rows_of_a_prepared_transaction_are_fetched_again_with_what_prepared_them(relay: Path) -> None:
    """These rows are in an earlier segment than the commit that is read, and before the task's own place."""
    plain = sealed_log(14)
    prepare = xa_piece(plain[2], XaStep.PREPARE, "a", None)
    log = [*plain[:2], prepare, *plain[3:11], xa_piece(plain[11], XaStep.COMMIT, "a", prepare), *plain[12:]]
    fetch_again(relay, log)
    reader = RelayReader(relay, "s")
    entries = list(reader.entries())
    place = entries[11].prepared
    assert place is not None
    assert place.segment < entries[10].extent.segment
    events = reader.folder.log(place.segment)
    data = bytearray(events.read_bytes())
    data[place.offset + 25] ^= 1
    events.write_bytes(data)
    since = lsns(log)[10]
    assert reader.segment_start(since) > lsns(log)[2]
    broken = first_break(reader, since)
    assert broken is not None
    assert (broken.code, broken.after) == ("relay-corrupt", lsns(log)[1])
    ask_to_refetch(reader.folder, lsns(log)[1], lsns(log)[-1], broken.code)
    fetch_again(relay, log)
    assert first_break(reader, since) is None
    again = list(reader.entries())
    assert [entry.transaction for entry in again] == [entry.transaction for entry in entries]
    found = again[11].prepared
    assert found is not None
    assert reader.read(found) == prepare.raw


def test_an_intact_relay_has_no_break(relay: Path, log: list[Piece]) -> None:
    reader = RelayReader(relay, "s")
    assert [first_break(reader, lsn) for lsn in (START, *lsns(log))] == [None] * 13
    assert first_break(RelayReader(relay / "none", "s"), START) is None


def test_a_reader_that_is_given_an_end_returns_no_fewer_entries(relay: Path, log: list[Piece]) -> None:
    """Otherwise, if the relay is cut back after a batch was planned, the first half of the batch would be taken for the
    whole.
    """
    reader = RelayReader(relay, "s")
    end = lsns(log)[8]
    assert [entry.transaction.lsn for entry in reader.entries(START, end)] == lsns(log)[:9]
    assert list(reader.entries(end, end)) == []
    ask_to_refetch(reader.folder, lsns(log)[5], lsns(log)[-1], "relay-gap")
    taken = reader.entries(START, end)
    with pytest.raises(Transient) as caught:
        list(taken)
    assert caught.value.code == "relay-cut-back"
    fetch_again(relay, log)
    assert [entry.transaction.lsn for entry in reader.entries(START, end)] == lsns(log)[:9]
    with pytest.raises(Transient):
        list(reader.entries(START, replace(lsns(log)[-1], offset=10**6)))


def test_a_cut_under_a_reading_is_no_break(relay: Path, log: list[Piece]) -> None:
    reader = RelayReader(relay, "s")
    reading = reader.entries(START)
    next(reading)
    ask_to_refetch(reader.folder, lsns(log)[1], lsns(log)[-1], "relay-gap")
    RelayWriter.open(relay, "s").close()
    with pytest.raises(Transient) as caught:
        list(itertools.chain(reading, [pytest.fail("it read what is gone")] if False else []))
    assert caught.value.code == "relay-cut-back"


def test_of_two_cuts_the_earlier_place_counts(relay: Path, log: list[Piece]) -> None:
    folder = Folder.of(relay, "s")
    ask_to_refetch(folder, lsns(log)[7], lsns(log)[9], "relay-gap")
    ask_to_refetch(folder, lsns(log)[4], lsns(log)[8], "relay-disorder")
    ask_to_refetch(folder, lsns(log)[6], lsns(log)[8], "relay-gap")
    pending = read_refetches(folder).pending
    assert pending is not None
    assert (pending.after, pending.to) == (lsns(log)[4], lsns(log)[9])
    writer = RelayWriter.open(relay, "s")
    assert writer.lsn == lsns(log)[4]
    writer.close()


def test_a_cut_before_the_first_entry_begins_the_relay_again(relay: Path, log: list[Piece]) -> None:
    folder = Folder.of(relay, "s")
    ask_to_refetch(folder, START, lsns(log)[-1], "relay-corrupt")
    fetch_again(relay, log)
    assert read(RelayReader(relay, "s")) == (lsns(log), None)


def test_purged_log_is_not_cut(relay: Path, log: list[Piece]) -> None:
    """All tasks are after the purged log. A cut there would remove all log that they need."""
    from pidts.relay import purge

    folder = Folder.of(relay, "s")
    purge(relay, "s", lsns(log)[-2])
    left = read(RelayReader(relay, "s"))[0]
    ask_to_refetch(folder, lsns(log)[0], lsns(log)[-1], "relay-gap")
    RelayWriter.open(relay, "s").close()
    assert read(RelayReader(relay, "s"))[0] == left
    assert read_refetches(folder).pending is None


def test_killed_anywhere_in_a_cut(relay: Path, log: list[Piece], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed once at each file operation of a cut.

    The next start completes the cut, and readers see no gap meanwhile.
    """
    folder = Folder.of(relay, "s")
    after = lsns(log)[1]
    files = {path.name: path.read_bytes() for path in (relay / "s").iterdir() if path.is_file()}
    for steps in itertools.count(1):
        for path in (relay / "s").iterdir():
            if path.is_file():
                path.unlink()
        for name, data in files.items():
            (relay / "s" / name).write_bytes(data)
        ask_to_refetch(folder, after, lsns(log)[-1], "relay-gap")
        reader = RelayReader(relay, "s")
        left = iter(range(steps))

        def step(operation: Callable[..., None], left: itertools.count[int] = left) -> Callable[..., None]:  # type: ignore[assignment]
            def stepped(*arguments: object, **named: object) -> None:
                if next(left, None) is None:
                    raise ProcessDied
                operation(*arguments, **named)

            return stepped

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", step(Path.unlink))
            patched.setattr(os, "truncate", step(os.truncate))
            patched.setattr(os, "fsync", step(os.fsync))
            patched.setattr(refetch_module, "replace_file", step(refetch_module.replace_file))
            try:
                RelayWriter.open(relay, "s", segment_bytes=700).close()
                finished = True
            except ProcessDied:
                finished = False
        for one in (reader, RelayReader(relay, "s")):
            assert read(one) == (lsns(log)[:2], None)
        fetch_again(relay, log)
        for one in (reader, RelayReader(relay, "s")):
            assert read(one) == (lsns(log), None)
            assert [one.read(entry.extent) for entry in one.entries()] == [piece.raw for piece in log]
        if finished:
            break
    assert steps > 8


def test_any_history_of_breaks_and_cuts(tmp_path: Path) -> None:
    """Whatever is damaged, however often: after the repair, every reader has every byte once."""
    chance = random.Random(4)
    log = sealed_log(40)
    relay = tmp_path / "relay"
    fetch_again(relay, log[:20])
    reader, seen = RelayReader(relay, "s"), [START]
    for turn in range(36):
        path = chance.choice(sorted((relay / "s").glob("0*")))
        match chance.randrange(4):
            case 0:
                path.unlink()
            case 1:
                data = bytearray(path.read_bytes())
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                path.write_bytes(data)
            case _:
                index = path.with_suffix(".index")
                count = sum(entry_key(payload) is not None for _, payload in payloads(index.read_bytes()))
                if count > 2:
                    tamper(index, chance.choice([remove, swap, repeat])(chance.randrange(count - 1)))
        for _ in range(3):
            with_break = RelayReader(relay, "s")
            try:
                first = with_break.first
                broken = first_break(with_break, first or START)
            except Halted as error:  # Even the first header is missing.
                assert error.code in {"relay-corrupt", "relay-purged"}  # noqa: PT017
                broken = Discontinuity("relay-corrupt", "").at(START)
            if broken is None:
                break
            assert broken.after is not None
            ask_to_refetch(with_break.folder, broken.after, lsns(log)[-1], broken.code)
            try:
                RelayWriter.open(relay, "s").close()
            except Halted:
                for path in (relay / "s").glob("0*"):
                    path.unlink()
        fetch_again(relay, log[: 20 + turn // 2])
        entries = UpToBreak(reader.entries(seen[-1]))
        seen += [entry.transaction.lsn for entry in entries]
        assert entries.broken is None
        assert seen == [START, *lsns(log)[: 20 + turn // 2]][: len(seen)]
        assert len(seen) == 21 + turn // 2
