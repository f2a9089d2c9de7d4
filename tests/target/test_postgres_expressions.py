"""A CHECK constraint is created on PostgreSQL only if it accepts the same rows as on the source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql
import pytest
from tests.target.conformance.samples import create

from pidts.model import CheckConstraint, ConstraintKind, Table, TableName
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, read_structures
from pidts.source.uncarried_objects import left_behind
from pidts.target import PostgresTarget
from pidts.target.postgres.cutover.constraints import drops, statements
from pidts.target.postgres.expressions import condition

RunSql = Callable[..., list[tuple[Any, ...]]]
COLUMNS = """a INT, b BIGINT UNSIGNED, c DECIMAL(10, 3), d DOUBLE, f FLOAT, day DATE, at DATETIME(3),
    v VARCHAR(20), `to``do` TINYINT, s TIMESTAMP NULL, e ENUM('x', 'y'),
    q INT UNSIGNED, n BIGINT, m FLOAT(7, 2), w DECIMAL(30, 15)"""
CARRIED = {
    "a > 0": {"a": (1, 0, None)},
    "a BETWEEN 1 AND 5 AND b NOT IN (3, 4)": {"a": (1, 6), "b": (2, 3, None)},
    "NOT (a = 1 OR b <> 2)": {"a": (1, 2), "b": (2, 3)},
    "a + c * 2 <= 10.5": {"a": (0, 2147483647), "c": ("5.250", "5.251", None)},
    "b < 18446744073709551615 AND c > -12345.678": {"b": (18446744073709551614, 18446744073709551615), "c": (0,)},
    "f <= 0.1 AND d <= 0.1": {"f": ("0.1", "0.09"), "d": ("0.1", "0.11")},
    "n <> 9007199254740993": {"n": (9007199254740992, 9007199254740993)},
    "f IN (0.1, 0.5) OR d IN (0.1, 0.2)": {"f": ("0.1", "0.5"), "d": ("0.3", "0.1")},
    "f BETWEEN 0.1 AND 0.2": {"f": ("0.1", "0.2")},
    "f <> 0.1 AND f <> 0.5": {"f": ("0.1", "0.5", None)},
    "f = d": {"f": ("0.5", "0.1"), "d": ("0.5", "0.1")},
    "f = c OR f = a": {"f": ("0.5", "0.1", "16777216"), "c": ("0.5", "0.1"), "a": (3, 16777217)},
    "q + q * 2 < 12884901885": {"q": (0, 4294967295)},
    "q * q < 18446744065119617025": {"q": (4294967294, 4294967295)},
    "a * a < 4611686018427387904": {"a": (2147483647, -2147483648)},
    "n + c > 9223372036854775807.001": {"n": (9223372036854775807, 0), "c": ("0.001", "0.002")},
    "CHAR_LENGTH(v) - 2 > -1": {"v": ("a", "ab")},
    "a = d": {"a": (1, 2), "d": ("1", "1.5")},
    "day >= '2000-01-01'": {"day": ("1999-12-31", "2000-01-01", None)},
    "at < '2020-02-29 12:00:00.5'": {"at": ("2020-02-29 12:00:00.499", "2020-02-29 12:00:00.500")},
    "n IS NULL OR a <=> 1": {"n": (None, 4), "a": (None, 1, 2)},
    "q - c < 3": {"q": (0, 4294967295), "c": ("-5.000", "5.000", None)},
    "q * c >= 0": {"q": (2, 0), "c": ("-0.001", "0.001", None)},
    "IF(a > 1, c, 0) < 5": {"a": (2, 1, None), "c": ("5.000", "4.999", None)},
    "CASE WHEN day > '2000-01-01' THEN a ELSE 3 END > 2": {"day": ("2000-01-02", "1999-12-31", None), "a": (2, 3)},
    "COALESCE(a, n, 3) > 2": {"a": (2, 3, None), "n": (2, 3, None)},
    "ROUND(c, 1) <= 0.1": {"c": ("0.149", "0.150", "-0.150", None)},
    "-a < 5": {"a": (-5, -4, None)},
    "YEAR(day) >= 2000 AND DATE(at) < '2020-02-29'": {
        "day": ("1999-12-31", "2000-01-01"),
        "at": ("2020-02-28 23:59:59.999", "2020-02-29", None),
    },
    "CHAR_LENGTH(v) >= 2": {"v": ("a", "\u00e9\u00e9", "", None)},
    "`to``do` > -1": {"to`do": (-1, 0)},
    "v IS NOT NULL": {"v": (None, "")},
}
LISTED = (
    "v = 'a'",
    "v IN ('a', 'b')",
    "v LIKE 'a%'",
    "a / 2 > 1",
    "b - 1 > 0",
    "a",
    "s > '2000-01-01'",
    "e = 'x'",
    "day > 20000101",
    "at > a",
    "LENGTH(v) > 1",
    "a > '1'",
    "a MOD 2 = 0",
    "q + a <= 100",
    "a + 1 + q <= 100",
    "q * a <= 100",
    "q + -1 >= 0",
    "1 - q < 10",
    "(q + 1) - a < 10",
    "n + 1 > 0",
    "n * 1 > 0",
    "b + q > 1",
    "a * a * 4 > 0",
    "a + 18446744073709551615 > 1",
    "w * w > 1",
    "m = 0.1",
    "m IN (1, 2)",
    "day IS NOT NULL",
    "at <=> '2000-01-01'",
    "UPPER(v) <> 'A'",
)


@pytest.fixture(params=[pytest.param("mariadb", marks=pytest.mark.long), "mysql97"])
def source(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


def test_both_servers_let_in_the_same_rows(source: Server, postgres: Server, run_sql: RunSql) -> None:
    run_sql(source, "CREATE DATABASE checked")
    run_sql(postgres, "CREATE DATABASE checked")
    try:
        for clause, values in CARRIED.items():
            run_sql(source, "DROP TABLE IF EXISTS checked.t")
            run_sql(source, f"CREATE TABLE checked.t ({COLUMNS}, CONSTRAINT wanted CHECK ({clause}))")
            table, read = shown(source)
            wanted = condition(table, read)
            assert wanted is not None, (clause, read)
            target = PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password, "checked")
            with closing(target.connect()) as session:
                session.execute("DROP SCHEMA IF EXISTS checked CASCADE")
                create(session, table)
                check = CheckConstraint("wanted", table.name, wanted)
                for statement in statements(session, check):
                    session.execute(statement)
                assert statements(session, check) == []
                compare(source, postgres, run_sql, clause, values)
                assert drops(session, ConstraintKind.FOREIGN_KEY, table.name, "wanted") == []
                for statement in drops(session, ConstraintKind.CHECK, table.name, "wanted"):
                    session.execute(statement)
                assert len(statements(session, check)) == 2
    finally:
        run_sql(source, "DROP DATABASE checked")
        run_sql(postgres, "DROP DATABASE checked WITH (FORCE)")


def compare(source: Server, postgres: Server, run_sql: RunSql, clause: str, values: dict[str, tuple[Any, ...]]) -> None:
    """Inserts one row for each value of each column; the other columns have their first value."""
    outcomes = set()
    for name, many in values.items():
        for value in many:
            row = {other: each[0] for other, each in values.items()} | {name: value}
            here = is_let_in(run_sql, source, None, "`", row)
            assert is_let_in(run_sql, postgres, "checked", '"', row) is here, (clause, row)
            outcomes.add(here)
    assert outcomes == {True, False}, f"{clause}: the values show nothing"


def is_let_in(run_sql: RunSql, server: Server, database: str | None, quote: str, row: dict[str, Any]) -> bool:
    names = ", ".join(quote + name.replace(quote, quote * 2) + quote for name in row)
    places = ", ".join(["%s"] * len(row))
    try:
        run_sql(server, f"INSERT INTO checked.t ({names}) VALUES ({places})", *row.values(), database=database)
    except Exception as error:  # noqa: BLE001 - two drivers
        assert "check" in str(error).lower() or "constraint" in str(error).lower(), error  # noqa: PT017
        return False
    return True


def shown(source: Server) -> tuple[Table, str]:
    """Returns the table and the clause of its check, as the source's catalog has them."""
    name = TableName("checked", "t")
    config = SourceConfig(source.host, source.port, source.user, source.password, source_id="s")
    with closing(connect(config)) as session:
        (check,) = [one for one in left_behind(session, name.__eq__, ["checked"]) if one.kind == "check"]
        return read_structures(session, name.__eq__)[name], check.clause


def test_checks_that_servers_may_evaluate_differently_are_not_created(source: Server, run_sql: RunSql) -> None:
    run_sql(source, "CREATE DATABASE checked")
    try:
        for clause in LISTED:
            run_sql(source, "DROP TABLE IF EXISTS checked.t")
            try:
                run_sql(source, f"CREATE TABLE checked.t ({COLUMNS}, CONSTRAINT wanted CHECK ({clause}))")
            except pymysql.err.MySQLError:
                assert clause == "a", clause
                continue
            table, read = shown(source)
            assert condition(table, read) is None, (clause, read)
    finally:
        run_sql(source, "DROP DATABASE checked")


def test_a_text_whose_letters_are_not_certain_is_left_to_a_person(source: Server, run_sql: RunSql) -> None:
    """MySQL's catalog encodes these letters twice: a check made from its text would refuse the accepted letters."""
    run_sql(source, "CREATE DATABASE checked CHARACTER SET utf8mb4")
    try:
        run_sql(
            source, "CREATE TABLE checked.t (id INT PRIMARY KEY, v VARCHAR(9), CHECK (v IN ('grün', 'weiß', 'Ödland')))"
        )
        name = TableName("checked", "t")
        config = SourceConfig(source.host, source.port, source.user, source.password, source_id="s")
        with closing(connect(config)) as session:
            (check,) = [one for one in left_behind(session, name.__eq__, ["checked"]) if one.kind == "check"]
        assert all(word in check.text for word in ("grün", "weiß", "Ödland")), check.text
        assert bool(check.clause) is (source.kind == "mariadb")
    finally:
        run_sql(source, "DROP DATABASE checked")
