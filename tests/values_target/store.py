"""The store of the in-memory target: everything that a server would store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.values_target.rows import Row, StoredTable

from pidts.model import (
    Checkpoint,
    Cutover,
    DdlCommand,
    DdlJournal,
    Halt,
    HeldChanges,
    LeftOut,
    Lsn,
    RangeOwner,
    RecordKey,
    RowLock,
    Shadow,
    Table,
    TableName,
    Tombstone,
    Transient,
)

Hook = Callable[[str], None]

Worker = tuple[str, str, int]
Lock = tuple[str | int, ...]
MoveStore = dict[tuple[str, str, TableName, str, TableName], Lsn]
"""The Lsn by task, source, target table, key and member."""


@dataclass(slots=True)
class Locks:
    """The locks of all sessions.

    If another session has locked an object, an attempt to lock it fails at once, with the error that a server reports
    when the wait for a lock times out.
    """

    owned: dict[Lock, object] = field(default_factory=dict)
    shared: dict[Lock, set[object]] = field(default_factory=dict)
    """The sessions that share a lock."""

    def take(self, what: Lock, owner: object) -> None:
        """Locks an object for this owner alone."""
        if self.shared.get(what, set()) - {owner} or self.owned.setdefault(what, owner) is not owner:
            raise _busy(what)

    def share(self, what: Lock, owner: object) -> None:
        """Locks an object for this owner, and for others that share the lock."""
        if self.owned.get(what, owner) is not owner:
            raise _busy(what)
        self.shared.setdefault(what, set()).add(owner)

    def release(self, owner: object, which: Callable[[Lock], bool]) -> None:
        """Releases those locks of an owner for which `which` is true."""
        for what in [what for what, holder in self.owned.items() if holder is owner and which(what)]:
            del self.owned[what]
        for what, holders in self.shared.items():
            if which(what):
                holders.discard(owner)


def _busy(what: Lock) -> Transient:
    return Transient("target-busy", f"{what} is locked by another session")


@dataclass(slots=True)
class Store:
    """Everything that a server would store."""

    tables: dict[TableName, StoredTable] = field(default_factory=dict)
    checkpoints: dict[Worker, Checkpoint] = field(default_factory=dict)
    structures: dict[tuple[str, RecordKey, TableName], Table] = field(default_factory=dict)
    journals: dict[tuple[str, str, Lsn], DdlJournal] = field(default_factory=dict)
    tombstones: dict[tuple[TableName, str], Tombstone] = field(default_factory=dict)
    safe_until: dict[tuple[str, str], Lsn | None] = field(default_factory=dict)
    notes: dict[tuple[str, RecordKey, TableName], str] = field(default_factory=dict)
    halts: dict[tuple[str, str], dict[str, Halt]] = field(default_factory=dict)
    ddl_commands: dict[tuple[str, str], dict[Lsn, DdlCommand]] = field(default_factory=dict)
    shadows: dict[tuple[str, str], dict[TableName, Shadow]] = field(default_factory=dict)
    moves: MoveStore = field(default_factory=dict)
    rereads: dict[tuple[str, str, TableName], dict[Lsn, str]] = field(default_factory=dict)
    cutovers: dict[str, Cutover] = field(default_factory=dict)
    range_owners: dict[str, RangeOwner] = field(default_factory=dict)
    row_locks: dict[tuple[str, str, TableName, str], RowLock] = field(default_factory=dict)
    held: dict[tuple[str, str, TableName, str, Lsn], HeldChanges] = field(default_factory=dict)
    early_removals: dict[tuple[TableName, str, str, str], int] = field(default_factory=dict)
    left_out: list[tuple[str, str, TableName, LeftOut]] = field(default_factory=list)
    """Notes that are in no log yet."""
    locks: Locks = field(default_factory=Locks)
    hook: Hook | None = None
    folds: bool = False
    expects: bool = True
    refuses_known_keys: bool = False
    commits: int = 0
    origin: str = ""
    """The other zone from which the rows of the last transaction came, as given to `begin`."""

    def content(self, name: TableName) -> dict[Row, dict[str, Any]]:
        """Returns a table's committed rows, by identity and column name; times are the numbers of their Arrow arrays."""
        stored = self.tables[name]
        names = [column.name for column in stored.table.columns]
        return {key: dict(zip(names, row, strict=True)) for key, row in stored.rows.items()}

    def keep_structures(self, task: str, key: RecordKey, structures: Mapping[TableName, Table | None]) -> None:
        """Saves structures; None removes the table."""
        for name, table in structures.items():
            if table is None:
                self.structures.pop((task, key, name), None)
            else:
                self.structures[task, key, name] = table
