"""The checks and the preview of a channel: whether its datacenter can be used, and what will be created there."""

from __future__ import annotations

from pidts.apply import TargetSession
from pidts.model import ConfigError, Where
from pidts.source.finding import Finding
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.datacenter import CHECKPOINT, DATA, Datacenter
from pidts.target.mysql.privileges import missing
from pidts.task.checks.privileges import lacking_findings
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.channel import other_task

_OTHER = "Name another database: a datacenter has one channel"


def channel_findings(config: TaskConfig, target: TargetSession, *, resumed: bool) -> list[Finding]:
    """Returns the findings about the datacenter; nothing is written."""
    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    name = config.target.database
    datacenter = Datacenter(target, name)
    lacking = missing(target, ())
    if lacking:
        return lacking_findings(target, lacking)
    if misfit := datacenter.misfit():
        fix = "Give the tables the columns that Inception Gate gives them, or name another database"
        return [Finding("target_tables", ok=False, message=misfit, fix=fix)]
    if other := other_task(config, target):
        return [Finding("target_tables", ok=False, message=f"{other} already fills the datacenter {name}", fix=_OTHER)]
    if resumed:
        message = "the channel continues from its checkpoint"
    elif datacenter.exists():
        message = f"{name}.{DATA} is continued after {CHECKPOINT}"
    else:
        message = f"{name}.{DATA} and {CHECKPOINT} will be created"
    return [
        Finding("target_tables", ok=True, message=message),
        Finding("target_privilege", ok=True, message="the account may write the datacenter"),
    ]


def demand_tables(config: TaskConfig, command: str, reason: str, todo: str) -> None:
    """Raises if the task's target is a datacenter, since a datacenter has none of the source's tables."""
    if config.target.is_datacenter:
        raise ConfigError(
            "not-supported",
            f"{command} is not for a channel: {reason}",
            where=Where(file=str(config.path)),
            todo=todo,
        )


def statements_of(database: str, target: TargetSession) -> tuple[str, ...]:
    """Returns the statements that create the missing tables of the datacenter."""
    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    return tuple(Datacenter(target, database).create_statements())
