"""Checks the version column, and makes the SQL that adds it to a table.

If zones have to converge, the versions decide between them: see `pidts.apply.rows.convergence`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply import can_be_version
from pidts.apply.rows.convergence import why_not
from pidts.model import Kind, OnDivergence, Table, TableName
from pidts.model.errors import plural
from pidts.source.finding import Finding
from pidts.source.structures import quoted, quoted_table
from pidts.target.postgres.dialect import identifier
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.merged import target_name_of

_FINE_DIGITS = 6
_TYPE = "TIMESTAMP(6) NULL"
_AUTOMATIC = "DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"


def version_column_findings(
    config: TaskConfig, tables: Iterable[Table], row_image: str, *, resumed: bool
) -> list[Finding]:
    """Returns findings about the version column.

    The check fails in these cases:

    - No table has a column of this name that can be a version column.
    - The log may lack the column's former values.
    - At the first start: the column of a table has an unfit type.

    A table without the column passes, and its finding contains the SQL that adds the column.
    """
    name = config.version_column
    locks = config.on_divergence is OnDivergence.LOCK
    without = "rows that differ are locked" if locks else "every event is applied"
    guarded, others, spelled, addition = 0, [], "", ""
    for table in tables:
        if name not in table.arrow.names:
            alike = [column for column in table.arrow.names if column.lower() == name.lower()]
            spelled = alike[0] if alike else spelled
            has = f" but {alike[0]}" if alike else ""
            fix = "" if alike else added(config, table.name, resumed=resumed)
            addition = addition or fix
            what = f"{table.name} has no column {name}{has}: {without if table.identity else 'every event is applied'}"
            others.append(Finding("version_column", ok=True, message=what, fix=fix))
        elif not table.identity:
            others.append(
                Finding("version_column", ok=True, message=f"{table.name} has no key: every event is applied")
            )
        elif not can_be_version(table.column(name)):
            what = (
                f"{table.name}.{name} has type {table.column(name).type.kind}, which targets compare in different ways"
            )
            if not resumed:
                fix = "Name a column of a date and time, a whole number or a decimal number"
                return [Finding("version_column", ok=False, message=what, fix=fix)]
            others.append(Finding("version_column", ok=True, message=f"{what}: {without}"))
        else:
            guarded += 1
    if not guarded:
        fix = "Correct the name in pidts.version-column, or remove the key"
        if spelled:
            fix = f"Write pidts.version-column as the tables spell it: {spelled}"
        elif addition:
            fix = f"{fix}. Or add the column to each table. {addition}"
        return [
            Finding(
                "version_column", ok=False, message=f"no table of this task has {name} as its version column", fix=fix
            )
        ]
    if row_image == "MINIMAL":
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- or NOBLOB; open sessions keep theirs"
        what = f"with binlog_row_image = MINIMAL the log does not contain the {name} that a row had before"
        return [Finding("version_column", ok=False, message=what, fix=fix)]
    return [
        Finding("version_column", ok=True, message=f"{name} is the version column of {plural('table', guarded)}"),
        *others,
    ]


def added(config: TaskConfig, table: TableName, *, resumed: bool) -> str:
    """Returns the SQL that adds the version column to a table, on the source and, if needed, on the target.

    Existing rows get NULL, which is earlier than every version. So the first statement adds the column without a
    default, and only the second statement adds the default. With one statement, existing rows would get the current
    time on the source only, and the table would halt on PostgreSQL. If the target computed the time, this time would be
    later than changes that have not arrived yet, and these changes would be ignored.
    """
    name, place = quoted(config.version_column), quoted_table(table)
    here = (
        f"On the source: ALTER TABLE {place} ADD COLUMN {name} {_TYPE}; "
        f"ALTER TABLE {place} MODIFY COLUMN {name} {_TYPE} {_AUTOMATIC};"
    )
    there = target_name_of(config.rules, table) or table
    if resumed or config.target.warehouse:
        return f"{here} The task then adds the column on the target"
    if config.target.type == "postgresql":
        addition = f"{identifier(config.version_column)} timestamptz(6)"
        return f"{here} On the target, if it already has the table: {_add_to_postgres(there, addition)}"
    alter = f"ALTER TABLE {quoted_table(there)} ADD COLUMN {name} {_TYPE};"
    return f"{here} On the target, if it already has the table: {alter}"


def _add_to_postgres(table: TableName, column: str) -> str:
    return f"ALTER TABLE {identifier(table.schema)}.{identifier(table.name)} ADD COLUMN {column};"


def convergence_findings(name: str, tables: Iterable[Table], row_image: str) -> list[Finding]:
    """Returns findings about the version column of a task between zones.

    The check fails if the version column can decide in no table, or if the log may lack columns of rows.
    """
    if row_image != "FULL":
        what = f"with binlog_row_image = {row_image} the log does not contain whole rows, which pidts.conflict needs"
        fix = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
        return [Finding("version_column", ok=False, message=what, fix=fix)]
    reasons = {table: why_not(table, name) for table in tables}
    fine = [table for table, reason in reasons.items() if not reason]
    if reasons and not fine:
        table, reason = next(iter(reasons.items()))
        what = f"there is no table of this task in which the version column {name} can decide; {table.name}: {reason}"
        return [Finding("version_column", ok=False, message=what, fix=_fix_between_zones(table, name))]
    found = [
        Finding("version_column", ok=True, message=f"in {plural('table', len(fine))} {name} decides between zones")
    ]
    found += [
        Finding("version_column", ok=True, message=f"in {table.name} rows that differ are locked: {reason}")
        for table, reason in reasons.items()
        if reason
    ]
    found += [
        Finding(
            "version_column",
            ok=True,
            message=f"{table.name}.{name} has no microseconds: two changes in one second get the same version",
        )
        for table in fine
        if table.column(name).type.kind in {Kind.DATETIME, Kind.TIMESTAMP}
        and table.column(name).type.fsp < _FINE_DIGITS
    ]
    return found


def _fix_between_zones(table: Table, name: str) -> str:
    lock = "remove pidts.conflict and pidts.version-column: rows that differ are locked then"
    if name not in table.arrow.names:
        return f"Correct the name in pidts.version-column, or {lock}"
    if not can_be_version(table.column(name)):
        return f"Name a column of a date and time, a whole number or a decimal number, or {lock}"
    return f"Change the key in all zones, or {lock}"
