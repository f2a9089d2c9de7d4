"""Reads a whole table as of one moment: the only way to copy a table without a key.

All rows come from one snapshot, in memory of a bounded size, however long that takes. The two positions are taken
around the start of the snapshot, not around the reading: a table that is written all the time is never quiet that long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from pidts.copy.chunk import stale_chunk
from pidts.model import Position, StructureChanged, Table
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, query, server_info
from pidts.source.position import log_end, needs_row_locks, settled
from pidts.source.rows import stream_rows
from pidts.source.structures import quoted_table

_LOCK_SECONDS = 2
"""The time limit for the lock: while it waits for earlier transactions, later writers wait for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of a table as they were at one moment between `low` and `high`; see `Chunk`."""

    server: str
    low: Position
    high: Position
    stale: bool
    batches: Iterator[pa.Table]
    """The rows in parts. Read them once, inside the `with`; all together may exceed the memory."""


@contextmanager
def read_snapshot(config: SourceConfig, table: Table) -> Iterator[Snapshot]:
    """Opens a snapshot. Leaving the block ends it, even if not all rows were read."""
    with closing(connect(config)) as connection:
        server = server_info(connection)
        low = _open(connection, server, table)
        batches = stream_rows(connection, table)
        try:
            first = next(batches, None)
        except StructureChanged as error:
            chunk = stale_chunk(config, server, table, low, error)
            yield Snapshot(chunk.server, chunk.low, chunk.high, stale=True, batches=iter(()))
            return
        # An engine without transactions shows the rows at the start of the reading, which is after the snapshot.
        high = low if server.is_mariadb and _is_innodb(config, table) else _end_of(config)
        yield Snapshot(
            server.identity, low, high, stale=False, batches=chain(() if first is None else (first,), batches)
        )


def _open(connection: Session, server: ServerInfo, table: Table) -> Position:
    if not needs_row_locks(server):
        low = settled(connection, server)
        if not server.is_mariadb:  # There `settled` has opened it.
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return low
    # Nothing tells whether what the log has is in the table, but a transaction that wrote to it keeps others from
    # locking it until it is. Rows locked one by one would not be of one moment.
    query(connection, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
    query(connection, f"LOCK TABLES {quoted_table(table.name)} READ")
    low = log_end(connection)
    query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")  # It lets go of the table.
    return low


def _is_innodb(config: SourceConfig, table: Table) -> bool:
    with closing(connect(config)) as connection:
        sql = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        found = query(connection, sql, (table.name.schema, table.name.name))
    return bool(found) and str(found[0][0]).lower() == "innodb"


def _end_of(config: SourceConfig) -> Position:
    with closing(connect(config)) as connection:
        return log_end(connection)
