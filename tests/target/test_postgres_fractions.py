"""If a column gets fewer digits of a second, PostgreSQL's rows get the values that the source's session gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pidts.binlog import EventType, LogWalker
from pidts.binlog.statements import Query
from pidts.model import Halted, Position, Table, TableName
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.schema import AlterTable, Dialect, Statement, apply, classify
from pidts.source import SourceConfig, connect, log_end, query, read_structures, source_dialect
from pidts.source.log_proof import log_events
from pidts.target.postgres import PostgresSession, PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
COLUMNS = {"d": "DATETIME", "s": "TIMESTAMP", "t": "TIME"}
DAYS = ("1970-01-02", "1999-12-31", "2000-01-01", "2024-02-29")
CLOCKS = ("00:00:00", "12:34:56", "23:59:59")
FRACTIONS = ("0", "4", "449999", "4999", "499999", "5", "500001", "1235", "123449", "12345", "123456", "999999")
REVERSES = {"mariadb": "TIME_ROUND_FRACTIONAL", "mysql97": "TIME_TRUNCATE_FRACTIONAL"}
"""The mode of each kind of server that reverses what it does."""


def values() -> Iterator[tuple[str, str, str]]:
    """Yields the values of each row; times are also negative."""
    for day in DAYS:
        for moment in (f"{clock}.{fraction}" for clock in CLOCKS for fraction in FRACTIONS):
            yield f"{day} {moment}", f"{day} {moment}", f"{'-' if day < '2000' else ''}{moment}"


def duration(text: str) -> timedelta:
    hours, minutes, seconds = text.removeprefix("-").split(":")
    whole, _, fraction = seconds.partition(".")
    found = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=int(fraction.ljust(6, "0"))
    )
    return -found if text.startswith("-") else found


def statements_after(config: SourceConfig, begin: Position) -> Iterator[Query]:
    walker = LogWalker(begin.file, begin.offset)
    for raw in log_events(config, begin, None):
        event = walker.feed(raw)
        if event.type == EventType.QUERY:
            yield Query.parse(event)


@pytest.fixture
def target(postgres: Server, database: str) -> Iterator[PostgresSession]:
    login = (postgres.host, postgres.port, postgres.user, postgres.password, database)
    with closing(PostgresTarget(*login).connect()) as session:
        yield session


@pytest.mark.parametrize("digits", [0, 3, 5])
@pytest.mark.parametrize(
    ("kind", "mode"), [("mariadb", 0), ("mariadb", 1), ("mysql97", 0), ("mysql97", 1), ("mysql56", 0)]
)
def test_rows_get_the_source_s_values(
    target: PostgresSession,
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    run_sql: RunSql,
    kind: str,
    mode: int,
    digits: int,
) -> None:
    server = {one.kind: one for one in (mariadb, mysql97, mysql56)}[kind]
    name, place = TableName(database, "t"), f'"{database}".t'
    columns = ", ".join(f"{one} {sql}(6) NULL" for one, sql in COLUMNS.items())
    run_sql(server, f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", database=database)
    config = SourceConfig(server.host, server.port, server.user, server.password)
    with closing(connect(config)) as source:
        before = read_structures(source, AllowList.parse(f"{database}.t"))
        for each in target.schema.create_statements(before[name]).statements:
            target.execute(each)
        for number, (moment, stamp, time) in enumerate(values()):
            query(source, f"INSERT INTO `{database}`.t VALUES ({number}, '{moment}', '{stamp}', '{time}')")
            target.execute(f"INSERT INTO {place} VALUES ({number}, '{moment}', '{stamp}+00', '{time}')")
        target.execute(f"INSERT INTO {place} VALUES (-1, 'infinity', NULL, NULL)")
        altered = ", ".join(f"MODIFY {one} {sql}({digits}) NULL" for one, sql in COLUMNS.items())
        statement = f"ALTER TABLE `{database}`.t {altered}"
        query(source, f"SET sql_mode = '{REVERSES[kind] if mode else ''}'")
        begin = log_end(source)
        query(source, statement)
        (logged,) = (found for found in statements_after(config, begin) if found.sql == statement)
        follow(target, statement, before, source_dialect(source).under(logged.sql_mode))
        there = query(
            source, f"SELECT id, CAST(d AS CHAR), CAST(s AS CHAR), CAST(t AS CHAR) FROM `{database}`.t ORDER BY id"
        )
    here = target.rows(
        f"SELECT id, d::text, (s AT TIME ZONE 'UTC')::text, (extract(epoch FROM t) * 1000000)::bigint "
        f"FROM {place} WHERE id >= 0 ORDER BY id"
    )

    def moment(found: str) -> str:
        return found.rstrip("0").removesuffix(".") if "." in found else found

    assert [(row[0], row[1], row[2], timedelta(microseconds=row[3])) for row in here] == [
        (row[0], moment(row[1]), moment(row[2]), duration(row[3])) for row in there
    ]
    assert target.rows(f"SELECT d::text FROM {place} WHERE id = -1") == [("infinity",)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DATETIME", "9999-12-31 23:59:59.5"),
        ("TIMESTAMP", "2038-01-19 03:14:07.5+00"),
        ("TIME", "-838:59:59.5"),
        ("TIME", "838:59:59.5"),
    ],
)
def test_a_row_that_is_rounded_up_beyond_the_limit_of_its_type_halts(
    target: PostgresSession, database: str, kind: str, value: str
) -> None:
    """Without strict mode, the source gives such a row another value."""
    dialect = Dialect.of("8.4.0").under(0)
    made = classify(f"CREATE TABLE t (id INT PRIMARY KEY, v {kind}(6) NULL)", database, dialect=dialect)
    before = apply(made, {}, {database: ("utf8mb4", "utf8mb4_bin")}, dialect=dialect)
    tables = {name: table for name, table in before.items() if table is not None}
    for each in target.schema.create_statements(tables[TableName(database, "t")]).statements:
        target.execute(each)
    target.execute(f"INSERT INTO \"{database}\".t VALUES (1, '{value}')")
    with pytest.raises(Halted, match="fewer digits of a second"):
        follow(target, f"ALTER TABLE t MODIFY v {kind} NULL", tables, dialect)


@pytest.mark.parametrize(("is_mariadb", "value"), [(True, "2024-01-01 00:00:00"), (False, "2024-01-01 00:00:01")])
def test_the_printed_statement_of_a_merged_table_cuts_or_rounds_as_the_sources_product_does(
    target: PostgresSession, database: str, value: str, *, is_mariadb: bool
) -> None:
    """The rows of the other shards were converted in other sessions, so this statement is only printed."""
    dialect = Dialect(mariadb=is_mariadb)
    made = classify("CREATE TABLE t (id INT PRIMARY KEY, v DATETIME(6))", database, dialect=dialect)
    charsets, name = {database: ("utf8mb4", "utf8mb4_bin")}, TableName(database, "t")
    before = apply(made, {}, charsets, dialect=dialect)
    tables = {one: table for one, table in before.items() if table is not None}
    for each in target.schema.create_statements(tables[name]).statements:
        target.execute(each)
    target.execute(f"INSERT INTO \"{database}\".t VALUES (1, '2024-01-01 00:00:00.5')")
    statement = classify("ALTER TABLE t MODIFY v DATETIME", database, dialect=dialect)
    assert isinstance(statement, AlterTable)
    after = apply(statement, tables, charsets, dialect=dialect)
    with pytest.raises(Halted, match="fewer digits of a second") as caught:
        target.schema.ddl_statements(replace(statement, cuts_fractions=None), tables, after)
    for each in caught.value.instead:
        target.execute(each)
    assert target.rows(f'SELECT v::text FROM "{database}".t') == [(value,)]


def follow(target: PostgresSession, sql: str, before: dict[TableName, Table], dialect: Dialect) -> None:
    statement: Statement = classify(sql, next(iter(before)).schema, dialect=dialect)
    charsets = {name.schema: ("utf8mb4", "utf8mb4_bin") for name in before}
    after = apply(statement, before, charsets, dialect=dialect)
    for each in target.schema.ddl_statements(statement, before, after).statements:
        target.execute(each)
