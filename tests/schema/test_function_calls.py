"""The parser finds the calls of a statement that may be calls of stored functions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pymysql
import pytest
from tests.running import connect

from pidts.sandbox import Server
from pidts.schema import MYSQL, Dialect
from pidts.schema.parse.function_calls import calls, own_functions

_NO_STORED_FUNCTION = (1305, 1630)
"""The servers' errors for a call of a stored function that does not exist."""


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("INSERT INTO t (a, b) VALUES (1, NOW()), (COALESCE(NULL, 1), if (1, 2, 3))", ()),
        ("INSERT d.t (a) VALUES (1) AS n(x) ON DUPLICATE KEY UPDATE a = VALUES(a) + n.x", ()),
        ("REPLACE INTO t SELECT CAST(a AS DECIMAL(10, 2)) FROM (SELECT 1) AS q (a) USE INDEX (i) WHERE (a) IN (1)", ()),
        ("LOAD DATA INFILE 'x' INTO TABLE d.t FIELDS TERMINATED BY \",\" (a, @b) SET c = TRIM(@b)", ()),
        ("UPDATE t SET a = f(1), b = F (2), c = d.g(3)", ("f", "F", "d.g")),
        ("UPDATE t SET a = `count`(1), b = `d`.`max`(2)", ("count", "d.max")),
        ("UPDATE t SET a = count (1)", ("count",)),
        ("INSERT HIGH_PRIORITY t (a) SELECT HIGH_PRIORITY f(1)", ("f",)),
        ("INSERT INTO t SELECT HIGH_PRIORITY d.f(1)", ("d.f",)),
        ("UPDATE t SET a = 'f(1)' /* f(1) */ -- f(1)", ()),
        ("UPDATE t SET a = /*!50003 f(1) */", ("f",)),
        ('UPDATE t SET a = "f"(1)', ("f",)),
        ("INSERT INTO t VALUES (1);\nUSE `x`;\nUPDATE t SET a = f(1)", ("f",)),
        ("CREATE TABLE t (a VARCHAR(20), b ENUM('x'), KEY k (a)) SELECT f(1) AS a", ("f",)),
        ("CREATE TABLE t (a INT, KEY k (a)) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (1))", ()),
        ("CREATE TABLE t (VALUES (f(1)))", ("f",)),
        ("CREATE TEMPORARY TABLE t (a INT, KEY k (a));\nINSERT INTO t VALUES (f(1))", ("f",)),
        ("UPDATE t SET a = st_add_order(1), b = ST_X(c), d = mbr_log(2)", ("st_add_order", "mbr_log")),
    ],
)
def test_all_but_the_servers_own_functions_may_be_stored(sql: str, found: tuple[str, ...]) -> None:
    assert calls(sql, MYSQL) == found


@pytest.mark.parametrize(
    ("version", "stored"),
    [
        ("10.11.6-MariaDB", ("minus", "uuid_to_bin", "st_swapxy", "vector")),
        ("10.4.1-MariaDB", ("minus", "to_char", "uuid_to_bin", "st_swapxy", "vector")),
        ("9.7.0", ("minus", "nextval", "nvl", "to_char", "chr", "md5")),
        ("8.0.30", ("minus", "nextval", "nvl", "to_char", "chr", "st_swapxy", "vector")),
        (
            "5.6.24",
            ("minus", "nextval", "nvl", "to_char", "chr", "json_set", "rank", "uuid_to_bin", "st_swapxy", "vector"),
        ),
    ],
)
def test_a_name_that_only_another_server_has_may_be_a_stored_function(version: str, stored: tuple[str, ...]) -> None:
    names = "minus nextval nvl to_char chr json_set rank uuid_to_bin st_swapxy vector md5".split()  # noqa: SIM905
    text = f"INSERT INTO t VALUES ({', '.join(f'{name}(1)' for name in names)})"
    assert calls(text, Dialect.of(version)) == stored


def test_no_server_takes_one_of_its_own_functions_for_a_stored_function(mysql_like: Server, database: str) -> None:
    with closing(connect(mysql_like, database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        dialect = Dialect.of(cursor.fetchone()[0])
        stored = []
        for name in own_functions(dialect):
            for call in (f"{name}(1)", f"{name} (1)"):
                try:
                    cursor.execute(f"PREPARE s FROM 'SELECT {call}'")
                except pymysql.MySQLError as error:
                    if error.args[0] in _NO_STORED_FUNCTION and not calls(f"SELECT {call}", dialect):
                        stored.append(call)
    assert stored == []


def test_a_quoted_name_is_a_call_in_every_sql_mode() -> None:
    assert calls('UPDATE t SET a = "count"(1)', replace(MYSQL, ansi_quotes=True)) == ("count",)
