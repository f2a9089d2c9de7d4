"""Reading a whole table as of one moment: the only way to copy a table whose rows nothing names.

All rows come from one snapshot, in memory of a bounded size, however long that takes. The two positions lie around the
moment of the snapshot and not around the reading: a table that is written all the time would never have a quiet one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from pidts.copy.chunk import stale_chunk
from pidts.model import Position, Table
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, query, server_info
from pidts.source.failures import StructureChanged
from pidts.source.position import log_end, needs_row_locks, settled
from pidts.source.rows import stream_rows
from pidts.source.structures import quoted_table

_LOCK_SECONDS = 2
"""Writers wait behind us while we wait for those before us."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of a table as they were at one moment between `low` and `high`, as `Chunk` has it."""

    server: str
    low: Position
    high: Position
    stale: bool
    batches: Iterator[pa.Table]
    """To be read once, inside the `with`, and not to be kept all at once."""


@contextmanager
def read_snapshot(config: SourceConfig, table: Table) -> Iterator[Snapshot]:
    """Open a snapshot; leaving the block ends it, whether or not all was read."""
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
        # An engine without transactions shows what is there when the reading begins, behind the snapshot.
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
