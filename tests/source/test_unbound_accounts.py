"""An account that can write in spite of `read_only` is reported, as far as the task may see accounts."""

from __future__ import annotations

from contextlib import closing

from pidts.sandbox import Server
from pidts.source import SourceConfig, connect
from pidts.source.read_only import unbound_accounts


def accounts(server: Server) -> list[str]:
    with closing(connect(SourceConfig(server.host, server.port, server.user, server.password))) as session:
        return unbound_accounts(session)


def test_accounts_that_read_only_does_not_bind_are_named(mariadb: Server) -> None:
    assert any(name.startswith(f"'{mariadb.user}'@") for name in accounts(mariadb))


def test_super_read_only_binds_every_account(mysql97: Server) -> None:
    assert accounts(mysql97) == []
