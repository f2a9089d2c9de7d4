"""Accounts that can write in spite of `read_only`, and the privileges to set it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from pidts.sandbox import Server
from pidts.source import SourceConfig, connect
from pidts.source.read_only import lacking_privileges, make_read_only, unbound_accounts


def accounts(server: Server) -> list[str]:
    with closing(connect(SourceConfig(server.host, server.port, server.user, server.password))) as session:
        return unbound_accounts(session)


def test_accounts_that_read_only_does_not_bind_are_named(mariadb: Server, run_sql: Callable[..., object]) -> None:
    """The account of PiDTS itself is not among the programs that may write."""
    run_sql(mariadb, "CREATE USER unbound@'%' IDENTIFIED BY 'x'")
    try:
        run_sql(mariadb, "GRANT READ_ONLY ADMIN ON *.* TO unbound@'%'")
        found = accounts(mariadb)
        assert "'unbound'@'%'" in found
        ((own,),) = run_sql(mariadb, "SELECT CURRENT_USER()")  # type: ignore[misc]
        user, _, host = own.rpartition("@")
        assert f"'{user}'@'{host}'" not in found
    finally:
        run_sql(mariadb, "DROP USER unbound@'%'")


def test_super_read_only_binds_every_account(mysql97: Server) -> None:
    assert accounts(mysql97) == []


@pytest.mark.parametrize(
    ("kind", "granted", "lacking"),
    [
        ("mariadb", "PROCESS", ["READ_ONLY ADMIN"]),
        ("mariadb", "READ_ONLY ADMIN", []),
        ("mysql97", "PROCESS", ["SYSTEM_VARIABLES_ADMIN", "XA_RECOVER_ADMIN"]),
        ("mysql97", "SYSTEM_VARIABLES_ADMIN", ["XA_RECOVER_ADMIN"]),
        ("mysql97", "SUPER, XA_RECOVER_ADMIN", []),
        ("mysql56", "PROCESS", ["SUPER"]),
        ("mysql56", "SUPER", []),
    ],
)
def test_lacking_privileges_are_named(
    kind: str, granted: str, lacking: list[str], request: pytest.FixtureRequest, run_sql: Callable[..., object]
) -> None:
    server: Server = request.getfixturevalue(kind)
    account = f"setter@'{'localhost' if kind == 'mysql56' else '%'}'"
    run_sql(server, f"CREATE USER {account} IDENTIFIED BY 'x'")
    try:
        run_sql(server, f"GRANT {granted} ON *.* TO {account}")
        with closing(connect(SourceConfig(server.host, server.port, "setter", "x"))) as session:
            assert [one.name for one in lacking_privileges(session)] == lacking
            if kind == "mariadb" and lacking:
                assert not make_read_only(session), "the server agrees"
    finally:
        run_sql(server, f"DROP USER {account}")
