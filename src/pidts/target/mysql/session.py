"""One connection to MySQL, MariaDB or TiDB that satisfies the port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha1
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from pidts.model import Checkpoint, DdlJournal, Halted, Lsn, Rendered, Table, TableName, Tombstone, Transient
from pidts.reduce import NetChange
from pidts.schema import AlterTable, Dialect, Statement
from pidts.target.difference import refuse_shortened, refuse_unfillable, shortened, unfillable
from pidts.target.halts import HaltRecord
from pidts.target.meta import MetaStore
from pidts.target.meta_schema import USUAL, in_schema
from pidts.target.moves import MoveRecord
from pidts.target.mysql import dialect, meta
from pidts.target.mysql.dialect import qualified
from pidts.target.mysql.driver import Done, force_close
from pidts.target.mysql.errors import Refused
from pidts.target.mysql.exchange import Exchange
from pidts.target.mysql.loader import Loader
from pidts.target.mysql.plan import Plans
from pidts.target.mysql.reader import Reader
from pidts.target.mysql.server import Server
from pidts.target.mysql.shape import MyTable, read_shape
from pidts.target.mysql.unique import unique_keys
from pidts.target.mysql.writer import Writer
from pidts.target.shadows import ShadowRecord
from pidts.target.tombstones import Tombstones
from pidts.target.watched import WatchedColumns

_NO_SUCH_TABLE = (1146, 1049)
_LOCK_WAIT = 30
_FILES, _SPLITS = _FILE_SETTINGS = ("local_infile", "wsrep_load_data_splitting")
"""By the second, a Galera cluster of old commits in the middle of LOAD DATA."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_MODES = (
    "NO_AUTO_VALUE_ON_ZERO",
    "ALLOW_INVALID_DATES",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "NO_ENGINE_SUBSTITUTION",
)
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Truncation is an error; dates are stored as the source stored them; 0 in an auto_increment column stays 0.
    f"SET SESSION sql_mode = '{','.join(_MODES)}'",
    "SET SESSION time_zone = '+00:00', foreign_key_checks = 0, unique_checks = 1, autocommit = 1",
    f"SET SESSION innodb_lock_wait_timeout = {_LOCK_WAIT}, lock_wait_timeout = {_LOCK_WAIT}",
)


class MySqlSession:
    """Made by `MySqlTarget.connect`."""

    transactional_ddl = False

    def __init__(
        self,
        connection: Connection[Any],
        *,
        meta_schema: str = USUAL,
        variables: Iterable[tuple[str, str]] = (),
        max_packet: int = 0,
    ) -> None:
        self._connection = connection
        self.meta_schema, self._named = meta_schema, in_schema(meta_schema, "`")
        self.exchange = Exchange(connection)
        self._meta = MetaStore(self._run)
        self.halts = HaltRecord(self._run)
        self.shadows = ShadowRecord(self._run)
        self.moves = MoveRecord(self._run)
        self._later_meta = MetaStore(self._run_later)
        self._tombstones = Tombstones(self._run)
        for sql in _SETTINGS:
            self._run(sql, ())
        self._server = self._asked_server()
        if not self._server.dialect.mariadb and self._server.dialect.version >= (5, 7, 9) and not self._server.tidb:
            self._run("SET SESSION range_optimizer_max_mem_size = 0", ())  # else long key lists scan the table
        self._set(variables)
        if max_packet:
            self._server = replace(self._server, max_packet=min(max_packet, self._server.max_packet))
        if self._server.tidb:
            self._run("SET SESSION tidb_txn_mode = 'pessimistic'", ())  # clusters of old make it optimistic
        self._plans = Plans(self._server, self._shape)
        self._writer = Writer(self._server, self._plans, self.exchange, self._warnings)
        self._loader = Loader(self._server, self._plans, self._writer, self.exchange, self._warnings)
        self._watched = WatchedColumns(lambda name: unique_keys(lambda sql, values: self._run(sql, values)[0], name))
        self._open = False
        self._locked: set[tuple[str, str, int]] = set()

    def _set(self, variables: Iterable[tuple[str, str]]) -> None:
        """What a task asks of its sessions; TiDB's own variables are nothing to others."""
        for name, value in variables:
            if self._server.tidb or not name.startswith("tidb_"):
                bare = value.strip("'\" ")
                is_number = _NUMBER.fullmatch(bare)
                self._run(f"SET SESSION {name} = {bare if is_number else '%s'}", () if is_number else (bare,))

    def begin(self) -> None:
        """The server would commit an open transaction without a word."""
        if self._open:
            raise Halted("target-refused", "a transaction is open already")
        self.exchange.later(b"START TRANSACTION")
        self._open = True

    def commit(self) -> None:
        """An error here leaves the outcome open."""
        self.exchange.now(b"COMMIT")
        self._ended()

    def rollback(self) -> None:
        """Also on a dead session."""
        self._ended()
        self.exchange.drop()
        try:
            self._connection.query("ROLLBACK")
        except (pymysql.err.Error, OSError):
            self.close()

    def close(self) -> None:
        """The server rolls back what is open, with a farewell or without."""
        try:
            self._connection.close()
        except (pymysql.err.Error, OSError):
            force_close(self._connection)

    def prepare_meta(self) -> None:
        """Each statement commits by itself."""
        for sql in meta.STATEMENTS:
            self._run(sql, ())

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Waits for a schema change that an earlier run has left running, then for its row locks."""
        with self.ddl_lock(task, source):
            self.begin()
            try:
                claimed = self._meta.claim(task, source, workers, start)
                self.commit()
            except BaseException:
                self.rollback()
                raise
            return claimed

    def checkpoints(self, task: str, source: str) -> list[Checkpoint]:
        """Without locks."""
        return self._meta.checkpoints(task, source)

    def lock_checkpoint(self, task: str, source: str, worker: int) -> Checkpoint:
        """FOR UPDATE reads the newest committed version."""
        found = self._meta.lock_checkpoint(task, source, worker)
        if self._open:
            self._locked.add((task, source, worker))
        return found

    def hold(self, task: str, source: str) -> list[Checkpoint]:
        """TiDB shares no locks: there one holds at a time."""
        return self._meta.checkpoints(task, source, lock="FOR UPDATE" if self._server.tidb else "LOCK IN SHARE MODE")

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """In the open transaction. A row that it has locked is there, so nobody has to wait for the answer."""
        known = (checkpoint.task, checkpoint.source, checkpoint.worker) in self._locked
        (self._later_meta if known else self._meta).save_checkpoint(checkpoint)

    def write(self, change: NetChange) -> None:
        """In the open transaction. What is small waits."""
        self._demand_open()
        self._writer.write(change)

    def load(self, table: Table, rows: pa.Table) -> bool:
        """In the open transaction."""
        self._demand_open()
        return self._loader.load(table, rows)

    def clear(self, name: TableName) -> None:
        """TRUNCATE would commit."""
        self._demand_open()
        self.exchange.now(f"DELETE FROM {qualified(name)}".encode(), str(name))

    def noted(self, task: str, source: str, name: TableName) -> str:
        """From `pidts_meta`."""
        return self._meta.noted(task, source, name)

    def note(self, task: str, source: str, name: TableName, text: str) -> None:
        """In the open transaction."""
        self._meta.note(task, source, name, text)

    def structure(self, name: TableName) -> Table | None:
        """From information_schema."""
        shape = self._shape(name)
        return shape.table if shape else None

    def watched(self, table: Table) -> tuple[str, ...]:
        """From information_schema, once."""
        return self._watched.of(table)

    def misfits(self, table: Table) -> list[str] | None:
        """From information_schema."""
        shape = self._shape(table.name)
        return shape.misfits(table) if shape else None

    def fingerprint(self, name: TableName) -> str | None:
        """SHOW CREATE TABLE without the counter that rows move."""
        try:
            rows, _ = self._run(f"SHOW CREATE TABLE {qualified(name)}", ())
        except Refused as error:
            if error.number in _NO_SUCH_TABLE:
                return None
            raise
        return _COUNTER.sub("", str(rows[0][1]))

    def column_types(self, table: Table) -> tuple[str, ...]:
        """As this server can have them."""
        return dialect.column_types(table, self._server)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """With database, keys and comments. No key is better made afterwards: that would write the table once more."""
        del before_copy
        return dialect.create(table, self._server)

    def leave_unfinished(self, name: TableName) -> None:
        """Nothing is left out."""

    def finish_statements(self, table: Table) -> Rendered:
        """All keys are there, and counters follow the rows."""
        del table
        return Rendered(())

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """Refuses a new column whose values the source computed for rows that are here already."""
        if isinstance(statement, AlterTable):
            old, new = before.get(statement.table), next((t for t in after.values() if t is not None), None)
            if old is not None and new is not None:
                if statement.mariadb is not self._server.dialect.mariadb:
                    self._refuse_shortened(statement, old, new)
                unknown = unfillable(statement, old, new, executed_at)
                if unknown and self._has_rows(statement.table):
                    raise refuse_unfillable(unknown, old)
        return dialect.render(statement, before, after, self._server, executed_at)

    def _refuse_shortened(self, statement: AlterTable, old: Table, new: Table) -> None:
        """MySQL rounds where MariaDB cuts off; where both give the same, they may."""
        for column, digits in shortened(statement, old, new):
            where = f"MOD(MICROSECOND({dialect.identifier(column)}), {10 ** (6 - digits)}) >= {5 * 10 ** (5 - digits)}"
            if self._run(f"SELECT 1 FROM {dialect.qualified(statement.table)} WHERE {where} LIMIT 1", ())[0]:
                raise refuse_shortened(column, old)

    def execute(self, sql: str) -> None:
        """One DDL statement; it commits by itself."""
        self._execute(sql.encode(), "")
        self._plans.forget()
        self._watched.forget()

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """A named lock of the server: it belongs to this connection and ends with it."""
        digest = sha1(f"{task}\0{source}".encode(), usedforsecurity=False).hexdigest()
        name = f"pidts-{digest}"
        rows, _ = self._run("SELECT GET_LOCK(%s, %s)", (name, _LOCK_WAIT))
        if not rows or rows[0][0] != 1:
            raise Transient(
                "target-busy",
                f"a schema change of task {task} is still running on the target after {_LOCK_WAIT} seconds",
                todo=f"Wait for it, or end it: SELECT IS_USED_LOCK('{name}') names its connection",
            )
        try:
            yield
        finally:
            self._release(name)

    def save_structures(self, task: str, source: str, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """In the open transaction."""
        self._meta.save_structures(task, source, lsn, structures)

    def load_structures(self, task: str, source: str) -> dict[TableName, Table]:
        """What was saved last."""
        return self._meta.load_structures(task, source)

    def known(self) -> list[tuple[str, str, TableName]]:
        """From `pidts_meta`."""
        return self._meta.known()

    def read_journal(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """The schema change at `lsn`."""
        return self._meta.read_journal(task, source, lsn)

    def write_journal(self, journal: DdlJournal) -> None:
        """In the open transaction."""
        self._meta.write_journal(journal)

    def tombstones(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """From `pidts_meta`."""
        return self._tombstones.read(name, keys)

    def bury(self, name: TableName, tombstones: Sequence[Tombstone]) -> None:
        """In the open transaction."""
        self._tombstones.write(name, tombstones)

    def safe_until(self, task: str, source: str) -> Lsn | None:
        """From `pidts_meta`."""
        return self._tombstones.safe_until(task, source)

    def save_safe_until(self, task: str, source: str, lsn: Lsn | None) -> None:
        """In the open transaction."""
        self._tombstones.save_safe_until(task, source, lsn)

    def read_rows(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
        lock: bool = False,
        only: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """As the server orders identities."""
        return Reader(self._query, table).read(keys=keys, after=after, limit=limit, lock=lock, only=only)

    def count(self, name: TableName) -> int:
        """Exact."""
        return int(self._run(f"SELECT COUNT(*) FROM {qualified(name)}", ())[0][0][0])

    def _demand_open(self) -> None:
        """Without a transaction each statement would commit by itself."""
        if not self._open:
            raise Halted("target-refused", "rows are written in transactions only")

    def _has_rows(self, name: TableName) -> bool:
        return bool(self._run(f"SELECT 1 FROM {qualified(name)} LIMIT 1", ())[0])

    def _release(self, name: str) -> None:
        try:
            self._run("DO RELEASE_LOCK(%s)", (name,))
        except (Transient, Halted):
            self.close()  # the lock ends with the connection

    def _shape(self, name: TableName) -> MyTable | None:
        return read_shape(lambda sql, values: self._run(sql, values)[0], name, self._server.dialect)

    def _ended(self) -> None:
        self._open = False
        self._locked.clear()

    def _run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        done = self.exchange.now(self.exchange.text(self._named(sql), values))
        return list(done.rows), done.count

    def _run_later(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """The one row that must be found is there; should it ever not be, the task stops rather than go on."""
        self.exchange.later(self.exchange.text(self._named(sql), values), check=_demand_one)
        return [], 1

    def _query(self, sql: bytes, table: str) -> Sequence[tuple[Any, ...]]:
        return self.exchange.now(sql, table).rows

    def _execute(self, sql: bytes, table: str) -> Done:
        return self.exchange.now(sql, table)

    def _warnings(self) -> list[tuple[int, str]]:
        rows, _ = self._run("SHOW WARNINGS", ())
        return [(int(number), str(text)) for level, number, text in rows if level != "Note"]

    def _asked_server(self) -> Server:
        version = str(self._run("SELECT VERSION()", ())[0][0][0])
        collations, _ = self._run("SELECT COLLATION_NAME FROM information_schema.COLLATIONS", ())
        packet, explicit = self._run("SELECT @@max_allowed_packet, @@explicit_defaults_for_timestamp", ())[0][0]
        files = dict(self._run(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_FILE_SETTINGS}", ())[0])
        return Server(
            dialect=Dialect.of(version),
            tidb="tidb" in version.lower(),
            collations=frozenset(str(name) for (name,) in collations if name is not None),
            max_packet=int(packet),
            explicit_timestamp=bool(explicit),
            takes_files=files.get(_FILES) == "ON" and files.get(_SPLITS) != "ON",
        )


def _demand_one(done: Done) -> None:
    if done.count != 1:
        raise Halted(
            "checkpoint-mismatch",
            f"the checkpoint's row was locked, but saving it found {done.count} rows",
            todo="Restart the task: it goes on from the target's own checkpoint; compare source and target",
        )
