"""Saves the record of a cutover so that only one command can carry it out, or undo it.

A command saves a step only if the target's record is still the one that it has read or saved last. Otherwise it ends
with `cutover-taken` (see the crash points of `switch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pidts.apply import TargetSession
from pidts.model import Cutover, CutoverCommand, Fenced, PidtsError, Table
from pidts.task.config.task_file import TaskConfig


class OwnRecord:
    """The record of a task's cutover, as one command has read or saved it."""

    def __init__(self, target: TargetSession, config: TaskConfig, command: CutoverCommand) -> None:
        self._target, self._config, self._command = target, config, command
        self.current: Cutover | None = None
        """The record that this command has read or saved last."""
        self.is_taken = False
        """Whether another command has changed the record since this command read or saved it."""

    def stored(self) -> Cutover | None:
        """Returns the record that the target has now; None if there is none."""
        return self._target.meta.cutovers.read(self._config.name)

    def read(self) -> Cutover | None:
        """Returns the record that the target has now, and allows this command to replace this record."""
        self.current = self.stored()
        return self.current

    def demand_named(self) -> None:
        """Raises if the record does not name this command."""
        if self.current is not None and self.current.command != self._command:
            raise self.taken()

    def take(self, record: Cutover) -> Cutover:
        """Saves the record with the name of this command, and returns it. Then no other command can save a step."""
        record = replace(record, command=self._command)
        self.save(record)
        return record

    def save(self, record: Cutover | None, structures: Sequence[Table] = (), *, undone: Cutover | None = None) -> None:
        """Replaces the record that this command has read or saved last. Raises if the target now has another record.

        `undone` is the record of a switch that this undo removes: it is kept, so that the way back still finds it.
        """
        before = self.current
        self.current = record or before  # set before it is written, since the answer to the COMMIT may be lost
        self._target.begin()
        if undone is not None:
            self._target.meta.cutovers.keep_undone(self._config.name, undone)
        if not self._target.meta.cutovers.replace(self._config.name, before, record):
            self._target.rollback()
            raise self.taken()
        if structures:
            self._target.meta.cutovers.save_structures(self._config.name, structures)
        self._target.commit()
        self.current = record

    def demand_own(self, take_back: Callable[[], None] = lambda: None) -> None:
        """Raises if another command has changed the record since this command saved it.

        `take_back` undoes the step that this command has just done. `take_back` is called if the other command undoes
        the cutover: the other command may have passed this step too early to undo it.
        """
        record = self.stored()
        if _text(record) == _text(self.current):
            return
        if record is None or record.is_undone:
            take_back()
        raise self.taken()

    def taken(self) -> PidtsError:
        """Returns the error that another command has changed the record, and sets `is_taken`."""
        self.is_taken = True
        task = self._config.name
        what = f"another command has taken over or undone the cutover of task {task}, so this command ends here"
        todo = (
            f"Do not switch the application now. Run: pidts status {self._config.shell_path}. If it shows no cutover, "
            "and a source is still read-only, make the source writable"
        )
        return Fenced("cutover-taken", what, todo=todo)


def _text(record: Cutover | None) -> str:
    """Returns the record as the target stores it, with sorted constraints: equal records have equal texts."""
    return record.dumps() if record is not None else ""
