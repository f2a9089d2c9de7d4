"""Compares the privileges that an account of a MySQL, MariaDB or TiDB target needs with those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from pidts.login.privileges import (
    Privilege,
    Privileges,
    account_name,
    account_of,
    current_grants,
    grant_statements,
    hosts_of,
    privileges_of,
)
from pidts.model import TableName
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.session import MySqlSession

_DEMANDS_REFERENCES = (5, 7, 6)
"""From this version on, MySQL demands the privilege REFERENCES on the referenced table. MariaDB does not."""
_ON_META = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE")
_ON_SCHEMAS = (*_ON_META, "ALTER", "DROP")
"""TRUNCATE and RENAME need DROP, too. Keys are created by ALTER TABLE, so INDEX is not needed."""


def needed(schemas: Iterable[str], meta_schema: str, *, is_zone: bool) -> Iterator[Privilege]:
    """Yields the privileges that are needed to write to these schemas' tables and to change their structure.

    Between zones, each DROP TABLE also drops a marker table of the meta schema, so that the log shows the zone.
    """
    for name in (*_ON_META, "DROP") if is_zone else _ON_META:
        yield Privilege(name, meta_schema)
    for schema in sorted(set(schemas)):
        for name in _ON_SCHEMAS:
            yield Privilege(name, schema)


def for_row_events(server: TargetServer, schemas: Iterable[str]) -> Iterator[Privilege]:
    """Yields the privileges for writing many rows as row events; none if the server does not execute row events.

    A task also runs without these privileges. TRIGGER shows whether a table has triggers, which row events do not fire.
    """
    if server.replays_events:
        yield Privilege("BINLOG REPLAY")
        for schema in sorted(set(schemas)):
            yield Privilege("TRIGGER", schema)


def missing(session: MySqlSession, tables: Iterable[TableName]) -> list[Privilege]:
    """Returns the needed privileges that the session lacks.

    Instead of a privilege on a schema, the same privilege on each of its tables in `tables` is enough.
    """
    has = _held(session)
    by_schema: dict[str, list[str]] = {}
    for table in tables:
        by_schema.setdefault(table.schema, []).append(table.name)
    wanted = needed(by_schema, session.meta_schema, is_zone=bool(session.zone))
    return [one for one in wanted if not (has.has(one) or _on_each(has, one, by_schema.get(one.schema, [])))]


def read_only_cause(session: MySqlSession) -> tuple[str, str]:
    """Returns why the server lets this account write no row, and what to do; two empty texts if it may write.

    A server with `super_read_only` lets no account write. With `read_only`, it still lets some accounts write.
    """
    on = _read_only_variables(session)
    if "super_read_only" in on:
        todo = (
            "Run on the target: SET GLOBAL super_read_only = OFF. read_only is then still ON: pidts check TASK shows "
            "whether the account may write"
        )
        return "the target is read-only for every account (super_read_only = ON)", todo
    has, able = _held(session), _writes_anyway(session.server)
    if not on or any(has.has(Privilege(name)) for name in able):
        return "", ""
    todo = (
        f"Let this account alone write: GRANT {able[0]} ON *.* TO {own_account(session)}; or let all accounts write: "
        "SET GLOBAL read_only = OFF"
    )
    return f"the target is read-only (read_only = ON), and the account lacks {able[0]}", todo


def makes_writable(session: MySqlSession) -> str:
    """Returns the statement after which applications may write to a read-only server; empty if they may write now."""
    return "SET GLOBAL read_only = OFF" if _read_only_variables(session) else ""


def _read_only_variables(session: MySqlSession) -> set[str]:
    """Returns the names of those of `read_only` and `super_read_only` that are on; none on TiDB, which ignores them."""
    if session.server.tidb:
        return set()
    sql = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('read_only', 'super_read_only')"
    return {str(name) for name, value in _rows(session, sql) if str(value).upper() not in {"OFF", "0"}}


def grant_for_foreign_key(session: MySqlSession, parent: TableName) -> str:
    """Returns the GRANT that the account needs to create a foreign key to `parent`; empty if it lacks none."""
    server = session.server.dialect
    demands = not server.mariadb and (session.server.tidb or server.version >= _DEMANDS_REFERENCES)
    wanted = Privilege("REFERENCES", parent.schema, parent.name)
    if not demands or _held(session).has(wanted):
        return ""
    # On the whole schema, a GRANT with other escapes in the schema's name would hide the account's other privileges.
    return " ".join(grant_statements([wanted], own_account(session))).rstrip(";")


def own_account(session: MySqlSession) -> str:
    """Returns the session's account in the form that GRANT uses."""
    user, _, host = str(_rows(session, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return account_name(user, host)


def account_there(session: MySqlSession, user: str, host: str) -> str:
    """Returns the account for a GRANT to another user of the server on `host`; see `account_of`."""
    return account_of(partial(_rows, session), user, host)


def hosts_there(session: MySqlSession, user: str) -> list[str]:
    """Returns the hosts of another user's accounts; none if this session may not read them."""
    return hosts_of(partial(_rows, session), user)


def version_of(session: MySqlSession) -> str:
    """Returns the server's version as the server itself writes it."""
    return str(_rows(session, "SELECT VERSION()")[0][0])


def _held(session: MySqlSession) -> Privileges:
    version = version_of(session)
    names_roles = "mariadb" not in version.lower() and int(version.partition(".")[0]) >= 8
    return privileges_of(current_grants(lambda sql: _rows(session, sql), names_roles=names_roles))


def _writes_anyway(server: TargetServer) -> tuple[str, ...]:
    """Returns the privileges of which one is enough to write to a server with `read_only`; a task needs the first."""
    version = server.dialect.version
    if not server.dialect.mariadb:
        return ("CONNECTION_ADMIN", "SUPER") if version >= (8, 0, 0) else ("SUPER",)
    if version < (10, 5, 2):
        return ("SUPER",)
    # Since MariaDB 10.11, SUPER does not include this privilege.
    return ("READ_ONLY ADMIN", "READ ONLY ADMIN", *(("SUPER",) if version < (10, 11, 0) else ()))


def _on_each(has: Privileges, wanted: Privilege, tables: list[str]) -> bool:
    return bool(tables) and all(has.has(Privilege(wanted.name, wanted.schema, table)) for table in tables)


def _rows(session: MySqlSession, sql: str) -> list[tuple[object, ...]]:
    return list(session.pipeline.now(sql.encode()).rows)
