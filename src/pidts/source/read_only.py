"""Prevents applications from writing to a source, and allows it again.

On MySQL, `super_read_only` forbids every account to write. Servers before 5.7 have only `read_only`, which still lets
accounts with SUPER write. On MariaDB, `read_only` still lets accounts with READ ONLY ADMIN write (before 10.11: SUPER).
"""

from __future__ import annotations

from collections.abc import Mapping

from pidts.login.privileges import Privilege, privileges_of
from pidts.model import PidtsError, Transient
from pidts.source.connection import ServerInfo, Session, query, server_info, variables
from pidts.source.grants import account, current_grants
from pidts.source.prepared_xa import recover_statement

_NAMES = ("read_only", "super_read_only")
_OFF = ("OFF", "0", "")


def read_only_variables(connection: Session) -> dict[str, str]:
    """Returns the variables of this server that forbid writing, with their values."""
    return variables(connection, *_NAMES)


def is_read_only(connection: Session) -> bool:
    """Whether the server's strictest variable is on: `super_read_only`, or `read_only` on a server without it."""
    found = read_only_variables(connection)
    return found.get("super_read_only", found.get("read_only", "OFF")) not in _OFF


def make_read_only(connection: Session) -> bool:
    """Forbids writing; False if the account may not do this. The server waits for transactions that commit."""
    name = "super_read_only" if "super_read_only" in read_only_variables(connection) else "read_only"
    try:
        query(connection, f"SET GLOBAL {name} = ON")
    except Transient:
        raise
    except PidtsError:
        return False
    return is_read_only(connection)


def restore(connection: Session, before: Mapping[str, str]) -> None:
    """Restores the earlier values of the variables.

    On MySQL, setting one of the two variables may change the other, so `super_read_only` is set first.
    A variable that already has its earlier value is not set: the account may lack the privilege for it.
    """
    now = read_only_variables(connection)
    for name in reversed(_NAMES):
        if name in before and (before[name] in _OFF) != (now.get(name, "") in _OFF):
            query(connection, f"SET GLOBAL {name} = {'OFF' if before[name] in _OFF else 'ON'}")


def statements(connection: Session, *, on: bool) -> str:
    """Returns the statement that forbids writing (`on`) or allows it again, for an operator if PiDTS may not run it."""
    name = "super_read_only" if "super_read_only" in read_only_variables(connection) else "read_only"
    return f"SET GLOBAL {name} = {'ON' if on else 'OFF'}"


def unbound_accounts(connection: Session) -> list[str]:
    """Returns the accounts that may write although the server is read-only, as far as this account can see them.

    Leaves out the account of this connection: PiDTS does not write with it while a cutover is under way.
    """
    if "super_read_only" in read_only_variables(connection):
        return []
    sql = (
        "SELECT DISTINCT grantee FROM information_schema.user_privileges "
        "WHERE privilege_type IN ('SUPER', 'READ ONLY ADMIN', 'READ_ONLY ADMIN') ORDER BY 1"
    )
    own = account(connection)
    return [str(grantee) for (grantee,) in query(connection, sql) if grantee != own]


def read_only_privileges(server: ServerInfo) -> list[Privilege]:
    """Returns the privileges for setting the variables, and for seeing prepared transactions."""
    if server.is_mariadb:
        return [Privilege("READ_ONLY ADMIN" if server.number >= (10, 5, 2) else "SUPER")]
    if server.number < (8, 0, 0):
        return [Privilege("SUPER")]
    return [Privilege("SYSTEM_VARIABLES_ADMIN"), Privilege("XA_RECOVER_ADMIN")]


def lacking_privileges(connection: Session) -> list[Privilege]:
    """Returns the privileges of `read_only_privileges` that the account lacks."""
    server = server_info(connection)
    has = privileges_of(current_grants(connection, server))
    is_super = has.has(Privilege("SUPER"))
    # Since MariaDB 10.11, SUPER does not include READ_ONLY ADMIN. On MySQL, it does not include XA_RECOVER_ADMIN.
    super_has = "SYSTEM_VARIABLES_ADMIN" if not server.is_mariadb else "READ_ONLY ADMIN" * (server.number < (10, 11, 0))
    return [
        one
        for one in read_only_privileges(server)
        if not (has.has(one) or has.has(Privilege(one.name.replace("_", " "))) or (is_super and one.name == super_has))
    ]


def prepared_transactions(connection: Session) -> int:
    """Returns the number of XA transactions that are prepared and neither committed nor rolled back."""
    try:
        return len(query(connection, recover_statement(server_info(connection))))
    except Transient:
        raise
    except PidtsError:
        return 0  # MySQL 8 requires a separate privilege for this
