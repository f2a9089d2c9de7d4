"""The parser finds the calls of a statement that may be calls of stored functions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import product
from time import process_time

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
        ('UPDATE t SET a = "f" (1)', ()),
        ("DO `f`(1), f(2)", ("f", "f")),
        ("DO (1), f(2)", ("f",)),
        ("INSERT HIGH_PRIORITY d.t (a) SELECT 1", ()),
        ("UPDATE LOW_PRIORITY (t, u) SET a = TRIM(LEADING ('x') FROM b)", ()),
        ("UPDATE t SET a = 1 WHERE MATCH (b) AGAINST ('c' IN BOOLEAN MODE) OR b LIKE 'c' ESCAPE ('|')", ()),
        ("UPDATE t SET a = against(1), b = escape (2)", ()),
        ("INSERT INTO t WITH c (n) AS (SELECT 1), d (m, n) AS (SELECT f(1), 2) SELECT n FROM c", ("f",)),
        ("INSERT INTO t WITH RECURSIVE c (n) AS (SELECT 1) SELECT n, g(n) FROM c", ("g",)),
        ("LOAD DATA INFILE 'x' INTO TABLE t CHARSET utf8 IGNORE 1 ROWS (a) SET b = f(a)", ("f",)),
        ("LOAD DATA INFILE 'x' INTO TABLE t IGNORE 1 LINES (a, @b)", ()),
        ("INSERT INTO t SELECT 1 MINUS (SELECT 2) EXCEPT (SELECT f(3))", ("f",)),
        (
            "INSERT INTO t SELECT a FROM JSON_TABLE(b, '$' COLUMNS (a INT PATH '$.a', NESTED PATH '$' COLUMNS (c INT))) q",
            (),
        ),
        ("INSERT INTO t VALUES (POINT(1, 2)), (LINESTRING(POINT(1, 2), POINT(3, 4)))", ()),
        ("SET STATEMENT max_statement_time=1 FOR CREATE TABLE t (a INT, KEY k (a)) SELECT f(1) a", ("f",)),
        ("SET STATEMENT a=(SELECT 1 FROM u FOR UPDATE), b=f(1) FOR ALTER TABLE t ADD KEY k (a)", ("f",)),
        ("INSERT INTO t SELECT a FROM (SELECT 1) q (a) USE INDEX FOR ORDER BY (i) WINDOW w AS (PARTITION BY a)", ()),
        ("INSERT INTO t SELECT SQL_NO_CACHE (a) FROM u GROUP BY a WITH ROLLUP", ()),
        ("INSERT INTO t PARTITION (p) VALUES ROW(1, 'f' 'g'), ROW(INTERVAL (1) DAY + '2000-01-01', b->'$.f')", ()),
        ("INSERT INTO t VALUES (1);\nUSE `x`;\nUPDATE t SET a = f(1)", ("f",)),
        ("CREATE TABLE t (a VARCHAR(20), b ENUM('x'), KEY k (a)) SELECT f(1) AS a", ("f",)),
        ("CREATE TABLE t (a INT, KEY k (a)) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (1))", ()),
        ("CREATE TABLE t (VALUES (f(1)))", ("f",)),
        ("CREATE TEMPORARY TABLE t (a INT, KEY k (a));\nINSERT INTO t VALUES (f(1))", ("f",)),
        ("UPDATE t SET a = st_add_order(1), b = ST_X(c), d = mbr_log(2)", ("st_add_order", "mbr_log")),
    ],
)
def test_all_but_the_servers_own_functions_may_be_stored(sql: str, found: tuple[str, ...]) -> None:
    assert tuple(calls(sql, MYSQL)) == found


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
    assert tuple(calls(text, Dialect.of(version))) == stored


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("UPDATE t SET a = against(1), b = escape (2), c = columns(3)", ("against", "escape", "columns")),
        ("UPDATE t SET a = 1 WHERE MATCH (b) AGAINST ('c') OR b LIKE 'c' ESCAPE ('|')", ()),
        ("UPDATE t SET a = POINT(1, (2)), b = LINESTRING(c), d = MULTIPOINT(POINT(b, c))", ()),
        ("UPDATE t SET a = point(1), b = point(1, 2, 3), c = linestring()", ("point", "point", "linestring")),
        ("UPDATE t SET a = json_table(1, '$', columns(3))", ("json_table", "columns")),
        ("INSERT INTO t SELECT a FROM JSON_TABLE('[]', '$[*]' COLUMNS (a VARCHAR(9) PATH '$')) AS q", ()),
        ("INSERT INTO t SELECT a FROM u FOR SYSTEM_TIME FROM (NOW()) TO (NOW())", ()),
        ("INSERT INTO t SELECT SQL_NO_CACHE (a) FROM u", ()),
        (
            "INSERT INTO t SELECT DISTINCT SQL_CALC_FOUND_ROWS SQL_BUFFER_RESULT (a), sql_cache (1) FROM u",
            ("sql_cache",),
        ),
        ("INSERT INTO t SELECT COUNT(DISTINCT sql_no_cache(1)), `sql_no_cache`(1)", ("sql_no_cache", "sql_no_cache")),
        ("INSERT INTO t SELECT `sql_no_cache`(1)", ("sql_no_cache",)),
        ("INSERT INTO t SELECT sql_no_cache.f(1)", ("sql_no_cache.f",)),
        ("UPDATE t SET a = 1 WHERE MATCH b AGAINST ('c') OR MATCH a, t . b AGAINST ('c')", ()),
        (
            "UPDATE t SET a = against(1) WHERE MATCH against AGAINST (f('c')) AND against(2)",
            ("against", "f", "against"),
        ),
        ("UPDATE t SET t.match = NOT against(1), a = t.match AND against(2)", ("against", "against")),
        ("UPDATE t SET a = @match AND against(1)", ("against",)),
        ("UPDATE t SET a = @`match` AND against(1), @@match, against(2)", ("against", "against")),
        ("CREATE TABLE t (a INT REFERENCES u (b) MATCH FULL) SELECT against(1)", ("against",)),
        ("INSERT INTO t SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a) OVER (PARTITION BY b) FROM u", ()),
    ],
)
def test_mariadb_takes_more_names_for_stored_functions(sql: str, found: tuple[str, ...]) -> None:
    assert tuple(calls(sql, Dialect.of("10.11.6-MariaDB"))) == found


def test_no_server_takes_one_of_its_own_functions_for_a_stored_function(mysql_like: Server, database: str) -> None:
    with closing(connect(mysql_like, database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        dialect = Dialect.of(cursor.fetchone()[0])
        names = sorted(own_functions(dialect) | {"POINT", "LINESTRING", "MULTIPOINT", "JSON_TABLE"})
        stored = []
        for mode in ("", "IGNORE_SPACE", "ORACLE") if dialect.mariadb else ("", "IGNORE_SPACE"):
            cursor.execute("SET sql_mode = %s", [mode])
            ran = replace(dialect, ignore_space=mode != "")  # ORACLE includes IGNORE_SPACE
            for name, arguments in product(names, _ARGUMENTS):
                texts = (f"SELECT {name} ({arguments})", f"SELECT 1 + {name}({arguments})")
                stored += [sql for sql in texts if not any(calls(sql, ran)) and _is_stored(cursor, sql)]
    assert stored == []


@pytest.mark.parametrize("name", ["f", "`f`", "d.f"])
@pytest.mark.parametrize(
    "sql",
    [
        *(f"SELECT {operand} {{}}(1)" for operand in ("(1)", "1", "1.5", "'a'", "0x11", "x'11'", "`a`", "(SELECT 1)")),
        "SELECT {}(SELECT 1)",
        "SELECT {}(WITH c AS (SELECT 1) SELECT 1)",
        "SELECT 1 FROM (SELECT 1) q WHERE {}(1) AS (SELECT 1)",
        "SELECT 1, {}(1) AS (SELECT 1)",
    ],
)
def test_no_server_calls_a_function_where_none_is_found(mysql_like: Server, name: str, sql: str) -> None:
    text = sql.format(name)
    assert not any(calls(text, MYSQL))
    with closing(connect(mysql_like)) as connection, connection.cursor() as cursor:
        cursor.execute("USE mysql")
        assert _is_stored(cursor, f"SELECT {name}(1)")
        assert not _is_stored(cursor, text)


@pytest.mark.parametrize("name", ["SQL_BUFFER_RESULT", "SQL_CACHE", "SQL_NO_CACHE", "AGAINST"])
@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT {}(1)", "SELECT {} (1)", "SELECT DISTINCT {}(1)", "SELECT HIGH_PRIORITY SQL_SMALL_RESULT {}(1)"),
        *("SELECT 1, {}(1)", "SELECT COUNT(DISTINCT {}(1))", "SELECT `{}`(1)", "SELECT {}.f(1)", "SELECT {}(1), {}(1)"),
        *("SELECT 1 FROM u WHERE MATCH b {} ('c')", "SELECT 1 FROM u WHERE MATCH a, u . b {} ({}(1))"),
    ],
)
def test_each_word_that_a_server_takes_for_a_stored_function_is_found(
    mysql_like: Server, database: str, name: str, sql: str
) -> None:
    text = sql.format(*[name] * 2)
    with closing(connect(mysql_like)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        dialect = Dialect.of(cursor.fetchone()[0])
        cursor.execute(f"USE `{database}`")
        cursor.execute("CREATE TABLE u (a CHAR(9), b CHAR(9), FULLTEXT k (a, b), FULLTEXT l (b)) ENGINE=InnoDB")
        is_run = _is_run(cursor, text)
        assert bool(tuple(calls(text, dialect))) == (is_run is None) or is_run is False


def _is_run(cursor: pymysql.cursors.Cursor, sql: str) -> bool | None:
    """Whether the server can run the statement; None if it looks for a stored function."""
    try:
        cursor.execute("PREPARE s FROM %s", [sql])
    except pymysql.MySQLError as error:
        return None if error.args[0] in _NO_STORED_FUNCTION else False
    return True


_ARGUMENTS = ("", "1", "1, 1", "1, 1, 1", "DISTINCT 1", "'a', 2")


def _is_stored(cursor: pymysql.cursors.Cursor, sql: str) -> bool:
    """Whether the server looks for a stored function."""
    try:
        cursor.execute("PREPARE s FROM %s", [sql])
    except pymysql.MySQLError as error:
        return error.args[0] in _NO_STORED_FUNCTION
    return False


def test_a_space_before_a_parenthesis_is_ignored_in_one_sql_mode() -> None:
    assert tuple(calls("UPDATE t SET a = count (1)", replace(MYSQL, ignore_space=True))) == ()


def test_double_quotes_enclose_a_name_in_one_sql_mode() -> None:
    assert tuple(calls('UPDATE t SET a = "count"(1)', replace(MYSQL, ansi_quotes=True))) == ("count",)


def test_a_value_with_thousands_of_points_is_read_once() -> None:
    points = ",".join(f"LINESTRING(POINT({number},1),POINT(1,2))" for number in range(6_000))
    dialect = Dialect(mariadb=True, version=(10, 11, 6))
    begin = process_time()
    assert tuple(calls(f"INSERT INTO t VALUES (POLYGON({points}), f(1))", dialect)) == ("f",)
    assert process_time() - begin < 6
