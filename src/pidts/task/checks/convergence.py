"""Checks that versions can make the rows of zones equal: see `pidts.apply.rows.convergence`."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply.rows.convergence import why_not
from pidts.apply.rows.version_column import can_be_version
from pidts.model import Kind, Table
from pidts.model.errors import plural
from pidts.source.finding import Finding

_ITEM = "version_column"
_FINE_DIGITS = 6


def convergence_findings(name: str, tables: Iterable[Table], row_image: str) -> list[Finding]:
    """Returns findings about the version column.

    A finding fails if the version column can decide between zones in no table, or if the log may lack columns of rows.
    """
    if row_image != "FULL":
        what = f"with binlog_row_image = {row_image} the log does not contain whole rows, which pidts.conflict needs"
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
        return [Finding(_ITEM, ok=False, message=what, fix=fix)]
    reasons = {table: why_not(table, name) for table in tables}
    fine = [table for table, reason in reasons.items() if not reason]
    if reasons and not fine:
        table, reason = next(iter(reasons.items()))
        what = f"the version column {name} can decide in no table of this task: {table.name}: {reason}"
        return [Finding(_ITEM, ok=False, message=what, fix=_fix(table, name))]
    found = [Finding(_ITEM, ok=True, message=f"in {plural('table', len(fine))} {name} decides between zones")]
    found += [
        Finding(_ITEM, ok=True, message=f"in {table.name} rows that differ are locked: {reason}")
        for table, reason in reasons.items()
        if reason
    ]
    found += [
        Finding(
            _ITEM,
            ok=True,
            message=f"{table.name}.{name} has no microseconds: two changes in one second get the same version",
        )
        for table in fine
        if table.column(name).type.kind in {Kind.DATETIME, Kind.TIMESTAMP}
        and table.column(name).type.fsp < _FINE_DIGITS
    ]
    return found


def _fix(table: Table, name: str) -> str:
    lock = "remove pidts.conflict and pidts.version-column: rows that differ are locked then"
    if name not in table.arrow.names:
        return f"Correct the name in pidts.version-column, or {lock}"
    if not can_be_version(table.column(name)):
        return f"Name a column of a date and time, a whole number or a decimal number, or {lock}"
    return f"Change the key in all zones, or {lock}"
