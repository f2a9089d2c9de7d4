"""When a run that is to end by itself has ended: all parts of the task are where they were to get, at the same time.

A part that has arrived goes on until the others have. Counterexample: two sources, one schema change in the log of
each, which waits for the other's. The first part rests at its change, all else is applied. If it left now, the second
would wait for it at its own change for ever; so it stays, the change is made, and it goes on behind it.

What rests may so have to get on again. Therefore it does not count that all have been there, but that each was found
there once more after the last of them came, and after anything has moved that some of them may have waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SETTLED_SECONDS = 1.0
"""A part that is let go on needs a moment to be seen doing it."""


class Goals:
    """Of all parts of one run."""

    def __init__(self, parts: int, moves: Callable[[], int] = lambda: 0) -> None:
        """`moves` counts what one part does that may let another go on."""
        self._parts, self._moves = parts, moves
        self._moved = moves()
        self._since: dict[str, float] = {}
        """Since when each part that has arrived is there, without a break."""
        self._seen: dict[str, float] = {}
        """When it was last found there."""
        self._over = False
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Once it is, it stays so."""
        return self._over

    def found(self, part: str, *, arrived: bool) -> bool:
        """What a part has just found about itself; whether the run is over."""
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
