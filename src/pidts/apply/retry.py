"""Decides how often a transaction is tried again, and how long the pauses are."""

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
    """Exponential backoff with jitter, so that two workers do not try again at the same moment after a deadlock."""

    attempts: int = 8
    first: float = 0.05
    longest: float = 5.0
    patience: float = 20.0
    """After this many seconds, no further attempt begins. An attempt that waits for a lock may take long, and until the
    attempts end, the task cannot report what it is waiting for.
    """

    def repeat(
        self,
        attempt: Callable[[], Result],
        *,
        drop: Callable[[], None],
        sleep: Callable[[float], None],
        given_up: Callable[[Transient, int], Transient],
    ) -> Result:
        """Returns the result of the first attempt that raises no `Transient`.

        After any error, `drop` discards the remains of the attempt. `given_up` turns the last error and the number of
        attempts into the error that is raised.
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
        raise AssertionError  # never reached: the loop returns or raises

    def is_over(self, attempt: int, seconds: float) -> bool:
        """Whether this failed attempt (1 is the first) is the last, since it ended `seconds` after the first began."""
        return attempt >= self.attempts or seconds >= self.patience

    def pause(self, attempt: int) -> float:
        """Returns the seconds to wait after the given failed attempt (1 is the first)."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
