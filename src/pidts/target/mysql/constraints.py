"""Makes foreign keys and checks on MySQL, MariaDB and TiDB, as they are on the source.

Crash points: each is one statement, and whether it is needed is read from the catalogue. The sessions do not check
foreign keys, so the server does not look at the rows, which the source has checked. It does for a check.
"""

from __future__ import annotations

from pidts.model import Check, Constraint, TableName
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession


def missing(session: MySqlSession, constraint: Constraint) -> bool:
    """Whether the table has neither a foreign key nor a check of this name: `drops` removes both."""
    return not kinds(session, constraint.table, constraint.name)


def kinds(session: MySqlSession, table: TableName, name: str) -> list[str]:
    """Returns whether the table has a foreign key or a check of this name."""
    rows = session.rows(
        "SELECT constraint_type FROM information_schema.table_constraints WHERE table_schema = %s "
        "AND table_name = %s AND constraint_name = %s AND constraint_type IN ('FOREIGN KEY', 'CHECK')",
        (table.schema, table.name, name),
    )
    return [str(kind) for (kind,) in rows]


def statements(session: MySqlSession, constraint: Constraint) -> list[str]:
    """Returns the statement, if it is needed now."""
    kind = "CHECK" if isinstance(constraint, Check) else "FOREIGN KEY"
    if kind in kinds(session, constraint.table, constraint.name):
        return []
    table, name = qualified(constraint.table), identifier(constraint.name)
    return [f"ALTER TABLE {table} ADD CONSTRAINT {name} {_definition(constraint)}"]


def drops(session: MySqlSession, table: TableName, name: str) -> list[str]:
    """Returns the statements that remove the constraints of this name."""
    words = {"FOREIGN KEY": "FOREIGN KEY", "CHECK": "CONSTRAINT"}
    return [
        f"ALTER TABLE {qualified(table)} DROP {words[kind]} {identifier(name)}" for kind in kinds(session, table, name)
    ]


def _definition(constraint: Constraint) -> str:
    if isinstance(constraint, Check):
        return f"CHECK ({constraint.expression})"
    columns, parents = (", ".join(map(identifier, names)) for names in (constraint.columns, constraint.parent_columns))
    return (
        f"FOREIGN KEY ({columns}) REFERENCES {qualified(constraint.parent)} ({parents}) "
        f"ON DELETE {constraint.on_delete} ON UPDATE {constraint.on_update}"
    )
