"""The records that a target keeps in `pidts_meta`: checkpoints, structures, schema changes, halts, ddl commands, locks.

A target implements these protocols without importing them. The rules for every method in `pidts.apply.port` hold here,
too. A write is part of the open transaction, if there is one, and becomes visible with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pidts.model import (
    Checkpoint,
    Cutover,
    DdlCommand,
    DdlJournal,
    EarlyRemoval,
    Halt,
    HeldChanges,
    LeftOut,
    Lsn,
    MovedKey,
    RangeOwner,
    RecordKey,
    RowLock,
    Shadow,
    Table,
    TableName,
    Tombstone,
    Tombstones,
)


class CheckpointRecord(Protocol):
    """The position of each worker of a task, and the epoch of the run that may write."""

    def claim(
        self,
        task: str,
        source: str,
        workers: int,
        start: Checkpoint,
        *,
        read: int | None = None,
        on_claim: Callable[[int], None] = lambda _: None,
    ) -> list[Checkpoint]:
        """Takes the task over: after this, every run with an older epoch is refused. Called outside of transactions.

        If the task has no checkpoint yet, all workers' rows begin at `start`. Another number of workers is accepted
        only if all rows are at the same place in the log; otherwise the error is Halted "worker-count-changed".

        `read` is the epoch that the caller has read. If the rows have another epoch now, another run has claimed the
        task since. Then nothing is claimed, and the error is Transient "task-taken". `on_claim` receives the epoch of
        the claim just before COMMIT: if the answer is lost, the claim may have been made.
        """

    def read(self, task: str, source: str) -> list[Checkpoint]:
        """Returns all workers' rows in the order of workers, without locking them; empty if the task never ran."""

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Locks the worker's row until the transaction ends; returns it as the last such transaction has left it."""

    def advance(self, left: Checkpoint, new: Checkpoint) -> bool:
        """If the worker's row equals `left`, locks it as `lock` does and overwrites it with `new`.

        If the row does not equal `left`, this call or a later one, `commit` at the latest, raises `OtherCheckpoint`,
        and nothing of the transaction takes effect. `left` was saved and committed before. If the target cannot do this
        without a round trip, the call does nothing and returns False. The caller then calls `lock` and `save`.
        """

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Returns all workers' rows, locked until the transaction ends. Several transactions may share these locks.

        The call waits until every earlier change of the rows has ended. The list is empty if the task never ran.
        """

    def lock_places(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows as `lock_shared` does, and returns them, perhaps without the progress of copies (`copy`).

        The progress of thousands of copies is a long text, so a session reads it only if a row has new values. If only
        this text was changed by hand, perhaps only the next batch notices it.
        """

    def save(self, checkpoint: Checkpoint) -> None:
        """Overwrites the worker's row."""


class StructureRecord(Protocol):
    """The structures of source tables and merged tables, as of the last schema change of each task."""

    def save(self, task: str, key: RecordKey, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Inserts or overwrites the structures as of `lsn`; None removes a table's structure."""

    def load(self, task: str, key: RecordKey) -> dict[TableName, Table]:
        """Returns the structures that were saved last."""

    def tables(self, task: str | None = None) -> list[tuple[str, RecordKey, TableName]]:
        """Returns the task, key and table of each saved structure, of all tasks that ran on this target or of one."""


class JournalRecord(Protocol):
    """The schema changes that were begun on this target."""

    def read(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Returns the schema change at `lsn`; None if it was not begun."""

    def write(self, journal: DdlJournal) -> None:
        """Inserts or overwrites the entry of a schema change."""


class NoteRecord(Protocol):
    """One text for each table of a source and for each merged table, such as the result of loading a whole table."""

    def read(self, task: str, key: RecordKey, name: TableName) -> str:
        """Returns the task's last text; empty if there is none, or if only an earlier task of this name wrote one."""

    def write(self, task: str, key: RecordKey, name: TableName, text: str) -> None:
        """Overwrites the text. The note without a table's name has the task's rules."""

    def places(self, name: TableName) -> list[tuple[str, RecordKey]]:
        """Returns the task and the key of each text of this table that is not empty; the order is always the same."""


class TombstoneRecord(Protocol):
    """Deleted rows of tables with a version column, kept so that an older event does not bring them back."""

    def read(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Returns those tombstones of a table that have these keys."""

    def write(self, name: TableName, tombstones: Tombstones) -> None:
        """Inserts or overwrites tombstones. COMMIT may remove tombstones that are older than the target's limit."""


class SafeRangeRecord(Protocol):
    """The changes that may have been applied before the task's first start, and so are written in safe mode."""

    def read(self, task: str, source: str) -> Lsn | None:
        """Returns the place of the last change that is written in safe mode; None if there is none."""

    def save(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Overwrites the place of the last change that is written in safe mode; None: there is none."""


class HaltRecord(Protocol):
    """The tables that wait for an operator, with the reasons."""

    def read(self, task: str, source: str) -> list[Halt]:
        """Returns all halts, in log order."""

    def save(self, task: str, source: str, halt: Halt) -> None:
        """Inserts or overwrites a halt."""

    def overwrite(self, task: str, source: str, halt: Halt) -> None:
        """Overwrites a halt, if it is still recorded."""

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """Removes the halts at these places; without `places`, all halts."""


class DdlCommandRecord(Protocol):
    """The ddl commands of operators for schema changes in the log."""

    def read(self, task: str, source: str) -> list[DdlCommand]:
        """Returns all ddl commands that were ever given, in log order."""

    def find(self, task: str, source: str, lsn: Lsn) -> DdlCommand | None:
        """Returns the ddl command for the change at this place; None if there is none."""

    def give(self, task: str, source: str, command: DdlCommand) -> None:
        """Saves a ddl command, which replaces an earlier one for the same change and gets the next number."""

    def take(self, task: str, source: str, command: DdlCommand) -> bool:
        """Marks the ddl command as taken until the transaction ends. False: another command has replaced `command`."""


class ShadowRecord(Protocol):
    """The online schema changes that are under way, keyed by the source's names."""

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """Returns all online schema changes that are under way."""

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Inserts or overwrites the record of a table; None removes it."""

    def replace(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """Replaces all records of online schema changes by these."""


class MoveRecord(Protocol):
    """The keys that members of a merged table have got while one of the members lagged.

    `target_table` is the name of the merged table on the target. Reading sees what the transaction has written.
    """

    def any(self, task: str, source: str, target_table: TableName) -> bool:
        """Returns whether the merged table has entries."""

    def find(self, task: str, source: str, target_table: TableName, keys: Sequence[str]) -> list[MovedKey]:
        """Returns the members that have got one of these keys."""

    def add(self, task: str, source: str, target_table: TableName, moved: Sequence[MovedKey]) -> None:
        """Inserts or overwrites entries."""

    def remove(self, task: str, source: str, target_table: TableName, member: TableName, keys: Sequence[str]) -> None:
        """Removes the entries of keys that this member does not have any more."""

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames members, all at once. Entries of an earlier member with one of the new names stay."""

    def target_tables(self, task: str, source: str) -> list[TableName]:
        """Returns the names that the merged tables with entries have on the target."""

    def forget(self, task: str, source: str, target_table: TableName) -> None:
        """Removes all entries of the table."""


class RereadRecord(Protocol):
    """The keys of rows that a copy has to read again from the source, since the log did not have the whole rows.

    Tables have the source's names. A read need not see the writes of its own transaction.
    """

    def add(self, task: str, source: str, name: TableName, lsn: Lsn, keys: str) -> None:
        """Inserts or overwrites the keys that belong to a place in the log."""

    def read(self, task: str, source: str, name: TableName, after: Lsn, most: int) -> list[tuple[Lsn, str]]:
        """Returns the next keys after a place, in log order."""

    def forget(self, task: str, source: str, name: TableName, upto: Lsn) -> None:
        """Removes the keys up to a place in the log."""

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames tables, all at once. Keys of an earlier table with one of the new names are removed."""


class CutoverRecord(Protocol):
    """The cutovers. A recorded cutover tells a run that it must end, and that its task must not run again."""

    def read(self, task: str) -> Cutover | None:
        """Returns the cutover of a task; None if none has begun."""

    def replace(self, task: str, before: Cutover | None, after: Cutover | None) -> bool:
        """Saves `after` if the committed record is `before`; returns whether it was saved. None: there is no record.

        If `after` is None, the structures at the switch are removed, too. If two commands replace the same record at
        the same time, only one of them gets True.
        """

    def save_structures(self, task: str, tables: Iterable[Table]) -> None:
        """Overwrites the structures that the server's tables have at the switch."""

    def keep_undone(self, task: str, record: Cutover) -> None:
        """Keeps the record and the structures of a switch that is undone, in place of those of an earlier one."""

    def undone(self, task: str) -> Cutover | None:
        """Returns the record of the task's last switch that was undone; None if there is none."""


class RangeOwnerRecord(Protocol):
    """The owners of ranges of rows that have moved from zone to zone; shared by all tasks that write to this target."""

    def read(self) -> list[RangeOwner]:
        """Returns all committed owners."""

    def recorded(self) -> list[RangeOwner]:
        """Returns the same as `read`, even on a target where no task has run."""

    def lock(self, id_: str) -> RangeOwner | None:
        """Returns the record of a range, or None; nobody else changes it before the transaction ends."""

    def save(self, owner: RangeOwner) -> None:
        """Inserts or overwrites the record of a range."""


class RowLockRecord(Protocol):
    """The locks of rows that are set aside, and the held changes of these rows. Tables have the target's names.

    A read sees the writes of its own transaction.
    """

    def tables(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the number of locked rows of each target table that has locked rows."""

    def ask(self, task: str, source: str) -> None:
        """Sends the query of `present` together with the transaction's next statement, if this saves a round trip."""

    def present(self, task: str, source: str, tables: Collection[TableName]) -> tuple[set[TableName], bool]:
        """Returns which of these tables have locked rows, and whether the target has any early removals."""

    def count(self, task: str, source: str, table: TableName) -> int:
        """Returns the number of locked rows of a table."""

    def recorded(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the same as `tables`, even on a target where the task has never run."""

    def read(self, task: str, source: str, table: TableName, *, waiting: bool = False) -> list[RowLock]:
        """Returns all locks of a table, or only those that wait for another lock; the oldest first."""

    def ids(self, task: str, source: str, table: TableName, origin: TableName | None = None) -> list[str]:
        """Returns the ids of a table's locks, the oldest first; with `origin` only the locks of that source table."""

    def some(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks that exist among these ids; some may have been resolved meanwhile."""

    def among(self, task: str, source: str, table: TableName, ids: Collection[str]) -> set[str]:
        """Returns which of these ids are ids of locks."""

    def of_forms(self, task: str, source: str, table: TableName, forms: Collection[str]) -> list[RowLock]:
        """Returns the locks with one of these forms. A form is the digest of a key as the target compares it."""

    def without_form(self, task: str, source: str, table: TableName, start: str) -> list[str]:
        """Returns the ids of locks whose `form` does not begin with `start`; only for tables with texts in keys."""

    def give_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Saves the new `form` of each lock. This transaction must have locked the records of these locks."""

    def lock(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks that still exist among these ids; nobody else resolves them before the transaction ends."""

    def add(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts locks."""

    def change(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites the records of these locks. This transaction must have locked the records (`lock`)."""

    def hold(self, task: str, source: str, table: TableName, held: Sequence[HeldChanges]) -> None:
        """Inserts held changes."""

    def held(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[HeldChanges]:
        """Returns the held changes of these locks. The changes of a lock are in the order of the log."""

    def remove(self, task: str, source: str, table: TableName, ids: Collection[str]) -> None:
        """Removes locks with their held changes."""

    def forget(self, task: str, source: str, table: TableName) -> None:
        """Removes all locks of a table."""


class EarlyRemovalRecord(Protocol):
    """The keys at which a task had to delete a row and found none. Tables have the target's names."""

    def add(self, task: str, source: str, table: TableName, removals: Mapping[str, int]) -> None:
        """Inserts or overwrites the entries of these keys. The values are the times of the removals.

        `removals` may also have the digests of changes that were already made (`pidts.apply.locks.already_applied`).
        """

    def of_other_tasks(self, task: str, source: str, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns other tasks' entries for these keys. The target may have removed entries that are some days old."""

    def of_all_tasks(self, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the entries that all tasks have made for these keys."""

    def any_since(self, table: TableName, since: int) -> bool:
        """Whether the table may have entries from `since` on, or with an unknown time."""

    def forget(self, table: TableName, keys: Collection[str]) -> None:
        """Removes the entries that all tasks have made for these keys."""

    def show_left_out(self, task: str, source: str, table: TableName, notes: Sequence[LeftOut]) -> None:
        """Writes notes to the target's log, in the open transaction: inserts them into a table, and deletes them."""


class Meta(Protocol):
    """All records of one session in `pidts_meta`."""

    @property
    def checkpoints(self) -> CheckpointRecord:
        """The position of each worker."""

    @property
    def structures(self) -> StructureRecord:
        """The structures of the source's tables."""

    @property
    def journal(self) -> JournalRecord:
        """The schema changes that were begun."""

    @property
    def notes(self) -> NoteRecord:
        """The notes: one text for each table."""

    @property
    def tombstones(self) -> TombstoneRecord:
        """Deleted rows of tables with a version column."""

    @property
    def safe_range(self) -> SafeRangeRecord:
        """The changes that are written in safe mode."""

    @property
    def halts(self) -> HaltRecord:
        """The tables that wait for an operator."""

    @property
    def ddl_commands(self) -> DdlCommandRecord:
        """The ddl commands of operators."""

    @property
    def shadows(self) -> ShadowRecord:
        """The online schema changes that are under way."""

    @property
    def moves(self) -> MoveRecord:
        """The keys that may have moved between the members of a merged table."""

    @property
    def rereads(self) -> RereadRecord:
        """The keys of the rows that a copy has to read again from the source."""

    @property
    def cutovers(self) -> CutoverRecord:
        """The cutovers to this target."""

    @property
    def range_owners(self) -> RangeOwnerRecord:
        """The owners of ranges of rows that have moved."""

    @property
    def row_locks(self) -> RowLockRecord:
        """The rows that are set aside."""

    @property
    def early_removals(self) -> EarlyRemovalRecord:
        """The removals of rows that the target did not have."""

    def prepare(self) -> None:
        """Creates the missing tables of `pidts_meta`, outside of transactions."""

    def ddl_lock(self, task: str, source: str) -> AbstractContextManager[None]:
        """Holds the lock of schema changes until the context or the session ends. `checkpoints.claim` needs it, too."""

    def leave_unfinished(self, name: TableName) -> None:
        """Records, in the transaction that creates a table, that `create_statements` has left out keys of the table."""
