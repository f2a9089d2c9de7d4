"""Makes foreign keys on PostgreSQL: first for new rows, then checked against all rows, which keeps nobody from writing.

Crash points: each of the two statements is atomic, and which of them is needed is read from the catalogue.
"""

from __future__ import annotations

from pidts.model import ForeignKey, TableName
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.session import PostgresSession


def missing(session: PostgresSession, key: ForeignKey) -> bool:
    """Whether the table has no constraint of this name."""
    return _is_valid(session, key) is None


def statements(session: PostgresSession, key: ForeignKey) -> list[str]:
    """Returns the statements that are needed now."""
    is_valid = _is_valid(session, key)
    table, name = qualified(key.table), identifier(key.name)
    made = [f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}"] if not is_valid else []
    if is_valid is None:
        columns, parents = (", ".join(map(identifier, names)) for names in (key.columns, key.parent_columns))
        made.insert(
            0,
            f"ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) "
            f"REFERENCES {qualified(key.parent)} ({parents}) "
            f"ON DELETE {key.on_delete} ON UPDATE {key.on_update} NOT VALID",
        )
    return made


def drop(table: TableName, name: str) -> str:
    """Returns the statement that removes a foreign key."""
    return f"ALTER TABLE IF EXISTS {qualified(table)} DROP CONSTRAINT IF EXISTS {identifier(name)}"


def _is_valid(session: PostgresSession, key: ForeignKey) -> bool | None:
    """Whether the constraint has been checked against all rows; None where there is none."""
    rows = session.rows(
        "SELECT o.convalidated FROM pg_catalog.pg_constraint o JOIN pg_catalog.pg_class c ON c.oid = o.conrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND o.conname = %s",
        (key.table.schema, key.table.name, key.name),
    )
    return bool(rows[0][0]) if rows else None
