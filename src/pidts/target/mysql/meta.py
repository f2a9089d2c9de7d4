"""`pidts_meta` on MySQL, MariaDB and TiDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha1

from pidts.model import Checkpoint, Halted, TableName, Transient
from pidts.target.checkpoints import CheckpointRecord
from pidts.target.meta import SharedRecords
from pidts.target.moves import MoveRecord
from pidts.target.mysql.connection import LOCK_WAIT, MySqlConnection
from pidts.target.tombstones import TombstoneRecord

DdlLock = Callable[[str, str], AbstractContextManager[None]]

_NAME = "varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TEXT = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CODE = "CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_OBJECT = "varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CLOCK = "timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"

_STATEMENTS = (
    "CREATE DATABASE IF NOT EXISTS pidts_meta",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.checkpoint (
  task {_NAME}, source {_NAME}, worker int NOT NULL, batch bigint NOT NULL, lsn varchar(44) {_CODE}, gtid {_TEXT},
  log_position {_TEXT}, epoch bigint NOT NULL COMMENT 'Counts take-overs; a run with an older number is refused',
  copy_progress {_TEXT}, updated_at {_CLOCK}, PRIMARY KEY (task, source, worker)) ENGINE=InnoDB
  COMMENT='How far each worker of a task is; changes in the transaction of its rows'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.structure (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, lsn varchar(44) {_CODE}, structure {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Structures of the tables of the source as of the last schema change of the task'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.ddl_journal (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, statement {_TEXT}, rendered {_TEXT}, step int NOT NULL,
  before_change {_TEXT}, state varchar(20) {_CODE}, epoch bigint NOT NULL, updated_at {_CLOCK},
  PRIMARY KEY (task, source, lsn)) ENGINE=InnoDB COMMENT='Schema changes begun and done on this target'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.note (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, told {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Tables without a key, each with the last loading of all its rows'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.halt (
  task {_NAME}, source {_NAME}, place {_NAME}, about {_TEXT}, updated_at {_CLOCK}, PRIMARY KEY (task, source, place))
  ENGINE=InnoDB COMMENT='Tables that wait for an operator, and why'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.ddl_order (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, kind varchar(20) {_CODE}, statements {_TEXT},
  number int NOT NULL, taken int NOT NULL, updated_at {_CLOCK}, PRIMARY KEY (task, source, lsn)) ENGINE=InnoDB
  COMMENT='What an operator has ordered about schema changes of the log'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.shadow (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, about {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Online schema changes under way: what has altered the table that is to be swapped in'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.tombstone (
  table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, row_key {_NAME},
  version_value varchar(90) CHARACTER SET ascii COLLATE ascii_bin, source {_NAME}, lsn varchar(44) {_CODE},
  buried_at bigint NOT NULL COMMENT 'Seconds since 1970', PRIMARY KEY (table_schema, table_name, row_key)) ENGINE=InnoDB
  COMMENT='Rows deleted under a version column, so that an older event does not bring them back'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.moved (
  task {_NAME}, source {_NAME}, table_schema {_OBJECT}, table_name {_OBJECT}, row_key varchar(80) {_CODE},
  member_schema {_OBJECT}, member_name {_OBJECT}, lsn varchar(44) {_CODE},
  PRIMARY KEY (task, source, table_schema, table_name, row_key, member_schema, member_name)) ENGINE=InnoDB
  COMMENT='Which shard has got which key while another one of its table waits'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.safe_range (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, PRIMARY KEY (task, source)) ENGINE=InnoDB
  COMMENT='Changes up to here may have been applied before the first start of the task'""",
)
"""Safe to run again. Names are short enough for the 767 bytes that old servers allow in a key's column."""


class MySqlMeta(SharedRecords):
    """The records in `pidts_meta`, as one session reads and writes them."""

    def __init__(self, connection: MySqlConnection) -> None:
        super().__init__(connection.run)
        self._connection = connection
        self.checkpoints = MySqlCheckpoints(connection, self.ddl_lock)
        self.tombstones = TombstoneRecord(connection.run)
        self.moves = MoveRecord(connection.run)

    def prepare(self) -> None:
        """Creates the meta tables. Each statement commits by itself."""
        for sql in _STATEMENTS:
            self._connection.run(sql, ())

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """A named lock of the server: it belongs to this connection and ends with it."""
        digest = sha1(f"{task}\0{source}".encode(), usedforsecurity=False).hexdigest()
        name = f"pidts-{digest}"
        rows, _ = self._connection.run("SELECT GET_LOCK(%s, %s)", (name, LOCK_WAIT))
        if not rows or rows[0][0] != 1:
            raise Transient(
                "target-busy",
                f"a schema change of task {task} is still running on the target after {LOCK_WAIT} seconds",
                todo=f"Wait for it, or end it: SELECT IS_USED_LOCK('{name}') names its connection",
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


class MySqlCheckpoints(CheckpointRecord):
    """The checkpoints of one session."""

    def __init__(self, connection: MySqlConnection, ddl_lock: DdlLock) -> None:
        super().__init__(connection.run)
        self._connection, self._ddl_lock = connection, ddl_lock
        self._later = CheckpointRecord(connection.run_later)

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Waits for a schema change that an earlier run has left running, then for its row locks."""
        with self._ddl_lock(task, source):
            self._connection.begin()
            try:
                claimed = self._claim(task, source, workers, start)
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise
            return claimed

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Locks the rows with FOR UPDATE, which reads the newest committed version."""
        found = super().lock(task, source, worker)
        if self._connection.is_open:
            self._connection.locked_checkpoints.add((task, source, worker))
        return found

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows for sharing. TiDB shares no locks: there one session holds them at a time."""
        return self._rows(task, source, lock="FOR UPDATE" if self._connection.server.tidb else "LOCK IN SHARE MODE")

    def save(self, new: Checkpoint) -> None:
        """Saves a checkpoint in the open transaction.

        A row that the transaction has locked exists, so nobody has to wait for the server's answer.
        """
        if (new.task, new.source, new.worker) in self._connection.locked_checkpoints:
            self._later.save(new)
        else:
            super().save(new)
