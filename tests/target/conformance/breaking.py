"""A target that loses its session at a chosen call, before or after the call took effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pidts.apply import Target

CALLS = frozenset(
    {
        "begin",
        "commit",
        "execute",
        "lock_checkpoint",
        "read_journal",
        "save_checkpoint",
        "save_structures",
        "write",
        "write_journal",
    }
)


class Died(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class Breaking:
    """Each call of interest is two points, before and after; `broken` is the number of the one that fails, once."""

    target: Target
    broken: int = -1
    error: Callable[[], BaseException] = Died
    points: list[str] = field(default_factory=list)
    watch: Callable[[str], None] = lambda point: None

    def connect(self) -> Any:
        return _Session(self, self.target.connect())

    def reach(self, point: str, session: Any) -> None:
        self.points.append(point)
        self.watch(point)
        if len(self.points) - 1 == self.broken:
            session.close()
            raise self.error()


class _Session:
    def __init__(self, owner: Breaking, session: Any) -> None:
        self._owner, self._session = owner, session

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name not in CALLS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._owner.reach(f"{name}:before", self._session)
            result = found(*args, **kwargs)
            self._owner.reach(f"{name}:after", self._session)
            return result

        return call
