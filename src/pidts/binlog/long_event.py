"""An event that is too long to be held in memory at once: its checksum is computed while its pieces pass by."""

from __future__ import annotations

from pidts.binlog.crc import crc32
from pidts.binlog.events import CHECKSUM_SIZE


class LongEvent:
    """An event in the middle of its arrival: its header, and the bytes so far."""

    def __init__(self, kind: int, timestamp: int, offset: int, size: int, *, checksum: bool) -> None:
        self.kind, self.timestamp, self.offset, self.size = kind, timestamp, offset, size
        self.fed = 0
        self.computed = 0
        self._summed = size - CHECKSUM_SIZE if checksum else 0
        self._tail = b""

    def feed(self, piece: memoryview) -> None:
        """The bytes that come next."""
        summed = max(0, min(len(piece), self._summed - self.fed))
        if summed:
            self.computed = crc32(piece[:summed], self.computed)
        if self._summed:
            self._tail += piece[summed : summed + CHECKSUM_SIZE]
        self.fed += len(piece)

    @property
    def told(self) -> int:
        """The checksum at its end; 0 where there is none."""
        return int.from_bytes(self._tail[:CHECKSUM_SIZE], "little")
