"""Checks that a target table has the structure that a schema change needs, or has made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import structlog

from pidts.apply.ddl.change import SchemaChange
from pidts.apply.port import TargetSchema, TargetSession
from pidts.model import Halted, Table, TableName, Where
from pidts.model.advice import SKIP
from pidts.model.errors import listed, named
from pidts.schema import AddColumn, AlterTable, ChangeColumn, DropColumn, RenameColumn
from pidts.schema.computed import of_the_counter
from pidts.shards.structures import names_of

COMPUTE_THERE = (
    "create the table on the target yourself, with a generated column there: the target then computes the values"
)
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


def wrong_in_log(schema: TargetSchema, table: Table, target_table: Table, *, is_created: bool = False) -> list[str]:
    """Returns the columns of a source's table that MariaDB writes to its log with wrong values.

    Columns that the target computes itself are left out, since the target gets no values for them. With `is_created`,
    PiDTS creates the target's table, even if there is another one now.
    """
    wrong = of_the_counter(table)
    if not wrong:
        return []
    there = None if is_created else schema.structure(target_table.name)
    if there is None:
        computed = schema.create_statements(target_table).computed
    else:
        computed = frozenset(column.name for column in there.columns if column.generated)
    return _without(wrong, computed)


def _without(columns: Collection[str], others: Collection[str]) -> list[str]:
    left_out = {name.lower() for name in others}
    return sorted(name for name in columns if name.lower() not in left_out)


def wrong_text(columns: Sequence[str]) -> str:
    """Returns what is wrong with the columns of `wrong_in_log`."""
    return (
        f"the source computes {listed(columns)} from the AUTO_INCREMENT column. MariaDB writes wrong values of such a "
        "column to its log, and the target would get them"
    )


def demand_right_values(session: TargetSession, change: SchemaChange, table: Table, *, is_created: bool) -> None:
    """Halts at the creation of a table with columns that MariaDB writes to its log with wrong values."""
    if wrong := wrong_in_log(session.schema, _on_source(change) or table, table, is_created=is_created):
        raise Halted(
            "ddl-not-translatable",
            wrong_text(wrong),
            where=Where(table=str(table.name)),
            todo=f"{COMPUTE_THERE[0].upper()}{COMPUTE_THERE[1:]}. Then run {SKIP}. Or exclude the table in "
            "block-allow-list",
        )


def demand_right_values_after(
    session: TargetSession, statement: AlterTable, change: SchemaChange, computed: frozenset[str] | None
) -> None:
    """Halts if the target would get wrong values from MariaDB's log after an ALTER, and did not get them before.

    `computed` are the columns that the target computes itself after the statement; None: those that it computes now.
    """
    before, after = change.before.get(statement.table), _on_source(change)
    if before is None or after is None or not (of_the_counter(before) or of_the_counter(after)):
        return
    there = session.schema.structure(statement.table)
    computed_there = {column.name.lower() for column in there.columns if column.generated} if there else set()
    former = _former_names(statement)
    names = {column.name: former.get(column.name.lower(), column.name).lower() for column in after.columns}
    of_counter = {name.lower() for name in of_the_counter(before)}
    kept = computed_there if computed is None else {name.lower() for name in computed}
    computes = {name for name, old in names.items() if kept & {name.lower(), old}}
    wrong_before = {name for name, old in names.items() if old in of_counter - computed_there}
    no_longer = {one.name for one in after.columns if one.generated and names[one.name] in of_counter & computed_there}
    wrong = sorted((of_the_counter(after) | no_longer) - computes - wrong_before)
    if wrong:
        raise Halted(
            "ddl-not-translatable",
            wrong_text(wrong),
            where=Where(table=str(statement.table)),
            todo=f"Alter the target's table yourself, with a generated column there. Then run {SKIP}. Or exclude the "
            "table in block-allow-list",
        )


def _on_source(change: SchemaChange) -> Table | None:
    """Returns the structure of the changed table on its source, with the expressions of its columns."""
    return next(filter(None, (*change.structures.values(), *change.after.values())), None)


def _former_names(statement: AlterTable) -> dict[str, str]:
    """Returns the names that renamed columns had before, by their new names in lower case."""
    found = {}
    for action in statement.actions:
        match action:
            case ChangeColumn(old=old, column=column):
                found[column.name.lower()] = old
            case RenameColumn(old=old, new=new):
                found[new.lower()] = old
    return found


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
