"""The port to a target: what a target offers, and the rules for every method.

A target implements these protocols without importing them. `docs/internals/adding-a-target.md` says in which order to
implement them.

Rules that hold for every method:

- Between `begin` and `commit` nothing is visible to others, and a lost session leaves no changes.
- A session belongs to one thread.
- A driver's errors are never passed on. An error becomes `Transient` if a second attempt may succeed. If an operator is
  needed, it becomes `Halted` and names the table.
- After a `Transient` the session may be dead. The caller closes it and connects again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pidts.apply.meta_port import Meta
from pidts.model import RenderedChange, Table, TableName
from pidts.reduce import NetChange
from pidts.schema import Statement
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime


class TargetSchema(Protocol):
    """The structures of the target's tables, and the statements that change them, for `TargetSession.execute`."""

    @property
    def transactional_ddl(self) -> bool:
        """True if a DDL statement is part of the open transaction, and is rolled back with it."""

    @property
    def holds_unreal_dates(self) -> bool:
        """True if zero and partial dates are stored unchanged; otherwise they become NULL."""

    def structure(self, name: TableName) -> Table | None:
        """Returns the target's table; None if there is none.

        Names, nullability and keys are the target's. A type is the MySQL type that is nearest to the target's type.
        """

    def declared(self, name: TableName) -> Table | None:
        """Returns the structure with the types and defaults of the table's declaration, as far as the target has these.

        None if there is no table. A call costs more than a call of `structure`.
        """

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns the columns by which rows with different identities can collide (`reduce.collision_columns`)."""

    def read_ahead(self, tables: Iterable[Table]) -> None:
        """Lets the target read in one step what the next calls need of these tables, if this is faster.

        Called before a batch is prepared. The target forgets this data when the transaction ends, or at the next call
        of this method.
        """

    def misfits(self, table: Table) -> list[str] | None:
        """Returns the reasons why the target's table cannot have rows of this structure; None if there is no table."""

    def write_obstacles(self, name: TableName) -> list[str]:
        """Returns the texts of `misfits` that do not matter to a session that only reads."""

    def computed_otherwise(self, table: Table) -> list[str]:
        """Returns the texts of `misfits` about columns that the target may compute differently from the source."""

    def fingerprint(self, name: TableName) -> str | None:
        """Returns a text that changes exactly when the table's structure does; None if there is no such table."""

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the type of each column as `create_statements` would make it."""

    def create_statements(self, table: Table, *, before_copy: bool = False) -> RenderedChange:
        """Returns statements that create the table; with `before_copy`, without the keys of `finish_statements`."""

    def finish_statements(self, table: Table) -> RenderedChange:
        """Returns statements that complete a copied table: they add left-out keys, and set counters above all values.

        The result has only statements for what the table lacks now. So the caller may ask at any time, and asks again
        if not all statements were executed. After the statements, the caller has to close sessions that have written to
        the table: they do not know its new keys.
        """

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: StatementTime = UNKNOWN_TIME,
    ) -> RenderedChange:
        """Returns statements that make the same schema change on the target; each of them is atomic by itself.

        `statement`, `before` and `after` have the target's names.

        `executed_at` is for new columns whose default is the current time.
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
        """The number of round trips to the server so far."""

    def clock(self) -> float:
        """Asks the server for its clock, in seconds since 1970: one round trip that reads no table."""

    def begin(self, origin: str = "") -> None:
        """Opens a transaction in which each statement sees all that was committed before it (READ COMMITTED).

        `origin` names the zone from which the transaction's rows come, if it is not the source's own zone.
        """

    def commit(self) -> None:
        """Makes the transaction durable. After a `Transient` it is not known whether the transaction is durable."""

    def rollback(self) -> None:
        """Rolls the open transaction back; never raises, not even on a dead session."""

    def close(self) -> None:
        """Rolls the open transaction back and closes the connection; never raises."""

    def write(self, change: NetChange) -> None:
        """Removes `deletes`, then writes `upserts`. Only a row with the same identity is overwritten.

        `expected` is given only if `can_expect` is true: this call or `commit` raises `Halted` if the target's row is
        not the row in `expected`. Such a target must not treat values with different bytes as equal. `is_new` is given
        only if `refuses_known_keys` is true: this call or `commit` raises `Halted` if the target has one of these rows.
        """

    def can_expect(self, table: Table) -> bool:
        """Whether `write` compares the rows of this table with `NetChange.expected`."""

    def refuses_known_keys(self, table: Table) -> bool:
        """Whether `write` refuses a row of `NetChange.is_new` if this table already has a row with the same key."""

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Adds rows that are expected to be new, in the open transaction, by the fastest way that changes no value.

        Returns False if one of the rows collides with a row of the target, or with another of these rows: in its key or
        in a unique value. Then the transaction is as it was before this call.
        """

    def clear(self, name: TableName) -> None:
        """Removes all rows of a table, in the open transaction."""

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
        """Returns rows with schema `table.arrow`: those with the identities `keys`, or the next `limit` after `after`.

        The next rows are in the order of the identity. `only`, never given with `keys`, asks for rows that have these
        texts in these columns, as the server compares texts. In a transaction, the transaction's own writes are
        visible. With `lock`, nobody else changes these rows before the transaction ends. Other sessions may insert rows
        that are missing.
        """

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the keys with a form in place of each text. Texts that the target treats as equal have the same form.

        Different texts may have the same form, too. The method reads no row. A key keeps its form as long as the column
        has its type and collation.
        """

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the indexes at which the target treats the keys of both lists as equal; reads no row."""

    def count(self, name: TableName) -> int:
        """Returns the number of rows of a table."""

    def execute(self, sql: str, origin: str = "") -> None:
        """Executes one statement of `schema`; `origin` as for `begin`."""


class Target(Protocol):
    """The data for connecting to a target, which can be pickled, since it is sent to Spark's tasks."""

    @property
    def piece_rows(self) -> int:
        """Returns the least number of rows that a copy commits at once. Only a table's last rows may be fewer."""

    @property
    def buffers_rows(self) -> bool:
        """Whether this process has all rows of a transaction in memory until the transaction ends."""

    def connect(self) -> TargetSession:
        """Returns a new session."""
