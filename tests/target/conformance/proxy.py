"""A network connection between client and server that can be cut before or after one message."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Forwards bytes between a client and a server.

    If `cut` is "request", the next message never arrives; if `cut` is "answer", the next message arrives, and its
    answer does not. Only one message is cut.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.cut = ""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._upstream)
                lost = threading.Event()
                for source, goal, is_client in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, goal, lost, is_client), daemon=True).start()

    def _pump(self, source: socket.socket, goal: socket.socket, lost: threading.Event, is_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_client and self.cut:
                    cut, self.cut = self.cut, ""
                    if cut == "request":
                        break
                    lost.set()
                elif not is_client and lost.is_set():
                    break
                goal.sendall(data)
        for end in (source, goal):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
