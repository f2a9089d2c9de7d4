"""Measures the lag of one source, from the ring buffer of arrivals in the relay.

The lag of a transaction begins with its commit on the source and ends when the target has it. The ring has the time
when the transaction came into the relay, and the time of its commit, both by this machine's clock. The ring may lack
the transaction: it came before the ring began, or was overwritten. Then the event's own time counts, which may be a
second early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from pidts.batch.batch_done import BatchDone
from pidts.model import LogEntry, Lsn
from pidts.relay.folder import Folder
from pidts.relay.receive_times import ReceiveTimes

_RECENT_SECONDS = 1.0
"""A batch's delay counts for this many seconds after its commit. So during steady writes, the lag is shown even when no
batch is under way.
"""


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of the slowest of the last transactions."""

    whole: float | None = None
    """The time from the commit on the source until the target had the transaction; None if it is not known."""
    applying: float | None = None
    """The part of `whole` between the relay and the target."""


class LagMeter:
    """Measures the lag during one attempt. The stream's thread reports batches, the task's thread reads the lag."""

    def __init__(self, folder: Folder) -> None:
        self._arrivals = ReceiveTimes(folder)
        self._lock = threading.Lock()
        self._batches: deque[tuple[float, Lsn]] = deque(maxlen=4096)
        """The time of each batch's commit on the target, and the place where its first row's transaction begins."""
        self._delays: deque[tuple[float, float, float]] = deque()
        """For each batch: the time of its commit, its whole delay, and the part of the delay after the relay."""

    def batch(self, done: BatchDone) -> None:
        """Counts a batch that was just committed, without its slices that have only changes of waiting tables."""
        first = next((piece for piece in done.plan.log if piece.only is None), None)
        if first is not None:
            with self._lock:
                self._batches.append((time.time(), first.begin))

    def delay(self) -> Delay:
        """Returns the longest delays of the last second's batches; without values if there are no batches."""
        with self._lock:
            batches, self._batches = self._batches, deque(maxlen=4096)
        for at, begin in batches:
            arrival = self._arrivals.at(begin, after=True)
            if arrival is not None:
                self._delays.append((at, max(0.0, at - arrival.committed), max(0.0, at - arrival.at)))
        now = time.time()
        while self._delays and not now - _RECENT_SECONDS <= self._delays[0][0] <= now:
            self._delays.popleft()
        if not self._delays:
            return Delay()
        return Delay(max(one[1] for one in self._delays), max(one[2] for one in self._delays))

    def committed_at(self, entry: LogEntry, clock_ahead: float) -> float:
        """Returns the commit time of the first transaction of an entry, by this machine's clock; 0 if unknown."""
        return self._arrivals.committed_at(entry, clock_ahead)

    def close(self) -> None:
        """Closes the ring."""
        self._arrivals.close()
