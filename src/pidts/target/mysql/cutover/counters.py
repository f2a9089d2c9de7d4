"""Moves the AUTO_INCREMENT counters of MySQL, MariaDB and TiDB.

A counter follows the inserted rows. It is lower than the source's counter if the source has used numbers for rows that
are gone. A server never moves a counter below the rows' numbers, so it is safe to repeat the move.
"""

from __future__ import annotations

from pidts.model import Table
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession

_STATISTICS_EXPIRE = (8, 0, 0)


def low_counters(session: MySqlSession, table: Table, source_next: int) -> list[str]:
    """Returns a line for the operator about the counter; no line if the counter is high enough."""
    at, wanted = _places(session, table, source_next)
    if at is None or at >= wanted:
        return []
    return [f"{table.name} continues at {at}, and has to continue at {wanted}"]


def move(session: MySqlSession, table: Table, source_next: int) -> list[str]:
    """Moves the counter if it is too low, and returns a line for the operator about this; no line if it is not."""
    at, wanted = _places(session, table, source_next)
    if at is None or at >= wanted:
        return []
    session.execute(f"ALTER TABLE {qualified(table.name)} AUTO_INCREMENT = {wanted}")
    return [f"{table.name} continues at {wanted}"]


def _places(session: MySqlSession, table: Table, source_next: int) -> tuple[int | None, int]:
    """Returns the current value of the table's counter (None if it has none), and the value that it needs."""
    dialect = session.server.dialect
    if not dialect.mariadb and dialect.version >= _STATISTICS_EXPIRE and not session.server.tidb:
        session.run("SET SESSION information_schema_stats_expiry = 0", ())
    rows = session.rows(
        "SELECT auto_increment FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s AND auto_increment IS NOT NULL",
        (table.name.schema, table.name.name),
    )
    counting = [column for column in table.columns if column.auto_increment]
    if not rows or not counting:
        return None, source_next
    ((most,),) = session.rows(f"SELECT MAX({identifier(counting[0].name)}) FROM {qualified(table.name)}")
    return int(rows[0][0]), max(source_next, int(most) + 1 if most is not None and int(most) > 0 else 1)
