"""Keeps the lag of the last minute, and draws it with a bar for every two seconds."""

from __future__ import annotations

from collections import deque

_EVERY_SECONDS = 2.0
_BARS = " ▁▂▃▄▅▆▇█"
_LENGTH = 30


class LagHistory:
    """The highest lag of each interval of the last minute; None for an interval in which the lag was not known."""

    def __init__(self) -> None:
        self._lags: deque[float | None] = deque(maxlen=_LENGTH)
        self._until = 0.0

    def take(self, lag: float | None, now: float) -> None:
        """Adds the present lag. `now` is a time of the monotonic clock."""
        if now >= self._until or not self._lags:
            self._lags.append(lag)
            self._until = now + _EVERY_SECONDS
        elif lag is not None:
            self._lags[-1] = max(lag, self._lags[-1] or 0.0)

    @property
    def picture(self) -> str:
        """The bars as text; empty if the lag was always below a second."""
        highest = max((lag for lag in self._lags if lag is not None), default=0.0)
        if highest < 1:
            return ""
        full = len(_BARS) - 1
        return "".join(" " if lag is None else _BARS[max(1, round(lag / highest * full))] for lag in self._lags)
