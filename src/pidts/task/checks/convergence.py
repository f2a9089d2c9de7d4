"""Checks that the rows of zones can become equal by their versions: see `pidts.apply.rows.convergence`."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply.rows.convergence import why_not
from pidts.model import Kind, Table
from pidts.source.finding import Finding

_ITEM = "version_column"
_FINE_DIGITS = 6


def convergence_findings(name: str, tables: Iterable[Table], row_image: str) -> list[Finding]:
    """Returns findings about the version column, refused if it decides for no table or the log may lack columns."""
    if row_image != "FULL":
        what = f"with binlog_row_image = {row_image} the log does not contain whole rows, which pidts.conflict needs"
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
        return [Finding(_ITEM, ok=False, message=what, fix=fix)]
    reasons = {table: why_not(table, name) for table in tables}
    fine = [table for table, reason in reasons.items() if not reason]
    if reasons and not fine:
        what = f"no table of this task can be decided by {name}: {next(iter(reasons)).name}: {min(reasons.values())}"
        fix = "Correct the name in pidts.version-column, or remove pidts.conflict"
        return [Finding(_ITEM, ok=False, message=what, fix=fix)]
    found = [Finding(_ITEM, ok=True, message=f"in {len(fine)} tables {name} decides between zones")]
    found += [
        Finding(_ITEM, ok=True, message=f"rows that differ are locked in {table.name}: {reason}")
        for table, reason in reasons.items()
        if reason
    ]
    found += [
        Finding(
            _ITEM,
            ok=True,
            message=f"{table.name}.{name} has no microseconds: a change in the same second does not raise it",
        )
        for table in fine
        if table.column(name).type.kind in {Kind.DATETIME, Kind.TIMESTAMP}
        and table.column(name).type.fsp < _FINE_DIGITS
    ]
    return found
