"""Reads a consistent snapshot of a whole table. This is the only way to copy a table without a key.

All rows come from one snapshot, with bounded memory, however long this takes. The log position `low` is read before the
rows, and `high` after the first of them; for an InnoDB table of MariaDB, `high` equals `low`. It would be useless to
read `high` after the last row: a busy table always changes while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from pidts.copy.chunk import chunk_of_altered
from pidts.model import Position, StructureChanged, Table
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, query, server_info
from pidts.source.position import log_end, needs_row_locks, settled
from pidts.source.rows import stream_rows
from pidts.source.structures import quoted_table

_LOCK_SECONDS = 2
"""The longest wait for the table's lock. While the statement waits for earlier transactions, it makes later writers
wait.
"""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All rows of a table, as a consistent snapshot between `low` and `high`; see `Chunk`."""

    server: str
    low: Position
    high: Position
    altered: bool
    batches: Iterator[pa.Table]
    """The rows in parts, to be read once, inside the `with`. All parts together may be larger than the memory."""


@contextmanager
def read_snapshot(config: SourceConfig, table: Table) -> Iterator[TableSnapshot]:
    """Opens a snapshot. The snapshot ends with the `with` block, even if not all rows were read."""
    with closing(connect(config)) as connection:
        server = server_info(connection)
        low = _open(connection, server, table)
        batches = stream_rows(connection, table)
        try:
            first = next(batches, None)
        except StructureChanged as error:
            chunk = chunk_of_altered(config, server, table, low, error)
            yield TableSnapshot(chunk.server, chunk.low, chunk.high, altered=True, batches=iter(()))
            return
        # An engine without transactions shows the rows at the start of the reading, which is after the snapshot.
        high = low if server.is_mariadb and _is_innodb(config, table) else _end_of(config)
        yield TableSnapshot(
            server.identity, low, high, altered=False, batches=chain(() if first is None else (first,), batches)
        )


def _open(connection: Session, server: ServerInfo, table: Table) -> Position:
    if not needs_row_locks(server):
        low = settled(connection, server)
        if not server.is_mariadb:  # On MariaDB, `settled` has opened the snapshot.
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return low
    # There is no way to ask whether the table already contains everything in the log. But a transaction that wrote to
    # the table keeps other sessions from locking the table until the transaction is visible. Locking rows one by one
    # would not give a consistent snapshot.
    query(connection, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
    query(connection, f"LOCK TABLES {quoted_table(table.name)} READ")
    low = log_end(connection)
    query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")  # This statement unlocks the table.
    return low


def _is_innodb(config: SourceConfig, table: Table) -> bool:
    with closing(connect(config)) as connection:
        sql = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        found = query(connection, sql, (table.name.schema, table.name.name))
    return bool(found) and str(found[0][0]).lower() == "innodb"


def _end_of(config: SourceConfig) -> Position:
    with closing(connect(config)) as connection:
        return log_end(connection)
