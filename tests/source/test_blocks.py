"""However the network cuts a dump, its events come out whole, in order and back to back."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidts.model import Where
from pidts.model.errors import Transient
from pidts.source.block import Block, Shape
from pidts.source.blocks import BlockReader
from pidts.source.packets import BUFFER_SIZE, MAX_PACKET


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


def read(pair: tuple[socket.socket, BlockReader], data: bytes, events: int) -> list[tuple[Shape, bytes]]:
    """Everything that comes, until so many events have."""
    server, reader = pair
    sender = threading.Thread(target=server.sendall, args=(data,))
    sender.start()
    blocks: list[tuple[Shape, bytes]] = []
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
    assert (block.shape, bytes(block.data), block.events) == (Shape.EVENTS, b"".join(events), 3)


def test_silence_is_no_block(pair):
    assert pair[1].read_block(0.01) is None


def test_a_heartbeat_is_an_empty_block(pair):
    server, reader = pair
    server.sendall(sent(event(30, 27), event(40, 41)))
    assert reader.read_block(1) == Block(Shape.EVENTS, memoryview(b""))


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


@settings(max_examples=30, deadline=None)
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
                assert block.shape is Shape.EVENTS
                found += block.data
    assert found == b"".join(map(event, sizes))


@pytest.mark.parametrize("size", [BUFFER_SIZE - 5, BUFFER_SIZE - 4, BUFFER_SIZE * 2, MAX_PACKET - 2])
def test_an_event_around_the_size_of_the_buffer(pair, size):
    events = [event(100), event(size), event(200)]
    blocks = read(pair, sent(*events), 3)
    assert b"".join(data for _, data in blocks) == b"".join(events)
    pieces = [shape for shape, _ in blocks if shape is not Shape.EVENTS]
    assert bool(pieces) == (size + 5 > BUFFER_SIZE)
    assert pieces[-1:] in ([], [Shape.LAST_PIECE])


@pytest.mark.parametrize("size", [MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 5, 2 * MAX_PACKET - 1])
def test_an_event_in_several_packets_comes_in_pieces(pair, size):
    blocks = read(pair, sent(event(size), event(25)), 2)
    assert b"".join(data for _, data in blocks) == event(size) + event(25)
    assert [shape for shape, _ in blocks if shape is not Shape.PIECE] == [Shape.LAST_PIECE, Shape.EVENTS]
    assert len(blocks[0][1]) >= 19
    assert all(len(data) <= BUFFER_SIZE for _, data in blocks)


@pytest.mark.parametrize(
    "payload", [b"\xff\xd4\x04#HY000 gone", b"\xfe\0\0\2\0", b"", b"\0" + event(40)[:-1], b"\0abc", b"\0" * 19]
)
def test_what_is_no_event_comes_alone(pair, payload):
    server, reader = pair
    server.sendall(sent(event(30)) + packets(payload) + sent(event(31)))
    blocks = [reader.read_block(1) for _ in range(3)]
    assert [block.shape for block in blocks] == [Shape.EVENTS, Shape.ODD, Shape.EVENTS]
    assert bytes(blocks[1].data) == payload


def test_the_last_events_are_read_before_the_end_is_noticed(pair):
    server, reader = pair
    server.sendall(sent(event(30)) + packets(b"\xff\xd4\x04why"))
    server.close()
    assert [bytes(reader.read_block(1).data) for _ in range(2)] == [event(30), b"\xff\xd4\x04why"]
    with pytest.raises(Transient) as lost:
        reader.read_block(1)
    assert lost.value.code == "source-lost"
