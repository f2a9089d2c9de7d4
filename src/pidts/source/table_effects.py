"""Asks a source whether writing to a table may change rows of other tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pidts.login.privileges import Privilege, grant_statements, privileges_of
from pidts.model import TableName
from pidts.source.connection import Session, named, server_info
from pidts.source.grants import account, current_grants

_PASSING_ENGINES = frozenset({"MRG_MYISAM", "FEDERATED", "SPIDER", "CONNECT"})
"""The engines whose tables write to other tables."""


def table_effects(
    connection: Session, tables: Iterable[TableName], temporary: Collection[TableName]
) -> dict[TableName, str]:
    """Returns, for each table, why a write to it may change other tables; an empty text if no write can.

    `temporary`: names that may belong to temporary tables of other sessions, which the catalog does not show. The
    result is about the present: a table may have had other triggers before. Servers do not allow triggers on their own
    tables in the schema `mysql`. Foreign keys are ignored: even a log with row events does not contain the rows that
    they change.
    """
    has = privileges_of(current_grants(connection, server_info(connection)))
    found = {name: _effects(connection, name, may_see=has.has(_privilege(name))) for name in tables}
    return {name: _gone(name) if text is None else text for name, text in found.items()} | {
        name: "" for name, text in found.items() if text is None and name in temporary
    }


def _gone(name: TableName) -> str:
    return f"the source has no table {name} any more, so it is not known which triggers it had"


def _privilege(name: TableName) -> Privilege:
    return Privilege("TRIGGER", name.schema, name.name)


def _effects(connection: Session, name: TableName, *, may_see: bool) -> str | None:
    """Returns the text for one table; None if there is no such table."""
    if name.schema.lower() == "mysql":
        return ""
    if not may_see:
        (grant,) = grant_statements([_privilege(name)], account(connection))
        return f"the account does not see whether {name} has triggers; run {grant.removesuffix(';')}"
    where = [name.schema, name.name]
    sql = "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    found = named(connection, sql, where)
    if not found:
        return None
    if "VIEW" in str(found[0]["table_type"]):
        return f"{name} is a view"
    if str(found[0]["engine"]).upper() in _PASSING_ENGINES:
        return f"{name} has the engine {found[0]['engine']}, which writes to other tables"
    sql = (
        "SELECT trigger_name FROM information_schema.triggers "
        "WHERE event_object_schema = %s AND event_object_table = %s ORDER BY trigger_name LIMIT 1"
    )
    return next((f"{name} has the trigger {row['trigger_name']}" for row in named(connection, sql, where)), "")
