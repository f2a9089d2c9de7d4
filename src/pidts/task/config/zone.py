"""`pidts.zone`: the zones of the source and the target, and what a task between zones cannot do yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pidts.model import ConfigError, Where
from pidts.model.zone import ZONE_NAME, Zones
from pidts.task.config.mistakes import mistake
from pidts.task.config.section import Section

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig


def read_zones(ours: Section) -> Zones | None:
    """Returns the zones that the task file names; None where it names none."""
    section = ours.section("zone")
    source, target = section.text("source", ""), section.text("target", "")
    section.finish()
    if not ours.has("zone"):
        return None
    for key, name in (("source", source), ("target", target)):
        if not name:
            raise section.error(key, "missing-key", "both zones have to be given")
        if not ZONE_NAME.fullmatch(name):
            what = f"expected a zone's name of at most 32 lower-case letters, digits and '_', not {name!r}"
            raise section.error(key, "bad-value", what)
    if source == target:
        what = "changes are carried from one zone to another, and these are the same"
        raise section.error("target", "bad-value", what, "Give each server a zone of its own.")
    return Zones(source, target)


def demand_one_writer(config: TaskConfig, command: str) -> None:
    """Raises where rows of the target may be newer than the source's, since its zone is written to, too."""
    if config.zones is not None:
        raise ConfigError(
            "not-supported",
            f"{command} is not for a task between zones: a row that was written in the target's zone would be lost",
            where=Where(file=str(config.path)),
            todo="Look at the rows with pidts verify, and correct the wrong one in its own zone: the task carries it",
        )


def demand_pair(task: Section, instances: Sequence[Section], config: TaskConfig) -> None:
    """Records a mistake for each key that a task between zones cannot have yet."""
    ours = task.section("pidts")
    if config.target.type != "mysql":
        what = "only MySQL and MariaDB have a log from which another task could carry changes back"
        mistake(ours.error("zone", "not-supported", what, "Remove it."))
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
            mistake(task.error(key, "not-supported", f"{why} (the task names its zones)", "Remove it."))
