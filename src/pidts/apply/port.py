"""The port to a target: what a target offers, and the rules for every method.

A target satisfies these protocols by shape and imports nothing from here. `docs/internals/adding-a-target.md` says in
which order to implement them.

Rules that hold for every method:

- Between `begin` and `commit` nothing is visible to others, and a lost session leaves nothing behind.
- A session belongs to one thread.
- A driver's errors never get out: what may pass on a second try is `Transient`; what a person must look at is `Halted`
  and names the table.
- After a `Transient` the session may be dead. The caller closes it and connects again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pidts.apply.meta_port import Meta
from pidts.model import Rendered, Table, TableName
from pidts.reduce import NetChange
from pidts.schema import Statement


class TargetSchema(Protocol):
    """The structures of the target's tables, and the statements that change them, for `TargetSession.execute`."""

    @property
    def transactional_ddl(self) -> bool:
        """True if DDL is part of the transaction around it."""

    @property
    def holds_unreal_dates(self) -> bool:
        """True if zero dates, and others that are in no calendar, are stored as they are; else they are NULL."""

    def structure(self, name: TableName) -> Table | None:
        """Returns the table as it is on the target: names, nullability and keys are exact, types the nearest ones."""

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns the columns by which rows of different identity can collide: see `reduce.collision_columns`."""

    def misfits(self, table: Table) -> list[str] | None:
        """Says why rows of this structure cannot be written to the target's table; None if there is no table."""

    def computed_otherwise(self, table: Table) -> list[str]:
        """Says which columns the target may compute in another way than the source does; part of `misfits`."""

    def fingerprint(self, name: TableName) -> str | None:
        """Returns a text that changes whenever the table's structure does, and only then; None without such a table."""

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the type of each column as `create_statements` would make it."""

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """Creates the table with all its keys; `before_copy` without those that `finish_statements` makes."""

    def finish_statements(self, table: Table) -> Rendered:
        """Completes a table whose rows are copied: keys that were left out, counters behind the highest value.

        It returns only what is missing now: the caller may ask again at any time, and asks again when not all of it was
        executed, but for what may be done later.
        Sessions that have written to the table do not know of its new keys: close them.
        """

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """Makes the same schema change here; each statement of the list is atomic by itself. Names are target names.

        `executed_at` is the source's clock in seconds since 1970, for columns whose default is the current time.
        """


class TargetSession(Protocol):
    """One connection to a target: its transaction and its rows; `meta` and `schema` work in the same transaction."""

    @property
    def meta(self) -> Meta:
        """The records in `pidts_meta`."""

    @property
    def schema(self) -> TargetSchema:
        """The structures of the target's tables."""

    @property
    def trips(self) -> int:
        """The round trips to the server so far."""

    def clock(self) -> float:
        """Asks the server for its clock, in seconds since 1970: one round trip, in which it looks up nothing."""

    def begin(self, origin: str = "") -> None:
        """Open a transaction in which each statement sees what is committed at that moment (READ COMMITTED).

        `origin` names the zone from which its rows come, where that is not the source's own.
        """

    def commit(self) -> None:
        """Make it durable. A `Transient` out of here means: nobody knows whether it is."""

    def rollback(self) -> None:
        """Undo; never raises, also not on a dead session."""

    def close(self) -> None:
        """Give up the open transaction and the connection; never raises."""

    def write(self, change: NetChange) -> None:
        """Remove `deletes`, then write `upserts`; rows that are there already are overwritten by identity only."""

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Add rows that nobody is believed to have, in the open transaction, by the fastest way that changes no value.

        False if a row, or a value of a unique key, is there already, or twice among these: then the transaction is as
        it was before this call.
        """

    def clear(self, name: TableName) -> None:
        """Remove all rows of a table, in the open transaction."""

    def read_rows(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
        lock: bool = False,
        only: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows in `table.arrow`: those with the identities of `keys`, or the next `limit` past `after` by identity.

        `only` asks for those with these texts in these columns of them, as the server compares texts; not with `keys`.
        In a transaction it sees what the transaction has written. With `lock` nobody else changes these rows before the
        transaction ends; rows that are missing are not kept out.
        """

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns keys with each text in one form for all texts that the target's column treats as equal.

        Different texts may have the same form, too. The method reads no row. A key keeps its form for as long as the
        column has its type and collation.
        """

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the places at which the target holds the two keys equal; it reads no row."""

    def count(self, name: TableName) -> int:
        """Number of rows."""

    def execute(self, sql: str, origin: str = "") -> None:
        """Run one statement of `schema`; `origin` as for `begin`."""


class Target(Protocol):
    """Where to connect; picklable, since it travels to Spark's tasks."""

    def connect(self) -> TargetSession:
        """A new session."""
