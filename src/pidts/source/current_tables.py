"""Reads all tables from a server's information_schema, with the places in its log before and after the reading.

MySQL 8 and later log a schema change before information_schema shows the change. With GTIDs, `settled` waits until the
change is visible. Without GTIDs, no query shows whether the change is visible, so the reader only waits a second. On
other servers, a schema change holds a lock until it is logged, and a reader of information_schema waits for this lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pidts.model import Halted, Position, Table, TableName
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.source.connection import Session, server_info
from pidts.source.grants import current_grants, global_privileges, holds
from pidts.source.position import log_end, settled
from pidts.source.structures import read_structures, schema_charsets, sequences, source_dialect

_SETTLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CurrentTables:
    """All structures, as read between the positions `began` and `ended`. They may lack schema changes in between."""

    history: KnownStructures
    dialect: Dialect
    began: Position
    ended: Position


def look_at_tables(
    session: Session, wanted: Callable[[TableName], bool], pause: Callable[[float], object] = time.sleep
) -> CurrentTables:
    """Reads every wanted table that the account sees; tables that cannot be read become `unknown` in the history."""
    info = server_info(session)
    began = log_end(session) if info.is_mariadb else settled(session, info)
    if not info.is_mariadb and not info.gtid_mode and info.number >= (8, 0, 0):
        pause(_SETTLE_SECONDS)
    tables, unreadable = readable_structures(session, wanted)
    history = KnownStructures(
        tables=tables,
        charsets=schema_charsets(session),
        unknown=unreadable,
        sequences=frozenset(filter(wanted, sequences(session))),
        complete=holds(global_privileges(current_grants(session, info)), "SELECT"),
    )
    return CurrentTables(history, source_dialect(session), began, log_end(session))


def readable_structures(
    session: Session, wanted: Callable[[TableName], bool]
) -> tuple[dict[TableName, Table], dict[TableName, str]]:
    """Returns the readable tables, and for every other table the reason why it is not readable."""
    unreadable: dict[TableName, str] = {}
    while True:
        try:
            return read_structures(
                session, lambda name: wanted(name) and name not in unreadable, unreadable
            ), unreadable
        except Halted as error:
            schema, _, name = error.where.table.partition(".")
            table = TableName(schema, name)
            if not name or table in unreadable:
                raise
            unreadable[table] = str(error)
