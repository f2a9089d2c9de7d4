"""Checks that exactly one zone owns each row, if `pidts.conflict` is `owner`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidts.model import ConfigError, RangeOwner, Table
from pidts.model.errors import plural
from pidts.rules.border_rows import border_rows
from pidts.rules.ownership import Owners, check_conditions
from pidts.source.finding import Finding


def owner_findings(owners: Owners, tables: Iterable[Table], row_image: str, *, resumed: bool) -> list[Finding]:
    """Returns findings about the owners of each table.

    If the task has begun (`resumed`), a table without an owner does not prevent the start: it may have been created
    while the task ran. Changes of its rows are locked, whichever zone makes them.
    """
    tables, found = list(tables), []
    fix = "Correct pidts.owners, in the same way in the tasks of all zones"
    for table in tables:
        if why := check_conditions(owners, table):
            what = f"the owner of {table.name} is not known: {why}"
            found.append(_finding(ok=resumed, message=what, fix="" if resumed else fix))
            continue
        key = {name.lower() for name in table.identity}
        if row_image != "FULL" and (others := owners.columns(table.name) - key):
            what = (
                f"with binlog_row_image = {row_image} the log may lack {', '.join(sorted(others))}, which decide "
                f"which zone owns a row of {table.name}"
            )
            image = "SET GLOBAL binlog_row_image = 'FULL';   -- open sessions keep theirs"
            found.append(_finding(ok=False, message=what, fix=image))
        found += _border_findings(owners, table, fix)
    if all(one.ok for one in found):
        found.insert(
            0,
            _finding(
                ok=True,
                message=f"{plural('table', len(tables), 'has an owner', 'have owners')}",
            ),
        )
    return found


def record_findings(owners: Owners, records: Iterable[RangeOwner]) -> list[Finding]:
    """Returns findings about `records`: the ranges that `pidts zones move` has recorded in the target's zone."""
    records, found = list(records), []
    for record in records:
        try:
            owners.moved([record])
        except ConfigError as error:
            found.append(Finding("owners", ok=False, message=error.what, fix=error.todo, code=error.code))
            continue
        if not record.settled:
            what = f"a move of {record} to zone {record.to} is under way, or was interrupted: "
            what += f"zone {record.origin} owns it until the command is repeated, or undone "
            what += "(pidts zones move FILE RANGE --undo)"
            found.append(_finding(ok=True, message=what))
        elif owners.zone_of(record.schema, record.table, record.where) not in {"", record.zone}:
            what = (
                f"zone {record.zone} owns {record} since `pidts zones move`; write this owner into the files of "
                "all zones"
            )
            found.append(_finding(ok=True, message=what))
    return found


def _border_findings(owners: Owners, table: Table, fix: str) -> Iterator[Finding]:
    several, nobody = border_rows(owners, table)
    if several:
        what = f"{table.name} has ranges that overlap: several zones would own a row with {several}"
        yield _finding(ok=False, message=what, fix=fix)
    if nobody:
        what = (
            f"no zone owns a row of {table.name} with {nobody}: its changes are locked. An entry without a condition "
            "would give these rows an owner"
        )
        yield _finding(ok=True, message=what)


def _finding(*, ok: bool, message: str, fix: str = "") -> Finding:
    return Finding("owners", ok=ok, message=message, fix=fix)
