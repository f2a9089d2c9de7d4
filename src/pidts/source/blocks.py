"""Reads a dump's packets as blocks of events in compiled code, without a Python object for each event.

A first buffer gets the socket's bytes, packet after packet. The events in these packets are copied to a second buffer,
without gaps between them, as in a log file. The caller gets this second buffer. An event may be as large as a gigabyte.
If an event does not fit into the first buffer, the caller gets the event in pieces from the first buffer.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import numpy as np

from pidts.binlog.events import HEADER_SIZE, EventType
from pidts.binlog.jit import address, copy, jit, load8, load32
from pidts.model import Where
from pidts.source.packets import BUFFER_SIZE, MAX_PACKET, Block, BlockShape, PacketReader

_PACKET_HEAD = 4
_STATUS_SIZE = 1
_EVENT_SIZE_AT = 9
_HEARTBEATS = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})

_READ_TO, _WRITTEN, _EVENTS, _ODD = range(4)


class BlockReader(PacketReader):
    """Reads the events of a dump from a socket, as many at a time as have arrived."""

    def __init__(self, sock: socket.socket, where: Where) -> None:
        super().__init__(sock, where)
        self._block = np.empty(BUFFER_SIZE, np.uint8)
        self._block_at = self._block.ctypes.data
        self._found = np.zeros(4, np.int64)
        self._left: int | None = None
        """The number of bytes of a long event's current packet that the caller has not got yet; None: there is no such
        event.
        """
        self._goes_on = False
        """Whether the long event continues in another packet after the current packet."""
        self._due = 0
        """The number of bytes of a long event in later packets, computed from the size in the event's header."""

    def read_block(self, timeout: float) -> Block | None:
        """Returns the events that have arrived; None if none arrives within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        # Events that are already in the buffer are returned before the socket is read: the socket may have been closed.
        while (block := self._take()) is None:
            if not self._arrives(deadline):
                return None
        return block

    def check_frame(self) -> None:
        """Checks the frame of a packet, unless the packet continues a long event: then it has no event header."""
        if self._left is None:
            self._check_frame()

    def _make_room(self) -> None:
        """Moves unused bytes to the front. This buffer never grows, since long events pass through it in pieces."""
        rest = self._end - self._begin
        if self._begin:
            self._buffer[:rest] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, rest

    def _take(self) -> Block | None:
        if self._left is not None:
            return self._take_piece()
        if self._end - self._begin < _PACKET_HEAD:
            return None
        _strip(address(self._buffer), self._begin, self._end, self._block_at, self._found)
        begin, found = self._begin, self._found.tolist()
        self._begin = found[_READ_TO]
        if self._begin > begin:
            return Block(BlockShape.EVENTS, self._block.data[: found[_WRITTEN]], found[_EVENTS])
        if found[_ODD]:
            return self._take_odd()
        return self._begin_long()

    def _size(self) -> int:
        """Returns the size of the packet at the front."""
        return int.from_bytes(self._buffer[self._begin : self._begin + 3], "little")

    def _take_odd(self) -> Block:
        begin = self._begin + _PACKET_HEAD
        self._begin = begin + self._size()
        data = bytes(self._buffer[begin : self._begin])
        if data[:1] == b"\0" and len(data) > 5 and data[5] in _HEARTBEATS:
            return Block(BlockShape.EVENTS, memoryview(b""))
        return Block(BlockShape.ODD, memoryview(data))

    def _begin_long(self) -> Block | None:
        """Returns the first piece of an event that does not fit into the buffer; None if it may still fit."""
        size = self._size()
        if size != MAX_PACKET and _PACKET_HEAD + size <= len(self._buffer):
            return None
        first = self._begin + _PACKET_HEAD
        if self._end < first + _STATUS_SIZE + HEADER_SIZE:
            return None
        self._check_frame()
        self._begin = first + _STATUS_SIZE
        at = self._begin + _EVENT_SIZE_AT
        self._due = int.from_bytes(self._buffer[at : at + 4], "little")
        self._begin_packet(size - _STATUS_SIZE, goes_on=size == MAX_PACKET)
        return self._take_piece()

    def _begin_packet(self, size: int, *, goes_on: bool) -> None:
        """Begins the next packet of a long event; `goes_on`: a further packet follows.

        Raises if the total size of the packets differs from the size in the event's header: the event might never end.
        """
        self._due -= size
        if self._due < 0 or (not goes_on and self._due):
            raise self._damaged("the source sent an event in packets whose total length is not the event's")
        self._left, self._goes_on = size, goes_on

    def _take_piece(self) -> Block | None:
        if self._left == 0 and self._goes_on:
            if self._end - self._begin < _PACKET_HEAD:
                return None
            size = self._size()
            self._begin += _PACKET_HEAD
            self._begin_packet(size, goes_on=size == MAX_PACKET)
        left = self._left or 0
        size = min(left, self._end - self._begin)
        if left and not size:
            return None
        data = memoryview(self._buffer)[self._begin : self._begin + size]
        self._begin += size
        self._left = left - size
        if self._left or self._goes_on:
            return Block(BlockShape.PIECE, data)
        self._left = None
        return Block(BlockShape.LAST_PIECE, data, 1)


@jit
def _strip(source: int, begin: int, end: int, target: int, found: Any) -> None:
    """Copies the events of packets without the packets' headers, up to the first incomplete or unusual packet."""
    written, events, odd = 0, 0, 0
    while end - begin >= _PACKET_HEAD:
        size = load32(source + begin) & MAX_PACKET
        if size == MAX_PACKET or size > end - begin - _PACKET_HEAD:
            break
        event = source + begin + _PACKET_HEAD + _STATUS_SIZE
        size -= _STATUS_SIZE
        if size < HEADER_SIZE or load8(event - _STATUS_SIZE) != 0 or load32(event + 9) != size:
            odd = 1
            break
        kind = load8(event + 4)
        if kind != EventType.HEARTBEAT and kind != EventType.HEARTBEAT_V2:  # noqa: PLR1714 - compiled code
            copy(target + written, event, size)
            written += size
            events += 1
        begin += _PACKET_HEAD + _STATUS_SIZE + size
    found[_READ_TO], found[_WRITTEN], found[_EVENTS], found[_ODD] = begin, written, events, odd
