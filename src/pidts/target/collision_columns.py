"""The columns by which rows can collide under the target's own unique keys, read once for each structure of a table.

Keys that somebody adds to the target's table by hand while the task runs are seen by the next session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pidts.model import Table, TableName
from pidts.reduce import UniqueKey, watched_columns


class CollisionColumns:
    """Belongs to one session."""

    def __init__(self, read: Callable[[TableName], Iterable[UniqueKey]]) -> None:
        self._read = read
        self._known: dict[TableName, tuple[Table, tuple[str, ...]]] = {}

    def of(self, table: Table) -> tuple[str, ...]:
        """Returns the collision columns of rows that have this structure."""
        known = self._known.get(table.name)
        if known is None or (known[0] is not table and known[0] != table):
            known = self._known[table.name] = (table, watched_columns(table, self._read(table.name)))
        return known[1]

    def forget(self) -> None:
        """Forgets all answers; called after DDL."""
        self._known.clear()
