"""Cutting a table into neighbouring ranges of its keys, as its server orders them.

A boundary is a key that some row had at some moment. Nothing is assumed of the rows between two boundaries: rows that
come, go or move meanwhile make a range larger or smaller, and each key belongs to one range for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.model import Table
from pidts.source.connection import Session, query, server_info
from pidts.source.failures import StructureChanged
from pidts.source.position import row_lock, settled
from pidts.source.rows import boundary, highest_key

KeyValues = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The keys behind `after` and not behind `upto`; None is without an end."""

    after: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    """There is nothing between this range and the end that was asked for."""


def highest(connection: Session, table: Table) -> KeyValues | None:
    """The key that comes last, None in an empty table: whatever comes behind it later is in the log behind this call.

    Raises `StructureChanged` where the table is not what `table` says.
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
    """Up to `count` neighbouring ranges of `size` rows each, from behind `after`; the last one of all ends at `upto`.

    There is always one, though it may be empty. Where the table is not what `table` says, it is one that says so when
    it is read.
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
