"""The task file while its task runs: which changes of it are taken over, and which wait for the next start.

A change of what is followed, or of how much is done at once, is taken over by another attempt from the target's
checkpoint, in the same process. A change of where the task reads, writes and keeps things would make it another task
under way; it is said, and nothing of it happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pidts.rules import Rules
from pidts.task.config.task_file import TaskConfig

_SAFE: Mapping[str, str | Mapping[str, str]] = {
    "limits": {
        "bytes": "syncers.queue-size",
        "row_events": "syncers.batch",
        "chunk_rows": "pidts.chunk-rows",
        "threads": "mydumpers.threads",
        "rate": "pidts.copy-rate",
    },
    "rules": {
        "allow": "block-allow-list",
        "events": "filters",
        "expressions": "expression-filter",
        "mappings": "column-mappings",
        "routes": "routes",
    },
    "alerts": "pidts.alerts",
    "direct_rows": "pidts.spark.direct-rows",
    "hive_keep_changes": "pidts.hive.keep-changes",
    "hive_refresh": "pidts.hive.refresh",
    "lock_limit": "pidts.lock-limit",
    "on_divergence": "pidts.on-divergence",
    "relay_keep": "pidts.relay-keep",
    "retention": "pidts.retention",
    "safe_mode": "syncers.safe-mode",
    "split_transactions": "pidts.split-transactions",
}
"""Whether a route or a mapping can be taken over depends on the tables: see `rule_changes`."""
_WAITS: Mapping[str, str] = {
    "online": "online-ddl",
    "safe_start": "syncers.safe-mode-duration",
    "name": "name",
    "mode": "task-mode",
    "shard_mode": "shard-mode",
    "source": "mysql-instances",
    "target": "target-database",
    "workers": "syncers.worker-count",
    "version_column": "pidts.version-column",
    "zones": "pidts.zone, pidts.target-zone, pidts.forward, pidts.conflict, pidts.owners",
    "counters_ahead": "pidts.counters-ahead",
    "heartbeat": "pidts.heartbeat",
    "relay": "pidts.relay",
    "relay_from": "pidts.relay-from",
    "spark_master": "pidts.spark.master",
    "spark_conf": "pidts.spark.conf",
}
_NOTHING = frozenset({"ignored_checks", "notes", "path", "rule_names"})
"""What a task that runs does not ask for."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """Between the task that runs and its file."""

    config: TaskConfig
    """What runs, with what can be taken over."""
    taken: tuple[str, ...]
    """Keys of the task file."""
    waiting: tuple[str, ...]


def difference(running: TaskConfig, file: TaskConfig) -> ConfigDifference:
    """What becomes of the file's changes."""
    changed = [
        field.name
        for field in fields(TaskConfig)
        if field.name not in _NOTHING and getattr(running, field.name) != getattr(file, field.name)
    ]
    taken: dict[str, Any] = {name: getattr(file, name) for name in changed if name in _SAFE}
    if "rules" in taken:
        taken["rules"] = _with_tools(file.rules, running.rules)
    waiting = tuple(_WAITS[name] for name in changed if name not in _SAFE)
    names = [key for name in taken for key in _keys(_SAFE[name], getattr(running, name), taken[name])]
    return ConfigDifference(replace(running, **taken), tuple(names), waiting)


def _with_tools(rules: Rules, other: Rules) -> Rules:
    """Which tables belong to tools for online schema changes does not change under way: one may be half done."""
    return replace(rules, allow=replace(rules.allow, shadow=other.allow.shadow, trash=other.allow.trash))


def _keys(known: str | Mapping[str, str], before: object, after: object) -> list[str]:
    if isinstance(known, str):
        return [known]
    return [key for part, key in known.items() if getattr(before, part) != getattr(after, part)]


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
        """Lets the change that was noticed last be noticed once more."""
        self._seen = None

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
