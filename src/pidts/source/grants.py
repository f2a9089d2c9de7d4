"""Reads the privileges of the current account from SHOW GRANTS."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.login import privileges
from pidts.source.connection import ServerInfo, Session, query

_GLOBAL = re.compile(r"GRANT (?P<privileges>.+?) ON \*\.\* TO ", re.IGNORECASE | re.DOTALL)
_EVERYTHING = "ALL PRIVILEGES"
_SAME = {
    # MariaDB 10.5 renamed this privilege: it accepts the old name and shows the new name.
    "REPLICATION CLIENT": frozenset({"REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"})
}


def global_privileges(grants: Iterable[str]) -> frozenset[str]:
    """Returns the privileges on `*.*`, in upper case."""
    found: set[str] = set()
    for grant in grants:
        if match := _GLOBAL.match(grant):
            found.update(word.strip().upper() for word in match["privileges"].split(","))
    return frozenset(found)


def holds(granted: frozenset[str], wanted: str) -> bool:
    """Whether an account that has the privileges `granted` has the privilege `wanted`, under any of its names."""
    return _EVERYTHING in granted or bool(granted & _SAME.get(wanted, frozenset({wanted})))


def sees_all_schemas(connection: Session, server: ServerInfo) -> bool:
    """Whether the account sees every schema's name. Other accounts see only schemas on which they have a privilege."""
    granted = global_privileges(current_grants(connection, server))
    return holds(granted, "SHOW DATABASES") or holds(granted, "SELECT")


def current_grants(connection: Session, server: ServerInfo) -> list[str]:
    """Returns all grants of this session, including the grants of its active roles (which MariaDB shows anyway)."""
    names_roles = not server.is_mariadb and server.number >= (8, 0, 0)
    return privileges.current_grants(lambda sql: query(connection, sql), names_roles=names_roles)


def account(connection: Session) -> str:
    """Returns the account in the form of a GRANT: `'repl'@'%'`."""
    user, _, host = str(query(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return privileges.account_name(user, host)
