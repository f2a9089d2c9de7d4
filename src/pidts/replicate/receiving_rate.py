"""Measures how much of its time a replicator's thread waits for the source, computes, or waits for its disk."""

from __future__ import annotations

from time import monotonic, thread_time


class ReceivingRate:
    """Compares the counters of one thread with the counters at the previous call."""

    def __init__(self) -> None:
        self._last = (monotonic(), thread_time(), 0.0, 0)

    def since_last(self, waited: float, received: int) -> dict[str, float]:
        """Returns the status's fields for the time since the last call; `waited`, `received`: since the start."""
        now = (monotonic(), thread_time(), waited, received)
        before, self._last = self._last, now
        seconds = max(now[0] - before[0], 1e-6)
        return {
            "waiting": min(1.0, (now[2] - before[2]) / seconds),
            "cpu": min(1.0, (now[1] - before[1]) / seconds),
            "bytes_a_second": (now[3] - before[3]) / seconds,
        }
