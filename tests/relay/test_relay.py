"""A relay returns the log that was written to it: in order, from any place, while it grows."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from pidts.model import ConfigError, Halted, LogEntry, LogFile, Lsn, Position, Transaction
from pidts.relay import Origin, RelayReader, RelayWriter, list_segments, purge
from pidts.relay.copy_writer import CopyWriter, SegmentPiece

from .sample_log import FORMAT_EVENT, ORIGIN, START, UUID, Piece, event, sample_log, store

MakeWriter = Callable[..., RelayWriter]


def transactions(entries: list[LogEntry]) -> list[Transaction]:
    return [entry.transaction for entry in entries]


def expected(pieces: list[Piece]) -> list[Transaction]:
    return [piece.transaction for piece in pieces]


def test_entries_come_back_with_their_events(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(50)
    store(make_writer(), log, every=7)
    reader = RelayReader(relay, "s")
    entries = list(reader.entries())
    assert transactions(entries) == expected(log)
    assert [reader.read(entry.extent) for entry in entries] == [piece.raw for piece in log]
    assert reader.received == log[-1].transaction.lsn
    assert reader.format(1) == FORMAT_EVENT
    assert reader.first == START
    assert reader.log_base == "bin"
    assert reader.position(log[3].transaction.lsn) == Position("bin.000001", log[3].transaction.lsn.offset)


def head(created: int, server_id: int = 1) -> bytes:
    """Returns the first event of a log file that a server has created at this time."""
    return struct.pack("<IBI", created, 15, server_id) + FORMAT_EVENT[9:]


def test_each_entry_is_in_a_log_file(relay: Path) -> None:
    """The server rotates its log, dies at the end of the second file, and is then replaced by another server."""
    first = sample_log(2)
    end = first[-1].transaction
    rotated = replace(end, lsn=Lsn(0, 2, 4), prev_lsn=end.lsn, begin=end.lsn)
    second = sample_log(2, after=Lsn(0, 2, 4), log_index=2)
    third = sample_log(2, after=second[-1].transaction.lsn, log_index=3)
    with closing(RelayWriter.open(relay, "s")) as writer, closing(RelayReader(relay, "s")) as reader:
        assert reader.log_file(first[0].transaction.lsn) is None
        writer.begin(ORIGIN, START, None)
        writer.start_segment(head(100))
        assert reader.log_file(START) is None
        store(writer, first)
        writer.append(event(4, b"next file"))
        writer.commit(rotated)
        for created, pieces in ((200, second), (300, third)):
            writer.start_segment(head(created))
            store(writer, pieces)
        last = third[-1].transaction.lsn
        writer.begin(Origin("server-b", "bin", 1), last, None)
        writer.start_segment(head(50, 2))
        (other,) = sample_log(1, after=Lsn(1, 3, 4), log_index=3)
        store(writer, [replace(other, transaction=replace(other.transaction, prev_lsn=last))])
        found = [reader.log_file(entry.transaction.lsn) for entry in reader.entries()]
        assert reader.log_file(Lsn(1, 4, 200)) is None, "this is not received yet"
        purge(relay, "s", second[-1].transaction.lsn)
    with closing(RelayReader(relay, "s")) as purged:
        kept = [purged.log_file(at) for at in (end.lsn, purged.first, last) if at is not None]
    one, two, three = (LogFile(f"bin.00000{number}", 100 * number, 1, "server-a") for number in (1, 2, 3))
    assert found == [one, one, one, two, two, three, three, LogFile("bin.000003", 50, 2, "server-b")]
    assert kept == [None, three, three], "of the place at which the relay begins, the file of the next entry"


def test_the_log_file_of_an_entry_that_was_just_read_needs_no_file(relay: Path, make_writer: MakeWriter) -> None:
    """A batch reads the entries, and then needs the log file of their end."""
    first, second, third = sample_log(3)
    writer = make_writer()
    store(writer, [first])
    with closing(RelayReader(relay, "s")) as reader:
        assert reader.received == first.transaction.lsn
        known = reader.log_file(first.transaction.lsn)
        store(writer, [second, third])
        assert transactions(list(reader.entries(first.transaction.lsn))) == expected([second, third])
        for path in (relay / "s").glob("0*"):
            path.rename(path.with_suffix(".hidden"))
        assert known is not None
        assert reader.log_file(third.transaction.lsn) == known


@pytest.mark.parametrize("is_idle", [False, True], ids=["busy", "idle"])
@pytest.mark.parametrize("removed", ["*", "s/0*"], ids=["folder", "segments"])
def test_the_log_file_of_a_place_does_not_depend_on_earlier_calls(relay: Path, removed: str, is_idle: bool) -> None:
    """Under a reader, the relay is removed, and filled from a log that was made anew."""
    first, second, third = sample_log(3)

    def fill(created: int) -> None:
        with closing(RelayWriter.open(relay, "s")) as writer:
            writer.begin(ORIGIN, START, None)
            writer.start_segment(head(created))
            store(writer, [first, second])

    def remove() -> None:
        for path in relay.glob(removed):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    fill(100)
    with closing(RelayReader(relay, "s")) as reader:

        def created() -> list[int | None]:
            found = [reader.log_file(one.transaction.lsn) for one in (first, second, third)]
            return [one.created if one is not None else None for one in found]

        assert created() == created() == [100, 100, None], "the third is not received yet"
        if is_idle:
            reader.close()
        remove()
        fill(200)
        assert created() == created() == [200, 200, None], "no call of the reader saw the empty folder"
        assert reader.received == second.transaction.lsn
        with closing(RelayWriter.open(relay, "s")) as writer:
            store(writer, [third])
        assert created() == [200] * 3
        assert reader.received == third.transaction.lsn
        assert created() == [200] * 3, "the reader looks for no entry up to the known end"
        remove()
        if removed == "*":
            assert created() == [None] * 3
        fill(300)
        assert created() == [300, 300, None]


def test_a_segment_is_a_binary_log_and_entries_lie_end_to_end(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(20)
    store(make_writer(), log)
    raw = b"".join(piece.raw for piece in log)
    assert (relay / "s" / "000000001.log").read_bytes() == b"\xfebin" + FORMAT_EVENT + raw
    extents = [entry.extent for entry in RelayReader(relay, "s").entries()]
    assert all(one.end == two.offset for one, two in pairwise(extents))


def test_reading_starts_anywhere_across_segments(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(200)
    store(make_writer(segment_bytes=2_000), log)
    assert len(list_segments(relay, "s")) > 5
    reader = RelayReader(relay, "s")
    for at in (*range(0, 200, 13), 199):
        entries = list(reader.entries(log[at].transaction.lsn))
        assert transactions(entries) == expected(log)[at + 1 :]
    assert transactions(list(RelayReader(relay, "s").entries(START))) == expected(log)


def test_the_error_about_a_short_file_has_the_missing_byte(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(5)
    store(make_writer(), log)
    reader = RelayReader(relay, "s")
    last = list(reader.entries())[-1].extent
    with pytest.raises(Halted) as caught:
        reader.read(replace(last, size=last.size + 10))
    assert caught.value.what == f"the events file ends before byte {last.end + 10}"


def test_the_error_about_a_piece_that_does_not_follow_says_where_the_copy_ends(
    relay: Path, make_writer: MakeWriter
) -> None:
    writer = make_writer()
    store(writer, sample_log(5))
    writer.close()
    with closing(CopyWriter.open(relay, "s")) as copy:
        has = copy.has
        assert has is not None
        with pytest.raises(Halted) as caught:
            copy.write(SegmentPiece(has.segment, 7, b"", 9, b""))
    assert caught.value.what == (
        f"the relay server sent segment {has.segment} from byte 7 of the events and 9 of the index, and the copy ends in "
        f"segment {has.segment}, at byte {has.log_bytes} of the events and {has.index_bytes} of the index"
    )


def test_neighbouring_entries_of_a_segment_are_read_at_once(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(10)
    store(make_writer(), log)
    reader = RelayReader(relay, "s")
    first, *_, last = [entry.extent for entry in reader.entries()]
    assert reader.read(replace(first, size=last.end - first.offset)) == b"".join(piece.raw for piece in log)


def test_nothing_is_visible_before_sync(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(3)
    writer, reader = make_writer(), RelayReader(relay, "s")
    writer.append(log[0].raw)
    writer.commit(log[0].transaction)
    assert list(reader.entries()) == []
    writer.append(log[1].events[0])
    writer.sync()
    assert transactions(list(reader.entries())) == expected(log[:1])
    assert reader.received == log[0].transaction.lsn


def test_a_reader_follows_the_writer_across_segments(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(300)
    writer, reader = make_writer(segment_bytes=3_000), RelayReader(relay, "s")
    seen: list[Transaction] = []
    for piece in log:
        store(writer, [piece])
        assert reader.received == piece.transaction.lsn
        seen += transactions(list(reader.entries(seen[-1].lsn if seen else None)))
    assert seen == expected(log)


def test_waiting_ends_when_something_was_received(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(1)
    writer, reader = make_writer(), RelayReader(relay, "s")
    assert not reader.wait(START, 0.02)

    def later() -> None:
        sleep(0.05)
        store(writer, log)

    thread = Thread(target=later)
    thread.start()
    assert reader.wait(START, 60)
    thread.join()
    assert not reader.wait(log[0].transaction.lsn, 0)


def test_a_reader_of_an_empty_relay_sees_nothing(relay: Path) -> None:
    reader = RelayReader(relay, "s")
    assert (reader.received, reader.first, list(reader.entries()), reader.log_base) == (None, None, [], "")
    assert not reader.wait(None, 0)
    assert list_segments(relay, "s") == []


def test_the_state_survives(make_writer: MakeWriter) -> None:
    log = sample_log(30)
    writer = make_writer(segment_bytes=2_000)
    store(writer, log)
    state = writer.state
    assert state is not None
    assert (state.lsn, state.origin, state.format_event) == (log[-1].transaction.lsn, ORIGIN, FORMAT_EVENT)
    assert state.gtid_set == f"{UUID}:1-30"
    assert state.position == Position("bin.000001", state.lsn.offset)
    writer.close()
    assert make_writer(segment_bytes=2_000).state == state


def test_a_writer_continues_where_the_last_one_ended(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(40)
    for at in range(0, 40, 10):
        writer = make_writer()
        store(writer, log[at : at + 10])
        writer.append(b"half a transaction")
        writer.close()
    assert transactions(list(RelayReader(relay, "s").entries())) == expected(log)


def test_another_server_takes_over(relay: Path, make_writer: MakeWriter) -> None:
    writer = make_writer()
    log = sample_log(3)
    store(writer, log)
    last = log[-1].transaction.lsn
    second = Origin("server-b", "mysql-bin", 1)
    writer.begin(second, last, f"{UUID}:1-3")
    writer.start_segment(FORMAT_EVENT)
    assert writer.state is not None
    assert writer.state.position is None
    first = sample_log(1, after=Lsn(1, 1, 500))[0]
    store(writer, [Piece(replace(first.transaction, prev_lsn=last), first.events)])
    reader = RelayReader(relay, "s")
    assert [entry.transaction.lsn.change_no for entry in reader.entries()] == [0, 0, 0, 1]
    assert reader.position(last) == Position("bin.000001", last.offset)
    assert str(reader.position(first.transaction.lsn)).startswith("mysql-bin.000001:")
    assert writer.state.origin == second
    with pytest.raises(ValueError):
        writer.begin(second, writer.state.lsn, "")


def test_the_second_writer_gets_the_process_of_the_first(make_writer: MakeWriter) -> None:
    import os

    writer = make_writer()
    with pytest.raises(Halted, match=f"process {os.getpid()}") as caught:
        make_writer()
    assert caught.value.code == "relay-in-use"
    writer.close()
    make_writer()


def test_an_unknown_executed_set_stays_unknown_until_the_log_shows(make_writer: MakeWriter) -> None:
    log = sample_log(6)
    writer = make_writer(gtid_set=None)
    store(writer, log[:2])
    assert writer.state is not None
    assert writer.state.gtid_set is None
    writer.learn_gtids(f"{UUID}:1-2")
    store(writer, log[2:4])
    writer.learn_gtids(f"{UUID}:1-999")
    store(writer, log[4:])
    assert writer.state.gtid_set == f"{UUID}:1-6"
    writer.close()
    assert make_writer().state == writer.state


def test_the_executed_set_is_known_at_every_entry(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(25)
    store(make_writer(segment_bytes=1_000), log)
    reader = RelayReader(relay, "s")
    assert reader.gtid_set(START) == ""
    for number, piece in enumerate(log, 1):
        assert reader.gtid_set(piece.transaction.lsn) == (f"{UUID}:1-{number}" if number > 1 else f"{UUID}:1")


def test_mariadb_gtids_keep_the_last_of_each_domain(make_writer: MakeWriter) -> None:
    gtids = ["0-1-5", "7-1-1", "0-1-6", "7-2-2"]
    log = [
        Piece(replace(piece.transaction, gtid=gtid), piece.events)
        for piece, gtid in zip(sample_log(4), gtids, strict=True)
    ]
    writer = make_writer(gtid_set="0-1-4,3-3-3")
    store(writer, log)
    assert writer.state is not None
    assert writer.state.gtid_set == "0-1-6,3-3-3,7-2-2"


def test_purging_keeps_what_comes_after(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(100)
    writer = make_writer(segment_bytes=2_000)
    store(writer, log)
    before = log[60].transaction.lsn
    (relay / "s" / "000000000.log").write_bytes(b"left by a purge that was interrupted")
    gone = purge(relay, "s", before)
    left = list_segments(relay, "s")
    assert gone
    assert left[0].start <= before < left[1].start
    assert not (relay / "s" / "000000000.log").exists()
    reader = RelayReader(relay, "s")
    assert transactions(list(reader.entries(before))) == expected(log)[61:]
    with pytest.raises(Halted) as caught:
        list(reader.entries(log[0].transaction.lsn))
    assert caught.value.code == "relay-purged"
    purge(relay, "s", log[-1].transaction.lsn)
    assert list_segments(relay, "s") == left[-1:]
    more = sample_log(5, after=log[-1].transaction.lsn)
    store(writer, more)
    assert transactions(list(reader.entries(log[-1].transaction.lsn))) == expected(more)


def test_a_reader_overtaken_by_a_purge_says_so(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(100)
    store(make_writer(segment_bytes=2_000), log)
    reader = RelayReader(relay, "s")
    entries = reader.entries()
    first = next(entries)
    purge(relay, "s", log[-1].transaction.lsn)
    with pytest.raises(Halted) as caught:
        list(entries)
    assert caught.value.code == "relay-purged"
    with pytest.raises(Halted) as caught:
        reader.read(first.extent)
    assert caught.value.code == "relay-purged"


def test_a_missing_entry_is_a_gap(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(10)
    store(make_writer(), log[:4] + log[5:])
    with pytest.raises(Halted) as caught:
        list(RelayReader(relay, "s").entries())
    assert caught.value.code == "relay-gap"
    assert str(log[3].transaction.lsn) in str(caught.value)
    assert str(log[4].transaction.lsn) in str(caught.value)


def test_a_missing_segment_is_noticed(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(100)
    store(make_writer(segment_bytes=2_000), log)
    (relay / "s" / "000000003.index").unlink()
    with pytest.raises(Halted) as caught:
        list(RelayReader(relay, "s").entries())
    assert caught.value.code == "relay-corrupt"


def test_a_place_between_two_transactions_is_good_to_start_from(relay: Path, make_writer: MakeWriter) -> None:
    """A power loss may have removed an empty entry that a reader saw. Now the place may be inside a longer one."""
    log = sample_log(3)
    second = log[1].transaction
    inside = Lsn(second.begin.change_no, second.begin.log_index, second.begin.offset - 1)
    store(make_writer(), log)
    entries = list(RelayReader(relay, "s").entries(second.begin))
    assert transactions(entries) == expected(log)[1:]
    shorter = replace(log[0].transaction, begin=inside)
    entries = list(RelayReader(relay, "s").entries(inside))
    assert entries[0].transaction.lsn == shorter.lsn
    assert entries[0].transaction.prev_lsn == START


def test_reading_may_start_at_a_row(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(5)
    store(make_writer(), log)
    third = log[2].transaction
    row = replace(third.begin, offset=third.begin.offset + 1, row=2)
    assert transactions(list(RelayReader(relay, "s").entries(row))) == expected(log)[2:]


def test_an_lsn_finds_its_entry(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(60)
    store(make_writer(segment_bytes=2_000), log)
    reader = RelayReader(relay, "s")
    for piece in (*log, *reversed(log), *log[::7]):
        for lsn in (piece.transaction.lsn, replace(piece.transaction.begin, row=3)):
            found = reader.find(lsn)
            assert found is not None
            assert found.transaction == piece.transaction
    beyond = log[-1].transaction.lsn
    assert reader.find(replace(beyond, offset=beyond.offset + 1)) is None


def test_a_segment_cannot_end_within_a_transaction(make_writer: MakeWriter) -> None:
    writer = make_writer()
    writer.append(event(19, b"x"))
    with pytest.raises(ValueError):
        writer.start_segment(FORMAT_EVENT)
    writer.rollback()
    writer.start_segment(FORMAT_EVENT)


def test_a_transaction_larger_than_a_segment_is_one_entry(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(3, largest=400_000)
    writer = make_writer(segment_bytes=1_000)
    store(writer, log)
    reader = RelayReader(relay, "s")
    assert [reader.read(entry.extent) for entry in reader.entries()] == [piece.raw for piece in log]


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden"])
def test_a_source_id_that_is_no_folder_name_is_refused(relay: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        RelayWriter.open(relay, name)


@pytest.mark.parametrize("name", ["src @x.y", "quelle-ä", "a.b_c"])
def test_a_source_id_that_a_task_file_takes_is_a_folder_name(relay: Path, name: str) -> None:
    with closing(RelayWriter.open(relay, name)):
        assert (relay / name).is_dir()


def test_a_relay_of_another_source_is_refused(relay: Path, make_writer: MakeWriter) -> None:
    store(make_writer(), sample_log(1))
    (relay / "s").rename(relay / "t")
    with pytest.raises(Halted) as caught:
        list(RelayReader(relay, "t").entries())
    assert caught.value.code == "relay-of-other-source"


def test_another_servers_log_does_not_follow_a_place_after_its_beginning(relay: Path) -> None:
    """A lost relay was filled by GTID from a new server: it has the changes after `begin` of the server before."""
    begin, second = Lsn(0, 9, 500), Lsn(1, 3, 4)
    log = [
        replace(
            piece, transaction=replace(piece.transaction, prev_lsn=begin if number == 0 else piece.transaction.prev_lsn)
        )
        for number, piece in enumerate(sample_log(3, after=second, log_index=3))
    ]
    with closing(RelayWriter.open(relay, "s")) as writer, closing(RelayReader(relay, "s")) as reader:
        reader.demand_place(begin)  # an empty relay
        writer.begin(Origin("server-b", "bin", 1), begin, "a:1-5")
        writer.start_segment(FORMAT_EVENT)
        store(writer, log)
        for place in (begin, log[0].transaction.lsn):
            reader.demand_place(place)
            assert list(reader.entries(place))
        for place in (Lsn(0, 9, 501), Lsn(0, 9, 500, 1), Lsn(0, 10, 4)):
            for call in (lambda at=place: reader.demand_place(at), lambda at=place: list(reader.entries(at))):
                with pytest.raises(Halted, match="would be applied twice") as caught:
                    call()
                assert caught.value.code == "other-source"
        earlier = Lsn(0, 9, 499)
        reader.demand_place(earlier)
        with pytest.raises(Halted) as caught:
            list(reader.entries(earlier))
        assert caught.value.code == "relay-purged"
