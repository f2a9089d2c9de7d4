"""Pauses between readings of the stream, so that small transactions which follow each other are received together.

Receiving one small transaction takes about as much processor time as receiving several at once, and so does applying
it: most of the time is spent on waking up, on the flush to the disk, and on the round trip to the target. A source that
commits a row every two milliseconds would otherwise wake the replicator and the driver for each row.

A pause is counted from the reading before it, so a transaction that arrives after a quiet time is read at once. After a
reading of many bytes there is no pause: the source's server may be waiting until it can send more. The limit is far
below the bytes that a socket holds, so a pause never limits the rate of receiving.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

TOGETHER_SECONDS: Final = 0.004
"""What arrives within this time after a reading of few bytes is read together."""
FEW_BYTES: Final = 16 << 10
"""Only after fewer bytes than this there is a pause."""


class ReadingPauses:
    """The pauses of one stream."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._until = 0.0

    def wait(self) -> None:
        """Waits until the pause after the last reading is over."""
        left = self._until - self._clock()
        if left > 0:
            self._sleep(left)

    def has_read(self, size: int) -> None:
        """Notes that this number of bytes was read just now; 0 if only heartbeats arrived."""
        self._until = self._clock() + TOGETHER_SECONDS if 0 < size < FEW_BYTES else 0.0
