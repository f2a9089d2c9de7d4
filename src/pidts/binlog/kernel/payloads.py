"""Finds the compressed transactions of MySQL in a block, so that many are decompressed by one call.

`compressed.payload_pieces` is the specification. It also reads the TRANSACTION_PAYLOAD events that this module leaves
out: large or malformed events, and events that are not one zstd frame of the announced size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import zstandard

from pidts.binlog.events import HEADER_SIZE, EventType
from pidts.binlog.jit import address, inline, jit, load8, load16, load32, load64

LARGEST = 1 << 20
"""A transaction is decompressed together with others only if it has at most this many bytes after decompression."""
MOST, _MOST_BYTES = 1024, 4 << 20
"""The largest number of transactions that are decompressed together, and the largest number of their bytes."""
_END, _SIZE, _ALGORITHM, _RAW_SIZE = range(4)
_ZSTD = 0
_MAGIC = 0xFD2FB528
_BAD = -1
_PLACE, _DATA, _DATA_SIZE, _CONTENT_SIZE = range(4)
_PAYLOAD = EventType.TRANSACTION_PAYLOAD


class UnpackedTransactions:
    """Neighbouring compressed transactions after their decompression."""

    def __init__(self, entries: Any, kept: Any) -> None:
        self.entries = entries
        """A row for each transaction: the byte of the block at which its event begins, address and size of its events.
        """
        self._kept = kept

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def none(cls) -> UnpackedTransactions:
        """Returns an object without transactions."""
        return cls(np.zeros((0, 3), np.int64), None)

    @classmethod
    def of(cls, view: memoryview, place: int, tail: int, most: int = MOST) -> UnpackedTransactions:
        """Decompresses up to `most` transactions from byte `place` of a block on; `tail` is the size of a checksum."""
        found = np.empty((min(most, MOST), 4), np.int64)
        found = found[: _gather(address(view), place, len(view), tail, found)]
        while len(found):
            segments = zstandard.BufferWithSegments(view, found[:, [_DATA, _DATA_SIZE]].tobytes())
            sizes = found[:, _CONTENT_SIZE].tobytes()
            try:
                made = zstandard.ZstdDecompressor().multi_decompress_to_buffer(segments, decompressed_sizes=sizes)
            except zstandard.ZstdError:
                # One frame is damaged, and the error does not say which. The first half of the frames is tried again.
                # If this half is intact, its transactions need not be decompressed one by one.
                found = found[: len(found) // 2]
                continue
            contents = found[:, _CONTENT_SIZE]
            return cls(np.stack([found[:, _PLACE], _addresses(made, contents), contents], axis=1), made)
        return cls.none()

    def events(self, place: int) -> memoryview:
        """Returns the events of the transaction whose event begins at this byte of the block."""
        number = int(np.searchsorted(self.entries[:, 0], place))
        return memoryview(self._kept[number])


def _addresses(made: Any, sizes: Any) -> Any:
    """Returns the addresses of decompressed transactions, which are nearly always next to each other."""
    ends = np.cumsum(sizes)
    first = address(made[0])
    if address(made[len(made) - 1]) == first + int(ends[-1] - sizes[-1]):
        return first + ends - sizes
    return np.array([address(made[number]) for number in range(len(made))], np.int64)


@inline
def _packed(at: int, end: int) -> tuple[int, int]:
    """Returns a length-encoded number and the place after it; the place is -1 if the number is malformed."""
    if at >= end:
        return 0, _BAD
    first = load8(at)
    if first < 251:
        return first, at + 1
    size = 2 if first == 252 else 3 if first == 253 else 8 if first == 254 else 0
    if size == 0 or end - at <= size:
        return 0, _BAD
    number = load64(at + 1) if size == 8 else load16(at + 1)
    if size == 3:
        number |= load8(at + 3) << 16
    return number, at + 1 + size


@jit
def _frame_end(at: int, end: int) -> int:
    """Returns the end of the zstd frame that begins at this address; -1 if it does not end before `end`."""
    if end - at < 6 or load32(at) != _MAGIC:
        return _BAD
    head = load8(at + 4)
    is_single = head >> 5 & 1
    sizes, dictionary = head >> 6, head & 3
    at += 5 + (1 - is_single) + (4 if dictionary == 3 else dictionary)
    at += is_single if sizes == 0 else 1 << sizes
    while True:
        if end - at < 3:
            return _BAD
        block = load16(at) | load8(at + 2) << 16
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if at > end:
            return _BAD
        if block & 1:
            break
    at += 4 * (head >> 2 & 1)
    return at if at <= end else _BAD


@jit
def _content(at: int, end: int) -> tuple[int, int]:
    """Returns the address of the compressed bytes in an event's body, and the size that they have after decompression.

    The size is -1 if the event has to be read by plain code.
    """
    size = algorithm = content = _BAD
    while True:
        field, at = _packed(at, end)
        if at < 0:
            return 0, _BAD
        if field == _END:
            break
        length, at = _packed(at, end)
        if at < 0 or length < 0 or length > end - at:
            return 0, _BAD
        value, stop = _packed(at, at + length)
        if stop < 0:
            return 0, _BAD
        if field == _SIZE:
            size = value
        elif field == _ALGORITHM:
            algorithm = value
        elif field == _RAW_SIZE:
            content = value
        at += length
    if size != end - at or algorithm != _ZSTD or content <= 0 or content > LARGEST or _frame_end(at, end) != end:
        return 0, _BAD
    return at, content


@jit
def _gather(block: int, place: int, end: int, tail: int, found: Any) -> int:
    """Finds the compressed transactions from byte `place` of a block on; returns their number."""
    count = total = 0
    while end - place >= HEADER_SIZE and count < len(found):
        event = block + place
        size = load32(event + 9)
        if size < HEADER_SIZE + tail or size > end - place:
            break
        if load8(event + 4) == _PAYLOAD:
            stop = event + size - tail
            data, content = _content(event + HEADER_SIZE, stop)
            if content > 0:
                total += content
                if total > _MOST_BYTES:
                    break
                found[count, _PLACE], found[count, _DATA] = place, data - block
                found[count, _DATA_SIZE], found[count, _CONTENT_SIZE] = stop - data, content
                count += 1
        place += size
    return count
