"""The reports of a task's process to the service: facts from its task file, and its progress.

A change is reported within half a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pidts.service.state_folder import TaskFolder
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.ddl_commands import needs_operator
from pidts.task.operate.metrics import metric_families
from pidts.task.operate.progress import Progress, TableProgress

_SECONDS: Final = 0.5
_AT_LEAST_SECONDS: Final = 5.0
"""After this time, a report is written even if only times and rates have changed."""
_TABLES: Final = 1000


def facts_of(parts: Sequence[TaskConfig]) -> dict[str, Any]:
    """Returns the facts of a task file that the overview shows. The facts contain no secret."""
    target = parts[0].target
    return {
        "mode": "channel" if target.is_datacenter else parts[0].mode,
        "sources": [part.source.source_id for part in parts],
        "target": target.place,
    }


def progress_json(progress: Progress) -> dict[str, Any]:
    """Returns a snapshot for programs, with rates. Of more than `_TABLES` tables, finished ones are left out first."""
    found = progress.to_json()
    shown = sorted(progress.tables, key=lambda table: 2 if table.done else 0 if table.copied else 1)[:_TABLES]
    waiting = [table for table in progress.tables if not table.done]
    return found | {
        "rate": round(progress.rate, 1),
        "copy_rate": round(progress.copy_rate, 1),
        "lag_seconds": None if progress.lag_seconds is None else round(progress.lag_seconds, 3),
        "held_lag_seconds": None if progress.held_lag_seconds is None else round(progress.held_lag_seconds, 3),
        "message": progress.message,
        "needs_operator": any(map(needs_operator, progress.halted)) or bool(progress.locked),
        "copy": {
            "tables": len(progress.tables),
            "done": len(progress.tables) - len(waiting),
            "copied": sum(table.copied for table in progress.tables),
            "estimate": sum(max(table.estimate, table.copied) for table in progress.tables),
            "eta_seconds": found["eta_seconds"],
        }
        if progress.tables
        else None,
        "tables": [_table(table) for table in shown],
        "locked": progress.locked,
    }


def metrics_json(progress: Progress) -> list[list[Any]]:
    """Returns a task's metrics as plain values. The service makes a page for Prometheus from all tasks' metrics."""
    return [
        [family.name, family.documentation, family.type, [[one.name, one.labels, one.value] for one in family.samples]]
        for family in metric_families(progress)
    ]


def _table(table: TableProgress) -> dict[str, Any]:
    eta = table.eta_seconds
    return table.to_json() | {
        "rate": round(table.rate, 1),
        "eta_seconds": None if eta is None else round(eta, 1),
    }


class _LastSnapshot:
    def __init__(self) -> None:
        self.progress: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.progress = progress


@contextmanager
def reported(folder: TaskFolder, run: str, facts: dict[str, Any]) -> Iterator[Callable[[Progress], None]]:
    """Yields a function that takes snapshots. A thread writes the latest one to the task's folder.

    The code that makes the snapshots must not wait for a disk, so the thread writes them. It writes a snapshot even if
    no other snapshot follows.
    """
    latest, over = _LastSnapshot(), threading.Event()

    def write(progress: Progress) -> None:
        value = {
            "run": run,
            "facts": facts,
            "progress": progress_json(progress),
            "metrics": metrics_json(progress),
        }
        with suppress(OSError):  # if the disk is full, the task continues, and the next report is tried
            folder.write("progress", value)

    def follow() -> None:
        shown: Progress | None = None
        waited = _AT_LEAST_SECONDS
        while not over.wait(_SECONDS):
            waited += _SECONDS
            progress = latest.progress
            if (
                progress is not None
                and progress is not shown
                and (waited >= _AT_LEAST_SECONDS or _differ(progress, shown))
            ):
                write(progress)
                shown, waited = progress, 0.0

    thread = threading.Thread(target=follow, name="report", daemon=True)
    thread.start()
    try:
        yield latest
    finally:
        over.set()
        thread.join()
        if latest.progress is not None:
            write(latest.progress)


def _differ(one: Progress, other: Progress | None) -> bool:
    """Whether two snapshots differ in more than times and rates."""
    if other is None:
        return True
    return (one.stage, one.message, one.rows, one.batches, one.halted, one.locked, one.tables) != (
        other.stage,
        other.message,
        other.rows,
        other.batches,
        other.halted,
        other.locked,
        other.tables,
    ) or [source.applied_lsn for source in one.sources] != [source.applied_lsn for source in other.sources]
