"""Divides a table into neighbouring ranges of its keys, in the server's order of keys.

A boundary is a key that some row had at some moment. If rows between two boundaries are inserted, deleted or moved, the
range gets larger or smaller. Each key always belongs to the same range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.model import StructureChanged, Table
from pidts.source.connection import Session, query, server_info
from pidts.source.position import row_lock, settled
from pidts.source.rows import boundary, highest_key

KeyValues = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The keys above `after`, up to and including `upto`; None means no limit."""

    after: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    """Whether the range ends at the `upto` with which `ranges` was called. No range follows it."""


def highest(connection: Session, table: Table) -> KeyValues | None:
    """Returns the highest key; None for an empty table.

    If a row with a higher key is inserted later, the log has this INSERT after its current end. Raises
    `StructureChanged` if the table does not have the structure of `table`.
    """
    server = server_info(connection)
    settled(connection, server)
    try:
        key = highest_key(connection, table, lock=row_lock(server))
    finally:
        if connection.open:
            query(connection, "ROLLBACK")
    return None if key is None else tuple(key)


def ranges(
    connection: Session, table: Table, after: Sequence[Any] | None, upto: Sequence[Any] | None, size: int, count: int
) -> list[Range]:
    """Returns up to `count` neighbouring ranges of `size` rows each, above the key `after` and not beyond `upto`.

    There is always at least one range, which may be empty. If the table's structure has changed, no error is raised:
    the chunk that is read shows it (`Chunk.altered`).
    """
    end = None if upto is None else tuple(upto)
    begin = None if after is None else tuple(after)
    found: list[Range] = []
    while len(found) < count:
        try:
            key = boundary(connection, table, begin, size, highest=end)
        except StructureChanged:
            key = None
        behind = end if key is None else tuple(key)
        found.append(Range(begin, behind, is_last=key is None or behind == end))
        if found[-1].is_last:
            break
        begin = behind
    return found
