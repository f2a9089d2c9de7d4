"""Runs statements that commit by themselves so that the log shows the zone from which they come.

The comment at the end of a statement is in the log as it was sent. The servers write DROP TABLE anew: only the names of
its tables stay, so a table is dropped along with it that is made for this. It stands first: a server that drops tables
one after the other has dropped it when the first other table is gone.
"""

from __future__ import annotations

import re

from pidts.model import Halted
from pidts.model.zone import drop_mark, mark_comment
from pidts.schema import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    Ignored,
    RenameTable,
    Statement,
    StatementDml,
    TruncateTable,
    classify,
)
from pidts.target.mysql.connection import MySqlConnection

_COMMENTED = (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    RenameTable,
    TruncateTable,
)
_CHANGES_ROWS = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.ASCII | re.IGNORECASE)
"""Others, such as CALL, may commit in between, and only what stands before it would show the zone."""
_DROP = re.compile(
    r"(?P<head>\s*DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?)(?P<names>[^;/#]+?)\s*;?\s*", re.ASCII | re.IGNORECASE
)


def run_marked(connection: MySqlConnection, sql: str, origin: str) -> None:
    """Runs one statement of a zone outside of transactions; raises Halted where its zone would not show."""
    statement = classify(sql, "", dialect=connection.server.dialect)
    match statement:
        case DropTable():
            connection.exchange.now(_with_mark(connection, statement, sql, origin).encode())
        case StatementDml() if _CHANGES_ROWS.match(sql):
            connection.begin(origin)
            try:
                connection.mark()
                connection.exchange.now(sql.encode())
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        case Ignored():
            connection.exchange.now(sql.encode())  # it changes no table, so no task carries it
        case _ if isinstance(statement, _COMMENTED):
            connection.exchange.now(f"{sql.rstrip().rstrip(';')} {mark_comment(origin)}".encode())
        case _:
            raise _not_shown(statement, sql)


def _with_mark(connection: MySqlConnection, statement: DropTable, sql: str, origin: str) -> str:
    """Returns a DROP TABLE that drops the mark, too, which is made for it."""
    found = _DROP.fullmatch(sql)
    if found is None:
        raise _not_shown(statement, sql)
    for table in statement.tables:
        engine = connection.rows(
            "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (table.schema, table.name),
        )
        if engine and engine[0][0] != "InnoDB":  # such a table gets a statement of its own in some servers' logs
            raise _not_shown(statement, sql)
    mark = f"pidts_meta.{drop_mark(origin)}"
    connection.run(f"CREATE TABLE IF NOT EXISTS {mark} (id int NOT NULL PRIMARY KEY) ENGINE=InnoDB", ())
    return f"{found['head']}{connection.named(mark)}, {found['names']}"


def _not_shown(statement: Statement, sql: str) -> Halted:
    return Halted(
        "origin-not-shown",
        f"the target's log would not show from which zone this statement comes: {sql[:200]}",
        todo=f"Run it in both zones by hand, and skip it here: pidts ddl skip ({type(statement).__name__})",
    )
