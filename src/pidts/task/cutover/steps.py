"""Describes the checklist of a cutover: its steps in their order, and the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidts.model import Cutover, CutoverStage
from pidts.source.uncarried_objects import HiddenObjects, UncarriedObject


class StepName(StrEnum):
    """The steps in their order."""

    TABLES = "tables"
    LAG = "lag"
    READ_ONLY = "read-only"
    VERIFY = "verify"
    COUNTERS = "counters"
    FOREIGN_KEYS = "foreign-keys"
    CHECKS = "checks"
    KEYS = "keys"
    STOP = "stop"
    COLUMNS = "columns"
    SPECIAL_KEYS = "special-keys"
    PARTITIONS = "partitions"
    ON_UPDATE = "on-update"
    SWITCH = "switch"


class StepState(StrEnum):
    """The state of a step."""

    DONE = "done"
    TODO = "todo"
    BLOCKED = "blocked"
    """An operator has to act before the step can be done."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CutoverStep:
    """One line of the checklist."""

    name: StepName
    state: StepState
    about: str
    details: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        return {
            "step": self.name.value,
            "state": self.state.value,
            "about": self.about,
            "details": list(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """The steps of a cutover: those that are done, and the remaining ones."""

    task: str
    steps: Sequence[CutoverStep]
    left: Sequence[UncarriedObject] = ()
    """The objects that the target does not get: triggers, views and the like."""
    unseen: Sequence[HiddenObjects] = ()
    """Kinds of objects that are hidden from the accounts, so the target may also lack some of them."""
    irreversible: str = ""
    """The reason why no task can carry rows back after the switch; empty if a task can."""
    record: Cutover | None

    @property
    def is_done(self) -> bool:
        """Whether the application may write to the target."""
        return self.record is not None and self.record.stage is CutoverStage.DONE

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        record = self.record
        return {
            "task": self.task,
            "stage": record.stage.value if record is not None else "",
            "done": self.is_done,
            "steps": [step.to_json() for step in self.steps],
            "left": [one.to_json() for one in self.left],
            "unseen": [one.to_json() for one in self.unseen],
            "position": record.position if record is not None else "",
            "gtid": record.gtid if record is not None else "",
        }
