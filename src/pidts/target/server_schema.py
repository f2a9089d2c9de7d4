"""Reads the structures of the target's tables in the way that all servers share (`ServerSchema`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from pidts.model import Table, TableName
from pidts.reduce import UniqueKey, watched_columns


class TableShape(Protocol):
    """A table as a server's catalog describes it."""

    @property
    def table(self) -> Table:
        """Returns the structure."""

    def misfits(self, table: Table) -> list[str]:
        """Returns the reasons why rows of this structure cannot be written."""


S = TypeVar("S", bound=TableShape)


class ServerSchema(Generic[S]):
    """Reads the structures of the target's tables for one session.

    The columns of the target's own unique keys (`collision_columns`) are read once for each structure of a table. If
    somebody adds keys to the target's table while the task runs, the next session sees them.
    """

    def __init__(
        self, read_shape: Callable[[TableName], S | None], read_keys: Callable[[TableName], Iterable[UniqueKey]]
    ) -> None:
        self.shape, self._read_keys = read_shape, read_keys
        self._known: dict[TableName, tuple[Table, tuple[str, ...]]] = {}

    def structure(self, name: TableName) -> Table | None:
        """Returns the table's structure, read from the server's catalog; None if there is no such table."""
        shape = self.shape(name)
        return shape.table if shape else None

    def declared(self, name: TableName) -> Table | None:
        """Returns the same as `structure`; overridden if the server can show more of a table's declaration."""
        return self.structure(name)

    def misfits(self, table: Table) -> list[str] | None:
        """Returns why rows of this structure do not fit the server's table; None if there is no such table."""
        shape = self.shape(table.name)
        return shape.misfits(table) if shape else None

    def write_obstacles(self, name: TableName) -> list[str]:  # noqa: ARG002 - PostgreSQL overrides this method
        """Returns nothing: whether rows fit does not depend on what the account may do."""
        return []

    def computed_otherwise(self, table: Table) -> list[str]:  # noqa: ARG002 - PostgreSQL overrides this method
        """Returns nothing: `misfits` already refuses all generated columns."""
        return []

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns the columns of the target's own unique keys, in which rows can collide."""
        if not self._knows(table):
            self._known[table.name] = (table, watched_columns(table, self._read_keys(table.name)))
        return self._known[table.name][1]

    def read_ahead(self, tables: Iterable[Table]) -> None:
        """Does nothing: the session reads each table when a caller asks for it."""

    def _knows(self, table: Table) -> bool:
        """Whether the target's unique keys are known for this structure of the table."""
        known = self._known.get(table.name)
        return known is not None and (known[0] is table or known[0] == table)

    def forget(self) -> None:
        """Forgets what was read from the server's catalog; called after DDL."""
        self._known.clear()
