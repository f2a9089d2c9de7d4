"""On a target of the source's product, a column is the same as on the source: SHOW CREATE TABLE gives the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.target.conformance.samples import create

from pidts.model import TableName
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, read_structures
from pidts.source.uncarried_objects import DECLARED, GENERATED, left_behind
from pidts.target import MySqlTarget
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.cutover.remade_columns import (
    DeclaredType,
    GeneratedColumn,
    RemadeColumn,
    can_be,
    drop_second_columns,
    is_needed,
    make,
    statement,
)

RunSql = Callable[..., list[tuple[Any, ...]]]
SECOND = "ALTER TABLE t ADD COLUMN pidts_generated_here INT AS (id) VIRTUAL"


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def target(server: Server, database: str, run_sql: RunSql) -> Iterator[MySqlSession]:
    is_mariadb = "MariaDB" in run_sql(server, "SELECT VERSION()")[0][0]
    srid = "" if is_mariadb else " SRID 4326"
    run_sql(
        server,
        "CREATE TABLE s (id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET latin1 NOT NULL, "
        "up VARCHAR(20) CHARACTER SET latin1 AS (UPPER(name)) VIRTUAL COMMENT 'it''s', twice BIGINT AS (id * 2) STORED, "
        f"length INT AS (CHAR_LENGTH(up)) VIRTUAL, place POINT NOT NULL{srid} COMMENT 'where', "
        "several GEOMETRYCOLLECTION, any_shape GEOMETRY, padded MEDIUMINT(8) UNSIGNED ZEROFILL NOT NULL DEFAULT 7, "
        "price DECIMAL(8,2) ZEROFILL, KEY by_up (up, id), UNIQUE KEY by_twice (twice))",
        database=database,
    )
    run_sql(
        server,
        "INSERT INTO s (id, name, place, several) VALUES "
        "(1, 'Ada', ST_GeomFromText('POINT(1 2)', 4326), NULL), (2, 'Bob', ST_GeomFromText('POINT(3 4)', 4326), NULL)",
        database=database,
    )
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing(MySqlTarget(**settings).connect()) as session, closing(connect(SourceConfig(**settings))) as source:
        (table,) = read_structures(source, TableName(database, "s").__eq__).values()
        create(session, table.renamed(TableName(database, "t")))
        names = "id, name, up, twice, length, place, several, any_shape, padded, price"
        session.execute(f"INSERT INTO {database}.t ({names}) SELECT {names} FROM {database}.s")
        assert isinstance(session, MySqlSession)
        yield session


def wanted(server: Server, database: str) -> list[RemadeColumn]:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    there, found = TableName(database, "t"), []
    with closing(connect(SourceConfig(**settings))) as source:
        for one in left_behind(source, TableName(database, "s").__eq__, {database}):
            if one.kind == GENERATED:
                found.append(GeneratedColumn(there, one.name, one.expression, one.stored))
            elif one.kind == DECLARED:
                found.append(DeclaredType(there, one.name, one.declared, one.srid))
    return found


def shown(server: Server, database: str, run_sql: RunSql, name: str) -> list[str]:
    text = str(run_sql(server, f"SHOW CREATE TABLE {name}", database=database)[0][1])
    return [line.strip().removesuffix(",") for line in text.splitlines()[1:-1]]


def test_the_table_is_in_the_end_as_the_source_shows_it(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    columns = wanted(server, database)
    names = {one.name for one in columns}
    assert names == {"up", "twice", "length", "place", "several", "padded", "price"}
    before = run_sql(server, "SELECT * FROM t ORDER BY id", database=database)
    for one in columns:
        assert can_be(target, one), one
        assert is_needed(target, one), one
        assert make(target, one) == "", one
        assert not is_needed(target, one), one
        assert make(target, one) == "", "nothing is left"
    assert sorted(shown(server, database, run_sql, "t")) == sorted(shown(server, database, run_sql, "s"))
    assert run_sql(server, "SELECT * FROM t ORDER BY id", database=database) == before


def test_a_column_with_other_values_stays_as_it_is(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    before = shown(server, database, run_sql, "t")
    run_sql(server, "UPDATE t SET up = 'ADa', twice = 5 WHERE id = 1", database=database)
    for one in wanted(server, database):
        if one.name in {"up", "twice"}:
            said = make(target, one)
            assert said.startswith("the target would compute other values; the statement is: ALTER TABLE")
            assert statement(target, one) in said
    assert shown(server, database, run_sql, "t") == before
    assert run_sql(server, "SELECT up, twice FROM t WHERE id = 1", database=database) == [("ADa", 5)]


def test_remains_of_an_interrupted_attempt_are_dropped(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    before = shown(server, database, run_sql, "t")
    run_sql(server, SECOND, database=database)
    drop_second_columns(target, [TableName(database, "t")])
    assert shown(server, database, run_sql, "t") == before
    run_sql(server, SECOND, database=database)
    (twice,) = [one for one in wanted(server, database) if one.name == "twice"]
    assert make(target, twice) == ""
    assert not any("pidts" in line for line in shown(server, database, run_sql, "t"))


def test_an_expression_that_the_server_does_not_know_is_listed_with_its_statement(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    before = shown(server, database, run_sql, "t")
    for stored in (True, False):
        unknown = GeneratedColumn(TableName(database, "t"), "up", "(no_such_function(`name`))", stored)
        said = make(target, unknown)
        assert "; the statement is: ALTER TABLE" in said
    assert shown(server, database, run_sql, "t") == before


def test_a_referenced_table_may_have_the_name_of_the_column(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    run_sql(server, "CREATE TABLE up (id INT PRIMARY KEY)", database=database)
    run_sql(server, "INSERT INTO up VALUES (1), (2)", database=database)
    run_sql(server, "ALTER TABLE t ADD CONSTRAINT of_up FOREIGN KEY (id) REFERENCES up (id)", database=database)
    before = shown(server, database, run_sql, "t")
    (up,) = [one for one in wanted(server, database) if one.name == "up"]
    assert make(target, up) == ""
    after = shown(server, database, run_sql, "t")
    assert [line for line in after if "FOREIGN KEY" in line] == [line for line in before if "FOREIGN KEY" in line]


def test_a_column_with_a_foreign_key_stays_as_it_is(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    run_sql(server, "CREATE TABLE parents (name VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY)", database=database)
    run_sql(server, "INSERT INTO parents SELECT up FROM t", database=database)
    run_sql(server, "ALTER TABLE t ADD CONSTRAINT own FOREIGN KEY (up) REFERENCES parents (name)", database=database)
    before = shown(server, database, run_sql, "t")
    (up,) = [one for one in wanted(server, database) if one.name == "up"]
    assert "needs a column with stored values" in make(target, up)
    assert shown(server, database, run_sql, "t") == before


@pytest.mark.parametrize("others", ["plain", "computed"])
def test_a_column_from_which_the_target_computes_others_is_made(
    server: Server, database: str, run_sql: RunSql, others: str
) -> None:
    """`more` and `most` are also plain, or an ALTER TABLE in the log has added them: MySQL does not drop columns that
    they need.
    """
    plain = "INSERT INTO {} (id, name) VALUES (1, 'a'), (2, NULL)"
    computed = (
        "more VARCHAR(20) CHARACTER SET latin1 AS (CONCAT(up, up)) STORED, most INT AS (CHAR_LENGTH(more)) VIRTUAL"
    )
    there = computed if others == "computed" else "more VARCHAR(20) CHARACTER SET latin1, most INT"
    rest = "said VARCHAR(99) COMMENT ' GENERATED ALWAYS AS (`up`) VIRTUAL', KEY by_more (more), KEY by_most (most, id))"
    run_sql(
        server,
        f"CREATE TABLE s (id INT PRIMARY KEY, name VARCHAR(9), up VARCHAR(9) CHARACTER SET latin1 AS (UPPER(name)), {computed}, {rest}",
        database=database,
    )
    run_sql(
        server,
        f"CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), up VARCHAR(9) CHARACTER SET latin1, {there}, {rest}",
        database=database,
    )
    run_sql(server, plain.format("s"), database=database)
    run_sql(server, plain.format("t"), database=database)
    run_sql(server, "UPDATE t SET up = UPPER(name), said = 'kept'", database=database)
    if others == "plain":
        run_sql(server, "UPDATE t SET more = CONCAT(up, up), most = CHAR_LENGTH(more)", database=database)
    run_sql(server, "UPDATE s SET said = 'kept'", database=database)
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing(MySqlTarget(**settings).connect()) as session:
        assert isinstance(session, MySqlSession)
        for one in wanted(server, database):
            assert make(session, one) == "", one
    assert shown(server, database, run_sql, "t") == shown(server, database, run_sql, "s")
    rows = [run_sql(server, f"SELECT * FROM {name} ORDER BY id", database=database) for name in ("s", "t")]
    assert rows[0] == rows[1]
