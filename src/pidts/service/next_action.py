"""Decides whether and when a service starts a task's process again, and names the task's stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pidts.service.state_folder import Wish

TaskStage = Literal[
    "starting", "copy", "sync", "paused", "halted", "synced", "stopped", "failed", "waiting", "cut-over"
]
"""The current state of a task, as programs and the page show it.

`waiting`: the task continues by itself when the cause in its message is gone. `cut-over`: the task has ended for good,
since the application writes to the target now.
"""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
HEALTHY_SECONDS: Final = 60.0
"""After a process has lived this long, the pause before the next restart is `FIRST_PAUSE` again."""

_HALTED: Final = 5
_NOT_AGAIN: Final = frozenset({2, 3, _HALTED})
"""Exit codes after which another start would end in the same way: a mistake in the configuration, a failed precheck, a
task that needs an operator.
"""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a task's process."""

    exit_code: int | None
    """None: the process could not be started, or has not recorded its end, for example because it was killed."""
    stage: str = ""
    """The stage of the run at its end; empty if the run has ended with an error."""
    error: dict[str, Any] | None = None
    may_pass: bool = False
    """Whether the cause may pass by itself, whatever the exit code, such as a server that did not answer."""

    @property
    def is_cut_over(self) -> bool:
        """Whether the task was cut over. A cutover is not a failure, and the task must not run again."""
        return self.error is not None and self.error.get("code") == "cut-over"

    @property
    def is_final(self) -> bool:
        """Whether the service leaves the task ended until somebody starts it.

        A run that ended as `synced` is not started again: its full copy is complete. A run that was stopped by a signal
        from outside the service, as in a shutdown of the machine, is started again.
        """
        if self.may_pass:
            return False
        return self.exit_code in _NOT_AGAIN or (self.exit_code == 0 and self.stage == "synced")


def pause_before(restarts: int) -> float:
    """Returns the seconds before the next start. `restarts` processes have died soon after their start."""
    return min(FIRST_PAUSE * (1 << min(restarts, 10)), LONGEST_PAUSE)


def task_stage(wish: Wish, *, is_alive: bool, reported: str, ended: ProcessEnd | None) -> TaskStage:
    """Returns the stage of a task. `reported`: the last stage that its living process has reported, or empty."""
    if is_alive:
        return _of_running(reported)
    if wish != "running":
        return wish
    if ended is None:
        return "starting"
    if ended.is_cut_over:
        return "cut-over"
    if (ended.exit_code == _HALTED and not ended.may_pass) or (ended.is_final and ended.stage == "halted"):
        return "halted"
    if ended.is_final:
        return "synced" if ended.exit_code == 0 else "failed"
    return "waiting"


def _of_running(reported: str) -> TaskStage:
    if reported in {"copy", "sync", "halted", "synced"}:
        return reported  # type: ignore[return-value]  # the set has only such words
    # A run reports `paused` while it waits for a server. Here `paused` means that an operator has paused the task.
    return "waiting" if reported == "paused" else "starting"
