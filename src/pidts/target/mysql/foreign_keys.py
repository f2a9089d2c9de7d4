"""Makes foreign keys on MySQL, MariaDB and TiDB, as they are on the source.

Crash points: each is one statement, and whether it is needed is read from the catalogue. The sessions do not check
foreign keys, so the server does not look at the rows, which the source has checked.
"""

from __future__ import annotations

from pidts.model import ForeignKey, TableName
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession


def missing(session: MySqlSession, key: ForeignKey) -> bool:
    """Whether the table has no foreign key of this name."""
    return not is_there(session, key.table, key.name)


def is_there(session: MySqlSession, table: TableName, name: str) -> bool:
    """Whether the table has a foreign key of this name."""
    rows = session.rows(
        "SELECT 1 FROM information_schema.table_constraints WHERE table_schema = %s AND table_name = %s "
        "AND constraint_name = %s AND constraint_type = 'FOREIGN KEY'",
        (table.schema, table.name, name),
    )
    return bool(rows)


def statements(session: MySqlSession, key: ForeignKey) -> list[str]:
    """Returns the statement, if it is needed now."""
    if not missing(session, key):
        return []
    columns, parents = (", ".join(map(identifier, names)) for names in (key.columns, key.parent_columns))
    references = f"{qualified(key.parent)} ({parents}) ON DELETE {key.on_delete} ON UPDATE {key.on_update}"
    named = f"ADD CONSTRAINT {identifier(key.name)} FOREIGN KEY ({columns})"
    return [f"ALTER TABLE {qualified(key.table)} {named} REFERENCES {references}"]


def drop(table: TableName, name: str) -> str:
    """Returns the statement that removes a foreign key."""
    return f"ALTER TABLE {qualified(table)} DROP FOREIGN KEY {identifier(name)}"
