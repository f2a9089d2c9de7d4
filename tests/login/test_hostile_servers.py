"""A hostile server may send anything: the login soon ends with an error of PiDTS, which shows nothing unprintable."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from pidts.login import Mode, Tls
from pidts.model import PidtsError, Transient
from pidts.source import SourceConfig, connect
from pidts.target.mysql import MySqlTarget

OK = b"\0\0\0\2\0\0\0"


class Line:
    """The connection to one client, packet by packet."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._file, self._number = sock, sock.makefile("rb"), 0

    def send(self, payload: bytes) -> None:
        self._socket.sendall(struct.pack("<I", len(payload))[:3] + bytes([self._number]) + payload)
        self._number += 1

    def receive(self) -> bytes:
        head = self._file.read(4)
        self._number = head[3] + 1
        return self._file.read(int.from_bytes(head[:3], "little"))

    def greet(self, plugin: bytes = b"mysql_native_password") -> None:
        # The flags: protocol 4.1, secure connection, plugins, multiple results and statements; no TLS.
        low, high = struct.pack("<H", 0x8200), struct.pack("<H", 0x000B)
        head = b"\n8.0.0\0" + struct.pack("<I", 7) + b"12345678\0" + low + b"\x2d" + struct.pack("<H", 2) + high
        self.send(head + bytes([21]) + bytes(10) + b"123456789012\0" + plugin + b"\0")
        self.receive()

    def let_in(self) -> None:
        self.greet()
        self.send(OK)
        # The driver ignores the answer to its first statement.
        self.receive()
        self.send(OK)
        self.receive()


def says_nothing_at_all(line: Line) -> None:
    line.send(b"")


def asks_for_a_file(line: Line) -> None:
    line.let_in()
    line.send(b"\xfb/etc/passwd")


def sends_a_key_that_is_none(line: Line) -> None:
    line.greet(b"caching_sha2_password")
    line.send(b"\1\4")
    line.receive()
    line.send(b"\1no key")


def answers_with_nothing(line: Line) -> None:
    line.let_in()
    line.send(b"")


def announces_columns_without_end(line: Line) -> None:
    line.let_in()
    line.send(b"\xfe" + struct.pack("<Q", 1 << 60))


def refuses_with_a_flood(line: Line) -> None:
    line.greet()
    line.send(b"\xff" + struct.pack("<H", 1045) + b"#28000" + b"\x1b]0;owned\x07\x1b[2J" + b"A" * 200_000)


Play = Callable[[Line], None]
PLAYS = [
    says_nothing_at_all,
    asks_for_a_file,
    sends_a_key_that_is_none,
    answers_with_nothing,
    announces_columns_without_end,
    refuses_with_a_flood,
]


@contextmanager
def hostile(play: Play) -> Iterator[int]:
    """Returns the port of a server that sends these packets to its first client, and then waits until the client
    closes.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                client, _ = listening.accept()
                with client:
                    line = Line(client)
                    play(line)
                    while client.recv(1000):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)
        assert not thread.is_alive(), "the client has not hung up"


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_hostile_server_ends_in_an_error_that_can_be_shown(play: Play, side: str) -> None:
    plain = Tls(Mode.DISABLED)
    with hostile(play) as port:
        source = SourceConfig("127.0.0.1", port, "u", "p", connect_timeout=20, tls=plain)
        target = MySqlTarget("127.0.0.1", port, "u", "p", connect_timeout=20, tls=plain)
        with pytest.raises(PidtsError) as caught:
            connect(source) if side == "source" else target.connect()
    said = str(caught.value)
    assert len(said) < 5_000
    assert said.isprintable()
    if play is not refuses_with_a_flood:
        assert isinstance(caught.value, Transient)
        assert "breaks the protocol" in said
