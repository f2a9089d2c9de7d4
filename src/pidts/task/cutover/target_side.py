"""Calls what each kind of target does for a cutover: counters and foreign keys."""

from __future__ import annotations

from pidts.apply import TargetSession
from pidts.model import ForeignKey, Table, TableName
from pidts.target.mysql import MySqlSession
from pidts.target.mysql import counters as mysql_counters
from pidts.target.mysql import foreign_keys as mysql_keys
from pidts.target.postgres import PostgresSession
from pidts.target.postgres import counters as postgres_counters
from pidts.target.postgres import foreign_keys as postgres_keys

_PLANNER = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")


def prepare(target: TargetSession) -> None:
    """Lets PostgreSQL join whole tables, by which it checks a foreign key; sessions that write rows forbid it."""
    if isinstance(target, PostgresSession):
        for name in _PLANNER:
            target.execute(f"SET {name} = on")


def counters_behind(target: TargetSession, table: Table, source_next: int) -> list[str]:
    """Returns a line for each counter of a target table that has to be moved."""
    if isinstance(target, PostgresSession):
        return postgres_counters.behind(target, table, source_next)
    if isinstance(target, MySqlSession):
        return mysql_counters.behind(target, table, source_next)
    raise TypeError(target)


def move_counters(target: TargetSession, table: Table, source_next: int) -> list[str]:
    """Moves the counters of a target table; returns a line for each that was moved."""
    if isinstance(target, PostgresSession):
        return postgres_counters.move(target, table, source_next)
    if isinstance(target, MySqlSession):
        return mysql_counters.move(target, table, source_next)
    raise TypeError(target)


def lacks(target: TargetSession, key: ForeignKey) -> bool:
    """Whether the target has no foreign key of this name on the table."""
    if isinstance(target, PostgresSession):
        return postgres_keys.missing(target, key)
    if isinstance(target, MySqlSession):
        return mysql_keys.missing(target, key)
    raise TypeError(target)


def key_statements(target: TargetSession, key: ForeignKey) -> list[str]:
    """Returns the statements that are needed to have the foreign key, checked where the target checks it."""
    if isinstance(target, PostgresSession):
        return postgres_keys.statements(target, key)
    if isinstance(target, MySqlSession):
        return mysql_keys.statements(target, key)
    raise TypeError(target)


def drop_key(target: TargetSession, table: TableName, name: str) -> None:
    """Removes a foreign key, if it is there."""
    if isinstance(target, PostgresSession):
        target.execute(postgres_keys.drop(table, name))
    elif isinstance(target, MySqlSession) and mysql_keys.is_there(target, table, name):
        target.execute(mysql_keys.drop(table, name))
