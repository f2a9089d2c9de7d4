"""Structures that were read for many tables at once equal those that were read one by one, and are used once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pidts.login import Mode, Tls
from pidts.model import Table, TableName
from pidts.target import MySqlTarget

SCHEMA = "read_ahead"
SHAPES = (
    "id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1",
    "a INT NOT NULL, b CHAR(3) NOT NULL DEFAULT 'x', c TEXT, PRIMARY KEY (b, a), UNIQUE KEY u (a), KEY k (c(5))",
    "id BIGINT AUTO_INCREMENT PRIMARY KEY, d DECIMAL(9,2), e ENUM('p','q'), UNIQUE KEY Zz (d, e), UNIQUE KEY aa (e, d)",
    "v INT, w VARBINARY(7), UNIQUE KEY prefix (w(3))",
)


@pytest.fixture(params=["mariadb", "mysql97", "mysql56"])
def target(request: pytest.FixtureRequest) -> Iterator[MySqlTarget]:
    server = request.getfixturevalue(request.param)
    tls = Tls(Mode.DISABLED)
    made = MySqlTarget(host=server.host, port=server.port, user=server.user, password=server.password, tls=tls)
    with closing(made.connect()) as session:
        session.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
        session.execute(f"CREATE DATABASE {SCHEMA}")
    yield made
    with closing(made.connect()) as session:
        session.execute(f"DROP DATABASE {SCHEMA}")


def made_tables(session: Any, count: int) -> list[Table]:
    for number in range(count):
        session.execute(f"CREATE TABLE {SCHEMA}.t{number} ({SHAPES[number % len(SHAPES)]})")
    names = [TableName(SCHEMA, f"t{number}") for number in range(count)]
    return [session.schema.structure(name) for name in names]


def test_many_tables_take_three_queries_and_have_the_same_structures(target: MySqlTarget) -> None:
    with closing(target.connect()) as one_by_one, closing(target.connect()) as at_once:
        tables = made_tables(one_by_one, 40)
        gone = Table(TableName(SCHEMA, "gone"), tables[0].columns, tables[0].keys)
        at_once.begin()
        before = at_once.trips
        at_once.schema.read_ahead([*tables, *tables, gone])
        for table in tables:
            assert at_once.schema.collision_columns(table) == one_by_one.schema.collision_columns(table)
            assert at_once.schema.shape(table.name) == one_by_one.schema.shape(table.name)
        assert at_once.trips - before == 3
        assert at_once.schema.structure(gone.name) is None
        at_once.rollback()


def test_names_that_differ_in_case_are_different_tables(target: MySqlTarget) -> None:
    with closing(target.connect()) as one_by_one, closing(target.connect()) as at_once:
        tables = made_tables(one_by_one, 40)
        other = SCHEMA.upper()
        one_by_one.execute(f"DROP DATABASE IF EXISTS {other}")
        one_by_one.execute(f"CREATE DATABASE {other}")
        one_by_one.execute(f"CREATE TABLE {other}.t0 (id INT, more INT, PRIMARY KEY (more), UNIQUE KEY (id))")
        one_by_one.execute(f"CREATE TABLE {SCHEMA}.T1 (id INT, other INT, PRIMARY KEY (other), UNIQUE KEY (id))")
        names = [*(table.name for table in tables), TableName(SCHEMA, "T1"), TableName(other, "t0")]
        found = [one_by_one.schema.structure(name) for name in names]
        assert all(found)
        at_once.begin()
        at_once.schema.read_ahead([table for table in found if table is not None])
        for name, table in zip(names, found, strict=True):
            assert table is not None
            assert at_once.schema.collision_columns(table) == one_by_one.schema.collision_columns(table)
            assert at_once.schema.structure(name) == table
        at_once.rollback()
        one_by_one.execute(f"DROP DATABASE {other}")


def test_what_was_read_is_used_once_and_not_after_the_transaction(target: MySqlTarget) -> None:
    with closing(target.connect()) as session, closing(target.connect()) as other:
        tables = made_tables(session, 40)
        changed, later = tables[0].name, tables[4].name

        def columns(name: TableName) -> int:
            structure = session.schema.structure(name)
            assert structure is not None
            return len(structure.columns)

        session.begin()
        session.schema.read_ahead(tables)
        session.rollback()
        other.execute(f"ALTER TABLE {changed} ADD COLUMN more INT")
        assert columns(changed) == 3
        session.begin()
        session.schema.read_ahead(tables)
        assert columns(later) == 2
        session.rollback()
        other.execute(f"ALTER TABLE {later} ADD COLUMN more INT")
        assert columns(later) == 3


def test_a_few_tables_are_not_read_ahead(target: MySqlTarget) -> None:
    with closing(target.connect()) as session:
        tables = made_tables(session, 3)
        session.begin()
        before = session.trips
        session.schema.read_ahead(tables)
        assert session.trips == before
        session.rollback()
