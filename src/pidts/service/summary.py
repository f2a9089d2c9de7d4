"""Describes a task for programs and the page: a summary for the overview, and all details."""

from __future__ import annotations

import time
from typing import Any

from pidts.model.advice import with_task
from pidts.model.errors import plural
from pidts.service.watched_task import WatchedTask


def summary(task: WatchedTask, now: float) -> dict[str, Any]:
    """Returns a task's line of the overview. `now` is a time of the monotonic clock, like `next_start` of a task."""
    progress = task.progress
    alive = task.is_alive
    error = None if alive or task.wanted.wish != "running" else task.ended.error if task.ended else None
    wait = None if task.next_start is None else max(0.0, task.next_start - now)
    return {
        "name": task.name,
        "wanted": task.wanted.wish,
        "stage": task.stage,
        "since": round(task.since, 3),
        "process": task.process if alive else None,
        "restarts": task.restarts,
        "next_start": None if wait is None or alive else round(time.time() + wait, 1),
        "mode": task.facts.get("mode", ""),
        "sources": task.facts.get("sources", []),
        "target": task.facts.get("target", ""),
        "lag_seconds": progress.get("lag_seconds") if alive else None,
        "held_lag_seconds": progress.get("held_lag_seconds") if alive else None,
        "rate": progress.get("rate", 0.0) if alive else 0.0,
        "message": _with_file(task, _message(task, error)),
        "copy": progress.get("copy"),
        "halted": len(progress.get("halted") or ()),
        "locked_rows": progress.get("locked_rows", 0),
        "needs_operator": bool(progress.get("needs_operator")) or task.stage in {"halted", "failed"},
        "error": _advised(task, error or (progress.get("cause") if alive else None)),
    }


def _with_file(task: WatchedTask, text: str) -> str:
    """Returns the text with the path of the task file in place of `TASK`. The path is read only if it is needed."""
    return with_task(text, str(task.folder.task_file)) if " TASK" in text else text


def _advised(task: WatchedTask, error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the error with the path of the task file in its text and its advice; None if there is no error."""
    return error and {**error, **{name: _with_file(task, str(error.get(name, ""))) for name in ("what", "todo")}}


def overview(task: WatchedTask, now: float) -> dict[str, Any]:
    """Returns the summary with the curves of the last hour."""
    return summary(task, now) | {"last_hour": task.history.to_json()}


def detail(task: WatchedTask, now: float) -> dict[str, Any]:
    """Returns the summary with everything that the process has reported."""
    progress = task.progress
    if halts := progress.get("halted"):
        advised = [{**halt, "todo": _with_file(task, str(halt.get("todo", "")))} for halt in halts]
        progress = {**progress, "halted": advised}
    return summary(task, now) | {"progress": progress, "road": progress.get("road")}


def _message(task: WatchedTask, error: dict[str, Any] | None) -> str:
    if task.is_alive and task.wanted.wish != "running":
        return "stopping at the end of a transaction"
    if error is not None:
        return str(error.get("what", ""))
    if task.waits_for_program and not task.is_alive and task.wanted.wish == "running":
        return "the service loads the program; the first load on a machine compiles the decoder, which takes minutes"
    if not task.is_alive:
        return ""
    halted, locked = len(task.progress.get("halted") or ()), task.progress.get("locked_rows", 0)
    waits = [
        *([f"halted tables: {halted} (pidts ddl list TASK)"] if halted else []),
        *(
            [f"{plural('locked row', locked, 'waits', 'wait')} for a decision (pidts locks list TASK)"]
            if locked
            else []
        ),
    ]
    return str(task.progress.get("message", "")) or "; ".join(waits)
