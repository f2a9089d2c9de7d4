"""Creates the source's foreign keys, checks, keys over expressions and automatic timestamps on PostgreSQL.

Foreign keys and checks are first created for new rows only, and then checked against all rows. Meanwhile other sessions
can write to the table. They cannot while a key is created.

Crash points: each statement is atomic, and the catalog shows which statements are still needed.
"""

from __future__ import annotations

from pidts.model import Constraint, ConstraintKind, ExpressionKey, ForeignKey, OnUpdate, TableName
from pidts.target.constraint_sql import definition
from pidts.target.postgres.cutover import counters, on_update
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.session import PostgresSession

_TYPES = {ConstraintKind.FOREIGN_KEY: "f", ConstraintKind.CHECK: "c"}


def missing(session: PostgresSession, constraint: Constraint) -> bool:
    """Whether the table has no constraint of this kind and name."""
    return _is_valid(session, constraint.kind, constraint.table, constraint.name) is None


def statements(session: PostgresSession, constraint: Constraint) -> list[str]:
    """Returns the statements that are still needed until the constraint exists and all rows are checked."""
    is_valid = _is_valid(session, constraint.kind, constraint.table, constraint.name)
    if isinstance(constraint, OnUpdate):
        return [] if is_valid is not None else [on_update.create(constraint)]
    table, name = qualified(constraint.table), identifier(constraint.name)
    if isinstance(constraint, ExpressionKey):
        unique = "UNIQUE " if constraint.unique else ""
        made = f"CREATE {unique}INDEX {name} ON {table} ({', '.join(constraint.parts)})"
        return [] if is_valid is not None else [made]
    rest = [f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}"] if not is_valid else []
    if is_valid is None:
        shape = definition(constraint, identifier, qualified)
        rest.insert(0, f"ALTER TABLE {table} ADD CONSTRAINT {name} {shape} NOT VALID")
    return rest


def obstacle(session: PostgresSession, key: ForeignKey) -> str:
    """Returns why the foreign key cannot be created, and what to do; empty if nothing is in the way."""
    if session.schema.shape(key.parent) is None:
        return f"the target has no table {key.parent}"
    parent, table = qualified(key.parent), qualified(key.table)
    ((role, may_refer, is_owner),) = session.rows(
        "SELECT current_user::text, "
        "(SELECT bool_and(pg_catalog.has_column_privilege(%s, name, 'REFERENCES')) FROM unnest(%s::text[]) AS name), "
        "pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c WHERE c.oid = %s::regclass",
        (parent, list(key.parent_columns), table),
    )
    account, admin = identifier(role), "as an administrator of the target, run"
    if not may_refer:
        return f"the account lacks REFERENCES on {key.parent}: {admin} GRANT REFERENCES ON {parent} TO {account}"
    if not is_owner:
        return f"only its owner may alter {key.table}: {admin} ALTER TABLE {table} OWNER TO {account}"
    return ""


def drops(session: PostgresSession, kind: ConstraintKind, table: TableName, name: str) -> list[str]:
    """Returns statements that remove a constraint, if it exists. A constraint of another kind with this name stays."""
    if kind is ConstraintKind.COUNTER:
        return counters.drops(session, table, name)
    if _is_valid(session, kind, table, name) is None:
        return []
    if kind is ConstraintKind.ON_UPDATE:
        return [on_update.drop(table, name)]
    if kind is ConstraintKind.KEY:
        return [f"DROP INDEX IF EXISTS {identifier(table.schema)}.{identifier(name)}"]
    return [f"ALTER TABLE IF EXISTS {qualified(table)} DROP CONSTRAINT IF EXISTS {identifier(name)}"]


def _is_valid(session: PostgresSession, kind: ConstraintKind, table: TableName, name: str) -> bool | None:
    """Whether the constraint has been checked against all rows; None if no constraint has this kind and name."""
    if kind is ConstraintKind.ON_UPDATE:
        return on_update.is_there(session, table, name) or None
    if kind is ConstraintKind.KEY:
        rows = session.rows(
            "SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid "
            "JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND x.relname = %s",
            (table.schema, table.name, name),
        )
        return bool(rows[0][0]) if rows else None
    rows = session.rows(
        "SELECT o.convalidated FROM pg_catalog.pg_constraint o JOIN pg_catalog.pg_class c ON c.oid = o.conrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND o.conname = %s AND o.contype = %s",
        (table.schema, table.name, name, _TYPES[kind]),
    )
    return bool(rows[0][0]) if rows else None
