"""An account that is locked, or whose password has expired, is named as such at source and target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import pytest
from tests.conftest import RunSql

from pidts.model import PrecheckFailed
from pidts.model.errors import LoginRefused
from pidts.sandbox import Server, start_mariadb
from pidts.source import SourceConfig, connect
from pidts.source.connection import query
from pidts.target.mysql import MySqlTarget

ACCOUNTS = [
    ("mysql97", "ACCOUNT LOCK", "3118", "ACCOUNT UNLOCK"),
    ("mysql97", "FAILED_LOGIN_ATTEMPTS 1 PASSWORD_LOCK_TIME 1", "3955", "too many logins"),
    ("mysql97", "PASSWORD EXPIRE", "1862", "Give the account a new password"),
    ("mariadb", "ACCOUNT LOCK", "4151", "ACCOUNT UNLOCK"),
    ("mariadb", "PASSWORD EXPIRE", "1820", "Give the account a new password"),
]


def log_in_to_source(host: str, port: int, password: str) -> None:
    with closing(connect(SourceConfig(host, port, "unusable", password))) as session:
        query(session, "SELECT 1")


def log_in_to_target(host: str, port: int, password: str) -> None:
    MySqlTarget(host, port, "unusable", password).connect().close()


@pytest.mark.parametrize("log_in", [log_in_to_source, log_in_to_target])
@pytest.mark.parametrize(("kind", "option", "number", "advice"), ACCOUNTS, ids=[one[2] for one in ACCOUNTS])
def test_an_unusable_account_is_denied_with_the_statement_that_helps(
    request: pytest.FixtureRequest,
    run_sql: RunSql,
    log_in: Callable[[str, int, str], None],
    kind: str,
    option: str,
    number: str,
    advice: str,
) -> None:
    server: Server = request.getfixturevalue(kind)
    run_sql(server, f"CREATE USER unusable IDENTIFIED BY 'right' {option}")
    try:
        if number == "3955":
            with suppress(PrecheckFailed):
                log_in(server.host, server.port, "wrong")
        with pytest.raises(PrecheckFailed, match=number) as denied:
            log_in(server.host, server.port, "right")
    finally:
        run_sql(server, "DROP USER unusable")
    assert denied.value.code in {"access-denied", "target-denied"}
    assert advice in denied.value.todo
    assert not isinstance(denied.value, LoginRefused), "another password would be refused, too"


@pytest.mark.parametrize("log_in", [log_in_to_source, log_in_to_target])
def test_an_account_that_mariadb_blocks_is_denied(run_sql: RunSql, log_in: Callable[[str, int, str], None]) -> None:
    """MariaDB never blocks logins from 127.0.0.1."""
    with start_mariadb(options=["--bind-address=127.0.0.1,127.0.0.2", "--max-password-errors=1"]) as server:
        run_sql(server, "CREATE USER unusable IDENTIFIED BY 'right'")
        for _ in range(2):
            with suppress(PrecheckFailed):
                log_in("127.0.0.2", server.port, "wrong")
        with pytest.raises(PrecheckFailed, match="4150") as denied:
            log_in("127.0.0.2", server.port, "right")
        assert "FLUSH PRIVILEGES" in denied.value.todo
        run_sql(server, "FLUSH PRIVILEGES")
        log_in("127.0.0.2", server.port, "right")
