"""Names the part of a value that another column type would lose. Makes the errors of missing and unfit tables."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import ColumnType, Halted, Kind, TableName, Where
from pidts.model.advice import RESYNC

_MOMENTS = frozenset({Kind.DATETIME, Kind.TIMESTAMP})
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})
GONE_TODO = (
    "If the table was renamed on the target, rename it back, then run: pidts ddl retry TASK --source SOURCE --table "
    f"TABLE --yes. Otherwise stop the task, and run: {RESYNC}. The task creates the table again and copies its rows"
)
"""The advice to the operator if a table is no longer on the target."""
CHANGED_TODO = (
    "Give the target's table the columns that the source has, then run: pidts ddl retry TASK --source SOURCE --table "
    "TABLE --yes"
)
"""The advice to the operator if the target's table lacks a column that a statement of PiDTS names."""


def loss(source: ColumnType, found: ColumnType) -> str | None:
    """Names what a target column of type `found` would silently cut off a value; None if it cuts off nothing."""
    rounded = source.kind in _MOMENTS | {Kind.TIME} and found.kind in _MOMENTS | {Kind.TIME} and found.fsp < source.fsp
    if rounded or (source.kind in _MOMENTS and found.kind is Kind.DATE):
        return "fractions of seconds" if found.kind is not Kind.DATE else "the time of day"
    if source.kind is Kind.DECIMAL:
        if found.kind is Kind.DECIMAL and (found.scale or 0) < (source.scale or 0):
            return "decimal places"
        if found.is_integer and source.scale:
            return "decimal places"
        if found.kind in _FLOATS:
            return "digits"
    if source.kind is Kind.DOUBLE and found.kind is Kind.FLOAT:
        return "digits"
    if source.kind in _FLOATS and (found.is_integer or found.kind is Kind.DECIMAL):
        return "digits"
    return None


def gone(name: TableName) -> Halted:
    """Returns the error for a table that the target does not have."""
    return Halted("target-shape", "there is no such table on the target", where=Where(table=str(name)), todo=GONE_TODO)


def unfit(name: TableName, problems: Sequence[str]) -> Halted:
    """Returns the error for a table that cannot store the source's rows."""
    return Halted(
        "target-shape",
        f"the target's table does not fit: {'; '.join(problems)}",
        where=Where(table=str(name)),
        todo="Give the target's table the structure of the source's table, then run: pidts ddl retry TASK --source "
        f"SOURCE --table TABLE --yes. Or drop the target's table, stop the task, and copy the table again: {RESYNC}",
    )
