"""Measures how long the source's log takes into the relay, to a few milliseconds, without any server's clock.

`LogWatch` asks the source for the end of its log now and then. What was committed by the moment of asking is in the
relay when the relay has reached that place. The time in between is the lag of receiving; it is 0 if the place was
reached before. Events' own times are of no use for it where servers tell whole seconds, or the time at which a long
statement began.

While the place is not reached, the lag is at least the time since the question. Some servers count bytes that they
never send (MySQL adds the head of an encrypted file). So a heartbeat counts, too: a server sends one when it has sent
all of its log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pidts.model import Lsn


@dataclass(frozen=True, slots=True)
class SourceLogEnd:
    """An answer of the source: where its log ended."""

    lsn: Lsn
    asked_at: float
    """A monotonic clock, before the question."""
    seconds: float
    """The round trip of the shortest question, in which a server looks up nothing."""
    clock_ahead: float | None = None
    """By how much the server's clock is ahead of this machine's; half a round trip may be wrong with it."""


@dataclass(frozen=True, slots=True)
class KnownLag:
    """What is known of the way from the source to the relay, for whoever notes an arrival."""

    seconds: float | None = None
    clock_ahead: float | None = None


class ReceiveLag:
    """The lag of one stream. One thread feeds it."""

    def __init__(self, arrived: Callable[[Lsn], float | None]) -> None:
        """`arrived` returns when the log up to an Lsn had come, in this machine's clock."""
        self._arrived = arrived
        self._end: SourceLogEnd | None = None
        self._is_open = False
        self._lag: float | None = None

    def look(
        self, end: SourceLogEnd | None, received: Lsn | None, data_at: float, heard_at: float, now: float, wall: float
    ) -> None:
        """Compares the last answer with what has been received.

        `data_at` is when log last arrived, `heard_at` when the source last sent anything whole: a heartbeat, if later.
        """
        if end is not None and end is not self._end:
            self._end, self._is_open = end, True
        if self._end is None or not self._is_open or received is None:
            return
        since = self._end.asked_at
        if received >= self._end.lsn:
            arrived = self._arrived(self._end.lsn)
            # The ring remembers the last few thousand records only: what is not in it came long ago.
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
        """Returns what is known at this moment."""
        return KnownLag(self.seconds(now), self._end.clock_ahead if self._end is not None else None)

    def to_status(self, now: float) -> dict[str, float | None]:
        """Returns the fields of the replicator's status."""
        end = self._end
        return {
            "lag_seconds": self.seconds(now),
            "round_trip_seconds": end.seconds if end is not None else None,
            "clock_ahead_seconds": end.clock_ahead if end is not None else None,
        }
