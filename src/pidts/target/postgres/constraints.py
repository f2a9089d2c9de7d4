"""Makes foreign keys and checks on PostgreSQL: for new rows, then for all rows, which keeps nobody from writing.

Crash points: each of the two statements is atomic, and which of them is needed is read from the catalogue.
"""

from __future__ import annotations

from pidts.model import Check, Constraint, ConstraintKind, TableName
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.session import PostgresSession

_TYPES = {ConstraintKind.FOREIGN_KEY: "f", ConstraintKind.CHECK: "c"}


def missing(session: PostgresSession, constraint: Constraint) -> bool:
    """Whether the table has no constraint of this kind and name."""
    return _is_valid(session, constraint.kind, constraint.table, constraint.name) is None


def statements(session: PostgresSession, constraint: Constraint) -> list[str]:
    """Returns the statements that are needed now."""
    is_valid = _is_valid(session, constraint.kind, constraint.table, constraint.name)
    table, name = qualified(constraint.table), identifier(constraint.name)
    made = [f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}"] if not is_valid else []
    if is_valid is None:
        made.insert(0, f"ALTER TABLE {table} ADD CONSTRAINT {name} {_definition(constraint)} NOT VALID")
    return made


def drops(session: PostgresSession, kind: ConstraintKind, table: TableName, name: str) -> list[str]:
    """Returns the statement that removes a constraint, if it is there: names are not of one kind alone."""
    if _is_valid(session, kind, table, name) is None:
        return []
    return [f"ALTER TABLE IF EXISTS {qualified(table)} DROP CONSTRAINT IF EXISTS {identifier(name)}"]


def _definition(constraint: Constraint) -> str:
    if isinstance(constraint, Check):
        return f"CHECK {constraint.expression}"
    columns, parents = (", ".join(map(identifier, names)) for names in (constraint.columns, constraint.parent_columns))
    return (
        f"FOREIGN KEY ({columns}) REFERENCES {qualified(constraint.parent)} ({parents}) "
        f"ON DELETE {constraint.on_delete} ON UPDATE {constraint.on_update}"
    )


def _is_valid(session: PostgresSession, kind: ConstraintKind, table: TableName, name: str) -> bool | None:
    """Whether the constraint has been checked against all rows; None where there is none of this kind and name."""
    rows = session.rows(
        "SELECT o.convalidated FROM pg_catalog.pg_constraint o JOIN pg_catalog.pg_class c ON c.oid = o.conrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND o.conname = %s AND o.contype = %s",
        (table.schema, table.name, name, _TYPES[kind]),
    )
    return bool(rows[0][0]) if rows else None
