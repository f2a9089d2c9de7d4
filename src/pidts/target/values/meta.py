"""The records of the target in memory; within a transaction they are visible at COMMIT."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pidts.model import Checkpoint, DdlJournal, Lsn, RecordKey, Table, TableName, Tombstone
from pidts.target.checkpoints import claimed_rows, no_checkpoint
from pidts.target.values.connection import ValuesConnection
from pidts.target.values.halts import ValuesHalts, ValuesOrders
from pidts.target.values.locks import Lock
from pidts.target.values.moves import ValuesMoves
from pidts.target.values.shadows import ValuesShadows


class ValuesMeta:
    """The records in memory, as one session reads and writes them."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection
        self.checkpoints = ValuesCheckpoints(connection, self)
        self.structures = ValuesStructures(connection)
        self.journal = ValuesJournal(connection)
        self.notes = ValuesNotes(connection)
        self.tombstones = ValuesTombstones(connection)
        self.safe_range = ValuesSafeRange(connection)
        self.halts = ValuesHalts(connection.store.halts, connection.at_commit)
        self.orders = ValuesOrders(connection.store.halts, connection.at_commit)
        self.shadows = ValuesShadows(connection.store.shadows, connection.at_commit)
        self.moves = ValuesMoves(connection.store.moves, connection.at_commit)
        connection.at_end.append(self.moves.reset)

    def prepare(self) -> None:
        """Does nothing: there is nothing to create."""

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Held by name until left or closed."""
        name: Lock = ("ddl", task, source)
        self._connection.lock(name)
        try:
            yield
        finally:
            self._connection.store.locks.release(self._connection, lambda lock: lock == name)

    def leave_unfinished(self, name: TableName) -> None:
        """Does nothing: nobody else makes tables here, so keys that are missing were left out."""


class ValuesCheckpoints:
    """The checkpoints of one session."""

    def __init__(self, connection: ValuesConnection, meta: ValuesMeta) -> None:
        self._connection, self._meta = connection, meta

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Waits for nobody: what is locked is an error at once."""
        stored = self.read(task, source)
        for row in stored:
            self._connection.lock(("row", task, source, row.worker))
        with self._meta.ddl_lock(task, source):
            claimed, rewrite = claimed_rows(stored, task, source, workers, start)
            if rewrite:
                for row in stored:
                    del self._connection.store.checkpoints[task, source, row.worker]
            self._connection.store.checkpoints.update({(task, source, row.worker): row for row in claimed})
            for landed in self._meta.moves.target_tables(task, source) if claimed[0].epoch == 1 else ():
                self._meta.moves.forget(task, source, landed)
        self._connection.end()
        return claimed

    def read(self, task: str, source: str) -> list[Checkpoint]:
        """Returns the committed checkpoints."""
        found = [row for (its, of, _), row in self._connection.store.checkpoints.items() if (its, of) == (task, source)]
        return sorted(found, key=lambda row: row.worker)

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """A lock that another session holds is the lock wait timeout of a server."""
        self._connection.demand_open()
        self._connection.lock(("row", task, source, worker))
        self._connection.at("lock")
        if (task, source, worker) not in self._connection.store.checkpoints:
            raise no_checkpoint(task, source, worker)
        return self._connection.store.checkpoints[task, source, worker]

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Waits for nobody, either."""
        self._connection.demand_open()
        for row in self.read(task, source):
            self._connection.store.locks.share(("row", task, source, row.worker), self._connection)
        self._connection.at("lock_shared")
        return self.read(task, source)

    def save(self, checkpoint: Checkpoint) -> None:
        """Saves the checkpoint, visible at COMMIT."""
        self._connection.demand_open()
        self._connection.written_checkpoints[checkpoint.task, checkpoint.source, checkpoint.worker] = checkpoint
        self._connection.at("save")


class ValuesStructures:
    """The structures of the sources' tables."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def save(self, task: str, key: RecordKey, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Visible at COMMIT."""
        del lsn
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.keep_structures(task, key, structures))

    def load(self, task: str, key: RecordKey) -> dict[TableName, Table]:
        """Committed ones."""
        saved = self._connection.store.structures
        return {name: table for (its, of, name), table in saved.items() if (its, of) == (task, key)}

    def tables(self) -> list[tuple[str, RecordKey, TableName]]:
        """Committed ones."""
        return list(self._connection.store.structures)


class ValuesJournal:
    """The schema changes that were begun."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Committed ones."""
        return self._connection.store.journals.get((task, source, lsn))

    def write(self, journal: DdlJournal) -> None:
        """Visible at COMMIT."""
        self._connection.demand_open()
        place, saved = (journal.task, journal.source, journal.lsn), replace(journal, saved_at=time.time())
        self._connection.later.append(lambda: self._connection.store.journals.update({place: saved}))
        self._connection.at("journal")


class ValuesNotes:
    """One text for each table."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, key: RecordKey, name: TableName) -> str:
        """Committed."""
        return self._connection.store.notes.get((task, key, name), "")

    def write(self, task: str, key: RecordKey, name: TableName, text: str) -> None:
        """Visible at COMMIT."""
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.notes.update({(task, key, name): text}))


class ValuesTombstones:
    """The rows that were deleted under a version column."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Committed ones and the transaction's own."""
        there = {**self._connection.store.tombstones, **self._connection.buried}
        return [there[name, key] for key in keys if (name, key) in there]

    def write(self, name: TableName, tombstones: Sequence[Tombstone]) -> None:
        """Visible at COMMIT."""
        self._connection.demand_open()
        self._connection.buried.update({(name, tomb.key): tomb for tomb in tombstones})


class ValuesSafeRange:
    """The changes that are written in safe mode."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, source: str) -> Lsn | None:
        """Committed."""
        return self._connection.store.safe_until.get((task, source))

    def save(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Visible at COMMIT."""
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.safe_until.update({(task, source): lsn}))
