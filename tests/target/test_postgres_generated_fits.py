"""A generated column of PostgreSQL is accepted only if PostgreSQL computes the same values as the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.target.conformance.samples import checkpoint, create, lsn

from pidts.apply import TargetSession
from pidts.apply.ddl.change import SchemaChange
from pidts.apply.ddl.runner import DdlRunner
from pidts.model import CommandKind, DdlCommand, Halted, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.schema import Dialect, classify
from pidts.source import SourceConfig, connect, read_structures
from pidts.target import PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
NAME = TableName("fitting", "t")
OTHERS = (
    "a INT, v VARCHAR(20), g BIGINT GENERATED ALWAYS AS (a + 2) STORED",
    "a INT, v VARCHAR(20), g BIGINT GENERATED ALWAYS AS (a + 1) STORED",
    "a BIGINT, v VARCHAR(20), g BIGINT GENERATED ALWAYS AS ((a::numeric + 1::numeric)::bigint) STORED",
    "a INT, v VARCHAR(20), g INT GENERATED ALWAYS AS ((a::numeric + 1::numeric)::bigint) STORED",
    "a INT, v VARCHAR(20), g BIGINT NOT NULL GENERATED ALWAYS AS ((a::numeric + 1::numeric)::bigint) STORED",
    "a INT, v VARCHAR(20), g BIGINT GENERATED ALWAYS AS (fitting.mine(a)) STORED",
    "a INT, v VARCHAR(20), g BIGINT GENERATED ALWAYS AS ((id::numeric + 1::numeric)::bigint) STORED",
)


@pytest.fixture(params=["mariadb", "mysql97"])
def source(request: pytest.FixtureRequest, run_sql: RunSql) -> Iterator[Server]:
    server: Server = request.getfixturevalue(request.param)
    run_sql(server, "DROP DATABASE IF EXISTS fitting")
    run_sql(server, "CREATE DATABASE fitting CHARACTER SET utf8mb4")
    yield server
    run_sql(server, "DROP DATABASE fitting")


@pytest.fixture
def place(postgres: Server, run_sql: RunSql) -> Iterator[Server]:
    run_sql(postgres, "CREATE DATABASE fitting")
    yield postgres
    run_sql(postgres, "DROP DATABASE fitting WITH (FORCE)")


def target_of(postgres: Server) -> PostgresTarget:
    return PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password, "fitting")


def structure(source: Server) -> Table:
    config = SourceConfig(source.host, source.port, source.user, source.password, source_id="s")
    with closing(connect(config)) as session:
        return read_structures(session, NAME.__eq__)[NAME]


def loosely(source: Server, *statements: str) -> None:
    """Runs statements in one session without strict mode."""
    with (
        closing(
            pymysql.connect(
                host=source.host, port=source.port, user=source.user, password=source.password, autocommit=True
            )
        ) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = ''")
        for statement in statements:
            cursor.execute(statement)


def write(target: TargetSession, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    columns = [list(each) for each in zip(*rows, strict=True)]
    given = pa.table(columns, table.arrow.names).cast(table.arrow)
    target.begin()
    try:
        target.write(NetChange(table, table.arrow.empty_table().select(["id"]), given, Counts()))
        target.commit()
    except Halted:
        target.rollback()
        raise


def test_a_column_that_the_target_computes_in_another_way_does_not_fit(
    mariadb: Server, place: Server, run_sql: RunSql
) -> None:
    run_sql(mariadb, "DROP DATABASE IF EXISTS fitting")
    run_sql(mariadb, "CREATE DATABASE fitting CHARACTER SET utf8mb4")
    run_sql(mariadb, "CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, v VARCHAR(20), g BIGINT AS (a + 1) STORED)")
    table = structure(mariadb)
    run_sql(mariadb, "DROP DATABASE fitting")
    run_sql(place, "CREATE SCHEMA fitting", database="fitting")
    mine = "CREATE FUNCTION fitting.mine(x INT) RETURNS BIGINT LANGUAGE sql IMMUTABLE RETURN "
    run_sql(place, mine + "(x::numeric + 1::numeric)::bigint", database="fitting")
    for there in OTHERS:
        run_sql(place, "DROP TABLE IF EXISTS fitting.t", database="fitting")
        run_sql(place, f"CREATE TABLE fitting.t (id INT PRIMARY KEY, {there})", database="fitting")
        with closing(target_of(place).connect()) as target:
            misfits = "; ".join(target.schema.misfits(table) or [])
            assert "column g is generated on the target" in misfits, there
            with pytest.raises(Halted, match="column g is generated on the target"):
                write(target, table, [(7, 10, "x", 11)])
            (way_out,) = re.findall(r"ALTER TABLE .* DROP EXPRESSION", misfits)
            target.execute(way_out)
            assert "column g is generated on the target" not in str(target.schema.misfits(table)), there
            if "g INT" not in there:
                write(target, table, [(7, 10, "x", 11)])
                rows = run_sql(place, "SELECT id, a, v, g FROM fitting.t", database="fitting")
                assert rows == [(7, 10, "x", 11)], there


def test_the_sources_value_for_null_is_written_to_a_not_null_column(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    if source.kind == "mariadb":
        pytest.skip("MariaDB has no generated column with NOT NULL")
    run_sql(source, "CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, g INT AS (a + 1) STORED NOT NULL)")
    loosely(
        source,
        "INSERT INTO fitting.t (id, a) VALUES (2, 1), (3, NULL)",
        "INSERT IGNORE INTO fitting.t (id, a) VALUES (5, 1), (6, NULL)",
        "INSERT INTO fitting.t (id, a) VALUES (4, 4)",
        "UPDATE fitting.t SET a = NULL WHERE id = 4",
    )
    table, given = structure(source), run_sql(source, "SELECT * FROM fitting.t ORDER BY id")
    assert (3, None, 0) in given
    with closing(target_of(place).connect()) as target:
        create(target, table)
        write(target, table, given)
    assert run_sql(place, "SELECT * FROM fitting.t ORDER BY id", database="fitting") == given


def test_a_text_longer_than_a_packet_is_null_as_on_the_source(source: Server, place: Server, run_sql: RunSql) -> None:
    run_sql(source, "CREATE TABLE fitting.t (id INT PRIMARY KEY, m MEDIUMTEXT, g LONGTEXT AS (CONCAT(m, m)) STORED)")
    ((before,),) = run_sql(source, "SELECT @@global.max_allowed_packet")
    try:
        run_sql(source, "SET GLOBAL max_allowed_packet = 1048576")
        loosely(source, "INSERT INTO fitting.t (id, m) VALUES (1, REPEAT('x', 700000))")
    finally:
        run_sql(source, f"SET GLOBAL max_allowed_packet = {before}")
    assert run_sql(source, "SELECT g FROM fitting.t") == [(None,)]
    table = structure(source)
    with closing(target_of(place).connect()) as target:
        create(target, table)
        write(target, table, [(1, "x" * 700000, None)])
    assert run_sql(place, "SELECT g FROM fitting.t", database="fitting") == [(None,)]


def test_the_same_expression_fits_also_where_nothing_may_be_written(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    sql = "CONCAT(v, '%', v)"
    run_sql(source, f"CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, v VARCHAR(20), g VARCHAR(60) AS ({sql}))")
    table = structure(source)
    with closing(target_of(place).connect()) as target:
        create(target, table)
        found = target.schema.structure(NAME)
        assert found is not None
        assert found.column("g").generated
        target.execute("SET default_transaction_read_only = on")
        assert target.schema.misfits(table) == []
        assert target.schema.misfits(table.of_any_shard) != [], "others may have rows there"
        other = tuple(replace(one, computed=one.computed.replace("%", "%%")) for one in table.columns)
        assert target.schema.misfits(replace(table, columns=other)) != []


def test_rows_after_a_change_of_the_expression_alone_are_not_written_by_the_old_plan(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    """PiDTS treats structures that differ in an expression alone as equal."""
    run_sql(source, "CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, g BIGINT AS (a + 1) STORED)")
    before = structure(source)
    run_sql(source, "ALTER TABLE fitting.t MODIFY g BIGINT AS (a + 2) STORED")
    after = structure(source)
    assert before == after
    with closing(target_of(place).connect()) as target:
        create(target, before)
        write(target, before, [(1, 5, 6)])
        with pytest.raises(Halted, match="DROP EXPRESSION"):
            write(target, after, [(2, 5, 7)])
    assert run_sql(place, "SELECT * FROM fitting.t", database="fitting") == [(1, 5, 6)]


def test_skipping_a_changed_expression_does_not_leave_the_old_one(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    run_sql(source, "CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, g BIGINT AS (a + 1) STORED)")
    before = structure(source)
    sql = "ALTER TABLE fitting.t MODIFY g BIGINT AS (a + 2) STORED"
    run_sql(source, sql)
    after = structure(source)
    dialect = Dialect.of(str(run_sql(source, "SELECT VERSION()")[0][0]))
    place_of_target = target_of(place)
    with closing(place_of_target.connect()) as target:
        target.meta.prepare()
        epoch = target.meta.checkpoints.claim("task", "s", 1, checkpoint(100))[0].epoch
        create(target, before)
        write(target, before, [(1, 5, 6)])
        place_of_change = lsn(110)
        target.meta.ddl_commands.give("task", "s", DdlCommand(lsn=place_of_change, kind=CommandKind.SKIP))
        command = target.meta.ddl_commands.find("task", "s", place_of_change)
        change = SchemaChange(
            statement=classify(sql, "fitting", dialect=dialect),
            text=sql,
            before={NAME: before},
            after={NAME: after},
            structures={NAME: after},
            command=command,
        )
        runner = DdlRunner(place_of_target, "task", "s", epoch)
        with pytest.raises(Halted, match="DROP EXPRESSION") as error:
            runner.run(change, place_of_change)
        assert error.value.code == "target-shape"
        assert not runner.is_done(place_of_change)
        (way_out,) = re.findall(r"ALTER TABLE .* DROP EXPRESSION", error.value.what)
        target.execute(way_out)
        runner.run(change, place_of_change)
        assert runner.is_done(place_of_change)
        write(target, after, [(2, 5, 7)])
    assert run_sql(place, "SELECT * FROM fitting.t ORDER BY id", database="fitting") == [(1, 5, 6), (2, 5, 7)]


def test_rows_are_written_to_a_column_that_another_session_has_made_plain(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    """The source's structure has not changed."""
    run_sql(source, "CREATE TABLE fitting.t (id INT PRIMARY KEY, a INT, g BIGINT AS (a + 1) STORED)")
    table, opened = structure(source), target_of(place)
    with closing(opened.connect()) as target, closing(opened.connect()) as other:
        create(target, table)
        write(target, table, [(1, 5, 6)])
        other.begin()
        other.execute("ALTER TABLE fitting.t ALTER COLUMN g DROP EXPRESSION")
        other.commit()
        write(target, table, [(2, 5, 6)])
    assert run_sql(place, "SELECT * FROM fitting.t ORDER BY id", database="fitting") == [(1, 5, 6), (2, 5, 6)]
