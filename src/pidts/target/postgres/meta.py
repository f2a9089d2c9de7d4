"""`pidts_meta` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pidts.model import Checkpoint, Fenced, TableName, Tombstones, Where
from pidts.target.checkpoints import CheckpointRecord, other_checkpoint, saved_values
from pidts.target.meta import SharedRecords
from pidts.target.meta_schema import EPOCH, META_TABLES, SECONDS
from pidts.target.moves import MoveRecord
from pidts.target.postgres.connection import PostgresConnection
from pidts.target.postgres.dialect import literal, qualified
from pidts.target.postgres.errors import StatementRefused
from pidts.target.tombstones import TombstoneRecord

_SAVE_CHECKPOINT = (
    "WITH saved AS (UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, "
    "copy_progress = %s, updated_at = CURRENT_TIMESTAMP(6) "
    "WHERE task = %s AND source = %s AND worker = %s AND epoch = %s RETURNING 1) "
    "SELECT 1 / count(*) FROM saved"
)
"""A statement that fails if the worker has no row, or if the row is of another epoch. Then the server executes no later
statement of the pipeline, not even COMMIT.
"""

_ADVANCE = (
    "WITH saved AS (UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, "
    "copy_progress = %s, updated_at = CURRENT_TIMESTAMP(6) WHERE task = %s AND source = %s AND worker = %s "
    "AND batch = %s AND lsn = %s AND gtid = %s AND log_position = %s AND copy_progress = %s AND epoch = %s "
    "RETURNING 1) SELECT 1 / count(*) FROM saved"
)
"""The same as `_SAVE_CHECKPOINT`, but this statement also fails if the row does not have the values of this run."""

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
        yield f"COMMENT ON TABLE pidts_meta.{name} IS {literal(table.about)}"
    yield f"COMMENT ON COLUMN pidts_meta.checkpoint.epoch IS {literal(EPOCH)}"
    yield f"COMMENT ON COLUMN pidts_meta.tombstone.buried_at IS {literal(SECONDS)}"
    yield "CREATE TABLE IF NOT EXISTS pidts_meta.unfinished (relation oid PRIMARY KEY)"
    yield "COMMENT ON TABLE pidts_meta.unfinished IS 'Tables without all of their keys, until their rows are copied'"


class PostgresMeta(SharedRecords):
    """The records in `pidts_meta`, as one session reads and writes them."""

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__(connection.run, connection.insert, connection.queue_query)
        self._connection = connection
        self.checkpoints = PostgresCheckpoints(connection)
        self.tombstones = PostgresTombstones(connection.run)
        self.moves = PostgresMoves(connection.run)

    def prepare(self) -> None:
        """Creates the missing meta tables under a lock, so that no two sessions create the same table at once."""
        with self._connection.transaction():
            self._connection.run("SELECT pg_catalog.pg_advisory_xact_lock(7426801523490)", ())
            for sql in _creation():
                self._connection.run(sql, ())

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Locks DDL for callers that work outside of a transaction. Inside a transaction, row locks are enough."""
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
        """Records in `pidts_meta.unfinished` that a table was created without all of its keys.

        The record stays valid when the table is renamed. If somebody else has created a table, it gets no record, and
        PiDTS adds no keys to it.
        """
        self._connection.run(
            "INSERT INTO pidts_meta.unfinished (relation) VALUES (%s::regclass) ON CONFLICT DO NOTHING",
            (qualified(name),),
        )


class PostgresCheckpoints(CheckpointRecord):
    """The checkpoints of one session on PostgreSQL."""

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection

    @contextmanager
    def _claiming(self, task: str, source: str) -> Iterator[None]:
        """Takes an advisory lock, since there may be no row to lock yet."""
        with self._connection.transaction():
            self._run(
                "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))",
                (f"pidts {task} {source}",),
            )
            yield

    def advance(self, left: Checkpoint, new: Checkpoint) -> bool:
        """Queues the statement that saves `new`, and fails if the row is not `left`. Returns True."""
        self._connection.pipeline.later(
            self._connection.named(_ADVANCE),
            self._advancing(left, new),
            explain=lambda error: other_checkpoint(left) if error.sqlstate == _DIVISION_BY_ZERO else None,
        )
        return True

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the checkpoint rows with FOR SHARE, which also reads their newest committed version."""
        return self._rows(task, source, lock="FOR SHARE")

    def lock_places(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows as `lock_shared` does, and returns them without their copy progress."""
        return self._places(task, source, lock="FOR SHARE")

    def save(self, new: Checkpoint) -> None:
        """Saves a checkpoint in the open transaction. The statement checks that the row exists and is of this epoch."""
        values = (*saved_values(new), new.task, new.source, new.worker, new.epoch)
        self._connection.pipeline.later(
            self._connection.named(_SAVE_CHECKPOINT), values, explain=lambda error: _not_saved(error, new)
        )


def _not_saved(error: StatementRefused, new: Checkpoint) -> Fenced | None:
    """Returns the error to raise if `_SAVE_CHECKPOINT` has found no row; None after any other error."""
    if error.sqlstate != _DIVISION_BY_ZERO:
        return None
    what = f"worker {new.worker} of task {new.task} has no row of epoch {new.epoch}"
    return Fenced(
        "fenced",
        what,
        where=Where(source=new.source),
        todo="Another run has taken over the task. See: pidts status TASK",
    )


class PostgresMoves(MoveRecord):
    """Reads and writes moved keys. OFFSET inside LATERAL makes the server look up each key in the index.

    Only one worker writes the rows of a key, so a row keeps the `ctid` with which the statement has found it.
    """

    def _find(self, place: tuple[str, ...], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            "SELECT m.member_schema, m.member_name, m.row_key, m.lsn FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT * FROM pidts_meta.moved WHERE task = %s AND source = %s AND table_schema = %s "
            "AND table_name = %s AND row_key = k.row_key OFFSET 0) m",
            (list(keys), *place),
        )
        return rows

    def _put(self, rows: Sequence[tuple[str, ...]]) -> None:
        self._run(
            "INSERT INTO pidts_meta.moved "
            "(task, source, table_schema, table_name, row_key, member_schema, member_name, lsn) "
            f"SELECT * FROM unnest({', '.join(['%s::text[]'] * 8)}) "
            "ON CONFLICT (task, source, table_schema, table_name, row_key, member_schema, member_name) "
            "DO UPDATE SET lsn = EXCLUDED.lsn",
            tuple(map(list, zip(*rows, strict=True))),
        )

    def _remove(self, place: tuple[str, ...], member: TableName, keys: Sequence[str]) -> None:
        self._run(
            "DELETE FROM pidts_meta.moved WHERE ctid = ANY(ARRAY(SELECT m.place FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT ctid AS place FROM pidts_meta.moved WHERE task = %s AND source = %s AND table_schema = %s "
            "AND table_name = %s AND row_key = k.row_key AND member_schema = %s AND member_name = %s LIMIT 1) m))",
            (list(keys), *place, member.schema, member.name),
        )


class PostgresTombstones(TombstoneRecord):
    """Reads and writes tombstones. LIMIT inside LATERAL makes the server look up each key in the index.

    PostgreSQL assumes that a table without statistics is nearly empty. So it would compare each tombstone with the keys
    of a list after IN, or of a plain join.
    """

    def _find(self, place: tuple[str, str], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            "SELECT t.row_key, t.version_value, t.source, t.lsn FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT * FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s "
            "AND row_key = k.row_key LIMIT 1) t",
            (list(keys), *place),
        )
        return rows

    def _put(self, place: tuple[str, str], tombstones: Tombstones, now: int) -> None:
        columns = (tombstones.keys, tombstones.versions, tombstones.lsns)
        self._run(
            "INSERT INTO pidts_meta.tombstone "
            "(table_schema, table_name, row_key, version_value, source, lsn, buried_at) "
            "SELECT %s, %s, k.row_key, k.version, %s, k.lsn, %s "
            "FROM unnest(%s::text[], %s::text[], %s::text[]) AS k(row_key, version, lsn) "
            "ON CONFLICT (table_schema, table_name, row_key) DO UPDATE SET version_value = EXCLUDED.version_value, "
            "source = EXCLUDED.source, lsn = EXCLUDED.lsn, buried_at = EXCLUDED.buried_at",
            (*place, tombstones.source, now, *(column.to_pylist() for column in columns)),
        )
