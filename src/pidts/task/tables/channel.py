"""Records which task fills a datacenter. Each channel needs a database of its own."""

from __future__ import annotations

from pidts.apply import TargetSession
from pidts.model import SourceTablesKey, TableName
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.datacenter import Datacenter
from pidts.task.config.task_file import TaskConfig

_FILLED_BY = ("*", SourceTablesKey("datacenter"), TableName("", ""))
"""The key of the note in the meta schema that names the task that fills the datacenter."""
_FIRST = ("*", SourceTablesKey("datacenter-first-id"), TableName("", ""))
"""The key of the note with the id of the task's first record. Smaller ids may have gaps."""


def other_task(config: TaskConfig, target: TargetSession) -> str:
    """Returns the name of another task that fills this task's datacenter; empty if there is none."""
    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    if not Datacenter(target, config.target.database).has_notes():
        return ""
    other = target.meta.notes.read(*_FILLED_BY)
    return "" if other == _own_name(config) else other


def own(config: TaskConfig, target: TargetSession) -> None:
    """Records that this task fills the datacenter, in the open transaction."""
    target.meta.notes.write(*_FILLED_BY, _own_name(config))


def first_id(config: TaskConfig, target: TargetSession) -> int | None:
    """Returns the id of the channel's first record; None if an early version of PiDTS began the channel."""
    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    if not Datacenter(target, config.target.database).has_notes():
        return None
    text = target.meta.notes.read(*_FIRST)
    return int(text) if text else None


def note_first_id(target: TargetSession, id_: int) -> None:
    """Stores the id that the channel's first record will get, in the open transaction."""
    target.meta.notes.write(*_FIRST, str(id_))


def _own_name(config: TaskConfig) -> str:
    return f"task {config.name}, source {config.source.source_id}"
