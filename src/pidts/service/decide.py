"""Decides what a service does with a task: whether its process is started again, when, and what its stage is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pidts.service.state_folder import Wish

TaskStage = Literal[
    "starting", "copy", "sync", "paused", "halted", "synced", "stopped", "failed", "waiting", "cut-over"
]
"""What a task does now, for those who look at it.

`waiting`: it goes on by itself when the cause in its message has ended. `cut-over`: it is over, since the application
writes to the target now.
"""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
HEALTHY_SECONDS: Final = 60.0
"""A process that has lived so long did not fail at its start: the next pause is the first one again."""

_HALTED: Final = 5
_NOT_AGAIN: Final = frozenset({2, 3, _HALTED})
"""Exit codes after which another start would end the same way: configuration, prechecks, a task that needs a person."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a task's process."""

    exit_code: int | None
    """None: it was killed, and nobody has seen by what."""
    stage: str = ""
    """The stage of the run at its end; empty if it has ended with an error."""
    error: dict[str, Any] | None = None
    may_pass: bool = False
    """Whether the cause may end by itself, whatever the exit code says: a server that does not answer at the start."""

    @property
    def is_cut_over(self) -> bool:
        """Whether the task was cut over: nothing has failed, and it must not run again."""
        return self.error is not None and self.error.get("code") == "cut-over"

    @property
    def is_final(self) -> bool:
        """Whether it is left as it is until somebody starts the task.

        A run that ends as `synced` has done all of a full copy. One that was stopped by a signal which the service has
        not sent (a shutdown of the machine) is to go on.
        """
        if self.may_pass:
            return False
        return self.exit_code in _NOT_AGAIN or (self.exit_code == 0 and self.stage == "synced")


def pause_before(restarts: int) -> float:
    """Returns the seconds before another start, after so many starts that did not last."""
    return min(FIRST_PAUSE * (1 << min(restarts, 10)), LONGEST_PAUSE)


def task_stage(wish: Wish, *, is_alive: bool, reported: str, ended: Ended | None) -> TaskStage:
    """Returns the stage of a task. `reported` is what its living process said last; empty before that."""
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
    # A run calls itself paused while it waits for a server; here the word is the operator's.
    return "waiting" if reported == "paused" else "starting"
