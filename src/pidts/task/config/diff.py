"""Decides which edits of the task file a running task applies, and which have to wait for the next start.

The running task applies edits of the rules and of the limits by a new attempt, from the target's checkpoint, in the
same process. Edits of the servers, folders and names would make a different task. The running task reports them, and
the next start applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pidts.rules import Rules
from pidts.source import SourceConfig
from pidts.task.config.servers import PublishTo, SourceSpec, TargetSpec
from pidts.task.config.task_file import TaskConfig

_Server = TypeVar("_Server", SourceConfig, TargetSpec, PublishTo)
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
"""The attributes whose edits a running task applies, with their keys in the task file.

Whether an edited route or mapping can be applied depends on the tables: see `pidts.task.tables.rule_changes`.
"""
_WAITS: Mapping[str, str | Mapping[str, str]] = {
    "online": "online-ddl",
    "safe_start": "syncers.safe-mode-duration",
    "name": "name",
    "mode": "task-mode",
    "shard_mode": "shard-mode",
    "source": "mysql-instances",
    "target": "target-database",
    "workers": "syncers.worker-count",
    "version_column": "pidts.version-column",
    "zones": {
        "name": "pidts.zone",
        "target": "pidts.target-zone",
        "forwards": "pidts.forward",
        "converges": "pidts.conflict",
        "owners": "pidts.owners",
        "both_have_rows": "pidts.both-have-rows",
    },
    "counters_ahead": "pidts.counters-ahead",
    "heartbeat": "pidts.heartbeat",
    "relay": "pidts.relay",
    "relay_from": "pidts.relay-from",
    "spark_master": "pidts.spark.master",
    "spark_conf": "pidts.spark.conf",
}
_NOTHING = frozenset({"ignored_checks", "notes", "path", "rule_names"})
"""Attributes that a running task does not use."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """The difference between the running task and its file."""

    config: TaskConfig
    """The running configuration with the edits that can be applied."""
    taken: tuple[str, ...]
    """The edited keys whose edits can be applied."""
    waiting: tuple[str, ...]


def difference(running: TaskConfig, file: TaskConfig) -> ConfigDifference:
    """Compares the running configuration with the file."""
    changed = [
        field.name
        for field in fields(TaskConfig)
        if field.name not in _NOTHING and _compared(running, field.name) != _compared(file, field.name)
    ]
    taken: dict[str, Any] = {name: getattr(file, name) for name in changed if name in _SAFE}
    if "rules" in taken:
        taken["rules"] = _with_tools(file.rules, running.rules)
    waiting = {name: getattr(file, name) for name in changed if name not in _SAFE}

    def keys(known: Mapping[str, str | Mapping[str, str]], edited: Mapping[str, Any]) -> tuple[str, ...]:
        found = (_keys(known[name], getattr(running, name), value) for name, value in edited.items())
        return tuple(chain.from_iterable(found))

    return ConfigDifference(replace(running, **taken), keys(_SAFE, taken), keys(_WAITS, waiting))


def _compared(config: TaskConfig, name: str) -> object:
    """Returns an attribute without passwords from password files, since each login reads these files again."""
    value = getattr(config, name)
    if isinstance(value, SourceSpec):
        return replace(value, server=_without_file(value.server), servers=tuple(map(_without_file, value.servers)))
    if isinstance(value, TargetSpec):
        to = value.publish_to
        return _without_file(replace(value, publish_to=to and _without_file(to)))
    return value


def _without_file(server: _Server) -> _Server:
    return replace(server, password="") if server.password_file else server


def _with_tools(rules: Rules, other: Rules) -> Rules:
    """Returns `rules`, but with the patterns of `other` for the tables of schema change tools.

    A tool may be in the middle of a schema change, so the patterns for its tables must not change now.
    """
    return replace(rules, allow=replace(rules.allow, shadow=other.allow.shadow, trash=other.allow.trash))


def _keys(known: str | Mapping[str, str], before: object, after: object) -> list[str]:
    if isinstance(known, str):
        return [known]
    return [key for part, key in known.items() if getattr(before, part) != getattr(after, part)]


class FileWatch:
    """Notices that a file has changed. The content that is found first also counts as a change.

    A change counts only when two successive calls find the same file: an editor may still be writing it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: tuple[int, int, int] | None = None
        self._seen: tuple[int, int, int] | None = None

    def is_changed(self) -> bool:
        """Returns True once for each change. A missing file is not a change, since editors replace files."""
        state, last = self._state(), self._last
        self._last = state
        if state is None or state != last or state == self._seen:
            return False
        self._seen = state
        return True

    def forget(self) -> None:
        """Makes `is_changed` return True once more for the last change."""
        self._seen = None

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
