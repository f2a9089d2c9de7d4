"""A target whose connections are all in use is named as such, and not as one that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pymysql
import pytest
from tests.conftest import RunSql

from pidts.apply import Target
from pidts.model import Transient
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.target.mysql.errors import translate, translate_connect
from pidts.target.postgres import PostgresTarget

CODE = "target-connections-used"
ACCOUNT = "no_free_connection"


@pytest.fixture
def account(mariadb: Server, run_sql: RunSql) -> Iterator[Target]:
    """A target of an account that may not use the connection that the server keeps for administrators."""
    run_sql(mariadb, f"CREATE USER {ACCOUNT}@'%' IDENTIFIED BY 'p'")
    run_sql(mariadb, f"GRANT ALL ON *.* TO {ACCOUNT}@'%'")
    run_sql(mariadb, f"REVOKE SUPER, CONNECTION ADMIN ON *.* FROM {ACCOUNT}@'%'")
    yield MySqlTarget("127.0.0.1", mariadb.port, ACCOUNT, "p")
    run_sql(mariadb, f"DROP USER {ACCOUNT}@'%'")


def refused(target: Target) -> Transient:
    """Returns the error for the first connection that the target refuses."""
    with ExitStack() as sessions:
        for _ in range(1000):
            try:
                sessions.enter_context(closing(target.connect()))
            except Transient as error:
                return error
    raise AssertionError("the target accepts every connection")


def test_mariadb_with_all_connections_in_use(mariadb: Server, run_sql: RunSql, account: Target) -> None:
    ((most,),) = run_sql(mariadb, "SELECT @@max_connections")
    run_sql(mariadb, "SET GLOBAL max_connections = 10")
    try:
        error = refused(account)
    finally:
        run_sql(mariadb, f"SET GLOBAL max_connections = {most}")
    assert (error.code, "max_connections" in error.todo) == (CODE, True)
    assert error.what == f"target 127.0.0.1:{mariadb.port} has no free connection: Too many connections (error 1040)"


@pytest.mark.parametrize("limit", ["MAX_USER_CONNECTIONS 3", "MAX_CONNECTIONS_PER_HOUR 3"])
def test_mariadb_with_all_connections_of_the_account_in_use(
    mariadb: Server, run_sql: RunSql, account: Target, limit: str
) -> None:
    run_sql(mariadb, f"ALTER USER {ACCOUNT}@'%' WITH {limit}")
    assert refused(account).code == CODE


def test_postgresql_with_all_connections_in_use(postgres: Server) -> None:
    target = PostgresTarget("127.0.0.1", postgres.port, postgres.user, postgres.password)
    error = refused(target)
    assert (error.code, "max_connections" in error.todo) == (CODE, True)
    assert f"PostgreSQL at 127.0.0.1:{postgres.port}/postgres has no free connection: " in error.what


def test_postgresql_whose_last_connections_are_reserved(postgres: Server, run_sql: RunSql) -> None:
    run_sql(postgres, f"CREATE ROLE {ACCOUNT} LOGIN PASSWORD 'p'")
    try:
        target = PostgresTarget("127.0.0.1", postgres.port, ACCOUNT, "p")
        error = refused(target)
        assert (error.code, "reserved" in error.what) == (CODE, True)
        run_sql(postgres, f"ALTER ROLE {ACCOUNT} CONNECTION LIMIT 1")
        error = refused(target)
        assert (error.code, "too many connections for role" in error.what) == (CODE, True)
    finally:
        run_sql(postgres, f"DROP ROLE {ACCOUNT}")


def test_a_limit_of_the_account_s_queries_is_no_limit_of_its_connections() -> None:
    over = pymysql.err.OperationalError(1226, "User 'a' has exceeded the 'max_questions' resource")
    assert translate(over).code == "target-busy"
    assert translate_connect(over, "h:3306").code == CODE
    assert translate(pymysql.err.OperationalError(1040, "Too many connections"), "a.b").code == CODE
