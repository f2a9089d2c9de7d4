"""Reading rows of a table by their keys, with the two log positions between which they were read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from pidts.copy.ranges import Range
from pidts.model import Position, Table
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, server_info
from pidts.source.failures import StructureChanged
from pidts.source.position import log_end, row_lock, settled
from pidts.source.rows import find_rows, select_range
from pidts.source.structures import read_structure

Read = Callable[[Session, str], pa.Table]
"""Reads with a session, and with the lock that is due."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows as they were at some moment between `low` and `high`.

    Every transaction at or below `low` shows in them, and none behind `high`. `low` is at least as far as the log was
    when the reading began, and therefore at least as far as anything the relay had received by then.
    """

    server: str
    """Which server answered; behind one address it may be another than the one whose log is followed."""
    rows: pa.Table
    low: Position
    high: Position
    stale: bool = False
    """The table no longer has the structure it was asked for; there are no rows here, and the log will say why."""


def read_range(config: SourceConfig, table: Table, wanted: Range) -> Chunk:
    """All rows of a range."""
    return _read(
        config, table, lambda session, lock: select_range(session, table, wanted.after, wanted.upto, lock=lock)
    )


def read_keys(config: SourceConfig, table: Table, keys: pa.Table, *, whole: bool = False) -> Chunk:
    """As `find`, between two positions: what is not here was not in the table then."""
    return _read(config, table, lambda session, lock: find_rows(session, table, keys, whole=whole, lock=lock))


def find(connection: Session, table: Table, keys: pa.Table, *, whole: bool = False) -> pa.Table:
    """The identities, or the whole rows, of those rows that have one of these identities, as they are now.

    `keys` has the identity's columns, and may have others. The server says what is the same: under a collation
    without case `A` finds the row `a`, which comes as it is. Without `read_keys` nothing says how this reading stands
    to the log.
    """
    return find_rows(connection, table, keys, whole=whole)


def _read(config: SourceConfig, table: Table, read: Read) -> Chunk:
    connection = connect(config)
    try:
        server = server_info(connection)
        low = settled(connection, server)
        try:
            rows = read(connection, row_lock(server))
        except StructureChanged as error:
            return stale_chunk(config, server, table, low, error)
        # A statement of its own, behind the reading: what the rows show was in the log before they showed it.
        return Chunk(server.identity, rows, low, log_end(connection))
    finally:
        connection.close()


def stale_chunk(
    config: SourceConfig, server: ServerInfo, table: Table, low: Position, refusal: StructureChanged
) -> Chunk:
    """Unless the structure is what it was: then the refusal is not about a change, and stands."""
    connection = connect(config)
    try:
        if read_structure(connection, table.name) == table:
            raise refusal
        return Chunk(server.identity, table.arrow.empty_table(), low, log_end(connection), stale=True)
    finally:
        connection.close()
