"""Handles zero and partial dates for targets that cannot store them: such dates become NULL, or are refused."""

from __future__ import annotations

import structlog

from pidts.model import Halted, Table, TableName, Where
from pidts.model.advice import RESYNC

_log = structlog.get_logger(__name__)
_noted: set[tuple[TableName, str]] = set()
"""Columns for which this process has logged zero or partial dates. All sessions share them: each may be short."""


def note_unreal(table: Table, column: str, count: int, *, refuses: bool, todo: str) -> None:
    """Logs, once for each column, that zero and partial dates become NULL; if `refuses` is true, raises an error.

    `todo` says how the target can store NULL in the column.
    """
    if refuses:
        raise Halted(
            "zero-date",
            f"column {column} has {count} zero or partial dates, and the task file refuses them",
            where=Where(table=str(table.name)),
            todo=f"{todo}. Or correct the values on the source, then copy the table again: {RESYNC}",
        )
    place = (table.name, column)
    if place not in _noted:
        _noted.add(place)
        _log.warning("zero or partial dates become NULL", table=str(table.name), column=column, values=count)
