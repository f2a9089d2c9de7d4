"""PiDTS's own records in the catalog's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pidts.model import Checkpoint, TableName
from pidts.target.checkpoints import CheckpointRecord, no_checkpoint
from pidts.target.iceberg.catalog_tables import CATALOG_TABLES
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.iceberg.server_record import SERVER_TABLES
from pidts.target.meta import SharedRecords
from pidts.target.meta_schema import META_TABLES
from pidts.target.moves import MoveRecord
from pidts.target.tombstones import TombstoneRecord

_TYPES = {
    **dict.fromkeys(("name", "object", "text", "lsn", "code", "row_key"), "text NOT NULL"),
    "version": "text",
    **dict.fromkeys(("int", "long", "epoch", "seconds"), "integer NOT NULL"),
    "clock": "pidts_moment NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))",
}

_RETIRED_FILES = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.retired_file (table_location text NOT NULL, path text NOT NULL, "
    "since integer NOT NULL, first integer NOT NULL, next integer NOT NULL, PRIMARY KEY (table_location, path))"
)
"""Files that a table's current snapshot does not need, each with the time at which it became unnecessary.

Snapshots with sequence numbers from `first` on and below `next` may still need the file.
"""
_ORPHANS = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.orphan (table_location text NOT NULL, path text NOT NULL, "
    "since integer NOT NULL, PRIMARY KEY (table_location, path))"
)
"""Files that no snapshot and no record names any more, with the time at which a sweep has noticed this."""
_DROPPED_TABLES = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.dropped_table (location text NOT NULL PRIMARY KEY, since integer NOT NULL)"
)
"""The folders of dropped tables, with the time of the drop."""


class IcebergMeta(SharedRecords):
    """The records in the catalog's database, as one session reads and writes them."""

    def __init__(self, connection: CatalogConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection
        self.checkpoints = IcebergCheckpoints(connection)
        self.tombstones = TombstoneRecord(connection.run)
        self.moves = MoveRecord(connection.run)

    def prepare(self) -> None:
        """Creates the warehouse, and the missing tables in one transaction that locks the database."""
        self._connection.make_warehouse()
        with self._connection.transaction():
            for sql in (*CATALOG_TABLES, *SERVER_TABLES, _RETIRED_FILES, _ORPHANS, _DROPPED_TABLES):
                self._connection.run(sql, ())
            for name, table in META_TABLES.items():
                self._connection.run(f"CREATE TABLE IF NOT EXISTS pidts_meta.{name} ({table.columns(_TYPES)})", ())

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Locks a file until the block ends; the lock is also released when the process ends."""
        with self._connection.locked("ddl", task, source):
            yield

    def leave_unfinished(self, name: TableName) -> None:
        """Does nothing: an Iceberg table has no keys that have to be created later."""


class IcebergCheckpoints(CheckpointRecord):
    """The checkpoints of one session. A worker's lock is the lock of a file; the SQL statement checks the epoch."""

    def __init__(self, connection: CatalogConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection
        self.saved: Checkpoint | None = None
        """The checkpoint that the open transaction saved last. The snapshots of the transaction name it."""

    @contextmanager
    def _claiming(self, task: str, source: str) -> Iterator[None]:
        """Waits until no schema change runs and no worker of an earlier run has a lock, and then locks the database."""
        with self._connection.locked("ddl", task, source), self._connection.transaction():
            for row in self._rows(task, source):
                self._connection.lock("checkpoint", task, source, row.worker)
            self._connection.own_database()
            yield

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Returns the row, read under the lock: every earlier holder of the lock has committed by then."""
        self._connection.lock("checkpoint", task, source, worker)
        for row in self._rows(task, source):
            if row.worker == worker:
                return row
        raise no_checkpoint(task, source, worker)

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Returns the rows, read under all their locks."""
        for row in self._rows(task, source):
            self._connection.lock("checkpoint", task, source, row.worker, shared=True)
        return self._rows(task, source)

    def lock_places(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows as `lock_shared` does, and returns them with the progress of copies.

        Leaving out the progress would save little: each COMMIT to Iceberg takes longer than reading the progress.
        """
        return self.lock_shared(task, source)

    def save(self, checkpoint: Checkpoint) -> None:
        """Overwrites the row and remembers the checkpoint."""
        super().save(checkpoint)
        self.saved = checkpoint
