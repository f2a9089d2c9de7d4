"""A check and a foreign key of one name are two constraints, and one is not taken for the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pidts.model import Check, ConstraintKind, ForeignKey, TableName
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.mysql.constraints import drops, statements

RunSql = Callable[..., list[tuple[Any, ...]]]
TABLE = TableName("both_named", "t")
CHECK = Check("both", TABLE, "`a` > 0")
KEY = ForeignKey("both", TABLE, ("a",), TABLE, ("id",))


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def test_each_is_made_and_removed_alone(server: Server, run_sql: RunSql) -> None:
    run_sql(server, "CREATE DATABASE both_named")
    try:
        run_sql(server, "CREATE TABLE both_named.t (id INT PRIMARY KEY, a INT, KEY (a))")
        with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
            for removed, kept in ((CHECK, KEY), (KEY, CHECK)):
                is_mariadb = session.server.dialect.mariadb  # which has only one of them at a time
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


def test_both_kinds_are_named_as_the_catalogue_names_them() -> None:
    assert (KEY.kind, CHECK.kind) == (ConstraintKind.FOREIGN_KEY, ConstraintKind.CHECK)
