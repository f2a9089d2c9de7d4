"""Ends a run whose task is being cut over, and keeps a task from running that was.

The record is on the target. A run looks at it while it goes on, on a connection of its own, and a start looks behind
its claim: either the start sees the record, or the cutover claims the task later and the run can write no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from pidts.apply import Target, TargetSession
from pidts.model import CutoverStage, Fenced, Transient
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.presence import show_presence

_LOOK_SECONDS = 1.0


def is_cut_over(target: TargetSession, task: str) -> bool:
    """Whether the task must not run any more."""
    record = target.meta.cutovers.read(task)
    return record is not None and record.stage is not CutoverStage.BEGUN


def demand_not_cut_over(target: TargetSession, config: TaskConfig) -> None:
    """Raises if the task was cut over."""
    if is_cut_over(target, config.name):
        raise Fenced(
            "cut-over",
            f"task {config.name} was cut over: the application may write to the target now",
            todo=f"If it does not yet, and the task is to go on: pidts cutover {config.path} --undo --yes",
        )


class CutoverWatch:
    """Looks once a second whether the task is being cut over, and shows meanwhile that this run is at work."""

    def __init__(
        self, task: str, source: str, target: Target, also: Callable[[TargetSession], None] = lambda _: None
    ) -> None:
        """`also` asks the target for something else on the same connection, as often."""
        self._task, self._source, self._target, self._also = task, source, target, also
        self._session: TargetSession | None = None
        self._looked = time.monotonic()

    def is_cut_over(self) -> bool:
        """Whether the run has to end; False while the target cannot be asked."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        with suppress(Transient):
            try:
                if self._session is None:
                    self._session = self._target.connect()
                    show_presence(self._session, self._task, self._source)
                self._also(self._session)
                return is_cut_over(self._session, self._task)
            except BaseException:
                self.close()
                raise
        return False

    def close(self) -> None:
        """Closes the connection; the next look opens another one."""
        if self._session is not None:
            self._session.close()
            self._session = None
