"""Decides when a channel removes old records, so that programs have time to read them."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 10.0
"""The interval, in seconds, at which old records are removed."""


class Retention:
    """The age at which records may be removed, and the time of the next removal.

    The age counts from the time of the source's event. After a long stop, a channel writes records that are already too
    old. So nothing is removed until the channel has caught up to events younger than the retention. Otherwise the
    records of each commit would be removed before any program has read them. A source that is always busy does not
    delay the removal.
    """

    def __init__(
        self,
        seconds: int,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Removes nothing if `seconds` is 0."""
        self.seconds = seconds
        self._clock, self._monotonic, self._due = clock, monotonic, 0.0

    def passed(self, timestamp: int) -> None:
        """Postpones the next removal if a log part has an event that is older than the retention.

        `timestamp` is the time of the oldest event in the log part; 0 if it is not known.
        """
        if 0 < timestamp < self._clock() - self.seconds:
            self._put_off()

    def is_due(self) -> bool:
        """Whether old records should be removed now. If so, the next removal is due an interval later."""
        if not self.seconds or self._monotonic() < self._due:
            return False
        self._put_off()
        return True

    def _put_off(self) -> None:
        self._due = self._monotonic() + _SECONDS
