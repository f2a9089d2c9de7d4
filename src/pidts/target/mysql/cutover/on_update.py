"""Makes `ON UPDATE CURRENT_TIMESTAMP` of a column on MySQL, MariaDB and TiDB.

The statement repeats the column as the server itself shows it, and adds the attribute or leaves it out, which changes
the table's definition alone. Crash points: it is one statement, and whether it is needed is read from the catalogue.
"""

from __future__ import annotations

import re

from pidts.model import Halted, TableName, Where
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession

_ATTRIBUTE = re.compile(r" ON UPDATE current_timestamp(?:\(\d?\))?", re.IGNORECASE)
_COMMENT = " COMMENT '"


def is_there(session: MySqlSession, table: TableName, column: str) -> bool:
    """Whether the server gives the column the time of an update by itself."""
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
    # A comment may have anything but a line feed that `splitlines` takes for an end of a line.
    for line in session.shown(f"SHOW CREATE TABLE {qualified(table)}")[0][1].split("\n"):
        if line.strip().lower().startswith(start.lower()):
            return line.strip().removesuffix(",")
    raise Halted("target-shape", f"the target table has no column {column}", where=Where(table=str(table)))
