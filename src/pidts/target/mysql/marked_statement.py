"""Runs statements that commit by themselves, so that the log shows the zone from which each statement comes.

Each statement ends with a comment that names the zone, and the log contains the statement as it was sent. But servers
rewrite DROP TABLE, and keep only the names of its tables. So such a statement also drops a table that is created for
this purpose, the mark. The mark is the first table in the statement: a server that drops tables one after the other
drops the mark before every other table.
"""

from __future__ import annotations

import re

from pidts.model import Halted
from pidts.model.advice import SKIP
from pidts.model.zone import drop_mark, mark_comment
from pidts.schema import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    IgnoredStatement,
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
"""Matches statements that run in a marked transaction. Other statements, such as CALL, may contain a COMMIT, and the
changes after this COMMIT would have no mark.
"""
_DROP = re.compile(
    r"(?P<head>\s*DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?)(?P<names>[^;/#]+?)\s*;?\s*", re.ASCII | re.IGNORECASE
)


def run_marked(connection: MySqlConnection, sql: str, origin: str) -> None:
    """Runs one statement of a zone outside of transactions; raises `Halted` if the log would not show the zone."""
    statement = classify(sql, "", dialect=connection.server.dialect)
    match statement:
        case DropTable():
            connection.pipeline.now(_with_mark(connection, statement, sql, origin).encode())
        case StatementDml() if _CHANGES_ROWS.match(sql):
            connection.begin(origin)
            try:
                connection.mark()
                connection.pipeline.now(sql.encode())
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        case IgnoredStatement():
            connection.pipeline.now(sql.encode())  # the statement changes no table, so no task carries it
        case _ if isinstance(statement, _COMMENTED):
            connection.pipeline.now(f"{sql.rstrip().rstrip(';')} {mark_comment(origin)}".encode())
        case _:
            raise _not_shown(statement, sql)


def _with_mark(connection: MySqlConnection, statement: DropTable, sql: str, origin: str) -> str:
    """Returns a DROP TABLE that also drops the mark, which is created first."""
    found = _DROP.fullmatch(sql)
    if found is None:
        raise _not_shown(statement, sql)
    for table in statement.tables:
        engine = connection.rows(
            "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (table.schema, table.name),
        )
        if engine and engine[0][0] != "InnoDB":  # some servers log the DROP of such a table without the mark
            raise _not_shown(statement, sql)
    mark = f"pidts_meta.{drop_mark(origin)}"
    connection.run(f"CREATE TABLE IF NOT EXISTS {mark} (id int NOT NULL PRIMARY KEY) ENGINE=InnoDB", ())
    return f"{found['head']}{connection.named(mark)}, {found['names']}"


def _not_shown(statement: Statement, sql: str) -> Halted:
    return Halted(
        "origin-not-shown",
        f"the target's log would not show from which zone this statement comes: {sql[:200]}",
        todo=f"Run the {type(statement).__name__} statement in both zones by hand, and skip it here: {SKIP}",
    )
