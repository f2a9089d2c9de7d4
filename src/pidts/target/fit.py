"""Whether values of one type survive in a column of another; what is said of a table that does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import ColumnType, Halted, Kind, TableName, Where

_MOMENTS = frozenset({Kind.DATETIME, Kind.TIMESTAMP})
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})


def loss(source: ColumnType, found: ColumnType) -> str | None:
    """What the server would cut off without an error; what it refuses by itself is not asked here."""
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


def unfit(name: TableName, problems: Sequence[str]) -> Halted:
    """Rows of the source cannot be written to this table."""
    return Halted(
        "target-shape",
        f"the target's table does not fit: {'; '.join(problems)}",
        where=Where(table=str(name)),
        todo="Change the target's table to what the source has, or drop it and copy it anew",
    )
