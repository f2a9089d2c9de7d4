"""Measures how long the source's log takes to reach the relay, to a few milliseconds, without the servers' clocks.

`LogWatch` regularly asks the source for the end of its log. When the relay has reached this place, it has all changes
that were committed before the query. The time from the query until this moment is the lag of receiving. The lag is 0 if
the relay had reached the place before the query. The events' own times do not show the lag: they may be in whole
seconds, or be the time at which a long statement began.

Until the relay reaches the place, the lag is at least the time since the query. The relay may never reach the place,
since some servers count bytes that they do not send (MySQL counts the header of an encrypted file). So a heartbeat
event has the same effect: a server sends it when it has sent its whole log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pidts.model import Lsn


@dataclass(frozen=True, slots=True)
class SourceLogEnd:
    """An answer of the source with the end of its log."""

    lsn: Lsn
    asked_at: float
    """The time before the query, by a monotonic clock."""
    seconds: float
    """The round trip of a query that reads no table."""
    clock_ahead: float | None
    """The seconds by which the server's clock is ahead, exact to half a round trip; None: unknown."""


@dataclass(frozen=True, slots=True)
class KnownLag:
    """The last known lag of receiving, and the seconds by which the source's clock is ahead of this machine's clock."""

    seconds: float | None = None
    clock_ahead: float | None = None


class ReceiveLag:
    """The lag of one stream. One thread calls `look`."""

    def __init__(self, arrived: Callable[[Lsn], float | None]) -> None:
        """`arrived` returns when the log up to an Lsn arrived, by this machine's clock."""
        self._arrived = arrived
        self._end: SourceLogEnd | None = None
        self._is_open = False
        self._lag: float | None = None

    def look(
        self, end: SourceLogEnd | None, received: Lsn | None, data_at: float, heard_at: float, now: float, wall: float
    ) -> None:
        """Updates the lag: compares the last known end of the source's log with the received log.

        `data_at` is the time when log last arrived, `heard_at` the time when the last complete event or heartbeat
        arrived.
        """
        if end is not None and end is not self._end:
            self._end, self._is_open = end, True
        if self._end is None or not self._is_open or received is None:
            return
        since = self._end.asked_at
        if received >= self._end.lsn:
            arrived = self._arrived(self._end.lsn)
            # Only the last few thousand arrivals are recorded. If none is recorded for this Lsn, the log came long ago.
            came = now - (wall - arrived) if arrived is not None else min(data_at, since)
            self._lag, self._is_open = max(0.0, came - since), False
        elif data_at < heard_at and heard_at > since + self._end.seconds:
            self._lag, self._is_open = max(0.0, data_at - since), False

    def seconds(self, now: float) -> float | None:
        """Returns the lag; None before the first answer."""
        if self._is_open and self._end is not None:
            return max(self._lag or 0.0, now - self._end.asked_at - self._end.seconds)
        return self._lag

    def known(self, now: float) -> KnownLag:
        """Returns the lag and the difference of the clocks, as known at this moment."""
        return KnownLag(self.seconds(now), self._end.clock_ahead if self._end is not None else None)

    def to_status(self, now: float) -> dict[str, float | None]:
        """Returns the fields of the replicator's status."""
        end = self._end
        return {
            "lag_seconds": self.seconds(now),
            "round_trip_seconds": end.seconds if end is not None else None,
            "clock_ahead_seconds": end.clock_ahead if end is not None else None,
        }
