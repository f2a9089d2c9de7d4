"""`pidts.zone`: the zone of the source, and what a task between zones cannot do yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pidts.model import ConfigError, Where
from pidts.model.zone import ZONE_NAME
from pidts.task.config.mistakes import mistake
from pidts.task.config.section import Section

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig


def read_zone(ours: Section) -> str:
    """Returns the zone that the task file names; an empty text where it names none."""
    name = ours.text("zone", "")
    if ours.has("zone") and not ZONE_NAME.fullmatch(name):
        what = f"expected a zone's name of at most 32 lower-case letters, digits and '_', not {name!r}"
        raise ours.error("zone", "bad-value", what)
    return name


def demand_one_writer(config: TaskConfig, command: str) -> None:
    """Raises where rows of the target may be newer than the source's, since its zone is written to, too."""
    if config.is_between_zones:
        raise ConfigError(
            "not-supported",
            f"{command} is not for a task between zones: a row that was written in the target's zone would be lost",
            where=Where(file=str(config.path)),
            todo="Look at the rows with pidts verify, and correct the wrong one in its own zone: the task carries it",
        )


def demand_one_zone(task: Section, instances: Sequence[Section], config: TaskConfig) -> None:
    """Records a mistake for each key that a task between zones cannot have yet."""
    if len(instances) > 1:
        what = "a task between zones has one source"
        mistake(task.error("mysql-instances", "not-supported", what, "Write a task file for each source."))
    reasons = {
        "shard-mode": (bool(config.shard_mode), "merged tables cannot be carried back"),
        "routes": (bool(config.rules.routes.rules), "a table has the same name in all zones"),
        "column-mappings": (bool(config.rules.mappings), "a row has the same values in all zones"),
    }
    for key, (is_asked, why) in reasons.items():
        if is_asked:
            mistake(task.error(key, "not-supported", f"{why} (the task names its zone)", "Remove it."))
