"""A target whose connections are all in use is named as such, and not as one that does not answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pymysql
import pytest
from tests.conftest import RunSql

from pidts.apply import Target
from pidts.model import DatabaseMissing, PidtsError, Transient
from pidts.model.errors import AccessNotGranted, LoginRefused
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.target.mysql.errors import translate, translate_connect
from pidts.target.postgres import PostgresTarget
from pidts.target.postgres.connect import login_refusal

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


class TranslatingServer:
    """Refuses each login with this SQLSTATE, and with a text that no client knows, or with the given one."""

    def __init__(self, state: str, text: str = "tut mir leid") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._fields = f"SFATAL\0VFATAL\0C{state}\0M{text}\0\0".encode()
        self.port: int = self._listener.getsockname()[1]
        self.logins = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.recv(8)
                    connection.sendall(b"N")  # the first message asks for TLS
                    connection.recv(4096)
                    self.logins += 1  # before the answer, since the client may end at once
                    connection.sendall(b"E" + (len(self._fields) + 4).to_bytes(4) + self._fields)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize(
    ("state", "kind", "code", "advice"),
    [
        ("53300", Transient, CODE, "max_connections"),
        ("28P01", LoginRefused, "target-denied", "correct user and password"),
        ("28000", LoginRefused, "target-denied", "correct user and password"),
        ("3D000", DatabaseMissing, "target-denied", "CREATE DATABASE"),
        ("42501", AccessNotGranted, "target-denied", "pidts grants"),
        ("57P03", Transient, "target-unreachable", "running"),
    ],
)
def test_a_postgresql_that_translates_its_messages(state: str, kind: type[PidtsError], code: str, advice: str) -> None:
    with closing(TranslatingServer(state)) as server:
        with pytest.raises(PidtsError) as caught:
            PostgresTarget("127.0.0.1", server.port, "u", "p").connect()
        assert server.logins == 2
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert "tut mir leid" in caught.value.what
    assert advice in caught.value.todo


@pytest.mark.parametrize("ends_with", ["starting up", "shutting down", "in recovery mode"])
def test_a_server_that_says_in_english_why_it_is_not_ready_is_asked_once(ends_with: str) -> None:
    with closing(TranslatingServer("57P03", f"the database system is {ends_with}")) as server:
        with pytest.raises(Transient, match=ends_with) as caught:
            PostgresTarget("127.0.0.1", server.port, "u", "p").connect()
        assert server.logins == 1
    assert caught.value.code == "target-unreachable"


def test_the_first_error_is_reported_where_the_second_login_is_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux has files in memory."""
    monkeypatch.delattr(os, "memfd_create")
    with closing(TranslatingServer("53300")) as server, pytest.raises(Transient, match="tut mir leid") as caught:
        PostgresTarget("127.0.0.1", server.port, "u", "p").connect()
    assert caught.value.code == "target-unreachable"


def test_a_server_that_does_not_answer_is_asked_once() -> None:
    """The second login would take as long as the first one."""
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(listener), pytest.raises(Transient) as caught:
        PostgresTarget("127.0.0.1", listener.getsockname()[1], "u", "p", connect_timeout=2).connect()
    assert caught.value.code == "target-unreachable"
    listener = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    assert login_refusal(f"host=127.0.0.1 port={listener.getsockname()[1]} user=u", 0.5) == ""
    assert time.monotonic() - began < 5
    listener.close()


def test_a_name_that_is_not_resolved_is_the_cause_that_is_reported() -> None:
    with pytest.raises(Transient, match=r"nowhere\.invalid") as caught:
        PostgresTarget("nowhere.invalid", 5432, "u", "p").connect()
    assert caught.value.code == "target-unreachable"
    assert login_refusal("host=nowhere.invalid user=u", 1.0) == ""
