"""Reads the client protocol's packets in large blocks, from the socket of a connection that the driver has logged in.

The driver reads one packet at a time. For small events, this takes several times as long as reading large blocks.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
import time
from dataclasses import dataclass
from enum import Enum, auto

from pidts.model import Where
from pidts.model.errors import Transient

BUFFER_SIZE = 1 << 20
_FEW_BYTES = 64 << 10
"""If a read has room for more bytes and gets fewer than this number, it has taken all bytes that had arrived."""
MAX_PACKET = 0xFFFFFF
LARGEST_PAYLOAD = (1 << 30) + (1 << 20)
"""The largest number of bytes that a server sends for one event: 1 GiB, the highest max_allowed_packet, and headers.
"""
_HEADER = struct.Struct("<I")
_STATUS_AT = 4
"""The byte after a packet's header: 0 if an event follows."""
_EVENT_SIZE_AT = 14
_LONGEST_ANSWER = 0xFFFF
"""The largest number of bytes of a server's error message."""


class BlockShape(Enum):
    """The content of a block of a dump: many events, or a piece of a very long event."""

    EVENTS = auto()
    """Complete events one after the other; none if only heartbeats arrived."""
    ODD = auto()
    """One packet, without its header, that is not a valid event."""
    PIECE = auto()
    """The next piece of a long event; the first piece begins with the event's header."""
    LAST_PIECE = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """A block as it arrived. `data` is valid only until the next read."""

    shape: BlockShape
    data: memoryview
    events: int = 0


class PacketReader:
    """Reads the payloads of packets from a socket, as many at a time as have arrived."""

    def __init__(self, sock: socket.socket, where: Where) -> None:
        sock.settimeout(0.0)
        self._socket = sock
        self._where = where
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._buffer = bytearray(BUFFER_SIZE)
        self._begin = 0
        self._end = 0
        self._is_drained = False
        """Whether the last read took all bytes that had arrived, so that another read would get none."""
        self._is_plain = not isinstance(sock, ssl.SSLSocket)
        self._long: list[bytes] = []
        self._long_size = 0
        self.received_at = time.monotonic()
        """The time when the last bytes arrived. A large event may take minutes to arrive."""

    def read(self, timeout: float) -> list[bytes]:
        """Returns every complete packet received so far; waits at most `timeout` seconds for the first one."""
        deadline = time.monotonic() + timeout
        while self._arrives(deadline):
            if packets := self._cut():
                return packets
            if time.monotonic() > deadline:
                break
        return []

    def read_one(self, timeout: float) -> bytes | None:
        """Returns the next packet; None after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not (packets := self._cut(1)):
            if not self._arrives(deadline):
                return None
        return packets[0]

    def receive(self, timeout: float) -> bool:
        """Waits, and adds arriving bytes to `here`; False after the timeout. Earlier views of `here` become invalid."""
        return self._arrives(time.monotonic() + timeout)

    def silent(self) -> float:
        """Returns the seconds since the last bytes arrived."""
        return time.monotonic() - self.received_at

    @property
    def here(self) -> memoryview:
        """Returns all bytes that have arrived and have not been used yet."""
        return memoryview(self._buffer)[self._begin : self._end]

    def check_frame(self) -> None:
        """Raises if the incomplete packet at the front cannot be an event of a dump.

        With a damaged length, the reader would wait for bytes that are never sent. It would not notice this, since
        heartbeats would continue to arrive.
        """
        if not self._long:
            self._check_frame()

    def _check_frame(self) -> None:
        here = self.here
        if len(here) <= _STATUS_AT:
            return
        size = _HEADER.unpack_from(here)[0] & MAX_PACKET
        if here[_STATUS_AT]:
            is_sound = size <= _LONGEST_ANSWER
        elif len(here) < _EVENT_SIZE_AT + 4:
            return
        else:
            event = _HEADER.unpack_from(here, _EVENT_SIZE_AT)[0]
            is_sound = event + 1 == size or (size == MAX_PACKET and MAX_PACKET <= event + 1 <= LARGEST_PAYLOAD)
        if not is_sound:
            raise self._damaged("the source sent a packet whose length is not that of its event")

    def _damaged(self, what: str) -> Transient:
        return Transient(
            "source-damaged",
            what,
            where=self._where,
            todo="Nothing to do now: the source is asked for these bytes again",
        )

    def skip(self, size: int) -> None:
        """Removes this many bytes from `here`."""
        self._begin += size

    def _arrives(self, deadline: float) -> bool:
        """Waits until bytes arrive, and adds them to the buffer; returns False after the deadline."""
        while not self._is_drained or self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if self._receive():
                return True
            self._is_drained = True
        return False

    def _receive(self) -> bool:
        """Fills the buffer with arrived bytes; returns False if there were none."""
        self._make_room()
        before, self._is_drained = self._end, False
        view = memoryview(self._buffer)
        while self._end < len(view):
            room = len(view) - self._end
            try:
                count = self._socket.recv_into(view[self._end :])
            except (BlockingIOError, ssl.SSLWantReadError):
                self._is_drained = True
                break
            except OSError as error:
                raise Transient(
                    "source-lost", f"the connection to the source broke: {error}", where=self._where
                ) from error
            if count == 0:
                if self._end > before:
                    break  # The data before the end is returned first; the next call finds the end again.
                raise Transient("source-lost", "the source closed the connection", where=self._where)
            self._end += count
            if self._is_plain and count < room and self._end - before < _FEW_BYTES:
                # The socket had no more bytes. With TLS, a short read does not show this: TLS returns one record at a
                # time, and may have further records that poll does not see.
                self._is_drained = True
                break
        if self._end > before:
            self.received_at = time.monotonic()
        return self._end > before

    def _make_room(self) -> None:
        """Moves the incomplete packet to the front, and enlarges the buffer if the packet is larger than the buffer."""
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
                self._long_size += size
                if self._long_size > LARGEST_PAYLOAD:
                    self._long.clear()
                    what = (
                        f"the source sends more than {LARGEST_PAYLOAD >> 20} MiB as one event or row, which no server "
                        "does"
                    )
                    raise self._damaged(what)
            elif self._long:
                packets.append(b"".join((*self._long, packet)))
                self._long.clear()
                self._long_size = 0
            else:
                packets.append(packet)
        self._begin = begin
        return packets
