"""Reads the next values of AUTO_INCREMENT counters."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.model import TableName
from pidts.source.connection import Session, query, server_info
from pidts.source.structures import table_facts

_STATISTICS_EXPIRE = (8, 0, 0)
"""The first MySQL version that shows statistics that may be a day old, unless the session sets a variable."""


def next_values(connection: Session, names: Iterable[TableName]) -> dict[TableName, int]:
    """Returns, for each table with a counter, the number that the next row gets.

    This number may be far above all numbers in the table, since the last rows may have been deleted.
    """
    server = server_info(connection)
    if not server.is_mariadb and server.number >= _STATISTICS_EXPIRE:
        query(connection, "SET SESSION information_schema_stats_expiry = 0")
    facts = table_facts(connection, names, "auto_increment")
    return {name: int(row["auto_increment"]) for name, row in facts}
