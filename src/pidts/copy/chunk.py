"""Reading one chunk of a table, with the two log positions between which it was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pidts.model import Position, Table
from pidts.source.connection import ServerInfo, SourceConfig, connect, server_info
from pidts.source.failures import StructureChanged
from pidts.source.position import log_end, needs_row_locks, settled
from pidts.source.rows import highest_key, last_key, select_rows
from pidts.source.structures import read_structure


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows as they were at some moment between `low` and `high`.

    Every transaction at or below `low` shows in them, and none behind `high`. `low` is at least as far as the log was
    when the reading began, and therefore at least as far as anything the relay had received by then.
    """

    server: str
    """Which server answered; behind one address it may be another than the one whose log is followed."""
    rows: pa.Table
    last_key: list[Any] | None
    low: Position
    high: Position
    upto: list[Any] | None
    """The table's highest key when its copy began: rows behind it come by the log, or a busy table would never end."""
    done: bool
    stale: bool = False
    """The table no longer has the structure it was asked for; there are no rows here, and the log will say why."""


def read_chunk(
    config: SourceConfig, table: Table, after: Sequence[Any] | None, limit: int, *, upto: Sequence[Any] | None = None
) -> Chunk:
    """Up to `limit` rows behind the key `after`; `done` where there are no more up to `upto`."""
    connection = connect(config)
    try:
        server = server_info(connection)
        low = settled(connection, server)
        try:
            bound = highest_key(connection, table, lock=_lock(server)) if upto is None else list(upto)
            rows = select_rows(connection, table, after, limit, upto=bound, lock=_lock(server))
        except StructureChanged as error:
            return _stale(config, server, table, low, error)
        # A statement of its own, behind the reading: what the rows show was in the log before they showed it.
        high = log_end(connection)
        return Chunk(server.identity, rows, last_key(rows, table), low, high, bound, done=rows.num_rows < limit)
    finally:
        connection.close()


def _lock(server: ServerInfo) -> str:
    if not needs_row_locks(server):
        return ""
    return "FOR SHARE" if server.number >= (8, 0, 22) else "LOCK IN SHARE MODE"


def _stale(config: SourceConfig, server: ServerInfo, table: Table, low: Position, refusal: StructureChanged) -> Chunk:
    """Unless the structure is what it was: then the refusal is not about a change, and stands."""
    connection = connect(config)
    try:
        if read_structure(connection, table.name) == table:
            raise refusal
        return Chunk(
            server.identity, table.arrow.empty_table(), None, low, log_end(connection), None, done=False, stale=True
        )
    finally:
        connection.close()
