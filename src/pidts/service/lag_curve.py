"""Keeps a task's lag and its rate (rows per second) of the last hour, for the curves of the overview."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

EVERY_SECONDS: Final = 20
_LENGTH: Final = 180


class LagCurve:
    """The highest lag and the mean rate of each interval; None if they are not known."""

    def __init__(self, stored: dict[str, Any] | None = None, now: float = 0.0) -> None:
        """Begins with the curves that an earlier service has stored. The intervals since then are empty."""
        self._lag: deque[float | None] = deque(maxlen=_LENGTH)
        self._rate: deque[float | None] = deque(maxlen=_LENGTH)
        self._slot = 0
        self._rates: list[float] = []
        found = stored or {}
        slot, lag, rate = found.get("slot"), found.get("lag"), found.get("rate")
        if isinstance(slot, int) and isinstance(lag, list) and isinstance(rate, list) and slot <= now // EVERY_SECONDS:
            self._lag.extend(map(_number, lag[-_LENGTH:]))
            self._rate.extend(map(_number, rate[-len(self._lag) :] if self._lag else ()))
            while len(self._rate) < len(self._lag):
                self._rate.appendleft(None)
            self._slot = slot

    def take(self, now: float, lag: float | None, rate: float | None) -> bool:
        """Adds the lag and the rate of the moment `now`. Returns whether a new interval has begun."""
        slot = int(now // EVERY_SECONDS)
        is_new = slot != self._slot or not self._lag
        if is_new:
            if slot > self._slot and self._lag:
                for _ in range(min(slot - self._slot - 1, _LENGTH)):
                    self._lag.append(None)
                    self._rate.append(None)
            self._lag.append(None)
            self._rate.append(None)
            self._slot, self._rates = slot, []
        if lag is not None:
            self._lag[-1] = round(max(lag, self._lag[-1] or 0.0), 3)
        if rate is not None:
            self._rates.append(rate)
            self._rate[-1] = round(sum(self._rates) / len(self._rates), 1)
        return is_new

    def to_json(self) -> dict[str, Any]:
        """Returns the curves of the overview."""
        return {"every_seconds": EVERY_SECONDS, "lag": list(self._lag), "rate": list(self._rate)}

    def stored(self) -> dict[str, Any]:
        """Returns the curves with which a later service continues."""
        return {"slot": self._slot, "lag": list(self._lag), "rate": list(self._rate)}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
