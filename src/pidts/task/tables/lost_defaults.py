"""Finds columns that have a default on the source and none on the target.

A run needs no defaults: it writes all columns. After a cutover, the application's rows may need them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pidts.apply import TargetSession
from pidts.model import Column, Table, TableName
from pidts.schema.literals import CurrentTime, Expression, parse_default
from pidts.source.uncarried_objects import DEFAULT, UncarriedObject
from pidts.target.mysql import MySqlSession
from pidts.target.mysql import dialect as mysql
from pidts.target.postgres import PostgresSession
from pidts.target.postgres import dialect as postgres
from pidts.task.config.task_file import TaskConfig

_ANY_EXPRESSION = (8, 0, 13)
"""From this version on, a default of MySQL may be any expression in parentheses."""


def lost_defaults(part: TaskConfig, target: TargetSession, table: Table) -> list[Column]:
    """Returns the columns of a source table whose default the target's table does not have, or will not have.

    `table` has the source's names; the columns have the target's.
    """
    there = part.target.types.of(part.rules.target_table(table))
    wanted = [
        column
        for column in there.columns
        if parse_default(column.default) is not None and not (column.generated or column.auto_increment)
    ]
    if not wanted:
        return []
    with_default = _columns_with_default(target, there.name)
    if with_default is None:
        return [column for column in wanted if not _keeps(target, column)]
    return [column for column in wanted if not with_default.get(column.name, True)]


def lost_default_objects(
    part: TaskConfig, target: TargetSession, tables: Mapping[TableName, Table], merged: Collection[TableName]
) -> list[UncarriedObject]:
    """Returns the lost defaults of all tables, each with a statement for the operator to complete."""
    found: dict[tuple[TableName, str], UncarriedObject] = {}
    for name, table in sorted(tables.items()):
        there = part.rules.target_name(name)
        for column in lost_defaults(part, target, table):
            if (there, column.name) not in found or there not in merged:
                found[there, column.name] = UncarriedObject(
                    DEFAULT, column.name, there.schema, there.name, _text(target, there, column)
                )
    return list(found.values())


def lost_default_note(column: Column) -> str:
    """Returns a note on a lost default, for commands that show a task before a cutover."""
    return (
        f"column {column.name}: the target has no default, and the source has {column.default}. Rows that the "
        "application inserts after a cutover may need it; `pidts cutover` prints a statement"
    )


def _columns_with_default(target: TargetSession, name: TableName) -> Mapping[str, bool] | None:
    """Returns, for each column of the target's table, whether it has a default; None if there is no such table."""
    if isinstance(target, PostgresSession):
        shape = target.schema.shape(name)
        return None if shape is None else {one.name: one.has_default or one.generated for one in shape.columns}
    if not isinstance(target, MySqlSession):
        raise TypeError(target)
    none = " OR column_default = 'NULL'" if target.server.dialect.mariadb else ""  # MariaDB quotes the text NULL
    rows = target.rows(
        f"SELECT column_name, column_default IS NULL{none} FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s",
        (name.schema, name.name),
    )
    return {str(column): not int(is_none or 0) for column, is_none in rows} or None


def _keeps(target: TargetSession, column: Column) -> bool:
    """Whether a table that PiDTS creates gets the column's default."""
    if isinstance(target, PostgresSession):
        return postgres.default_clause(column)[0] is not None
    return not isinstance(parse_default(column.default), Expression)


def _text(target: TargetSession, table: TableName, column: Column) -> str:
    """Returns the default, and a statement that gives the target's column a default."""
    if isinstance(target, PostgresSession):
        name, there, value = postgres.identifier(column.name), postgres.qualified(table), "VALUE"
        if known := postgres.default_clause(column)[0]:
            hint, value = "On PostgreSQL", known
        else:
            hint = "On PostgreSQL, with an expression of PostgreSQL in place of VALUE"
    else:
        name, there, value = mysql.identifier(column.name), mysql.qualified(table), str(column.default)
        hint = "On the target, if it has such defaults"
        if isinstance(target, MySqlSession) and not target.server.dialect.mariadb:
            # MySQL accepts a function here only in parentheses; before 8.0.13, it does not accept any.
            parsed = parse_default(column.default)
            if isinstance(parsed, CurrentTime) and target.server.dialect.version < _ANY_EXPRESSION:
                hint = "On the target, with the column's type in place of TYPE"
                return f"DEFAULT {value}\n{hint}:\nALTER TABLE {there} MODIFY {name} TYPE DEFAULT {value};"
            if isinstance(parsed, CurrentTime | Expression) and not value.startswith("("):
                value = f"({value})"
    return f"DEFAULT {column.default}\n{hint}:\nALTER TABLE {there} ALTER COLUMN {name} SET DEFAULT {value};"
