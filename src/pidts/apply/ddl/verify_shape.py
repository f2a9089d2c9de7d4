"""Checks that a target table has the structure that a schema change needs, or has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from pidts.apply.ddl.change import SchemaChange
from pidts.apply.port import TargetSession
from pidts.model import Halted, TableName, Where
from pidts.model.errors import named
from pidts.schema import AddColumn, AlterTable, DropColumn
from pidts.shards.structures import names_of

_log = structlog.get_logger(__name__)


def fingerprints(session: TargetSession, tables: Sequence[TableName]) -> dict[str, str | None]:
    """Returns a text for each table, which changes when a statement changes the table's structure."""
    return {str(name): session.schema.fingerprint(name) for name in tables}


def demand_new_columns(session: TargetSession, statement: AlterTable, change: SchemaChange) -> None:
    """Halts if the target already has a column that the statement adds, and the column may have other values there."""
    before, there = change.before.get(statement.table), session.schema.structure(statement.table)
    if before is None or there is None:
        return
    present = {column.name for column in there.columns} - {column.name for column in before.columns}
    added = [action.column for action in statement.actions if isinstance(action, AddColumn)]
    taken = [column for column in added if column.name in present]
    if not taken:
        return
    problems = session.schema.misfits(replace(before, columns=(*before.columns, *taken))) or []
    computed = {column.name for column in there.columns if column.generated}
    filled = [
        column.name
        for column in taken
        if not column.nullable or column.default is not None or (column.generated and column.name not in computed)
    ]
    if filled and session.read_rows(before, limit=1).num_rows:
        problems.append(
            f"{named('column', filled, 'is', 'are')} already on the target, and PiDTS does not know which values "
            "the rows have there"
        )
    if problems:
        raise misfit(statement.table, problems)
    names = ", ".join(column.name for column in taken)
    _log.warning("a column is there already, and stays as it is", table=str(statement.table), columns=names)


def drops_that_are_left(session: TargetSession, change: SchemaChange) -> Sequence[str]:
    """Returns statements that drop columns which the journal's statements have not dropped.

    Other members had these columns when the journal was begun, and have dropped them since. The target still has them.
    """
    statement = change.statement
    if not isinstance(statement, AlterTable):
        return ()
    there, after = session.schema.structure(statement.table), change.after.get(statement.table)
    if there is None or after is None:
        return ()
    names = {action.name.lower() for action in statement.actions if isinstance(action, DropColumn)}
    names -= names_of(after)
    drops = tuple(DropColumn(column.name) for column in there.columns if column.name.lower() in names)
    if not drops:
        return ()
    table = replace(there, columns=tuple(column for column in there.columns if column.name.lower() not in names))
    rest = replace(statement, actions=drops)
    return session.schema.ddl_statements(rest, {there.name: there}, {there.name: table}, change.executed_at).statements


def must_fit(session: TargetSession, change: SchemaChange) -> None:
    """Halts if the tables do not have the structure that the change makes."""
    for name, table in change.after.items():
        if table is None:
            if session.schema.structure(name) is not None:
                raise misfit(name, ["it still exists"])
        elif problems := session.schema.misfits(table):
            raise misfit(name, problems)
        elif problems is None:
            raise misfit(name, ["it does not exist"])


def must_compute_alike(session: TargetSession, change: SchemaChange) -> None:
    """Halts if the target would compute a column differently from the source after the change.

    A ddl command may cause this: it can keep the column's old expression on the target, or give the column another one.
    """
    for name, table in change.after.items():
        if table is not None and (problems := session.schema.computed_otherwise(table)):
            raise misfit(name, problems)


def misfit(name: TableName, problems: Sequence[str]) -> Halted:
    """Returns the error for a table whose structure an operator has to look at."""
    return Halted(
        "target-shape",
        f"the target's table does not fit: {'; '.join(problems)}",
        where=Where(table=str(name)),
        todo="Give the target's table the structure of the source's table",
    )
