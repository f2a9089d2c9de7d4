"""What a target must offer. Targets satisfy these protocols by shape and import nothing from here.

Rules that hold for every method:

- Between `begin` and `commit` nothing is visible to others, and a lost session leaves nothing behind.
- A session belongs to one thread.
- A driver's errors never get out: what may pass on a second try is `Transient`; what a person must look at is `Halted`
  and names the table.
- After a `Transient` the session may be dead. The caller closes it and connects again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from pidts.model import (
    Checkpoint,
    DdlJournal,
    DdlOrder,
    Halt,
    Lsn,
    Moved,
    Rendered,
    Shadow,
    Table,
    TableName,
    Tombstone,
)
from pidts.reduce import NetChange
from pidts.schema import Statement


class HaltRecord(Protocol):
    """What a target remembers of tables that wait for an operator, and of the orders about schema changes.

    Writing is part of the open transaction, where there is one.
    """

    def halts(self, task: str, source: str) -> list[Halt]:
        """What stands still, as far as it was told."""

    def tell(self, task: str, source: str, halt: Halt) -> None:
        """Insert or overwrite."""

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """These are over; without names, all."""

    def orders(self, task: str, source: str) -> list[DdlOrder]:
        """All that were ever given, in the order of the log."""

    def order(self, task: str, source: str, lsn: Lsn) -> DdlOrder | None:
        """The one about the change at this place."""

    def give(self, task: str, source: str, order: DdlOrder) -> None:
        """In the place of an earlier one, with the next number."""

    def take(self, task: str, source: str, order: DdlOrder) -> bool:
        """False where it does not stand any more; else nobody changes it before the transaction ends."""


class ShadowRecord(Protocol):
    """What a target remembers of online schema changes that are under way, by the source's names.

    Writing is part of the open transaction, where there is one.
    """

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """All of them."""

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Insert or overwrite; None forgets."""

    def begin(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """These and no others."""


class MoveRecord(Protocol):
    """What a target remembers of keys that tables which become one have got while one of them was behind.

    `landed` is the table of the target. Writing is part of the open transaction, and reading sees what it has written.
    """

    def any(self, task: str, source: str, landed: TableName) -> bool:
        """Whether something is remembered."""

    def find(self, task: str, source: str, landed: TableName, keys: Sequence[str]) -> list[Moved]:
        """Who has got one of these keys."""

    def got(self, task: str, source: str, landed: TableName, moved: Sequence[Moved]) -> None:
        """Insert or overwrite."""

    def gave(self, task: str, source: str, landed: TableName, member: TableName, keys: Sequence[str]) -> None:
        """This member has these keys no more."""

    def renamed(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Members have other names, all at once; what is remembered of an earlier member of a new name stays."""

    def landings(self, task: str, source: str) -> list[TableName]:
        """Tables of the target of which something is remembered."""

    def forget(self, task: str, source: str, landed: TableName) -> None:
        """All of it."""


class TargetSession(Protocol):
    """One connection to a target."""

    @property
    def halts(self) -> HaltRecord:
        """What waits for an operator, and the operator's orders."""

    @property
    def shadows(self) -> ShadowRecord:
        """Online schema changes that are under way."""

    @property
    def moves(self) -> MoveRecord:
        """Keys that may have moved."""

    @property
    def transactional_ddl(self) -> bool:
        """True where DDL is part of the transaction around it."""

    def begin(self) -> None:
        """Open a transaction in which each statement sees what is committed at that moment (READ COMMITTED)."""

    def commit(self) -> None:
        """Make it durable. A `Transient` out of here means: nobody knows whether it is."""

    def rollback(self) -> None:
        """Undo; never raises, also not on a dead session."""

    def close(self) -> None:
        """Give up the open transaction and the connection; never raises."""

    def prepare_meta(self) -> None:
        """Create the tables of `pidts_meta` where they are missing; outside of transactions."""

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Take the task over: after this, every holder of an older epoch is refused. Outside of transactions.

        Missing rows begin at `start`. Another number of workers than before is accepted only where all rows are at the
        same place; else Halted "worker-count-changed".
        """

    def checkpoints(self, task: str, source: str) -> list[Checkpoint]:
        """All workers' rows by worker, without locks; empty where the task never ran."""

    def lock_checkpoint(self, task: str, source: str, worker: int) -> Checkpoint:
        """The worker's row, locked until the transaction ends, as it is after every earlier holder has ended."""

    def hold(self, task: str, source: str) -> list[Checkpoint]:
        """All workers' rows, which nobody changes before the transaction ends; many may hold them side by side.

        As they are after every earlier change of them has ended. Empty where the task never ran.
        """

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Overwrite the worker's row."""

    def write(self, change: NetChange) -> None:
        """Remove `deletes`, then write `upserts`; rows that are there already are overwritten by identity only."""

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Add rows that nobody is believed to have, in the open transaction, by the fastest way that changes no value.

        False if a row, or a value of a unique key, is there already, or twice among these: then the transaction is as
        it was before this call.
        """

    def clear(self, name: TableName) -> None:
        """Remove all rows of a table, in the open transaction."""

    def noted(self, task: str, source: str, name: TableName) -> str:
        """What `note` was told last under this name; empty where it never was, or an earlier task was."""

    def note(self, task: str, source: str, name: TableName, text: str) -> None:
        """Remember in the open transaction how a table was loaded as a whole; without a name, the task's rules."""

    def structure(self, name: TableName) -> Table | None:
        """The table as it is on the target: names, nullability and keys are exact, types are the nearest ones."""

    def watched(self, table: Table) -> tuple[str, ...]:
        """Columns by which rows that differ in their identity can collide here, see `pidts.reduce.watched`."""

    def misfits(self, table: Table) -> list[str] | None:
        """Why rows of this structure cannot be written to the target's table; None where there is no such table."""

    def fingerprint(self, name: TableName) -> str | None:
        """A text that changes whenever the table's structure does, and only then; None where there is no table."""

    def column_types(self, table: Table) -> tuple[str, ...]:
        """The type of each column as `create_statements` would make it."""

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """How to create the table with all its keys; `before_copy` without those that `finish_statements` makes."""

    def leave_unfinished(self, name: TableName) -> None:
        """Remember that `create_statements` was told to leave out keys of this table; in the same transaction."""

    def finish_statements(self, table: Table) -> Rendered:
        """What a table needs when its rows are copied: keys that were left out, counters behind the highest value.

        Only what is missing now: it may be asked for again at any time, and is when not all of it was executed, but for
        what may be done later.
        Sessions that have written to the table do not know of its new keys: close them.
        """

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """The same schema change here; each statement of the list is atomic by itself. All names are target names.

        `executed_at` is the source's clock in seconds since 1970, for columns whose default is the current time.
        """

    def execute(self, sql: str) -> None:
        """Run one of these statements."""

    def ddl_lock(self, task: str, source: str) -> AbstractContextManager[None]:
        """Keep `claim` and every other holder of this lock out until it is left or the session has ended."""

    def save_structures(self, task: str, source: str, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Remember the source's structures as of `lsn`; None forgets the table."""

    def load_structures(self, task: str, source: str) -> dict[TableName, Table]:
        """What was saved last."""

    def known(self) -> list[tuple[str, str, TableName]]:
        """Of which tables structures are kept: task, source and the source's name, of all tasks that have run here."""

    def read_journal(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """The schema change at `lsn`, if it was begun."""

    def write_journal(self, journal: DdlJournal) -> None:
        """Insert or overwrite it."""

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

    def tombstones(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Those of these keys of a table that there are."""

    def bury(self, name: TableName, tombstones: Sequence[Tombstone]) -> None:
        """Insert or overwrite in the open transaction; tombstones that are much too old may go on the way."""

    def safe_until(self, task: str, source: str) -> Lsn | None:
        """Up to where changes may have been applied before the task's first start, and are written in safe mode."""

    def save_safe_until(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Overwrite it, in the open transaction."""

    def count(self, name: TableName) -> int:
        """Number of rows."""


class Target(Protocol):
    """Where to connect; picklable, since it travels to Spark's tasks."""

    def connect(self) -> TargetSession:
        """A new session."""
