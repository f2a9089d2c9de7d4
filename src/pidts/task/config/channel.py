"""Refuses the task file's keys that a channel to a datacenter cannot have, each with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pidts.model import OnDivergence
from pidts.task.config.mistakes import mistake
from pidts.task.config.section import Section

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig


def demand_channel(task: Section, instances: Sequence[Section], config: TaskConfig) -> None:
    """Records a mistake for each key that a channel cannot have."""
    reasons = {
        "task-mode": (
            config.mode != "incremental",
            "a channel carries only the changes in the log, so existing rows are not copied",
        ),
        "shard-mode": (bool(config.shard_mode), "records of several tables are not merged"),
        "routes": (bool(config.rules.routes.rules), "a record must have the names that the source has"),
        "column-mappings": (bool(config.rules.mappings), "a record must have the values that the source has"),
    }
    for key, (is_asked, why) in reasons.items():
        if is_asked:
            todo = "Write task-mode: incremental." if key == "task-mode" else "Remove it."
            mistake(task.error(key, "not-supported", f"{why} (the target is a datacenter)", todo))
    if len(instances) > 1:
        what = "a channel must have one source, since the numbers of its records follow one log"
        mistake(task.error("mysql-instances", "not-supported", what, "Write a task file for each source."))
    ours = {
        "version-column": (bool(config.version_column), "no row of a datacenter is overwritten by a later event"),
        "on-divergence": (
            config.on_divergence is not OnDivergence.OVERWRITE,
            "a datacenter has no rows that could differ from the source's",
        ),
        "split-transactions": (
            config.split_transactions is not None,
            "readers take whole transactions, so each transaction becomes visible at once",
        ),
    }
    section = task.section("pidts")
    for key, (is_asked, why) in ours.items():
        if is_asked:
            mistake(section.error(key, "not-supported", f"{why} (the target is a datacenter)", "Remove it."))
