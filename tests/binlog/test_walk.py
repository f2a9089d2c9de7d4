"""The walker finds the place of each event, and checks that the event is not damaged."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from tests.binlog.logs.scenarios import kept, load

from pidts.binlog import EventType, Format, LogWalker, iter_raw, previous_gtids
from pidts.binlog.gtid_events import gtid_list
from pidts.model import DecodeError

PLAIN = Format(checksum=False, server_version="8.0", is_mariadb=False)
SEALED = replace(PLAIN, checksum=True)


def raw(kind: int, body: bytes = b"", *, log_pos: int = 0, flags: int = 0, seal: bool = False) -> bytes:
    size = 19 + len(body) + 4 * seal
    event = struct.pack("<IBIIIH", 1, kind, 1, size, log_pos, flags) + body
    return event + struct.pack("<I", zlib.crc32(event)) if seal else event


def rotate(name: str, offset: int = 4) -> bytes:
    return struct.pack("<Q", offset) + name.encode()


@pytest.mark.parametrize("name", kept())
def test_each_event_begins_where_the_last_one_ends(name):
    recording = load(name)
    walker = LogWalker(recording.log_file)
    end = 4
    for piece in iter_raw(recording.events):
        event = walker.feed(piece)
        end = 4 if event.type == EventType.FORMAT_DESCRIPTION else end
        # In the middle of a transaction, `log_pos` is 0 from MariaDB 11.4 on.
        assert (event.offset, event.end) == (end, event.log_pos or end + event.size)
        end = event.end
    assert walker.format.is_mariadb == name.startswith("mariadb")
    assert walker.format.checksum or name.startswith("mariadb101"), "10.1 writes none by default"


@pytest.mark.parametrize(
    "name", [name for name in kept() if name.endswith("transactions") and not name.startswith("mariadb101")]
)
def test_one_wrong_bit_is_noticed(name):
    recording = load(name)
    pieces = [bytes(piece) for piece in iter_raw(recording.events)]
    for number in range(0, len(pieces), 7):
        for place in (0, 18, len(pieces[number]) // 2, len(pieces[number]) - 1):
            damaged = bytearray(pieces[number])
            damaged[place] ^= 4
            walker = LogWalker(recording.log_file)
            for piece in pieces[:number]:
                walker.feed(piece)
            with pytest.raises(DecodeError):
                walker.feed(damaged)


def test_positions_continue_where_the_header_field_wraps():
    walker = LogWalker("bin.000001", 2**32 - 40, PLAIN)
    assert walker.feed(raw(EventType.STOP, b"x" * 11, log_pos=2**32 - 10)).offset == 2**32 - 40
    assert walker.feed(raw(EventType.STOP, b"x" * 11, log_pos=20)).offset == 2**32 - 10
    assert walker.feed(raw(EventType.STOP, log_pos=39)).offset == 2**32 + 20
    assert walker.offset == 2**32 + 39


def test_a_file_that_ends_exactly_at_the_wrap_is_no_artificial_event():
    walker = LogWalker("bin.000001", 2**32 - 19, PLAIN)
    assert walker.feed(raw(EventType.STOP, log_pos=0)).offset == 2**32 - 19
    assert walker.offset == 2**32


def test_a_stream_that_starts_within_a_file():
    walker = LogWalker()
    walker.feed(raw(EventType.ROTATE, rotate("bin.000042", 1000), flags=0x20))
    assert (walker.file, walker.offset) == ("bin.000042", 1000)
    recording = load("mysql97-types")
    walker.feed(as_sent(bytes(next(iter_raw(recording.events)))))
    assert (walker.offset, walker.format) == (1000, recording.format)
    event = walker.feed(raw(EventType.XID, bytes(8), log_pos=1031, seal=True))
    assert (event.offset, event.log_index, bytes(event.body)) == (1000, 42, bytes(8))


def as_sent(format_event: bytes) -> bytes:
    """Returns a FORMAT_DESCRIPTION event as a server sends it when the requested position is after it.

    Such an event has no position, and no mark that the file is still being written.
    """
    event = format_event[:13] + bytes(6) + format_event[19:-4]
    return event + struct.pack("<I", zlib.crc32(event))


def test_a_made_up_rotate_may_have_a_checksum_or_not():
    walker = LogWalker("bin.000001", 4, SEALED)
    walker.feed(raw(EventType.ROTATE, rotate("bin.000002"), flags=0x20, seal=True))
    assert walker.file == "bin.000002"
    walker.feed(raw(EventType.ROTATE, rotate("bin.000003"), flags=0x20))
    assert walker.file == "bin.000003"


def test_a_real_rotate_ends_the_file():
    walker = LogWalker("bin.000001", 100, PLAIN)
    event = walker.feed(raw(EventType.ROTATE, rotate("bin.000002"), log_pos=137))
    assert (event.offset, event.log_index) == (100, 1)
    assert (walker.file, walker.offset) == ("bin.000002", 4)


def test_heartbeats_and_made_up_lists_move_nothing():
    walker = LogWalker("bin.000001", 500, PLAIN)
    for sent in (
        raw(EventType.HEARTBEAT, b"bin.000001", log_pos=900),
        raw(EventType.HEARTBEAT_V2, b"x"),
        raw(EventType.GTID_LIST, bytes(4), log_pos=700, flags=0x20),
    ):
        assert walker.feed(sent).offset == 500
        assert walker.offset == 500


def test_a_gap_is_passed_and_a_step_back_is_refused():
    walker = LogWalker("bin.000001", 4, PLAIN)
    assert walker.feed(raw(EventType.STOP, log_pos=1019)).offset == 1000
    with pytest.raises(DecodeError) as caught:
        walker.feed(raw(EventType.STOP, log_pos=519))
    assert (caught.value.code, caught.value.where.position) == ("log-went-back", "bin.000001:1019")


def test_events_before_the_format_are_refused():
    with pytest.raises(DecodeError) as caught:
        LogWalker("bin.000001").feed(raw(EventType.XID, bytes(8), log_pos=31))
    assert caught.value.code == "no-format"


@pytest.mark.parametrize("buffer", [b"x", raw(EventType.STOP)[:-1], raw(EventType.STOP) + b"tail", bytes(19)])
def test_bytes_that_are_no_events_are_not_cut(buffer):
    with pytest.raises(DecodeError):
        list(iter_raw(buffer))


def test_sets_at_the_start_of_a_file():
    recording = load("mysql97-transactions")
    walker = LogWalker(recording.log_file)
    events = [walker.feed(piece) for piece in iter_raw(recording.events)]
    first, second = [previous_gtids(event) for event in events if event.type == EventType.PREVIOUS_GTIDS]
    assert first.issubset(second)
    assert str(second.subtract(first)).endswith(":some_tag:1")
    maria = load("mariadb-transactions")
    walker = LogWalker(maria.log_file)
    (found,) = [gtid_list(e) for e in map(walker.feed, iter_raw(maria.events)) if e.type == EventType.GTID_LIST]
    assert str(found).startswith("0-")


def test_the_last_line_of_a_domain_counts():
    """MariaDB writes one entry for each server that wrote to a domain; the entry of the newest event group is the last
    one.
    """
    lines = [(0, 1, 900), (0, 2, 7), (5, 2, 3), (0, 3, 901), (5, 1, 2)]
    body = struct.pack("<I", len(lines)) + b"".join(struct.pack("<IIQ", *line) for line in lines)
    event = LogWalker("bin.000001", 4, PLAIN).feed(raw(EventType.GTID_LIST, body, log_pos=4 + 19 + len(body)))
    assert str(gtid_list(event)) == "0-3-901,5-1-2"


@pytest.mark.parametrize("body", [rotate("bin.000002", 10**12), rotate("bin"), rotate("bin.99999999999"), bytes(8)])
def test_a_rotate_to_nowhere_is_refused(body):
    with pytest.raises(DecodeError):
        LogWalker("bin.000001", 4, PLAIN).feed(raw(EventType.ROTATE, body, flags=0x20))
