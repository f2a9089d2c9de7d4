"""The client protocol's framing, read in large blocks: a login made by the driver, its socket then taken over.

The driver reads one packet at a time; a stream of small events costs it several times what it costs here.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
import time

from pidts.model import Where
from pidts.model.errors import Transient

BUFFER_SIZE = 1 << 20
MAX_PACKET = 0xFFFFFF
_HEADER = struct.Struct("<I")


class PacketReader:
    """Payloads of a connected socket, as many at a time as have arrived."""

    def __init__(self, sock: socket.socket, where: Where) -> None:
        sock.settimeout(0.0)
        self._socket = sock
        self._where = where
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._buffer = bytearray(BUFFER_SIZE)
        self._begin = 0
        self._end = 0
        self._filled = False
        """The buffer was full at the last reading: more may be waiting."""
        self._long: list[bytes] = []
        self.heard = time.monotonic()
        """When the last bytes came; a large event may be on its way for minutes."""

    def read(self, timeout: float) -> list[bytes]:
        """Every whole packet received so far; waits for the first one, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            if self._receive() and (packets := self._cut()):
                return packets
            if not self._filled and not self._wait(deadline):
                return []

    def read_one(self, timeout: float) -> bytes | None:
        """The next packet alone; None when the time is over."""
        deadline = time.monotonic() + timeout
        while not (packets := self._cut(1)):
            if not self._receive() and not self._wait(deadline):
                return None
        return packets[0]

    def receive(self, timeout: float) -> bool:
        """Add to `here` what arrives, waiting for it; False when the time is over. What is there may move."""
        deadline = time.monotonic() + timeout
        while not self._receive():
            if not self._wait(deadline):
                return False
        return True

    def silent(self) -> float:
        """Seconds since the last bytes came."""
        return time.monotonic() - self.heard

    @property
    def here(self) -> memoryview:
        """All that has arrived and was not taken yet."""
        return memoryview(self._buffer)[self._begin : self._end]

    def skip(self, size: int) -> None:
        """Take so many bytes of `here`."""
        self._begin += size

    def _wait(self, deadline: float) -> bool:
        """Until something comes; False when the time is over."""
        left = deadline - time.monotonic()
        if left > 0:
            self._poll.poll(left * 1000)
        return left > 0

    def _receive(self) -> bool:
        """Fill the buffer with what is there; False where nothing was."""
        self._make_room()
        before = self._end
        view = memoryview(self._buffer)
        while self._end < len(view):
            try:
                count = self._socket.recv_into(view[self._end :])
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError as error:
                raise Transient(
                    "source-lost", f"the connection to the source broke: {error}", where=self._where
                ) from error
            if count == 0:
                if self._end > before:
                    break  # What came with the end is cut first; the next call meets the end again.
                raise Transient("source-lost", "the source closed the connection", where=self._where)
            self._end += count
        self._filled = self._end == len(view)
        if self._end > before:
            self.heard = time.monotonic()
        return self._end > before

    def _make_room(self) -> None:
        """Move the unfinished packet to the front, and grow where it is larger than the buffer."""
        rest = self._end - self._begin
        needed = BUFFER_SIZE
        if rest >= 4:
            needed = max(needed, 4 + (_HEADER.unpack_from(self._buffer, self._begin)[0] & MAX_PACKET))
        if needed > len(self._buffer):
            grown = bytearray(needed)
            grown[:rest] = self._buffer[self._begin : self._end]
            self._buffer = grown
        elif self._begin:
            self._buffer[:rest] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, rest

    def _cut(self, most: int = sys.maxsize) -> list[bytes]:
        packets: list[bytes] = []
        view = memoryview(self._buffer)
        begin, end = self._begin, self._end
        header = _HEADER.unpack_from
        while end - begin >= 4 and len(packets) < most:
            size = header(view, begin)[0] & MAX_PACKET
            behind = begin + 4 + size
            if behind > end:
                break
            packet = bytes(view[begin + 4 : behind])
            begin = behind
            if size == MAX_PACKET:
                self._long.append(packet)
            elif self._long:
                packets.append(b"".join((*self._long, packet)))
                self._long.clear()
            else:
                packets.append(packet)
        self._begin = begin
        return packets
