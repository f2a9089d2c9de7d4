"""Measures how far the target is behind one source, from the ring of arrivals in the relay.

The lag of a transaction begins with its commit on the source and ends when the target has it. The ring knows
when it came into the relay, and when it was committed, both by this machine's clock. Without the ring (log that came
before it began, or so long ago that it was overwritten) the event's own time has to do, which may be a second early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from pidts.batch.batch_done import BatchDone
from pidts.model import LogEntry, Lsn
from pidts.relay.arrivals import Arrivals
from pidts.relay.folder import Folder

_RECENT_SECONDS = 1.0
"""The delay of a batch counts for so long: a reader who looks now and then sees the lag of steady writes."""


@dataclass(frozen=True, slots=True)
class Delay:
    """How long the slowest of the last transactions took."""

    whole: float | None = None
    """From the commit on the source until the target had it."""
    applying: float | None = None
    """From the relay on."""


class LagMeter:
    """The lag of one attempt. The stream's thread tells of batches, the task's thread asks."""

    def __init__(self, folder: Folder) -> None:
        self._arrivals = Arrivals(folder)
        self._lock = threading.Lock()
        self._batches: deque[tuple[float, Lsn]] = deque(maxlen=4096)
        """When a batch was committed, and where its first row's transaction begins."""
        self._delays: deque[tuple[float, float, float]] = deque()
        """When, the whole delay, and that from the relay on."""

    def batch(self, done: BatchDone) -> None:
        """Takes note of a batch that was committed just now."""
        if done.plan.log:
            with self._lock:
                self._batches.append((time.time(), done.plan.log[0].begin))

    def delay(self) -> Delay:
        """Returns the longest delay of the last second's batches."""
        with self._lock:
            batches, self._batches = self._batches, deque(maxlen=4096)
        for at, begin in batches:
            arrival = self._arrivals.at(begin, behind=True)
            if arrival is not None:
                self._delays.append((at, max(0.0, at - arrival.committed), max(0.0, at - arrival.at)))
        now = time.time()
        while self._delays and not now - _RECENT_SECONDS <= self._delays[0][0] <= now:
            self._delays.popleft()
        if not self._delays:
            return Delay()
        return Delay(max(one[1] for one in self._delays), max(one[2] for one in self._delays))

    def committed_at(self, entry: LogEntry, clock_ahead: float) -> float:
        """Returns when the source committed the first transaction of an entry, by this machine's clock; 0: unknown."""
        arrival = self._arrivals.at(entry.transaction.begin, behind=True)
        if arrival is not None:
            return arrival.committed
        return entry.transaction.timestamp - clock_ahead if entry.transaction.timestamp else 0.0

    def close(self) -> None:
        """Closes the ring."""
        self._arrivals.close()
