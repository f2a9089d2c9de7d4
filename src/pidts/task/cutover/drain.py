"""Waits until the target has all changes of the sources. If no run of the task is seen, runs the task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

from pidts.apply import TargetSession
from pidts.model import Halted, Lsn, PidtsError, PrecheckFailed, SourceTablesKey, TableName, Transient
from pidts.source import connect
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.presence import is_present, is_received_here

_PAUSE = 0.5
_START_SECONDS = 60.0
"""The time in which a run that starts on this machine has to show itself on the target."""
RunOnce = Callable[[], None]
"""Runs the task until it is synced."""


class CutoverStopped(Exception):
    """The user has stopped the command."""


def is_running(part: TaskConfig, target: TargetSession) -> bool:
    """Whether the target shows a run of the part on any machine, or a run is starting on this machine."""
    with suppress(Transient):
        if is_present(target, part.name, part.source.source_id):
            return True
    return is_received_here(part)


def drain(
    parts: Sequence[TaskConfig],
    target: TargetSession,
    stop: threading.Event,
    say: Callable[[str], None],
    run_once: RunOnce,
) -> dict[str, Lsn]:
    """Waits until the target has all tables up to the end of each source's log, and returns these ends."""
    ends = {}
    for part in parts:
        with closing(connect(part.source.server)) as source:
            catch_up = TaskCatchUp(part, source, target, stop=stop, say=say)
            end = ends[part.source.source_id] = catch_up.place()
            for table in tables_of(part, target):
                _await(part, target, catch_up, table, end, stop, run_once)
    return ends


def touched(
    parts: Sequence[TaskConfig], target: TargetSession, before: Mapping[str, Lsn], after: Mapping[str, Lsn]
) -> list[TableName]:
    """Returns the tables that a source has changed between two ends of its log. The relay must have both ends."""
    found = []
    for part in parts:
        source_id = part.source.source_id
        if before[source_id] == after[source_id]:
            continue
        with closing(connect(part.source.server)) as source:
            catch_up = TaskCatchUp(part, source, target)
            found += [
                table
                for table in tables_of(part, target)
                if not catch_up.untouched(table, before[source_id], after[source_id])
            ]
    return found


def tables_of(part: TaskConfig, target: TargetSession) -> list[TableName]:
    """Returns the tables that a part carries, with their names on the source."""
    stored = target.meta.structures.load(part.name, SourceTablesKey(part.source.source_id))
    return sorted(filter(part.allow, stored))


def _await(
    part: TaskConfig,
    target: TargetSession,
    catch_up: TaskCatchUp,
    table: TableName,
    end: Lsn,
    stop: threading.Event,
    run_once: RunOnce,
    start_seconds: float = _START_SECONDS,
) -> None:
    """Waits until the target has a table up to `end`. If no run is seen, calls `run_once`.

    If `run_once` is not possible either, another process on this machine is just starting a run: waits for that run.
    """
    deadline: float | None = None
    while (state := catch_up.await_target(table, end)) is not None:
        if stop.is_set():
            raise CutoverStopped
        if state.waits and not state.is_stopped:
            todo = f"To see what each table waits for: pidts ddl list {part.shell_path}"
            raise Halted("cutover-halted", state.waits, todo=todo)
        if is_running(part, target):
            deadline = None
        elif _is_run(run_once):
            if stop.is_set():
                raise CutoverStopped
            if catch_up.await_target(table, end) is not None:
                what = f"a run of the task has ended, and the target still lacks changes of {table}"
                todo = f"To see what the task waits for: pidts status {part.shell_path}"
                raise PrecheckFailed("cutover-not-ready", what, todo=todo)
            return
        elif deadline is None:
            deadline = time.monotonic() + start_seconds
        elif time.monotonic() > deadline:
            what = "a process on this machine runs the task, but it does not show this on the target"
            todo = f"To see what the run does: pidts status {part.shell_path}. End the process or wait, then try again"
            raise PrecheckFailed("cutover-not-ready", what, todo=todo)
        stop.wait(_PAUSE)


def _is_run(run_once: RunOnce) -> bool:
    """Runs the task. Returns False if another process on this machine has just begun to run it."""
    try:
        run_once()
    except PidtsError as error:
        if error.code != "already-running":
            raise
        return False
    return True
