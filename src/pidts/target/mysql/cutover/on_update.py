"""Adds `ON UPDATE CURRENT_TIMESTAMP` to a column on MySQL, MariaDB and TiDB.

The statement repeats the server's own definition of the column, with or without the attribute. It changes no rows.
Crash points: one statement adds the attribute, and the catalog shows whether it is still needed.
"""

from __future__ import annotations

import re

from pidts.model import Halted, TableName, Where
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession

_ATTRIBUTE = re.compile(r" ON UPDATE current_timestamp(?:\(\d?\))?", re.IGNORECASE)
_COMMENT = " COMMENT '"


def is_there(session: MySqlSession, table: TableName, column: str) -> bool:
    """Whether the column has the attribute."""
    rows = session.rows(
        "SELECT extra FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s",
        (table.schema, table.name, column),
    )
    return bool(rows) and "on update" in str(rows[0][0]).lower()


def create(session: MySqlSession, table: TableName, column: str, digits: int) -> str:
    """Returns the statement that adds the attribute."""
    attribute = f"ON UPDATE CURRENT_TIMESTAMP({digits})" if digits else "ON UPDATE CURRENT_TIMESTAMP"
    return f"ALTER TABLE {qualified(table)} MODIFY {_shown(session, table, column)} {attribute}"


def drop(session: MySqlSession, table: TableName, column: str) -> str:
    """Returns the statement that removes the attribute."""
    head, comment, rest = _shown(session, table, column).partition(_COMMENT)
    return f"ALTER TABLE {qualified(table)} MODIFY {_ATTRIBUTE.sub('', head)}{comment}{rest}"


def _shown(session: MySqlSession, table: TableName, column: str) -> str:
    """Returns the column's definition as the server shows it."""
    start = f"{identifier(column)} "
    # `splitlines` would also split at characters other than a line feed, which a comment may contain.
    for line in session.shown(f"SHOW CREATE TABLE {qualified(table)}")[0][1].split("\n"):
        if line.strip().lower().startswith(start.lower()):
            return line.strip().removesuffix(",")
    raise Halted(
        "target-shape",
        f"the target table has no column {column}",
        where=Where(table=str(table)),
        todo="Give the target's table this column again, then repeat the command",
    )
