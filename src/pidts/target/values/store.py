"""The store of the in-memory target: everything that a server would keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pidts.model import Checkpoint, DdlJournal, Lsn, RecordKey, Table, TableName, Tombstone
from pidts.target.values.halts import HaltStore
from pidts.target.values.locks import Locks
from pidts.target.values.moves import MoveStore
from pidts.target.values.rows import Row, StoredTable
from pidts.target.values.shadows import ShadowStore

Hook = Callable[[str], None]

Worker = tuple[str, str, int]


@dataclass(slots=True)
class Store:
    """Everything that a server would keep."""

    tables: dict[TableName, StoredTable] = field(default_factory=dict)
    checkpoints: dict[Worker, Checkpoint] = field(default_factory=dict)
    structures: dict[tuple[str, RecordKey, TableName], Table] = field(default_factory=dict)
    journals: dict[tuple[str, str, Lsn], DdlJournal] = field(default_factory=dict)
    tombstones: dict[tuple[TableName, str], Tombstone] = field(default_factory=dict)
    safe_until: dict[tuple[str, str], Lsn | None] = field(default_factory=dict)
    notes: dict[tuple[str, RecordKey, TableName], str] = field(default_factory=dict)
    halts: HaltStore = field(default_factory=HaltStore)
    shadows: ShadowStore = field(default_factory=dict)
    moves: MoveStore = field(default_factory=dict)
    locks: Locks = field(default_factory=Locks)
    hook: Hook | None = None
    folds: bool = False
    commits: int = 0

    def content(self, name: TableName) -> dict[Row, dict[str, Any]]:
        """A table's committed rows, by identity and column name; times are the numbers that Arrow holds."""
        stored = self.tables[name]
        names = [column.name for column in stored.table.columns]
        return {key: dict(zip(names, row, strict=True)) for key, row in stored.rows.items()}

    def keep_structures(self, task: str, key: RecordKey, structures: Mapping[TableName, Table | None]) -> None:
        """Saves structures; None forgets the table."""
        for name, table in structures.items():
            if table is None:
                self.structures.pop((task, key, name), None)
            else:
                self.structures[task, key, name] = table
