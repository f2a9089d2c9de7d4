"""Finds the sources that do not answer while a cutover continues after its step `stop`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from pidts.model import Transient
from pidts.source import connect
from pidts.task.config.task_file import TaskConfig
from pidts.task.cutover.drain import CutoverStopped

_LOOK_SECONDS = 1.0
_DO_NOT_ANSWER = frozenset({"source-unreachable", "source-lost"})


def lost_sources(
    parts: Sequence[TaskConfig], seconds: float, stop: threading.Event, *, writers_stopped: bool
) -> list[str]:
    """Returns the sources that do not answer; waits up to `seconds` for each.

    The cutover can continue without them: at `stop`, the target had all their changes, and with `writers_stopped` the
    user asserts that no program has written to them since. Without this assertion, raises at once.
    """
    return [part.source.source_id for part in parts if not _answers(part, seconds, stop, writers_stopped)]


def _answers(part: TaskConfig, seconds: float, stop: threading.Event, writers_stopped: bool) -> bool:  # noqa: FBT001
    deadline = time.monotonic() + seconds
    while True:
        try:
            connect(part.source.server).close()
        except Transient as error:
            if error.code not in _DO_NOT_ANSWER:
                raise
            if not writers_stopped:
                again = f"pidts cutover {part.shell_path} --yes --writers-stopped"
                todo = (
                    f"{error.todo}. Then run this command again. If the server is gone for good, and no program has "
                    f"written to it since the step `stop`: {again}"
                )
                raise type(error)(error.code, error.what, where=error.where, todo=todo) from error
        else:
            return True
        if time.monotonic() > deadline:
            return False
        if stop.wait(_LOOK_SECONDS):
            raise CutoverStopped
