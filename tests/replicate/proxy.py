"""A connection to a server that a test can slow down, cut, damage or freeze."""

from __future__ import annotations

import select
import socket
import threading
import time
from types import TracebackType
from typing import Self

_PIECE = 64 << 10


class Proxy:
    """Forwards every connection to one port of this machine, until the test stops it."""

    def __init__(self, port: int, bytes_a_second: int | None = None) -> None:
        self._to, self._pace = port, bytes_a_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._left: int | None = None
        """The number of the server's bytes that are still forwarded. Nothing after them is forwarded, and nothing from
        the client.
        """
        self._flip: int | None = None
        self._replace: tuple[bytes, bytes] | None = None
        self._times = 0
        self.connections = 0
        """The number of connections that were made."""
        self._next: tuple[int, int] | None = None
        self.delay = 0.0
        """The seconds by which each piece of the server's bytes is delayed."""
        self._end = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def freeze_after(self, count: int) -> None:
        """Forwards nothing any more after this number of bytes; connections stay open, and new ones can be made."""
        self._left = count

    def flip_after(self, count: int) -> None:
        """Changes one bit, once, in the server's byte after this number of bytes."""
        self._flip = count

    def replace(self, old: bytes, new: bytes, times: int) -> None:
        """Replaces bytes that the server sends in one piece by others of the same length, for this number of times."""
        self._replace, self._times = (old, new), times

    def change_to(self, port: int, after: int) -> None:
        """Forwards the connections after this number of connections to another port."""
        self._next = port, after

    def _damaged(self, data: bytes) -> bytes:
        if self._flip is not None:
            if self._flip < len(data):
                data = data[: self._flip] + bytes([data[self._flip] ^ 1]) + data[self._flip + 1 :]
                self._flip = None
            else:
                self._flip -= len(data)
        if self._replace is not None and self._times and self._replace[0] in data:
            self._times -= 1
            data = data.replace(*self._replace)
        return data

    def thaw(self) -> None:
        """Forwards new connections again. Bytes that were kept back never arrive."""
        self.cut()
        self._left = None

    def cut(self) -> None:
        """Ends all connections, at whatever byte they are."""
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end = True
        self._threads[0].join(5)
        self.cut()
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._end:
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client, _ = self._listener.accept()
            if self._next is not None and self.connections >= self._next[1]:
                self._to = self._next[0]
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._to))
            self._pairs.append((client, server))
            for source, sink, counted in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._forward, args=(source, sink, counted), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while not self._end:
                if self._left == 0:
                    time.sleep(0.02)
                    if source.fileno() < 0:
                        return
                    continue
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                data = source.recv(_PIECE)
                if not data:
                    break
                if counted and self._left is not None:
                    data = data[: self._left]
                    self._left -= len(data)
                if counted and self.delay:
                    time.sleep(self.delay)
                sink.sendall(self._damaged(data) if counted else data)
                if counted and self._pace:
                    time.sleep(len(data) / self._pace)
            source.close()
            sink.close()
        except (OSError, ValueError):
            pass
