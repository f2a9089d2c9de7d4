"""Decides how long an attempt that ends may wait for the batch that it has begun.

If the process continues, the attempt waits without a limit: its batch must not run any more when the next attempt
begins. If the process is going to end, the batch ends with it, so the wait has a limit. The process may be asked to end
during the wait. For example, an attempt ends because the task file has changed, and its batch waits for a lock on the
target. If the run is then asked to end, it must not wait for as long as somebody has the lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class EndDeadline:
    """Decides how long the end of one attempt waits."""

    def __init__(self, leaves: Callable[[], bool], seconds: float) -> None:
        """`leaves` says whether the process is going to end. Once it is, the attempt waits at most `seconds` more."""
        self._leaves, self._seconds = leaves, seconds
        self._until: float | None = None

    def is_over(self) -> bool:
        """Whether the attempt stops waiting for its batch. A batch that is still under way ends with the process."""
        if self._until is None and self._leaves():
            self._until = time.monotonic() + self._seconds
        return self._until is not None and time.monotonic() >= self._until
