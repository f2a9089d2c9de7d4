"""Reads rows of a table by their keys, and the two log positions between which they were read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from pidts.copy.ranges import Range
from pidts.model import Position, StructureChanged, Table
from pidts.source.connection import ServerInfo, Session, SourceConfig, connect, server_info
from pidts.source.position import log_end, row_lock, settled
from pidts.source.rows import find_rows, select_range
from pidts.source.structures import read_structure

Read = Callable[[Session, str], pa.Table]
"""Reads a table with a session and a locking clause."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in their state at some moment between `low` and `high`.

    The rows show every transaction up to `low`, and none after `high`. `low` is the end of the log when the reading
    began, or a later place. So at that time, the relay had received nothing after `low`.
    """

    server: str
    """The server that answered. It has the address of the server whose log is read, but may be another server."""
    rows: pa.Table
    low: Position
    high: Position
    altered: bool = False
    """Whether the table's structure is not the expected one. Then there are no rows, and the log has the schema change.
    """


def read_range(config: SourceConfig, table: Table, wanted: Range) -> Chunk:
    """Reads all rows of a range."""
    return _read(
        config, table, lambda session, lock: select_range(session, table, wanted.after, wanted.upto, lock=lock)
    )


def read_keys(config: SourceConfig, table: Table, keys: pa.Table, *, whole: bool = False) -> Chunk:
    """Finds rows as `find_rows` does, between two positions of the log, which the chunk names.

    If a row is not found, there is a place between these positions at which the table did not have it.
    """
    return _read(config, table, lambda session, lock: find_rows(session, table, keys, whole=whole, lock=lock))


def _read(config: SourceConfig, table: Table, read: Read) -> Chunk:
    with closing(connect(config)) as connection:
        server = server_info(connection)
        low = settled(connection, server)
        try:
            rows = read(connection, row_lock(server))
        except StructureChanged as error:
            return chunk_of_altered(config, server, table, low, error)
        # The log has a change before the rows show it. So the end of the log is read after the rows.
        return Chunk(server.identity, rows, low, log_end(connection))


def chunk_of_altered(
    config: SourceConfig, server: ServerInfo, table: Table, low: Position, refusal: StructureChanged
) -> Chunk:
    """Returns a chunk without rows if the structure has changed; otherwise raises the server's refusal."""
    with closing(connect(config)) as connection:
        if read_structure(connection, table.name) == table:
            raise refusal
        return Chunk(server.identity, table.arrow.empty_table(), low, log_end(connection), altered=True)
