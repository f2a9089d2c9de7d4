"""Decides when a run that ends by itself is over: all parts of the task are at their goals at the same time.

A part that has arrived continues until the others have arrived. The counterexample: two sources have one schema change
each, and each change waits for the other. The first part waits at its change and has applied all else. If it ended now,
the second part would wait for it at its own change for ever. So it stays, the change is made, and it continues.

A part that has arrived may therefore have to move again. So it is not enough that all parts have been at their goals.
Each must be found there again after the last one arrived, and after any event that some of them may have waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SETTLED_SECONDS = 1.0
"""A part that may continue needs a moment until its movement is visible."""


class Completion:
    """The arrivals of all parts of one run at their goals."""

    def __init__(self, parts: int, moves: Callable[[], int] = lambda: 0) -> None:
        """`moves` counts the events of one part that may let another part continue."""
        self._parts, self._moves = parts, moves
        self._moved = moves()
        self._since: dict[str, float] = {}
        """The time since which each arrived part has been at its goal without interruption."""
        self._seen: dict[str, float] = {}
        """When each part was last found there."""
        self._over = False
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the run is over; it stays over."""
        return self._over

    def found(self, part: str, *, arrived: bool) -> bool:
        """Records whether a part is at its goal now; returns whether the run is over."""
        now = time.monotonic()
        with self._lock:
            moved = self._moves()
            if moved != self._moved:
                self._moved = moved
                self._since.clear()
            if arrived:
                self._since.setdefault(part, now)
                self._seen[part] = now
            else:
                self._since.pop(part, None)
            if len(self._since) == self._parts:
                settling = _SETTLED_SECONDS if self._parts > 1 else 0.0
                last = max(self._since.values()) + settling
                self._over = self._over or min(self._seen[each] for each in self._since) >= last
            return self._over
