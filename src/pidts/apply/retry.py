"""Decides how often and how patiently a transaction is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from pidts.model import Transient

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with jitter: two workers in a deadlock must not meet again at the same moment."""

    attempts: int = 8
    first: float = 0.05
    longest: float = 5.0
    patience: float = 20.0
    """Seconds after which no further attempt begins: one that waits for a lock is long, and the task has to say what it
    waits for."""

    def repeat(
        self,
        attempt: Callable[[], Result],
        *,
        drop: Callable[[], None],
        sleep: Callable[[float], None],
        given_up: Callable[[Transient, int], Transient],
    ) -> Result:
        """Returns what the first attempt returns that raises no `Transient`.

        `drop` gives up what an attempt has left behind, after any error. `given_up` makes the error to raise of the
        last one and the number of attempts.
        """
        began = time.monotonic()
        for number in count(1):
            try:
                return attempt()
            except Transient as error:
                drop()
                if self.is_over(number, time.monotonic() - began):
                    raise given_up(error, number) from error
                sleep(self.pause(number))
            except BaseException:
                drop()
                raise
        raise AssertionError  # the loop returns or raises

    def is_over(self, attempt: int, seconds: float) -> bool:
        """Whether a failed attempt (1 is the first) that ended so long after the first one began was the last."""
        return attempt >= self.attempts or seconds >= self.patience

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the given failed attempt (1 is the first)."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
