"""The task file while its task runs: which changes of it are taken over, and which wait for the next start.

A change of what is followed, or of how much is done at once, is taken over by another attempt from the target's
checkpoint, in the same process. A change of where the task reads, writes and keeps things would make it another task
under way; it is said, and nothing of it happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from pidts.task.config import TaskConfig

_SAFE: Mapping[str, str] = {
    "allow": "block-allow-list",
    "chunk_rows": "pidts.chunk-rows",
    "copy_threads": "mydumpers.threads",
    "copy_rate": "pidts.copy-rate",
    "direct_rows": "pidts.spark.direct-rows",
    "relay_keep": "pidts.relay-keep",
    "safe_mode": "syncers.safe-mode",
    "split_transactions": "pidts.split-transactions",
}
_WAITS: Mapping[str, str] = {
    "name": "name",
    "mode": "task-mode",
    "source": "mysql-instances",
    "target": "target-database",
    "workers": "syncers.worker-count",
    "version_column": "pidts.version-column",
    "zone": "pidts.zone",
    "relay": "pidts.relay",
    "spark_master": "pidts.spark.master",
    "spark_conf": "pidts.spark.conf",
}
_NOTHING = frozenset({"ignored_checks", "notes", "path"})
"""What a task that runs does not ask for."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Between the task that runs and its file."""

    config: TaskConfig
    """What runs, with what can be taken over."""
    taken: tuple[str, ...]
    """Keys of the task file."""
    waiting: tuple[str, ...]


def difference(running: TaskConfig, file: TaskConfig) -> Difference:
    """What becomes of the file's changes."""
    changed = [
        field.name
        for field in fields(TaskConfig)
        if field.name not in _NOTHING and getattr(running, field.name) != getattr(file, field.name)
    ]
    taken = {name: getattr(file, name) for name in changed if name in _SAFE}
    waiting = tuple(_WAITS[name] for name in changed if name not in _SAFE)
    return Difference(replace(running, **taken), tuple(_SAFE[name] for name in taken), waiting)


class FileWatch:
    """Notices that a file is another one than before. What it is at first counts as a change.

    An editor may be in the middle of writing it: a change counts once two looks find the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: tuple[int, int, int] | None = None
        self._seen: tuple[int, int, int] | None = None

    def is_changed(self) -> bool:
        """Once for each change; a file that is gone is none, since editors replace files."""
        state, last = self._state(), self._last
        self._last = state
        if state is None or state != last or state == self._seen:
            return False
        self._seen = state
        return True

    def forget(self) -> None:
        """The change that was noticed last counts once more."""
        self._seen = None

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
