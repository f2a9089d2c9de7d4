"""Only the task's schemas are searched for objects that no task carries, however many other schemas a source has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pidts.model import ForeignKey, TableName
from pidts.sandbox import Server
from pidts.source import Session, SourceConfig, connect
from pidts.source.connection import query
from pidts.source.uncarried_objects import foreign_keys, left_behind, programs

OTHERS = 100
"""More tables than a server opens for itself when it reads its catalog for the first time."""


@pytest.fixture
def session(mysql_like: Server) -> Iterator[Session]:
    place = (mysql_like.host, mysql_like.port, mysql_like.user, mysql_like.password)
    with closing(connect(SourceConfig(*place, source_id="s"))) as made:
        yield made


def opened(session: Session) -> int:
    """Returns how many structures of tables this session has opened; other sessions do not count."""
    return int(query(session, "SHOW SESSION STATUS LIKE 'Opened_table_definitions'")[0][1])


def test_tables_of_other_schemas_are_not_opened(
    session: Session, mysql_like: Server, database: str, in_one_session: Callable[..., None], run_sql: Any
) -> None:
    other = f"{database}_other"
    run_sql(mysql_like, f"CREATE DATABASE {other}")
    in_one_session(mysql_like, other, *(f"CREATE TABLE t{n} (id INT PRIMARY KEY)" for n in range(OTHERS)))
    in_one_session(mysql_like, database, "CREATE TABLE t (id INT PRIMARY KEY, w INT(3) ZEROFILL)", "FLUSH TABLES")
    before = opened(session)
    found = left_behind(session, lambda _: True, {database})
    assert foreign_keys(session, lambda _: True, {database}) == []
    assert [(one.kind, one.table_name) for one in found] == [("declared type", TableName(database, "t"))]
    assert opened(session) - before < OTHERS
    for number in range(OTHERS):
        query(session, f"SHOW CREATE TABLE {other}.t{number}")
    assert opened(session) - before >= OTHERS, "tables that this session opens are counted"
    run_sql(mysql_like, f"DROP DATABASE {other}")


def test_schemas_whose_names_differ_in_case_are_two(
    session: Session, mysql_like: Server, database: str, in_one_session: Callable[..., None], run_sql: Any
) -> None:
    names = [f"{database}_a", f"{database}_A"]
    for place, name in enumerate(names):
        run_sql(mysql_like, f"CREATE DATABASE {name}")
        in_one_session(
            mysql_like,
            name,
            f"CREATE TABLE t (id INT PRIMARY KEY, parent INT, CONSTRAINT k{place} FOREIGN KEY (parent) REFERENCES t (id))",
            f"CREATE VIEW v{place} AS SELECT 1",
            f"CREATE EVENT e{place} ON SCHEDULE EVERY 1 YEAR DISABLE DO SELECT 1",
            f"CREATE PROCEDURE p{place}() SELECT 1",
            f"CREATE TRIGGER t{place} BEFORE INSERT ON t FOR EACH ROW SET NEW.id = 1",
        )
    every = {
        names[0]: {("view", "v0"), ("event", "e0"), ("procedure", "p0"), ("trigger", "t0")},
        names[1]: {("view", "v1"), ("event", "e1"), ("procedure", "p1"), ("trigger", "t1")},
    }
    for asked in (names, names[:1], names[1:], []):
        wanted = [(name, *each) for name in asked for each in every[name]]
        found = left_behind(session, lambda _: True, asked)
        assert sorted((one.schema, one.kind, one.name) for one in found) == sorted(wanted)
        assert all(one.text for one in found)
        assert sorted((one.schema, one.kind, one.name) for one in programs(session, asked)) == sorted(
            each for each in wanted if each[1] != "trigger"
        )
        keys: list[ForeignKey] = foreign_keys(session, lambda _: True, asked)
        assert sorted(key.table.schema for key in keys) == sorted(asked)
    for name in names:
        run_sql(mysql_like, f"DROP DATABASE {name}")
