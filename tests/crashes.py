"""The simulated death of a process, anywhere or at a named point of the target's transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytest

_Found = TypeVar("_Found")


class ProcessDied(BaseException):
    """Simulates the death of the process: no code of the product catches this error."""


class Crashes:
    """A hook of the target in memory. Each process dies after the number of points that is given for it."""

    def __init__(self, after: Iterable[int]) -> None:
        self._after: Iterator[int] = iter(after)
        self.left = next(self._after, None)

    def __call__(self, point: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.next()
            raise ProcessDied(point)

    def next(self) -> None:
        """Begins to count for the next process."""
        self.left = next(self._after, None)


def survive(run: Callable[[], _Found]) -> _Found:
    """Repeats `run` until it ends without a crash."""
    while True:
        try:
            return run()
        except ProcessDied:
            continue


def break_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, after: bool) -> None:
    """Ends the process at one call of a function: before it, or after its effect."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def broken(*words: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != call:
            return real(*words, **named)
        if after:
            real(*words, **named)
        raise ProcessDied

    monkeypatch.setattr(owner, name, broken)
