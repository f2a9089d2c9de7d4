"""How long the end of an attempt may wait for what it has begun.

Where the process goes on, it waits without end: the next attempt must not meet a batch of this one. Where the process
is going to end, that batch ends with it. The process may be asked to end at any moment of the wait. The counterexample:
an attempt ends because the task file has changed, and its batch waits for a lock on the target. Then the run is asked
to end, and waits for as long as the lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class EndPatience:
    """The patience of one attempt's end."""

    def __init__(self, leaves: Callable[[], bool], seconds: float) -> None:
        """Takes what says whether the process is going to end, and the seconds that are left from then on."""
        self._leaves, self._seconds = leaves, seconds
        self._until: float | None = None

    def is_over(self) -> bool:
        """Whether to leave what has not ended yet to the end of the process."""
        if self._until is None and self._leaves():
            self._until = time.monotonic() + self._seconds
        return self._until is not None and time.monotonic() >= self._until
