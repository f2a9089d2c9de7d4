"""On a target of the source's product, keys and partitions of a table are the same as on the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.target.conformance.samples import create

from pidts.model import TableName
from pidts.sandbox import Server
from pidts.schema.partitions import is_same, names_place, partition_clause
from pidts.source import SourceConfig, connect, read_structures
from pidts.source.connection import query
from pidts.source.uncarried_objects import PARTITIONS, SPECIAL_KEYS, left_behind
from pidts.target import MySqlTarget
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.cutover import on_update, remade_columns
from pidts.target.mysql.cutover.remade_columns import DeclaredType
from pidts.target.mysql.cutover.remade_tables import (
    Partitions,
    RemadeTable,
    SpecialKey,
    can_be,
    is_needed,
    make,
    statement,
)

RunSql = Callable[..., list[tuple[Any, ...]]]
PARTED = {
    "hash": "(id INT AUTO_INCREMENT PRIMARY KEY, day DATE) PARTITION BY LINEAR HASH (id) PARTITIONS 3",
    "key": "(id INT PRIMARY KEY, day DATE) PARTITION BY KEY () PARTITIONS 2",
    "range": "(id INT, day DATE NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (YEAR(day)) "
    "(PARTITION `old */ ones` VALUES LESS THAN (2000) COMMENT = 'up to )\n*/ 2000', "
    "PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "subpartitions": "(id INT, day DATE NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (YEAR(day)) "
    "SUBPARTITION BY HASH (TO_DAYS(day)) (PARTITION p0 VALUES LESS THAN (2000) (SUBPARTITION a, SUBPARTITION b), "
    "PARTITION p1 VALUES LESS THAN MAXVALUE (SUBPARTITION c, SUBPARTITION e))",
    "list": "(id INT PRIMARY KEY, day DATE) COMMENT 'PARTITION BY' PARTITION BY LIST (id) "
    "(PARTITION p0 VALUES IN (1, 2), PARTITION p1 VALUES IN (3, 4))",
    "list of texts": "(id INT, day DATE, name VARCHAR(9) NOT NULL DEFAULT 'ä', PRIMARY KEY (id, name)) "
    "DEFAULT CHARSET utf8mb4 "
    "PARTITION BY LIST COLUMNS (name) (PARTITION p0 VALUES IN ('ä', 'B*/'), PARTITION p1 VALUES IN ('C'))",
}


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def target(server: Server) -> Iterator[MySqlSession]:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing(MySqlTarget(**settings).connect()) as session:
        assert isinstance(session, MySqlSession)
        yield session


def make_target_table(server: Server, database: str, target: MySqlSession) -> None:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing(connect(SourceConfig(**settings))) as source:
        (table,) = read_structures(source, TableName(database, "s").__eq__).values()
    create(target, table.renamed(TableName(database, "t")))
    names = ", ".join(column.name for column in table.columns)
    target.execute(f"INSERT INTO {database}.t ({names}) SELECT {names} FROM {database}.s")


def wanted(server: Server, database: str) -> list[RemadeTable]:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    there, found = TableName(database, "t"), []
    with closing(connect(SourceConfig(**settings))) as source:
        for one in left_behind(source, TableName(database, "s").__eq__, {database}):
            for kind, name in SPECIAL_KEYS.items():
                if one.kind == name:
                    found.append(SpecialKey(there, one.name, kind, one.columns, one.definition))
            if one.kind == PARTITIONS:
                found.append(Partitions(there, one.definition))
    return found


def shown(server: Server, database: str, run_sql: RunSql, name: str) -> list[str]:
    text = str(run_sql(server, f"SHOW CREATE TABLE {name}", database=database)[0][1])
    return [line.strip().removesuffix(",").rstrip() for line in text.splitlines()[1:]]


def test_fulltext_and_spatial_keys_are_in_the_end_as_the_source_shows_them(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    is_mariadb = "MariaDB" in run_sql(server, "SELECT VERSION()")[0][0]
    more = "" if is_mariadb else ", FULLTEXT KEY in_parts (txt) WITH PARSER ngram"
    run_sql(
        server,
        "CREATE TABLE s (id INT PRIMARY KEY, spot GEOMETRY NOT NULL, txt TEXT, v VARCHAR(30), KEY plain (v), "
        "SPATIAL KEY by_spot (spot), FULLTEXT KEY `the ``words` (txt, v) COMMENT 'it''s', FULLTEXT KEY alone (v)"
        f"{more})",
        database=database,
    )
    run_sql(server, "INSERT INTO s VALUES (1, POINT(1, 2), 'some words here', 'v')", database=database)
    make_target_table(server, database, target)
    before = run_sql(server, "SELECT * FROM t", database=database)
    keys = wanted(server, database)
    assert len(keys) == (3 if is_mariadb else 4)
    for key in keys:
        assert can_be(target, key)
        assert is_needed(target, key), key
        assert make(target, key) == "", key
        assert not is_needed(target, key), key
        assert make(target, key) == "", "nothing is left"
    there, here = ([line for line in shown(server, database, run_sql, name) if " KEY " in line] for name in "ts")
    assert sorted(there) == sorted(here)
    assert run_sql(server, "SELECT * FROM t", database=database) == before
    found = "SELECT id FROM t WHERE MATCH (txt, v) AGAINST ('words')"
    assert run_sql(server, found, database=database) == [(1,)]


def test_a_key_that_the_server_refuses_is_listed_and_the_plain_one_stays(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, n INT, place GEOMETRY, KEY words (n))", database=database)
    before = shown(server, database, run_sql, "t")
    there = TableName(database, "t")
    words = SpecialKey(there, "words", "FULLTEXT", ("n",), "FULLTEXT KEY `words` (`n`)")
    spot = SpecialKey(there, "spot", "SPATIAL", ("place",), "SPATIAL KEY `spot` (`place`)")
    for key in (words, spot):
        said = make(target, key)
        assert said.endswith(f"; the statement is: {statement(target, key)}")
        assert statement(target, key).startswith("ALTER TABLE")
    assert shown(server, database, run_sql, "t") == before
    assert can_be(target, words)
    run_sql(server, "ALTER TABLE t DROP KEY words, ADD UNIQUE KEY words (n)", database=database)
    assert not can_be(target, words), "nobody drops what somebody else keeps unique"


@pytest.mark.parametrize("kind", PARTED)
def test_a_table_is_partitioned_as_on_the_source_in_the_end(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql, kind: str
) -> None:
    run_sql(server, f"CREATE TABLE s {PARTED[kind]}", database=database)
    run_sql(
        server,
        "INSERT INTO s (id, day) VALUES (1, '1999-12-31'), (2, '2000-01-01'), (4, '2026-11-26')",
        database=database,
    )
    make_target_table(server, database, target)
    if kind == "hash":
        run_sql(server, "ALTER TABLE s AUTO_INCREMENT = 50", database=database)
        run_sql(server, "ALTER TABLE t AUTO_INCREMENT = 50", database=database)
    (partitions,) = wanted(server, database)
    assert can_be(target, partitions)
    assert is_needed(target, partitions)
    assert make(target, partitions) == ""
    assert not is_needed(target, partitions)
    assert make(target, partitions) == "", "a table that has them is left alone"
    clauses = [
        partition_clause(str(run_sql(server, f"SHOW CREATE TABLE {name}", database=database)[0][1])) for name in "st"
    ]
    assert clauses[0] == clauses[1]
    assert clauses[0].startswith("PARTITION BY")
    parts = (
        "SELECT partition_name, subpartition_name, partition_description, partition_comment, table_rows "
        "FROM information_schema.partitions WHERE table_schema = %s AND table_name = %s ORDER BY 1, 2"
    )
    run_sql(server, "ANALYZE TABLE s, t", database=database)
    assert run_sql(server, parts, database, "t") == run_sql(server, parts, database, "s")
    rows = [run_sql(server, f"SELECT * FROM {name} ORDER BY id", database=database) for name in "st"]
    assert len(rows[0]) == 3
    assert rows[0] == rows[1]
    if kind == "hash":
        run_sql(server, "INSERT INTO t (day) VALUES ('2026-11-26')", database=database)
        assert run_sql(server, "SELECT MAX(id) FROM t", database=database) == [(50,)]


def test_a_row_that_fits_no_partition_keeps_the_table_as_it_is(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    run_sql(server, f"CREATE TABLE s {PARTED['list']}", database=database)
    run_sql(server, "INSERT INTO s (id) VALUES (1), (2), (3)", database=database)
    make_target_table(server, database, target)
    run_sql(server, "INSERT INTO t (id) VALUES (99)", database=database)
    before, rows = shown(server, database, run_sql, "t"), run_sql(server, "SELECT * FROM t", database=database)
    (partitions,) = wanted(server, database)
    said = make(target, partitions)
    assert "99" in said
    assert said.endswith(f"; the statement is: {statement(target, partitions)}")
    assert shown(server, database, run_sql, "t") == before
    assert run_sql(server, "SELECT * FROM t", database=database) == rows
    run_sql(server, "DELETE FROM t WHERE id = 99", database=database)
    run_sql(server, statement(target, partitions))
    assert not is_needed(target, partitions), "the statement is complete"


def test_partitions_that_the_server_refuses_or_that_are_others_change_nothing(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    there = TableName(database, "t")
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, n INT, UNIQUE KEY once (n))", database=database)
    before = shown(server, database, run_sql, "t")
    by_hash = Partitions(there, "PARTITION BY HASH (`id`)\nPARTITIONS 3")
    assert can_be(target, by_hash)
    assert "; the statement is: ALTER TABLE" in make(target, by_hash), "the other key has not got the column"
    assert shown(server, database, run_sql, "t") == before
    run_sql(server, "ALTER TABLE t DROP KEY once", database=database)
    run_sql(server, "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2", database=database)
    assert is_needed(target, by_hash)
    assert not can_be(target, by_hash), "somebody has partitioned it in another way"


def test_bytes_in_a_default_and_separators_in_comments_neither_end_nor_change_anything(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    there = TableName(database, "t")
    run_sql(
        server,
        "CREATE TABLE s (id INT PRIMARY KEY, code VARBINARY(4) DEFAULT x'ff', money INT COMMENT "
        "'\u2028  FULLTEXT KEY `words` (`txt`), DROP COLUMN `money`\u2028  `n` int DROP COLUMN `money`', n INT, "
        "seen TIMESTAMP NOT NULL DEFAULT '2020-01-01', txt TEXT, FULLTEXT KEY words (txt) COMMENT 'a\u2028b\n,')",
        database=database,
    )
    run_sql(server, "INSERT INTO s (id, money) VALUES (1, 2)", database=database)
    make_target_table(server, database, target)
    (words,) = wanted(server, database)
    assert make(target, words) == ""
    assert not is_needed(target, words)
    assert run_sql(server, "SELECT id, money, code FROM t", database=database) == [(1, 2, b"\xff")]
    run_sql(server, "ALTER TABLE t MODIFY money INT COMMENT '\u2028`seen` DROP COLUMN `money`'", database=database)
    assert "money" not in on_update.create(target, there, "seen", 0)
    (of_column,) = run_sql(
        server,
        "SELECT column_type FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = 't' AND column_name = 'n'",
        database,
    )
    run_sql(
        server,
        f"ALTER TABLE t MODIFY money INT COMMENT '\u2028  `n` {of_column[0]}, DROP COLUMN `money`'",
        database=database,
    )
    assert "money" not in remade_columns.statement(target, DeclaredType(there, "n", "int(8) zerofill"))


def test_partitions_of_bytes_beside_a_default_of_bytes(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql
) -> None:
    run_sql(
        server,
        "CREATE TABLE s (id INT, code VARBINARY(4) NOT NULL DEFAULT x'ff', PRIMARY KEY (id, code)) "
        "PARTITION BY LIST COLUMNS (code) (PARTITION p0 VALUES IN (x'ff', 'a'), PARTITION p1 VALUES IN (x'00fe'))",
        database=database,
    )
    run_sql(server, "INSERT INTO s (id) VALUES (1)", database=database)
    make_target_table(server, database, target)
    (partitions,) = wanted(server, database)
    assert make(target, partitions) == ""
    assert not is_needed(target, partitions)
    assert run_sql(server, "SELECT id, code FROM t", database=database) == [(1, b"\xff")]


def test_no_text_of_a_table_that_is_not_of_the_task_is_asked_for(
    server: Server, database: str, run_sql: RunSql
) -> None:
    for name in "su":
        run_sql(
            server,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(9), FULLTEXT KEY words (v))",
            database=database,
        )
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing(connect(SourceConfig(**settings))) as source:
        (found,) = left_behind(source, TableName(database, "s").__eq__, {database})
        assert found.definition == found.text == "FULLTEXT KEY `words` (`v`)"
        shown = int(query(source, "SHOW SESSION STATUS LIKE 'Com_show_create_table'")[0][1])
        assert shown == 1, "servers count SHOW CREATE VIEW, too, of which there is none here"


def test_a_key_that_came_while_its_statement_waited_is_there(
    server: Server, database: str, target: MySqlSession, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, txt TEXT)", database=database)
    words = SpecialKey(TableName(database, "t"), "words", "FULLTEXT", ("txt",), "FULLTEXT KEY `words` (`txt`)")
    execute = target.execute

    def second(sql: str) -> None:
        run_sql(server, sql)
        execute(sql)

    monkeypatch.setattr(target, "execute", second)
    assert make(target, words) == ""


def test_clauses_are_compared_without_what_versions_write_differently() -> None:
    one = "PARTITION BY RANGE (YEAR(day))\n(PARTITION p0 VALUES LESS THAN (1) COMMENT = 'A b' ENGINE = InnoDB)"
    assert is_same(
        one, "PARTITION BY RANGE (year(`day`)) (PARTITION `p0` VALUES LESS THAN (1) COMMENT = 'A b' ENGINE = InnoDB)"
    )
    assert not is_same(one, one.replace("A b", "a b"))
    assert not is_same(one, one.replace("(1)", "(2)"))
    shown = (
        "CREATE TABLE `t` (\n  `id` int,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB COMMENT='PARTITION BY'\n"
        "/*!50100 PARTITION BY KEY */ /*!50611 ALGORITHM = 1 */ /*!50100 (id)\nPARTITIONS 2 */"
    )
    assert partition_clause(shown) == "PARTITION BY KEY ALGORITHM = 1 (id)\nPARTITIONS 2"
    assert partition_clause("CREATE TABLE `t` (\n  `id` int\n) ENGINE=InnoDB COMMENT='x\\n PARTITION BY'") == ""
    assert names_place("PARTITION BY HASH (id) (PARTITION p DATA DIRECTORY = '/x')")
    assert not names_place("PARTITION BY HASH (id) (PARTITION p COMMENT = 'DATA DIRECTORY')")
