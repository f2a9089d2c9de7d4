"""How often and how patiently a transaction is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter: two workers in a deadlock must not meet again at the same moment."""

    attempts: int = 8
    first: float = 0.05
    longest: float = 5.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the given failed attempt (1 is the first)."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
