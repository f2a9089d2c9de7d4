"""Says how long an attempt that ends may wait for the batch that it has begun.

If the process goes on, the attempt waits without a limit: the next attempt must not meet a batch of this one. If the
process is going to end, the batch ends with the process. The process may be asked to end at any moment of the wait. The
counterexample: an attempt ends because the task file has changed, and its batch waits for a lock on the target. Then
the run is asked to end, and waits for as long as the lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class EndPatience:
    """The patience of one attempt's end."""

    def __init__(self, leaves: Callable[[], bool], seconds: float) -> None:
        """Takes a function that says whether the process is going to end, and the seconds to wait from then on."""
        self._leaves, self._seconds = leaves, seconds
        self._until: float | None = None

    def is_over(self) -> bool:
        """Whether the attempt stops waiting: a batch that is still under way ends with the process."""
        if self._until is None and self._leaves():
            self._until = time.monotonic() + self._seconds
        return self._until is not None and time.monotonic() >= self._until
