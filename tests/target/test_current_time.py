"""Existing rows get the time of the source's statement in a new column with the current time as its default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pidts.binlog import LogWalker
from pidts.binlog.statements import logged_statements
from pidts.model import Halted, Table, TableName
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.schema import Statement, apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.source import SourceConfig, connect, log_end, query, read_structures, source_dialect
from pidts.source.log_proof import log_events
from pidts.target import MySqlTarget
from pidts.target.postgres import PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
EVERYWHERE = {
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)": "2023-11-14 22:13:20.987654",
    "TIMESTAMP(6) NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6)": "2023-11-14 22:13:20.987654",
    "DATETIME(3) NOT NULL DEFAULT LOCALTIME(3)": "2023-11-14 22:13:20.987",
    "TIMESTAMP(1) NULL DEFAULT CURRENT_TIMESTAMP(1)": "2023-11-14 22:13:20.9",
    "DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP": "2023-11-14 22:13:20",
}
ONLY_MARIADB = {
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP": "2023-11-14 22:13:20.987654",
    "TIMESTAMP(4) NOT NULL DEFAULT NOW()": "2023-11-14 22:13:20.9876",
    "DATETIME(2) DEFAULT NOW(6)": "2023-11-14 22:13:20.98",
}
"""MySQL refuses a default with other digits than the column has."""


@dataclass(frozen=True)
class LoggedAlter:
    """An ALTER TABLE of a source, and the rows of the source after it."""

    before: dict[TableName, Table]
    after: dict[TableName, Table | None]
    statement: Statement
    executed_at: StatementTime
    rows: list[tuple[str, ...]]


@contextmanager
def altered(
    source: Server, database: str, run_sql: RunSql, definitions: Sequence[str], *settings: str
) -> Iterator[LoggedAlter]:
    """Adds columns c0, c1, … to a table of the source that has rows, and yields the change as the log shows it."""
    run_sql(source, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(source, "INSERT INTO t VALUES (1), (2)", database=database)
    config = SourceConfig(source.host, source.port, source.user, source.password)
    with closing(connect(config)) as session:
        before = read_structures(session, AllowList.parse(f"{database}.t"))
        for setting in ("time_zone = '+00:00'", "timestamp = 1700000000.987654", *settings):
            query(session, f"SET {setting}")
        begin = log_end(session)
        added = ", ".join(f"ADD COLUMN c{number} {one}" for number, one in enumerate(definitions))
        query(session, f"ALTER TABLE `{database}`.t {added}")
        (logged,) = logged_statements(LogWalker(begin.file, begin.offset), log_events(config, begin, None))
        dialect = source_dialect(session).under(logged.sql_mode, logged.time_zone)
        statement = classify(logged.sql, database, dialect=dialect)
        after = apply(statement, before, {database: ("utf8mb4", "utf8mb4_bin")}, dialect=dialect)
        executed_at = StatementTime(logged.seconds, logged.micros, dialect.is_in_utc)
        texts = ", ".join(f"CAST(c{number} AS CHAR)" for number in range(len(definitions)))
        rows = [tuple(row) for row in query(session, f"SELECT {texts} FROM `{database}`.t ORDER BY id")]
        yield LoggedAlter(before, after, statement, executed_at, rows)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql56"])
@pytest.mark.parametrize("to", ["postgres", "mariadb", "mysql97"])
def test_existing_rows_get_the_time_of_the_statement(
    postgres: Server,
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    run_sql: RunSql,
    kind: str,
    to: str,
) -> None:
    servers = {one.kind: one for one in (postgres, mariadb, mysql97, mysql56)}
    source, server = servers[kind], servers[to]
    columns = EVERYWHERE | (ONLY_MARIADB if kind == "mariadb" else {})
    with altered(source, database, run_sql, list(columns)) as change:
        assert change.rows == [tuple(columns.values())] * 2
    if source is server:
        run_sql(server, "DROP TABLE t", database=database)
    login = (server.host, server.port, server.user, server.password)
    target = PostgresTarget(*login, database) if to == "postgres" else MySqlTarget(*login)
    place = f'"{database}".t' if to == "postgres" else f"`{database}`.t"
    with closing(target.connect()) as session:
        for each in session.schema.create_statements(change.before[TableName(database, "t")]).statements:
            session.execute(each)
        session.execute(f"INSERT INTO {place} VALUES (1), (2)")
        for each in session.schema.ddl_statements(
            change.statement, change.before, change.after, change.executed_at
        ).statements:
            session.execute(each)
        texts = [
            f"CAST(c{number} AS CHAR)"
            if to != "postgres"
            else f"(c{number} AT TIME ZONE 'UTC')::text"
            if one.startswith("TIMESTAMP")
            else f"c{number}::text"
            for number, one in enumerate(columns)
        ]
        assert session.rows(f"SELECT {', '.join(texts)} FROM {place}") == change.rows


@pytest.mark.parametrize(
    ("definition", "setting"),
    [
        ("DATETIME NOT NULL DEFAULT NOW()", "time_zone = '+02:00'"),
        ("DATE DEFAULT CURRENT_TIMESTAMP", "time_zone = '+02:00'"),
        ("INT UNSIGNED DEFAULT (YEAR(NOW()))", "timestamp = DEFAULT"),
    ],
)
def test_a_value_that_the_log_does_not_show_halts(
    mariadb: Server, postgres: Server, database: str, run_sql: RunSql, definition: str, setting: str
) -> None:
    login = (postgres.host, postgres.port, postgres.user, postgres.password, database)
    with (
        altered(mariadb, database, run_sql, [definition], setting) as change,
        closing(PostgresTarget(*login).connect()) as session,
    ):
        for each in session.schema.create_statements(change.before[TableName(database, "t")]).statements:
            session.execute(each)
        session.execute(f'INSERT INTO "{database}".t VALUES (1)')
        with pytest.raises(Halted, match="column c0 has values in existing rows that the source computed") as caught:
            session.schema.ddl_statements(change.statement, change.before, change.after, change.executed_at)
        for each in caught.value.instead:
            session.execute(each)
