"""Measures how threads spend their time, so that a run can say which of its stages is slow.

One thread does the work and notes its steps. Another thread may read the times at any moment, even in the middle of a
long step. A thread waits while it does not compute. During a commit, it waits for the target's answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IDLE: Final = ""
_NANO = 1e9


class StepTimes:
    """The seconds that one thread has spent at each step of its work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, float] = {}
        self._step, self._since = IDLE, time.monotonic()

    def step(self, name: str) -> None:
        """Ends the current step, and begins the step `name`; `IDLE` is a step like others."""
        now = time.monotonic()
        with self._lock:
            self._totals[self._step] = self._totals.get(self._step, 0.0) + now - self._since
            self._step, self._since = name, now

    @property
    def now_at(self) -> tuple[str, float]:
        """Returns the current step, and how long it has lasted."""
        with self._lock:
            return self._step, time.monotonic() - self._since

    def reading(self) -> dict[str, float]:
        """Returns the seconds of each step, including the current one."""
        now = time.monotonic()
        with self._lock:
            found = dict(self._totals)
            found[self._step] = found.get(self._step, 0.0) + now - self._since
        return found


@dataclass(frozen=True, slots=True)
class CommitTime:
    """The cost of commits: the seconds that they took, the seconds of computing among these, and the round trips."""

    seconds: float = 0.0
    cpu: float = 0.0
    trips: float = 0
    commits: float = 0

    def __add__(self, other: CommitTime) -> CommitTime:
        return CommitTime(
            self.seconds + other.seconds, self.cpu + other.cpu, self.trips + other.trips, self.commits + other.commits
        )

    def __sub__(self, other: CommitTime) -> CommitTime:
        return CommitTime(
            self.seconds - other.seconds, self.cpu - other.cpu, self.trips - other.trips, self.commits - other.commits
        )

    def __truediv__(self, count: int) -> CommitTime:
        return CommitTime(self.seconds / count, self.cpu / count, self.trips / count, self.commits / count)

    @property
    def waited(self) -> float:
        """Returns the seconds of waiting for the target."""
        return max(0.0, self.seconds - self.cpu)

    def to_json(self) -> list[float]:
        """Returns the numbers from which `of` makes this object again."""
        return [self.seconds, self.cpu, self.trips, self.commits]

    @classmethod
    def of(cls, values: Iterable[float]) -> CommitTime:
        """Returns the object from the numbers of `to_json`."""
        return cls(*values)


class CommitMeter:
    """The time of all commits of one committer. Only one thread at a time commits with it; any thread may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = CommitTime()
        self._begun: tuple[float, float, int] | None = None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Counts the work in the block as one commit."""
        begun = time.monotonic(), time.thread_time(), threading.get_native_id()
        with self._lock:
            self._begun = begun
        try:
            yield
        finally:
            spent = CommitTime(time.monotonic() - begun[0], time.thread_time() - begun[1], 0, 1)
            with self._lock:
                self._total, self._begun = self._total + spent, None

    def add(self, spent: CommitTime) -> None:
        """Adds a time that was measured elsewhere."""
        with self._lock:
            self._total += spent

    def reading(self) -> CommitTime:
        """Returns the total, including the current commit so far."""
        with self._lock:
            total, begun = self._total, self._begun
        if begun is None:
            return total
        seconds, cpu = time.monotonic() - begun[0], _cpu_of(begun[2])
        return total + CommitTime(seconds, min(seconds, max(0.0, cpu - begun[1])) if cpu is not None else 0.0)


def waited_for_cores() -> float | None:
    """Returns how many seconds the threads of this process were ready to run and had no core; None if unknown."""
    found = 0
    try:
        for path in Path("/proc/self/task").iterdir():
            found += int((path / "schedstat").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return found / _NANO


def shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Returns the share of `seconds` that each step took between two readings of `StepTimes`."""
    return {name: min(1.0, max(0.0, spent - before.get(name, 0.0)) / seconds) for name, spent in after.items()}


def _cpu_of(thread: int) -> float | None:
    """Returns how many seconds another thread of this process has computed; None if unknown."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii").split()[0]) / _NANO
    except (OSError, ValueError, IndexError):
        return None
