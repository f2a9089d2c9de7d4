"""Decides how often and how patiently a transaction is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter: two workers in a deadlock must not meet again at the same moment."""

    attempts: int = 8
    first: float = 0.05
    longest: float = 5.0
    patience: float = 20.0
    """Seconds after which no further attempt begins: one that waits for a lock is long, and the task has to say what it
    waits for."""

    def is_over(self, attempt: int, seconds: float) -> bool:
        """Whether a failed attempt (1 is the first) that ended so long after the first one began was the last."""
        return attempt >= self.attempts or seconds >= self.patience

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the given failed attempt (1 is the first)."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
