"""Combines the progress of a task's parts into the progress of the task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pidts.task.operate.progress import Progress, Stage, Summary

_FIRST: tuple[Stage, ...] = ("paused", "starting", "stopped", "copy", "sync", "halted", "synced")
"""The stage of a task is the first of these that one of its parts is in."""


class CombinedProgress:
    """Receives the progress of all parts, each from its own thread, and passes on that of the task."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._latest: dict[str, Progress] = {}
        self._lock = threading.Lock()

    def of(self, source: str) -> Callable[[Progress], None]:
        """Returns the function to which one part reports its progress."""

        def take(progress: Progress) -> None:
            with self._lock:
                self._latest[source] = progress
                self._on_progress(Progress(**combined(list(self._latest.values()))))

        return take


def combined_summary(parts: Sequence[Summary]) -> Summary:
    """Returns the summary of the task's run."""
    return Summary(**combined(parts))


def combined(parts: Sequence[Progress]) -> dict[str, Any]:
    """Returns the fields of the task's progress. A task with several sources has no Lsn of its own; each source has."""
    first = parts[0]
    fields = {name: getattr(first, name) for name in Progress.__dataclass_fields__}
    if len(parts) == 1:
        return fields
    lags = [part.lag_seconds for part in parts if part.lag_seconds is not None]
    return fields | {
        "stage": min((part.stage for part in parts), key=_FIRST.index),
        "applied_lsn": None,
        "gtid": "",
        "position": None,
        "rows": {name: sum(part.rows[name] for part in parts) for name in first.rows},
        "batches": sum(part.batches for part in parts),
        "seconds": max(part.seconds for part in parts),
        "lag_seconds": max(lags, default=None),
        "rate": sum(part.rate for part in parts),
        "tables": tuple(replace(table, source=_source(part)) for part in parts for table in part.tables),
        "message": _message(parts),
        "cause": next((part.cause for part in parts if part.cause is not None), None),
        "halted": tuple(halt for part in parts for halt in part.halted),
        "refetched": sum(part.refetched for part in parts),
        "sources": tuple(source for part in parts for source in part.sources),
    }


def _source(part: Progress) -> str:
    return part.sources[0].source


def _message(parts: Sequence[Progress]) -> str:
    """Returns a message that all parts share once, and other messages with their source."""
    said = {part.message for part in parts}
    if len(said) == 1:
        return parts[0].message
    return "; ".join(f"{_source(part)}: {part.message}" for part in parts if part.message)
