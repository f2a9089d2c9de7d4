"""`pidts_meta` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pidts.model import Checkpoint, Fenced, TableName, Where
from pidts.target.checkpoint_row import written_progress
from pidts.target.checkpoints import CheckpointRecord
from pidts.target.meta import SharedRecords
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

_STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS pidts_meta",
    """CREATE TABLE IF NOT EXISTS pidts_meta.checkpoint (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, worker integer NOT NULL, batch bigint NOT NULL,
  lsn varchar(44) NOT NULL, gtid text NOT NULL, log_position text NOT NULL, epoch bigint NOT NULL,
  copy_progress text NOT NULL, updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (task, source, worker))
  WITH (fillfactor = 50)""",
    "COMMENT ON TABLE pidts_meta.checkpoint IS 'How far each worker is; changes in the transaction of its rows'",
    "COMMENT ON COLUMN pidts_meta.checkpoint.epoch IS 'Counts take-overs; a run with an older number is refused'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.structure (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, table_schema varchar(190) NOT NULL,
  table_name varchar(190) NOT NULL, lsn varchar(44) NOT NULL, structure text NOT NULL,
  PRIMARY KEY (task, source, table_schema, table_name))""",
    "COMMENT ON TABLE pidts_meta.structure IS 'Structures of the source''s tables as of the last schema change'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.ddl_journal (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, lsn varchar(44) NOT NULL, statement text NOT NULL,
  rendered text NOT NULL, step integer NOT NULL, before_change text NOT NULL, state varchar(20) NOT NULL,
  epoch bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (task, source, lsn))""",
    "COMMENT ON TABLE pidts_meta.ddl_journal IS 'Schema changes begun and done on this target'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.note (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, table_schema varchar(190) NOT NULL,
  table_name varchar(190) NOT NULL, told text NOT NULL, PRIMARY KEY (task, source, table_schema, table_name))""",
    "COMMENT ON TABLE pidts_meta.note IS 'How tables without a key were loaded; without a name, by which rules'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.halt (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, place varchar(190) NOT NULL, about text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (task, source, place))""",
    "COMMENT ON TABLE pidts_meta.halt IS 'Tables that wait for an operator, and why'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.ddl_order (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, lsn varchar(44) NOT NULL, kind varchar(20) NOT NULL,
  statements text NOT NULL, number integer NOT NULL, taken integer NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (task, source, lsn))""",
    "COMMENT ON TABLE pidts_meta.ddl_order IS 'What an operator has ordered about schema changes of the log'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.shadow (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, table_schema varchar(190) NOT NULL,
  table_name varchar(190) NOT NULL, about text NOT NULL, PRIMARY KEY (task, source, table_schema, table_name))""",
    "COMMENT ON TABLE pidts_meta.shadow IS 'Online schema changes under way: what has altered the table to swap in'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.tombstone (
  table_schema varchar(190) NOT NULL, table_name varchar(190) NOT NULL, row_key varchar(190) NOT NULL,
  version_value varchar(90), source varchar(190) NOT NULL, lsn varchar(44) NOT NULL, buried_at bigint NOT NULL,
  PRIMARY KEY (table_schema, table_name, row_key))""",
    "COMMENT ON TABLE pidts_meta.tombstone IS 'Rows deleted under a version column: older events do not return them'",
    "COMMENT ON COLUMN pidts_meta.tombstone.buried_at IS 'Seconds since 1970'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.moved (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, table_schema varchar(190) NOT NULL,
  table_name varchar(190) NOT NULL, row_key varchar(80) NOT NULL, member_schema varchar(190) NOT NULL,
  member_name varchar(190) NOT NULL, lsn varchar(44) NOT NULL,
  PRIMARY KEY (task, source, table_schema, table_name, row_key, member_schema, member_name))""",
    "COMMENT ON TABLE pidts_meta.moved IS 'Which shard has got which key while another one of its table waits'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.safe_range (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, lsn varchar(44) NOT NULL, PRIMARY KEY (task, source))""",
    "CREATE TABLE IF NOT EXISTS pidts_meta.unfinished (relation oid PRIMARY KEY)",
    "COMMENT ON TABLE pidts_meta.unfinished IS 'Tables made without all of their keys, until their rows are copied'",
    "COMMENT ON TABLE pidts_meta.safe_range IS 'Changes up to here may have been applied before the first start'",
)
"""Safe to run again. `log_position`, not `position`, since that is a word of the language."""


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
            for sql in _STATEMENTS:
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
