"""Ends a run whose task is being cut over, and refuses a start after a cutover.

The target has the record of the cutover. A run reads this record once a second, on a separate connection. A start reads
it before its prechecks and after its claim. If the start does not find the record, the cutover writes it later, and
also claims the task later. After that claim, the run cannot write any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from pidts.apply import Target, TargetSession
from pidts.model import CutoverStage, Fenced, PidtsError, Transient
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.cutover_state import CutoverState, cutover_state
from pidts.task.operate.presence import show_presence

_LOOK_SECONDS = 1.0


class CutOver(Fenced):
    """The task was cut over, and must not run again."""


class CutoverUnderWay(CutOver):
    """A cutover is about to end, or was killed just before its end. If it is undone, the task may run again."""


def demand_not_cut_over(target: TargetSession, config: TaskConfig) -> None:
    """Raises if a cutover forbids the task to run."""
    found = cutover_state(target, config)
    if found is None or not found.forbids_runs:
        return
    what = f"task {config.name} {found}"
    if found.record.stage is CutoverStage.DONE:
        raise CutOver("cut-over", what, todo=found.todo)
    raise CutoverUnderWay("being-cut-over", what, todo=found.todo)


def demand_startable(config: TaskConfig) -> None:
    """Raises if a cutover forbids the task to run.

    The function runs before the prechecks, which would only report that the source is read-only or missing. A target
    that cannot be reached is no error here, since the prechecks report it.
    """
    try:
        with closing(config.target.server.connect()) as target:
            demand_not_cut_over(target, config)
    except CutOver:
        raise
    except PidtsError:
        return


class CutoverWatch:
    """Checks once a second whether the task is being cut over.

    Its connection also shows on the target that this run is active (`pidts.task.operate.presence`).
    """

    def __init__(
        self, config: TaskConfig, target: Target, also: Callable[[TargetSession], None] = lambda _: None
    ) -> None:
        """`also` makes a further query on the same connection, at the same interval."""
        self._config, self._target, self._also = config, target, also
        self._session: TargetSession | None = None
        self._looked = time.monotonic()
        self.seen: CutoverState | None = None
        """The cutover that the last check has found."""
        self.failure: Transient | None = None
        """The reason why the last check had no answer from the target; None if it had one."""

    def forbids_run(self) -> bool:
        """Checks, if a second has passed. Returns whether a cutover was found that requires the run to end.

        Returns False if no check is due, or if the target cannot be reached.
        """
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        try:
            if self._session is None:
                self._session = self._target.connect()
                show_presence(self._session, self._config.name, self._config.source.source_id)
            self._also(self._session)
            self.seen, self.failure = cutover_state(self._session, self._config), None
        except Transient as error:
            self.close()
            self.failure = error
            return False
        except BaseException:
            self.close()
            raise
        return self.seen is not None and self.seen.forbids_runs

    def close(self) -> None:
        """Closes the connection; the next check opens another connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
