"""Whether a table of the target is what a schema change needs it to be, or has made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SchemaChange
from pidts.model import Halted, TableName, Where
from pidts.plan.shard_versions import names_of
from pidts.schema import AddColumn, AlterTable, DropColumn

_log = structlog.get_logger(__name__)


def fingerprints(session: TargetSession, tables: Sequence[TableName]) -> dict[str, str | None]:
    """What tells whether a statement has left a trace in them."""
    return {str(name): session.fingerprint(name) for name in tables}


def demand_new_columns(session: TargetSession, statement: AlterTable, change: SchemaChange) -> None:
    """A column that the target has already is taken as it is, unless rows then have something else in it."""
    before, there = change.before.get(statement.table), session.structure(statement.table)
    if before is None or there is None:
        return
    present = {column.name for column in there.columns} - {column.name for column in before.columns}
    added = [action.column for action in statement.actions if isinstance(action, AddColumn)]
    taken = [column for column in added if column.name in present]
    if not taken:
        return
    problems = session.misfits(replace(before, columns=(*before.columns, *taken))) or []
    filled = [column.name for column in taken if not column.nullable or column.default is not None]
    if filled and session.read_rows(before, limit=1).num_rows:
        problems.append(f"column {', '.join(filled)} is there already, and nobody knows what its rows have in it")
    if problems:
        raise misfit(statement.table, problems)
    names = ", ".join(column.name for column in taken)
    _log.warning("a column is there already, and stays as it is", table=str(statement.table), columns=names)


def drops_that_are_left(session: TargetSession, change: SchemaChange) -> Sequence[str]:
    """What takes away the columns that go by this change, and were kept when it was begun, since others had them then.

    Who has come meanwhile has them no more; and the journal, which is continued, knows nothing of that.
    """
    statement = change.statement
    if not isinstance(statement, AlterTable):
        return ()
    there, after = session.structure(statement.table), change.after.get(statement.table)
    if there is None or after is None:
        return ()
    names = {action.name.lower() for action in statement.actions if isinstance(action, DropColumn)}
    names -= names_of(after)
    drops = tuple(DropColumn(column.name) for column in there.columns if column.name.lower() in names)
    if not drops:
        return ()
    table = replace(there, columns=tuple(column for column in there.columns if column.name.lower() not in names))
    rest = replace(statement, actions=drops)
    return session.ddl_statements(rest, {there.name: there}, {there.name: table}, change.executed_at).statements


def must_fit(session: TargetSession, change: SchemaChange) -> None:
    """Halt where the tables are not what the change makes of them."""
    for name, table in change.after.items():
        if table is None:
            if session.structure(name) is not None:
                raise misfit(name, ["it is still there"])
        elif problems := session.misfits(table):
            raise misfit(name, problems)
        elif problems is None:
            raise misfit(name, ["it is not there"])


def misfit(name: TableName, problems: Sequence[str]) -> Halted:
    """What a person has to look at."""
    return Halted(
        "target-shape",
        f"the target's table does not fit: {'; '.join(problems)}",
        where=Where(table=str(name)),
        todo="Change the target's table to what the source has",
    )
