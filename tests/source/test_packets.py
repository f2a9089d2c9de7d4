"""Packets are found in any pieces that the network delivers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pidts.model import Where
from pidts.model.errors import Transient
from pidts.source.packets import BUFFER_SIZE, MAX_PACKET, PacketReader


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, PacketReader]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, PacketReader(ours, Where(source="s1"))


def packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def test_all_that_has_arrived_comes_at_once(pair):
    server, reader = pair
    server.sendall(packet(b"one") + packet(b"") + packet(b"three"))
    assert reader.read(1) == [b"one", b"", b"three"]


def test_silence_is_an_empty_answer(pair):
    assert pair[1].read(0.01) == []


def test_an_unfinished_packet_waits_for_its_rest(pair):
    server, reader = pair
    whole = packet(b"a longer payload")
    for byte in whole[:-1]:
        server.sendall(bytes([byte]))
        assert reader.read(0) == []
    server.sendall(whole[-1:] + packet(b"next")[:2])
    assert reader.read(1) == [b"a longer payload"]
    server.sendall(packet(b"next")[2:])
    assert reader.read(1) == [b"next"]


@pytest.mark.parametrize("size", [BUFFER_SIZE - 4, BUFFER_SIZE, MAX_PACKET - 1])
def test_a_packet_may_be_larger_than_the_buffer(pair, size):
    assert read_all(pair, packet(b"x" * size) + packet(b"y"), 2) == [b"x" * size, b"y"]


@pytest.mark.parametrize("rest", [0, 1, MAX_PACKET // 2])
def test_a_payload_in_several_packets_is_one(pair, rest):
    sent = packet(b"x" * MAX_PACKET) + packet(b"z" * rest) + packet(b"after")
    assert read_all(pair, sent, 2) == [b"x" * MAX_PACKET + b"z" * rest, b"after"]


def test_the_last_packets_are_read_before_the_end_is_noticed(pair):
    server, reader = pair
    server.sendall(packet(b"last"))
    server.close()
    assert reader.read(1) == [b"last"]
    with pytest.raises(Transient) as lost:
        reader.read(1)
    assert lost.value.code == "source-lost"


def read_all(pair: tuple[socket.socket, PacketReader], data: bytes, count: int) -> list[bytes]:
    server, reader = pair
    sender = threading.Thread(target=server.sendall, args=(data,))
    sender.start()
    packets: list[bytes] = []
    while len(packets) < count:
        packets += reader.read(5)
    sender.join()
    return packets


def test_a_damaged_length_of_an_event_is_not_waited_for(pair):
    server, reader = pair
    sound = packet(b"\0" + bytes(9) + (30).to_bytes(4, "little") + bytes(17))
    server.sendall(sound + sound[:20])
    assert len(reader.read(1)) == 1
    reader.check_frame()
    server.sendall(sound[20:] + b"\xff" + sound[1:])
    assert len(reader.read(1)) == 1
    assert reader.read(0.01) == []
    with pytest.raises(Transient, match="source-damaged"):
        reader.check_frame()


def test_a_payload_without_an_end_is_not_collected(pair, monkeypatch):
    monkeypatch.setattr("pidts.source.packets.LARGEST_PAYLOAD", 2 * MAX_PACKET)
    most = packet(b"x" * MAX_PACKET) * 2 + packet(b"")
    assert read_all(pair, most, 1) == [b"x" * 2 * MAX_PACKET]
    with pytest.raises(Transient, match="source-damaged"):
        read_all(pair, packet(b"x" * MAX_PACKET) * 3, 1)
