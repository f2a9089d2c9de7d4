"""`pidts_meta` on MySQL, MariaDB and TiDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha1

import pyarrow as pa

from pidts.model import Checkpoint, Halted, TableName, Tombstones, Transient
from pidts.model.zone import mark_table
from pidts.schema.defaults import literal
from pidts.target.checkpoints import CheckpointRecord, other_checkpoint
from pidts.target.meta import SharedRecords
from pidts.target.meta_schema import EPOCH, MARK, META_TABLES, SECONDS
from pidts.target.moves import MoveRecord
from pidts.target.mysql.connection import LOCK_WAIT, MySqlConnection
from pidts.target.mysql.errors import TWO_ROWS
from pidts.target.tombstones import TombstoneRecord

_ADVANCE = (
    "UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, copy_progress = %s, "
    "updated_at = CURRENT_TIMESTAMP(6) WHERE task = %s AND source = %s AND worker = %s AND batch = %s AND lsn = %s "
    "AND gtid = %s AND log_position = %s AND copy_progress = %s AND epoch = %s"
)
_DEMAND_ONE = b"SELECT IF(ROW_COUNT() = 1, 1, (SELECT 1 UNION ALL SELECT 2)) INTO @pidts_found"
"""A statement without rows that fails if the previous statement has not found exactly one row."""

_MARK = "id int NOT NULL PRIMARY KEY, number bigint NOT NULL"
DdlLock = Callable[[str, str], AbstractContextManager[None]]

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CODE = "CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_TYPES = {
    "name": f"varchar(190) {_TEXT}",  # short enough for a key: old servers allow 767 bytes for each of its columns
    "object": f"varchar(64) {_TEXT}",
    "text": f"longtext {_TEXT}",
    "lsn": f"varchar(44) {_CODE}",
    "code": f"varchar(20) {_CODE}",
    "row_key": f"varchar(80) {_CODE}",
    "version": "varchar(90) CHARACTER SET ascii COLLATE ascii_bin",
    "int": "int NOT NULL",
    "long": "bigint NOT NULL",
    "epoch": f"bigint NOT NULL COMMENT {literal(EPOCH)}",
    "seconds": f"bigint NOT NULL COMMENT {literal(SECONDS)}",
    "clock": "timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
}


class MySqlMeta(SharedRecords):
    """The records in `pidts_meta`, as one session reads and writes them."""

    def __init__(self, connection: MySqlConnection) -> None:
        super().__init__(connection.run, connection.insert, connection.queue_query)
        self._connection = connection
        self.checkpoints = MySqlCheckpoints(connection, self.ddl_lock)
        self.tombstones = MySqlTombstones(connection)
        self.moves = MoveRecord(connection.run)

    def prepare(self) -> None:
        """Creates the meta tables that are missing. Each statement commits by itself."""
        self._connection.run("CREATE DATABASE IF NOT EXISTS pidts_meta", ())
        for name, table in META_TABLES.items():
            sql = f"CREATE TABLE IF NOT EXISTS pidts_meta.{name} ({table.columns(_TYPES)}) ENGINE=InnoDB"
            self._connection.run(f"{sql} COMMENT={literal(table.about)}", ())
        zones = (self._connection.zone, *self._connection.forwards) if self._connection.zone else ()
        for zone in zones:
            mark = f"pidts_meta.{mark_table(zone)} ({_MARK})"
            self._connection.run(f"CREATE TABLE IF NOT EXISTS {mark} ENGINE=InnoDB COMMENT={literal(MARK)}", ())

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Holds a named lock of the server during the block; the lock also ends with this connection."""
        digest = sha1(f"{task}\0{source}".encode(), usedforsecurity=False).hexdigest()
        name = f"pidts-{digest}"
        rows, _ = self._connection.run("SELECT GET_LOCK(%s, %s)", (name, LOCK_WAIT))
        if not rows or rows[0][0] != 1:
            raise Transient(
                "target-busy",
                f"a schema change of task {task} is still running on the target after {LOCK_WAIT} seconds",
                todo="Wait until the schema change has ended, or end its connection: "
                f"SELECT IS_USED_LOCK('{name}') shows the connection's id",
            )
        try:
            yield
        finally:
            self._release(name)

    def leave_unfinished(self, name: TableName) -> None:
        """Does nothing: on these servers a table is created with all its keys."""

    def _release(self, name: str) -> None:
        try:
            self._connection.run("DO RELEASE_LOCK(%s)", (name,))
        except (Transient, Halted):
            self._connection.close()  # the lock ends with the connection


class MySqlTombstones(TombstoneRecord):
    """The tombstones of one session on MySQL, MariaDB or TiDB.

    They are queued, so they reach the server with the next statement, and before the rows and COMMIT. After an error,
    the server executes none of the statements that follow.
    """

    def __init__(self, connection: MySqlConnection) -> None:
        super().__init__(connection.run, locks_gaps=connection.locks_gaps)
        self._connection = connection

    def _put(self, place: tuple[str, str], tombstones: Tombstones, now: int) -> None:
        schema, table, source, time = (pa.repeat(one, len(tombstones)) for one in (*place, tombstones.source, now))
        key = {"table_schema": schema, "table_name": table, "row_key": tombstones.keys}
        rest = {"version_value": tombstones.versions, "source": source, "lsn": tombstones.lsns, "buried_at": time}
        self._connection.insert("tombstone", key | rest, updates=tuple(rest))


class MySqlCheckpoints(CheckpointRecord):
    """The checkpoints of one session on MySQL, MariaDB or TiDB."""

    def __init__(self, connection: MySqlConnection, ddl_lock: DdlLock) -> None:
        super().__init__(connection.run)
        self._connection, self._ddl_lock = connection, ddl_lock
        self._later = CheckpointRecord(connection.run_later)

    @contextmanager
    def _claiming(self, task: str, source: str) -> Iterator[None]:
        """Takes a named lock, since there may be no row to lock yet.

        The claim then waits for the row locks of an earlier run. It does not wait for a schema change that an earlier
        run has left running: such a change holds a named lock with another name.
        """
        with self._ddl_lock(task, source):
            self._connection.begin()
            try:
                yield
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Locks the worker's row with FOR UPDATE, which reads the newest committed version."""
        found = super().lock(task, source, worker)
        if self._connection.is_open:
            self._connection.locked_checkpoints.add((task, source, worker))
        return found

    def advance(self, left: Checkpoint, new: Checkpoint) -> bool:
        """Queues two statements: the second fails if the first has not found the row with the values of `left`.

        Returns False, and queues nothing, on TiDB: the caller then locks, reads and saves the row.
        """
        # TiDB evaluates every subquery first, even the one that is to fail only if the first statement has found no
        # row.
        if self._connection.server.tidb:
            return False
        pipeline = self._connection.pipeline
        pipeline.later(pipeline.text(self._connection.named(_ADVANCE), self._advancing(left, new)))
        pipeline.later(_DEMAND_ONE, explain=lambda error: other_checkpoint(left) if error.number == TWO_ROWS else None)
        return True

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Locks all workers' rows for sharing, and returns them. On TiDB, the locks are exclusive."""
        return self._rows(task, source, lock=self._share)

    def lock_places(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows as `lock_shared` does, and returns them without their copy progress."""
        return self._places(task, source, lock=self._share)

    @property
    def _share(self) -> str:
        return "FOR UPDATE" if self._connection.server.tidb else "LOCK IN SHARE MODE"

    def save(self, new: Checkpoint) -> None:
        """Saves a checkpoint in the open transaction.

        If this transaction has locked the row, the row exists. Then the statement is sent without waiting for its
        result.
        """
        if (new.task, new.source, new.worker) in self._connection.locked_checkpoints:
            self._later.save(new)
        else:
            super().save(new)
