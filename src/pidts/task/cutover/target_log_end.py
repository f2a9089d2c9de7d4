"""Reads where the target's own log ends at the switch. From there, a task can carry rows back to the source."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

import structlog

from pidts.model import PidtsError, Table, TableName
from pidts.source import connect, position, read_structures
from pidts.source.connection import SourceConfig
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_READINGS = 3
"""The largest number of attempts to read the log's end and the structures without an ALTER TABLE in between."""


@dataclass(frozen=True, slots=True)
class TargetLogEnd:
    """The end of the target's own log, and the structures that its tables have there."""

    position: str = ""
    """Where the log ends; empty if the target has no log, or if the account may not read this place."""
    gtid: str = ""
    structures: tuple[Table, ...] = ()
    """The tables' structures at that place. If they are empty, the way back has to begin before the next schema change.
    """


def target_log_end(part: TaskConfig, names: Collection[TableName]) -> TargetLogEnd:
    """Returns the end of the target's own log, with the structures that these tables of the target have there."""
    if part.target.type != "mysql":
        return TargetLogEnd()
    try:
        with closing(connect(target_as_source(part))) as session:
            for _ in range(_READINGS):
                before = read_structures(session, names.__contains__)
                place, gtid = position(session)
                if read_structures(session, names.__contains__) == before:
                    return TargetLogEnd(str(place), gtid, tuple(before.values()))
    except PidtsError as error:
        _log.warning("the target's log cannot be read: there is no way back by a task", cause=str(error))
        return TargetLogEnd()
    _log.warning("somebody alters tables of the target: the way back has to begin before the next schema change")
    return TargetLogEnd(str(place), gtid)


def without_way_back(part: TaskConfig) -> str:
    """Returns why the end of the target's own log cannot be recorded; empty if it can, or if there is no such log."""
    if part.target.type != "mysql":
        return ""
    try:
        with closing(connect(target_as_source(part))) as session:
            position(session)
    except PidtsError as error:
        if error.code == "binlog-off":
            return "the target writes no log"
        todo = f"pidts grants {part.shell_path} --cutover prints the privilege that reading the end of its log needs"
        return f"{error.what}. {todo}"
    return ""


def target_as_source(part: TaskConfig) -> SourceConfig:
    """Returns the target's server as a server whose log is read."""
    spec = part.target
    file = spec.password_file
    return SourceConfig(spec.host, spec.port, spec.user, spec.password, tls=spec.tls, password_file=file)
