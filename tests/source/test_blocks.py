"""However the network divides a dump, its events are returned complete, in order and without gaps."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Where
from pidts.model.errors import Transient
from pidts.source.blocks import BlockReader
from pidts.source.packets import BUFFER_SIZE, MAX_PACKET, Block, BlockShape


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, BlockReader]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, BlockReader(ours, Where(source="s1"))


def event(size: int, kind: int = 30) -> bytes:
    return struct.pack("<IBIIIH", 7, kind, 1, size, 0, 0) + random.Random(size).randbytes(size - 19)


def packets(payload: bytes) -> bytes:
    sent = []
    for at in range(0, len(payload) + 1, MAX_PACKET):
        part = payload[at : at + MAX_PACKET]
        sent.append(len(part).to_bytes(3, "little") + b"\0" + part)
    return b"".join(sent)


def sent(*events: bytes) -> bytes:
    return b"".join(packets(b"\0" + raw) for raw in events)


def read(pair: tuple[socket.socket, BlockReader], data: bytes, events: int) -> list[tuple[BlockShape, bytes]]:
    """Reads until this number of events has arrived."""
    server, reader = pair
    sender = threading.Thread(target=server.sendall, args=(data,))
    sender.start()
    blocks: list[tuple[BlockShape, bytes]] = []
    count = 0
    while count < events:
        block = reader.read_block(5)
        assert block is not None
        count += block.events
        blocks.append((block.shape, bytes(block.data)))
    sender.join()
    return blocks


def test_all_that_has_arrived_comes_at_once(pair):
    server, reader = pair
    events = [event(19), event(300), event(20)]
    server.sendall(sent(*events))
    block = reader.read_block(1)
    assert (block.shape, bytes(block.data), block.events) == (BlockShape.EVENTS, b"".join(events), 3)


def test_silence_is_no_block(pair):
    assert pair[1].read_block(0.01) is None


def test_a_heartbeat_is_an_empty_block(pair):
    server, reader = pair
    server.sendall(sent(event(30, 27), event(40, 41)))
    assert reader.read_block(1) == Block(BlockShape.EVENTS, memoryview(b""))


def test_an_unfinished_packet_waits_for_its_rest(pair):
    server, reader = pair
    whole = sent(event(50))
    for byte in whole[:-1]:
        server.sendall(bytes([byte]))
        assert reader.read_block(0) is None
    server.sendall(whole[-1:] + sent(event(60))[:2])
    assert bytes(reader.read_block(1).data) == event(50)
    server.sendall(sent(event(60))[2:])
    assert bytes(reader.read_block(1).data) == event(60)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(19, 3000), max_size=200), st.lists(st.integers(1, 20000), min_size=1))
def test_any_events_in_any_parts(sizes, parts):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, data, found, at = BlockReader(ours, Where(source="s1")), sent(*map(event, sizes)), b"", 0
        while at < len(data):
            part = parts[at % len(parts)]
            theirs.sendall(data[at : at + part])
            at += part
            while (block := reader.read_block(0)) is not None:
                assert block.shape is BlockShape.EVENTS
                found += block.data
    assert found == b"".join(map(event, sizes))


@pytest.mark.parametrize("size", [BUFFER_SIZE - 5, BUFFER_SIZE - 4, BUFFER_SIZE * 2, MAX_PACKET - 2])
def test_an_event_around_the_size_of_the_buffer(pair, size):
    events = [event(100), event(size), event(200)]
    blocks = read(pair, sent(*events), 3)
    assert b"".join(data for _, data in blocks) == b"".join(events)
    pieces = [shape for shape, _ in blocks if shape is not BlockShape.EVENTS]
    assert bool(pieces) == (size + 5 > BUFFER_SIZE)
    assert pieces[-1:] in ([], [BlockShape.LAST_PIECE])


@pytest.mark.parametrize("size", [MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 5, 2 * MAX_PACKET - 1])
def test_an_event_in_several_packets_comes_in_pieces(pair, size):
    blocks = read(pair, sent(event(size), event(25)), 2)
    assert b"".join(data for _, data in blocks) == event(size) + event(25)
    assert [shape for shape, _ in blocks if shape is not BlockShape.PIECE] == [BlockShape.LAST_PIECE, BlockShape.EVENTS]
    assert len(blocks[0][1]) >= 19
    assert all(len(data) <= BUFFER_SIZE for _, data in blocks)


@pytest.mark.parametrize(
    "payload", [b"\xff\xd4\x04#HY000 gone", b"\xfe\0\0\2\0", b"", b"\0" + event(40)[:-1], b"\0abc", b"\0" * 19]
)
def test_packets_that_are_no_events_come_alone(pair, payload):
    server, reader = pair
    server.sendall(sent(event(30)) + packets(payload) + sent(event(31)))
    blocks = [reader.read_block(1) for _ in range(3)]
    assert [block.shape for block in blocks] == [BlockShape.EVENTS, BlockShape.ODD, BlockShape.EVENTS]
    assert bytes(blocks[1].data) == payload


def test_the_last_events_are_read_before_the_end_is_noticed(pair):
    server, reader = pair
    server.sendall(sent(event(30)) + packets(b"\xff\xd4\x04why"))
    server.close()
    assert [bytes(reader.read_block(1).data) for _ in range(2)] == [event(30), b"\xff\xd4\x04why"]
    with pytest.raises(Transient) as lost:
        reader.read_block(1)
    assert lost.value.code == "source-lost"


@pytest.mark.parametrize("size", [300, BUFFER_SIZE + 300])
def test_a_damaged_length_is_not_waited_for(pair, size):
    """Heartbeats arrive all the time, so a connection on which nothing else arrives would not look dead."""
    server, reader = pair
    raw = packets(b"\0" + event(50))
    server.sendall(sent(event(40)) + size.to_bytes(3, "little") + raw[3:] + sent(event(30, 27)))
    assert bytes(reader.read_block(1).data) == event(40)

    def wait() -> None:
        assert reader.read_block(0.01) is None
        reader.check_frame()

    with pytest.raises(Transient, match="source-damaged"):
        wait()


def test_the_length_of_what_is_still_coming_is_sound(pair):
    server, reader = pair
    for whole in (sent(event(5000)), sent(event(BUFFER_SIZE * 2)), packets(b"\xff" + bytes(500))):
        for at in (3, 4, 10, 17, 18, 30, 400):
            server.sendall(whole[:at])
            reader.read_block(0.01)
            reader.check_frame()
            while reader.here or reader._left is not None:
                reader.skip(len(reader.here))
                reader._left = None


@pytest.mark.parametrize("event_size", [MAX_PACKET + 5, 2 * MAX_PACKET])
def test_packets_that_continue_after_the_end_of_their_event_are_damage(pair, event_size):
    server, reader = pair
    endless = b"\xff\xff\xff\0"
    first = b"\0" + event(event_size)[: MAX_PACKET - 1]
    sender = threading.Thread(target=_send, args=(server, [endless + first, *[endless + bytes(MAX_PACKET)] * 3]))
    sender.start()
    with pytest.raises(Transient, match="source-damaged") as damaged:
        _drained(reader)
    assert "total length is not the event's" in damaged.value.what
    server.shutdown(socket.SHUT_RDWR)
    sender.join()


def test_an_event_that_ends_too_early_is_damage(pair):
    server, reader = pair
    first = b"\xff\xff\xff\0\0" + event(MAX_PACKET + 5)[: MAX_PACKET - 1]
    sender = threading.Thread(target=_send, args=(server, [first + b"\3\0\0\1abc"]))
    sender.start()
    with pytest.raises(Transient, match="source-damaged"):
        _drained(reader)
    sender.join()


def test_a_header_that_announces_more_than_a_server_sends_is_damage(pair):
    server, reader = pair
    head = struct.pack("<IBIIIH", 7, 30, 1, (1 << 32) - 1, 0, 0)
    server.sendall(b"\xff\xff\xff\0\0" + head + bytes(100))
    with pytest.raises(Transient, match="source-damaged"):
        reader.read_block(1)


def _send(server: socket.socket, parts: list[bytes]) -> None:
    with suppress(OSError):
        for part in parts:
            server.sendall(part)


def _drained(reader: BlockReader) -> None:
    while reader.read_block(5) is not None:
        pass
