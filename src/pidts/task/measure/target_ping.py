"""Reads the target's clock on an open connection, to measure the round trip and the clocks' difference."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from pidts.apply import TargetSession

_REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class Ping:
    """An answer of the target to the question for its clock."""

    seconds: float
    clock_ahead: float
    """The seconds by which the server's clock is ahead of this machine's, exact to half a round trip."""


class TargetPing:
    """Remembers the last few answers of the target."""

    def __init__(self) -> None:
        self._last: deque[Ping] = deque(maxlen=_REMEMBERED)

    def __call__(self, session: TargetSession) -> None:
        """Asks the target for its clock once, and stores the answer."""
        began, here = time.monotonic(), time.time()
        there = session.clock()
        seconds = time.monotonic() - began
        self._last.append(Ping(seconds, there - here - seconds / 2))

    @property
    def best(self) -> Ping | None:
        """The fastest of the last answers, which best shows the network's delay alone; None before the first answer."""
        return min(self._last, key=lambda one: one.seconds, default=None)
