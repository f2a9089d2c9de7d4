"""Waits at a run's start for servers that do not answer. Meanwhile the run is paused, as after a lost connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.model import PidtsError, ServerDown, Transient, Where
from pidts.replicate import ReceiveProblem
from pidts.source import connect
from pidts.task.checks.all_sources import require_all_sources_fit
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.tracker import Tracker
from pidts.task.tables.copy_start import Patterns

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_ANSWER_SECONDS = 5.0
"""A server that has not answered after this time is absent. A run that a user stops ends within this time."""


def wait_for_servers(
    parts: Sequence[TaskConfig],
    trackers: Sequence[Tracker],
    wanted: Mapping[str, Patterns],
    down: ServerDown,
    stop: threading.Event,
) -> bool:
    """Returns True when every server answers and every check has passed, or False if a user stops the run before that.

    Raises an error that waiting does not resolve: a server refuses the login, or a check fails. `down` is the error
    of the checks before this call.
    """
    pause, since, logged = _FIRST_PAUSE, time.time(), set[str]()
    while True:
        absent = _absent(parts)
        for part, tracker in zip(parts, trackers, strict=True):
            source = part.source.source_id
            error = absent.get(source)
            tracker.lacks(ReceiveProblem(error, since, time.time()) if error is not None else None)
            cause = error or next(iter(absent.values()), None) or Transient(down.code, down.what, todo=down.todo)
            if cause.what not in logged:
                logged.add(cause.what)
                _log.warning("the run is paused, and begins when the server answers", code=cause.code, cause=str(cause))
            tracker.paused(cause, pause)
        if stop.wait(pause):
            return False
        pause = min(pause * 2, _LONGEST_PAUSE)
        try:
            # The checks are made even while a server is absent: a task that has begun can run without its source.
            require_all_sources_fit(parts, wanted)
        except ServerDown as error:
            down = error
            continue
        for tracker in trackers:
            tracker.begins()
        _log.info("all servers answer, the task begins")
        return True


def _absent(parts: Sequence[TaskConfig]) -> dict[str, Transient]:
    """Returns the error of each source that cannot be reached. The key of the target's error is an empty text.

    A server that refuses the login is not absent: the checks report the refusal.
    """
    found: dict[str, Transient] = {}
    for part in parts:
        source = part.source.server
        place = f"the source at {source.host}:{source.port}"
        try:
            connect(replace(source, connect_timeout=min(source.connect_timeout, _ANSWER_SECONDS))).close()
        except Transient as error:
            found[part.source.source_id] = _waits_for(place, error, Where(source=part.source.source_id))
        except PidtsError:
            continue
    target = parts[0].target
    try:
        with closing(target.server.connect()):
            pass
    except Transient as error:
        found[""] = _waits_for(f"the target at {target.place}", error, error.where)
    except PidtsError:
        pass
    return found


def _waits_for(place: str, error: Transient, where: Where) -> Transient:
    return Transient(error.code, f"the task waits for {place}: {error.what}", where=where, todo=error.todo)
