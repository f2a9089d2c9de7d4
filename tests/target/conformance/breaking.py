"""A target whose session is lost at a chosen call, before or after the call took effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.crashes import ProcessDied

from pidts.apply import Target

CALLS = frozenset(
    {
        "begin",
        "commit",
        "execute",
        "meta.checkpoints.advance",
        "meta.checkpoints.lock",
        "meta.checkpoints.lock_places",
        "meta.checkpoints.lock_shared",
        "meta.checkpoints.save",
        "meta.journal.read",
        "meta.journal.write",
        "meta.row_locks.add",
        "meta.row_locks.hold",
        "meta.row_locks.lock",
        "meta.row_locks.remove",
        "meta.structures.save",
        "write",
    }
)


@dataclass
class Breaking:
    """Each observed call is two points, before and after; the point with the number `broken` fails once."""

    target: Target
    broken: int = -1
    error: Callable[[], BaseException] = ProcessDied
    points: list[str] = field(default_factory=list)
    watch: Callable[[str], None] = lambda point: None

    def connect(self) -> Any:
        session = self.target.connect()
        return _Watched(self, session, session, "")

    def reach(self, point: str, session: Any) -> None:
        self.points.append(point)
        self.watch(point)
        if len(self.points) - 1 == self.broken:
            session.close()
            raise self.error()


class _Watched:
    """The session, or one of its objects, such as `meta.checkpoints`; `path` is the object's place in the session."""

    def __init__(self, owner: Breaking, session: Any, watched: Any, path: str) -> None:
        self._owner, self._session, self._watched, self._path = owner, session, watched, path

    def __getattr__(self, name: str) -> Any:
        found, path = getattr(self._watched, name), self._path + name
        if any(call.startswith(f"{path}.") for call in CALLS):
            return _Watched(self._owner, self._session, found, f"{path}.")
        if path not in CALLS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._owner.reach(f"{path}:before", self._session)
            result = found(*args, **kwargs)
            self._owner.reach(f"{path}:after", self._session)
            return result

        return call
