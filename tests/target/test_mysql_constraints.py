"""A check and a foreign key of the same name are two constraints, and are not confused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql
import pytest

from pidts.model import CheckConstraint, ConstraintKind, ExpressionKey, ForeignKey, TableName
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.mysql.cutover.constraints import drops, missing, statements
from pidts.task.cutover.target_side import statements_or_problem

RunSql = Callable[..., list[tuple[Any, ...]]]
TABLE = TableName("both_named", "t")
CHECK = CheckConstraint("both", TABLE, "`a` > 0")
KEY = ForeignKey("both", TABLE, ("a",), TABLE, ("id",))


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


def test_each_is_made_and_removed_alone(server: Server, run_sql: RunSql) -> None:
    run_sql(server, "CREATE DATABASE both_named")
    try:
        run_sql(server, "CREATE TABLE both_named.t (id INT PRIMARY KEY, a INT, KEY (a))")
        with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
            for removed, kept in ((CHECK, KEY), (KEY, CHECK)):
                is_mariadb = session.server.dialect.mariadb  # MariaDB does not allow both constraints at the same time.
                for one in (kept,) if is_mariadb else (KEY, CHECK):
                    for statement in statements(session, one):
                        session.execute(statement)
                for statement in drops(session, removed.kind, TABLE, "both"):
                    session.execute(statement)
                assert statements(session, kept) == []
                assert len(statements(session, removed)) == 1
                assert drops(session, removed.kind, TABLE, "both") == []
                for statement in drops(session, kept.kind, TABLE, "both"):
                    session.execute(statement)
                assert len(statements(session, kept)) == 1
    finally:
        run_sql(server, "DROP DATABASE both_named")


def test_a_key_over_expressions_is_made_as_it_is(mysql97: Server, run_sql: RunSql) -> None:
    run_sql(mysql97, "CREATE DATABASE both_named")
    try:
        run_sql(mysql97, "CREATE TABLE both_named.t (id INT PRIMARY KEY, a INT, v VARCHAR(9), KEY wanted (a))")
        wanted = ExpressionKey("by_text", TABLE, ("(lower(`v`))", "`a`"), unique=True)
        place = (mysql97.host, mysql97.port, mysql97.user, mysql97.password)
        with closing(MySqlTarget(*place).connect()) as session:
            assert missing(session, wanted)
            for statement in statements(session, wanted):
                session.execute(statement)
            assert (statements(session, wanted), missing(session, wanted)) == ([], False)
            run_sql(mysql97, "INSERT INTO both_named.t VALUES (1, 1, 'x'), (2, 2, 'X')")
            with pytest.raises(pymysql.err.IntegrityError):
                run_sql(mysql97, "INSERT INTO both_named.t VALUES (3, 1, 'X')")
            for statement in drops(session, wanted.kind, TABLE, wanted.name):
                session.execute(statement)
            assert drops(session, wanted.kind, TABLE, wanted.name) == []
            assert missing(session, wanted)
    finally:
        run_sql(mysql97, "DROP DATABASE both_named")


def test_a_name_that_cannot_be_made_is_a_problem_of_this_constraint_alone(mysql97: Server) -> None:
    place = (mysql97.host, mysql97.port, mysql97.user, mysql97.password)
    with closing(MySqlTarget(*place).connect()) as session:
        needed, problem = statements_or_problem(session, CheckConstraint("x" * 65, TABLE, "`a` > 0"))
        assert (needed, problem.split(":")[0]) == ([], f"{'x' * 65} of {TABLE}")
        assert "MySQL allows names of 1 to 64 characters" in problem
        assert statements_or_problem(session, CHECK) == (statements(session, CHECK), "")


def test_both_kinds_are_named_as_the_catalog_names_them() -> None:
    assert (KEY.kind, CHECK.kind) == (ConstraintKind.FOREIGN_KEY, ConstraintKind.CHECK)
