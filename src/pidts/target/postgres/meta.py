"""`pidts_meta` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pidts.model import Checkpoint, Fenced, TableName, Where
from pidts.target.checkpoint_row import written_progress
from pidts.target.checkpoints import CheckpointRecord
from pidts.target.meta import SharedRecords
from pidts.target.meta_schema import EPOCH, META_TABLES, SECONDS
from pidts.target.postgres.connection import PostgresConnection
from pidts.target.postgres.dialect import qualified
from pidts.target.postgres.errors import Refused
from pidts.target.postgres.moves import PostgresMoves
from pidts.target.postgres.tombstones import PostgresTombstones

_SAVE_CHECKPOINT = (
    "WITH saved AS (UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, "
    "copy_progress = %s, updated_at = CURRENT_TIMESTAMP(6) "
    "WHERE task = %s AND source = %s AND worker = %s AND epoch = %s RETURNING 1) "
    "SELECT 1 / count(*) FROM saved"
)
"""Fails where there is no such row, and with it all that travels behind it, COMMIT included."""

_DIVISION_BY_ZERO = "22012"

_TYPES = {
    **dict.fromkeys(("name", "object"), "varchar(190) NOT NULL"),
    "text": "text NOT NULL",
    "lsn": "varchar(44) NOT NULL",
    "code": "varchar(20) NOT NULL",
    "row_key": "varchar(80) NOT NULL",
    "version": "varchar(90)",
    "int": "integer NOT NULL",
    **dict.fromkeys(("long", "epoch", "seconds"), "bigint NOT NULL"),
    "clock": "timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP",
}


def _creation() -> Iterator[str]:
    """Yields the statements that create the meta tables that are missing."""
    yield "CREATE SCHEMA IF NOT EXISTS pidts_meta"
    for name, table in META_TABLES.items():
        room = " WITH (fillfactor = 50)" if name == "checkpoint" else ""
        yield f"CREATE TABLE IF NOT EXISTS pidts_meta.{name} ({table.columns(_TYPES)}){room}"
        yield f"COMMENT ON TABLE pidts_meta.{name} IS '{table.about}'"
    yield f"COMMENT ON COLUMN pidts_meta.checkpoint.epoch IS '{EPOCH}'"
    yield f"COMMENT ON COLUMN pidts_meta.tombstone.buried_at IS '{SECONDS}'"
    yield "CREATE TABLE IF NOT EXISTS pidts_meta.unfinished (relation oid PRIMARY KEY)"
    yield "COMMENT ON TABLE pidts_meta.unfinished IS 'Tables without all of their keys, until their rows are copied'"


class PostgresMeta(SharedRecords):
    """The records in `pidts_meta`, as one session reads and writes them."""

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection
        self.checkpoints = PostgresCheckpoints(connection)
        self.tombstones = PostgresTombstones(connection.run)
        self.moves = PostgresMoves(connection.run)

    def prepare(self) -> None:
        """Creates the meta tables; two sessions that start at once would collide in the catalog."""
        with self._connection.transaction():
            self._connection.run("SELECT pg_catalog.pg_advisory_xact_lock(7426801523490)", ())
            for sql in _creation():
                self._connection.run(sql, ())

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Locks DDL for callers that work outside of a transaction; within one, row locks fence DDL here."""
        name = f"pidts ddl {task} {source}"
        self._connection.run("SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended(%s, 0))", (name,))
        try:
            yield
        finally:
            if not self._connection.driver.closed and not self._connection.in_transaction():
                self._connection.run(
                    "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended(%s, 0))", (name,)
                )

    def leave_unfinished(self, name: TableName) -> None:
        """Notes in `pidts_meta` that a table of ours lacks keys; the note holds when the table is renamed, too.

        A table that somebody else has made keeps the keys that it has.
        """
        self._connection.run(
            "INSERT INTO pidts_meta.unfinished (relation) VALUES (%s::regclass) ON CONFLICT DO NOTHING",
            (qualified(name),),
        )


class PostgresCheckpoints(CheckpointRecord):
    """The checkpoints of one session."""

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """The advisory lock orders two first claims, which have no row to lock yet."""
        with self._connection.transaction():
            self._run(
                "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))",
                (f"pidts {task} {source}",),
            )
            return self._claim(task, source, workers, start)

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows with FOR SHARE, which reads the newest committed version, too."""
        return self._rows(task, source, lock="FOR SHARE")

    def save(self, new: Checkpoint) -> None:
        """Saves a checkpoint in the open transaction.

        The statement itself checks that the row exists and is of this epoch.
        """
        values = _saved_values(new)
        self._connection.exchange.later(
            self._connection.named(_SAVE_CHECKPOINT), values, explain=lambda error: _not_saved(error, new)
        )


def _saved_values(new: Checkpoint) -> tuple[Any, ...]:
    """Returns the values in the order of `_SAVE_CHECKPOINT`."""
    moved = (new.batch, str(new.lsn), new.gtid, new.position, written_progress(new))
    return (*moved, new.task, new.source, new.worker, new.epoch)


def _not_saved(error: Refused, new: Checkpoint) -> Fenced | None:
    """Explains a failure of `_SAVE_CHECKPOINT`."""
    if error.sqlstate != _DIVISION_BY_ZERO:
        return None
    what = f"worker {new.worker} of task {new.task} has no row of epoch {new.epoch}"
    return Fenced("fenced", what, where=Where(source=new.source))
