"""Creates the source's foreign keys, checks, keys over expressions and automatic timestamps on MySQL, MariaDB and TiDB.

Crash points: one statement creates each constraint, and the catalog shows whether it is still needed.

The sessions do not check foreign keys. So when a foreign key is created, the server does not read the rows: the source
has checked them. When a check is created, the server reads the rows.
"""

from __future__ import annotations

from pidts.model import CheckConstraint, Constraint, ConstraintKind, ExpressionKey, ForeignKey, OnUpdate, TableName
from pidts.target.constraint_sql import definition
from pidts.target.mysql.cutover import on_update
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.privileges import grant_for_foreign_key
from pidts.target.mysql.session import MySqlSession


def missing(session: MySqlSession, constraint: Constraint) -> bool:
    """Whether the table has no constraint of this kind and name."""
    return not _is_there(session, constraint.kind, constraint.table, constraint.name)


def statements(session: MySqlSession, constraint: Constraint) -> list[str]:
    """Returns the statement that creates the constraint; none if the table already has it."""
    if not missing(session, constraint):
        return []
    if isinstance(constraint, OnUpdate):
        return [on_update.create(session, constraint.table, constraint.name, constraint.digits)]
    table, name = qualified(constraint.table), identifier(constraint.name)
    if isinstance(constraint, ExpressionKey):
        unique = "UNIQUE " if constraint.unique else ""
        return [f"ALTER TABLE {table} ADD {unique}KEY {name} ({', '.join(constraint.parts)})"]
    return [f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition(constraint, identifier, qualified)}"]


def obstacle(session: MySqlSession, key: ForeignKey) -> str:
    """Returns why the foreign key cannot be created, and what to do; empty if nothing is in the way.

    The sessions do not check foreign keys, so the server itself would not notice that the referenced table is missing.
    """
    if session.schema.structure(key.parent) is None:
        return f"the target has no table {key.parent}"
    if grant := grant_for_foreign_key(session, key.parent):
        return f"the account lacks REFERENCES on {key.parent}: as an administrator of the target, run {grant}"
    return ""


def is_name_of_other(session: MySqlSession, check: CheckConstraint) -> bool:
    """Whether a check of another table in the schema has this name."""
    sql = (
        "SELECT 1 FROM information_schema.table_constraints WHERE table_schema = %s "
        "AND table_name <> %s AND constraint_name = %s AND constraint_type = 'CHECK'"
    )
    return bool(session.rows(sql, (check.table.schema, check.table.name, check.name)))


def drops(session: MySqlSession, kind: ConstraintKind, table: TableName, name: str) -> list[str]:
    """Returns the statement that removes the constraint, if it is there.

    MariaDB has no DROP CHECK. MySQL has no DROP CONSTRAINT before 8.0.19, and does not accept it if a foreign key has
    the same name.
    """
    if not _is_there(session, kind, table, name):
        return []
    if kind is ConstraintKind.ON_UPDATE:
        return [on_update.drop(session, table, name)]
    word = "CONSTRAINT" if kind is ConstraintKind.CHECK and session.server.dialect.mariadb else kind.value
    return [f"ALTER TABLE {qualified(table)} DROP {word} {identifier(name)}"]


def _is_there(session: MySqlSession, kind: ConstraintKind, table: TableName, name: str) -> bool:
    if kind is ConstraintKind.ON_UPDATE:
        return on_update.is_there(session, table, name)
    if kind is ConstraintKind.KEY:
        sql = (
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s "
            "AND index_name = %s"
        )
        return bool(session.rows(sql, (table.schema, table.name, name)))
    sql = (
        "SELECT 1 FROM information_schema.table_constraints WHERE table_schema = %s "
        "AND table_name = %s AND constraint_name = %s AND constraint_type = %s"
    )
    return bool(session.rows(sql, (table.schema, table.name, name, kind.value)))
