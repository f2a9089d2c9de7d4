"""Describes the state of a task's cutover for the operator."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidts.apply import TargetSession
from pidts.model import Cutover, CutoverStage
from pidts.model.errors import utc_time
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.presence import CutoverSession, cutover_session, is_being_cut_over


@dataclass(frozen=True, slots=True)
class CutoverState:
    """The state of a task's cutover."""

    record: Cutover
    target: str
    """The product and address of the target."""
    file: Path
    """The task file."""
    is_active: bool = False
    """Whether a cutover command is seen to run now, on some machine."""
    session: CutoverSession | None = None
    """The session on the target by which the command is seen, if the target shows it."""

    @property
    def needs_operator(self) -> bool:
        """Whether the cutover command seems to be killed: the cutover has not ended, and no command for it is seen."""
        return self.record.stage is not CutoverStage.DONE and not self.is_active

    @property
    def forbids_runs(self) -> bool:
        """Whether the task must not run any more."""
        return self.record.stage is not CutoverStage.BEGUN

    def __str__(self) -> str:
        """Returns the state as the end of a sentence that begins with "the task"."""
        match self.record.stage:
            case CutoverStage.DONE:
                text = f"was cut over at {utc_time(self.record.done_at)} to {self.target}"
            case CutoverStage.STOPPING:
                text = f"is being cut over to {self.target}, and must not run any more"
            case CutoverStage.BEGUN:
                text = f"is being cut over to {self.target} (this began at {utc_time(self.record.began_at)})"
        text += ", and an undo of this has begun" if self.record.is_undone else ""
        text += ", but no cutover command is seen" if self.needs_operator else ""
        return f"{text}; {self.read_only}" if self.read_only else text

    @property
    def read_only(self) -> str:
        """A text about the sources that are read-only because of the cutover; empty if there are none."""
        sources = ", ".join(self.record.read_only)
        if not sources:
            return ""
        text = f"PiDTS has made source{'s' if len(self.record.read_only) > 1 else ''} {sources} read-only for it"
        places = ", ".join(
            self.record.servers[one].address for one in self.record.read_only if one in self.record.servers
        )
        return f"{text}, at {places}" if places else text

    @property
    def todo(self) -> str:
        """A text about the possible next steps."""
        quoted = shlex.quote(str(self.file))
        undo = f"pidts cutover {quoted} --undo"
        if self.record.stage is CutoverStage.DONE:
            return (
                "The application may write to the target now, and the task is over. Keep its task file as long as you "
                "may want to go back to the source: --reverse and --undo need it. If the application has not written "
                f"there, and the task is to go on: {undo} --yes, and start it again"
            )
        if self.is_active:
            seen = "; ".join(str(one) for one in (self.record.command, self.session) if one is not None)
            return f"A cutover command runs now{f' ({seen})' if seen else ''}: wait until it has ended"
        # A command that is not seen may still run: some clusters have no named locks, and an idle connection may have
        # been cut. If an undo made the source writable before the command has ended, changes would be lost.
        if self.record.is_undone:
            return f"If no cutover command runs any more on any machine, do the rest of the undo: {undo}"
        go_on = f"continue the cutover: pidts cutover {quoted} --yes; or give it up: {undo}"
        return f"If no cutover command runs any more on any machine, {go_on}"

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        return {
            "stage": self.record.stage.value,
            "active": self.is_active,
            "began_at": self.record.began_at,
            "done_at": self.record.done_at or None,
            "target": self.target,
            "read_only": list(self.record.read_only),
            "message": str(self),
            "todo": self.todo,
        }


def cutover_state(target: TargetSession, config: TaskConfig) -> CutoverState | None:
    """Returns the state of a task's cutover; None if there is none."""
    record = target.meta.cutovers.read(config.name)
    if record is None:
        return None
    is_active = is_being_cut_over(target, config.name)
    session = cutover_session(target, config.name) if is_active else None
    return CutoverState(record, config.target.place, config.path, is_active, session)
