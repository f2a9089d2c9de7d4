"""One connection to MySQL, MariaDB or TiDB: its settings, its transaction and its statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from pidts.model import Column, ColumnType, ConfigError, Halted, Kind
from pidts.model.zone import mark_table
from pidts.schema import Dialect
from pidts.target.meta_schema import USUAL, in_schema
from pidts.target.mysql.driver import StatementResult, as_bytes, force_close
from pidts.target.mysql.encode import StatementLimits, literals, statements, tuples
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.statement_pipeline import StatementPipeline

LOCK_WAIT = 30
_FILES, _SPLITS = _FILE_SETTINGS = ("local_infile", "wsrep_load_data_splitting")
"""The second of these variables makes an old Galera cluster commit in the middle of LOAD DATA."""
_LONG_LISTS = "in_predicate_conversion_threshold"
"""MariaDB turns a list of at least this many values into a table, and may then scan the whole queried table."""
_CLUSTER = "wsrep_on"
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_MODES = (
    "NO_AUTO_VALUE_ON_ZERO",
    "ALLOW_INVALID_DATES",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "NO_ENGINE_SUBSTITUTION",
)
_NUMBER_COLUMN, _TEXT_COLUMN = (Column(kind.value, ColumnType(kind)) for kind in (Kind.BIGINT, Kind.LONGTEXT))
_INSERTED, _INSERTED_BYTES = 2000, 1 << 20
"""The most rows and the most bytes of one INSERT into a meta table."""
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Truncation is an error; dates are stored as the source has them; 0 in an auto_increment column stays 0.
    f"SET SESSION sql_mode = '{','.join(_MODES)}'",
    "SET SESSION time_zone = '+00:00', foreign_key_checks = 0, unique_checks = 1, autocommit = 1",
    # MariaDB ends the transaction of a run that is suspended or cut off, so that another run can take over the task.
    (
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}, lock_wait_timeout = {LOCK_WAIT} "
        "/*M!100300 , idle_transaction_timeout = 300 */"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of a session, apart from the login."""

    meta_schema: str = USUAL
    """The schema of PiDTS's own tables."""
    variables: tuple[tuple[str, str], ...] = ()
    """Session variables of the task, set after the variables that PiDTS sets itself."""
    max_packet: int = 0
    """The largest size of a statement in bytes; 0: the server's limit."""
    zone: str = ""
    """The zone whose changes the task writes to this target; empty if the task is not between zones."""
    forwards: tuple[str, ...] = ()
    """The other zones whose changes the task forwards."""
    locks_gaps: bool = False
    """Whether a session that reads a key without a row locks this key, so that no other session can insert it."""


class MySqlConnection:
    """A connection, its settings and its transaction. `MySqlSession` adds the methods that read and write rows."""

    def __init__(self, connection: Connection[Any], settings: SessionSettings) -> None:
        self.driver, self.zone, self.forwards = connection, settings.zone, settings.forwards
        self._origin = settings.zone
        self.meta_schema, self.named = settings.meta_schema, in_schema(settings.meta_schema, "`")
        self.pipeline = StatementPipeline(connection)
        for sql in _SETTINGS:
            self.run(sql, ())
        self.server = self._asked_server()
        self.locks_gaps = settings.locks_gaps
        if settings.locks_gaps:
            if self.server.tidb:
                raise ConfigError(
                    "not-supported",
                    "pidts.conflict: version needs locks on the gaps between keys, which TiDB does not have",
                    todo="Remove pidts.conflict and pidts.version-column: rows that differ are locked then",
                )
            # At other isolation levels, a read without locks uses a snapshot, and a row may change after the snapshot
            # and before it is locked.
            self.run("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", ())
        if not self.server.dialect.mariadb and self.server.dialect.version >= (5, 7, 9) and not self.server.tidb:
            self.run("SET SESSION range_optimizer_max_mem_size = 0", ())  # otherwise a long key list scans the table
        self._set(settings.variables)
        if settings.max_packet:
            self.server = replace(self.server, max_packet=min(settings.max_packet, self.server.max_packet))
        if self.server.tidb:
            self.run("SET SESSION tidb_txn_mode = 'pessimistic'", ())  # old clusters begin with optimistic transactions
        self.is_open = False
        """Whether a transaction is open."""
        self.is_marked = False
        """Whether the open transaction has marked the zone from which its rows come."""
        self.locked_checkpoints: set[tuple[str, str, int]] = set()
        """The checkpoints that the open transaction has locked: task, source, worker."""

    @property
    def trips(self) -> int:
        """Returns the number of round trips so far."""
        return self.pipeline.trips

    def clock(self) -> float:
        """Returns the time by the server's clock, to the microsecond."""
        return float(self.rows("SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])

    def begin(self, origin: str = "") -> None:
        """Begins a transaction. Raises if a transaction is open: the server would commit it silently."""
        if self.is_open:
            raise Halted(
                "target-refused", "a transaction is already open", todo="This is a fault of pidts: please report it"
            )
        self._origin = origin or self.zone
        self.pipeline.later(b"START TRANSACTION")
        self.is_open = True

    def commit(self) -> None:
        """Commits the transaction. After an error it is not known whether the transaction is committed."""
        self.pipeline.now(b"COMMIT")
        self._ended()

    def rollback(self) -> None:
        """Rolls the transaction back; works on a dead session, too."""
        self._ended()
        self.pipeline.drop()
        try:
            self.driver.query("ROLLBACK")
        except (pymysql.err.Error, OSError):
            self.close()

    def close(self) -> None:
        """Closes the connection; the server rolls back an open transaction, however the connection ends."""
        try:
            self.driver.close()
        except (pymysql.err.Error, OSError):
            force_close(self.driver)

    def demand_open(self) -> None:
        """Raises if no transaction is open: then each statement would commit by itself."""
        if not self.is_open:
            raise Halted(
                "target-refused",
                "rows are written in transactions only",
                todo="This is a fault of pidts: please report it",
            )

    def mark(self) -> None:
        """Marks the zone of the open transaction in the log; does nothing without a zone.

        The marker row's value changes each time, since the log does not show an update that changes nothing. Each
        connection has its own row, so that transactions do not wait for each other.
        """
        self.demand_open()
        if self.zone and not self.is_marked:
            sql = (
                f"INSERT INTO pidts_meta.{mark_table(self._origin)} (id, number) VALUES (CONNECTION_ID() % 4096, 1) "
                "ON DUPLICATE KEY UPDATE number = number + 1"
            )
            self.pipeline.later(self.named(sql).encode())
            self.is_marked = True

    def run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Executes a statement in which `pidts_meta` means the task's meta schema.

        Returns the rows, and the number of rows that the statement has found or changed.
        """
        done = self.pipeline.now(self.pipeline.text(self.named(sql), values))
        return list(done.rows), done.count

    def queue_query(self, sql: str, values: Sequence[Any]) -> Callable[[], Sequence[tuple[Any, ...]]]:
        """Queues a query for the round trip of the next statement. The returned function returns the rows."""
        return self.pipeline.queue_query(self.pipeline.text(self.named(sql), values))

    def insert(
        self, table: str, columns: Mapping[str, Sequence[Any] | pa.Array], *, updates: Sequence[str] = ()
    ) -> None:
        """Inserts rows of texts and integers into a meta table. The values become SQL text column by column.

        If a row with the same key exists, the columns `updates` are overwritten; if there are none, it is an error.
        """
        head = self.named(f"INSERT INTO pidts_meta.{table} ({', '.join(columns)}) VALUES ").encode()
        packet = self.server.max_packet
        limits = StatementLimits(_INSERTED, min(_INSERTED_BYTES, packet - 1024), packet - 16)
        arrays = [each if isinstance(each, pa.Array) else pa.array(each) for each in columns.values()]
        kinds = [_NUMBER_COLUMN if pa.types.is_integer(each.type) else _TEXT_COLUMN for each in arrays]
        texts = [literals(kind, each) for kind, each in zip(kinds, arrays, strict=True)]
        sets = ", ".join(f"{name} = VALUES({name})" for name in updates)
        tail = f" ON DUPLICATE KEY UPDATE {sets}".encode() if updates else b""
        for sql, _, _ in statements(head, tuples(texts), tail, limits, cut=1):
            self.pipeline.later(sql)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Executes a statement and returns only the rows."""
        return self.run(sql, values)[0]

    def shown(self, sql: str) -> list[tuple[str, ...]]:
        """Returns the texts of a SHOW statement; bytes that are not text, as in a default, become escapes."""
        statement = self.pipeline.text(sql, ())
        with as_bytes(self.driver):
            rows = self.pipeline.now(statement).rows
        return [tuple(str(each).encode("latin-1").decode("utf-8", "backslashreplace") for each in row) for row in rows]

    def run_later(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Queues a statement that changes one row, and returns at once. If the server finds no row, the task stops."""
        self.pipeline.later(self.pipeline.text(self.named(sql), values), check=_demand_one)
        return [], 1

    def warnings(self) -> list[tuple[int, str]]:
        """Returns the number and text of each warning, without notes."""
        rows, _ = self.run("SHOW WARNINGS", ())
        return [(int(number), str(text)) for level, number, text in rows if level != "Note"]

    def global_variables(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the values of these variables, without variables that the server does not have."""
        wanted = ", ".join(f"'{name}'" for name in names)
        rows = self.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})")
        return {str(name).lower(): str(value) for name, value in rows}

    def _set(self, variables: Iterable[tuple[str, str]]) -> None:
        """Sets the session variables that a task needs. TiDB's own variables are set on TiDB only."""
        for name, value in variables:
            if self.server.tidb or not name.startswith("tidb_"):
                bare = value.strip("'\" ")
                is_number = _NUMBER.fullmatch(bare)
                self.run(f"SET SESSION {name} = {bare if is_number else '%s'}", () if is_number else (bare,))

    def _ended(self) -> None:
        self.is_open = self.is_marked = False
        self.locked_checkpoints.clear()

    def _asked_server(self) -> TargetServer:
        version = str(self.run("SELECT VERSION()", ())[0][0][0])
        collations, _ = self.run("SELECT COLLATION_NAME FROM information_schema.COLLATIONS", ())
        packet, explicit = self.run("SELECT @@max_allowed_packet, @@explicit_defaults_for_timestamp", ())[0][0]
        known = self.global_variables((*_FILE_SETTINGS, _LONG_LISTS, _CLUSTER))
        if _LONG_LISTS in known:
            self.run(f"SET SESSION {_LONG_LISTS} = 0", ())
        return TargetServer(
            dialect=Dialect.of(version),
            tidb="tidb" in version.lower(),
            collations=frozenset(str(name) for (name,) in collations if name is not None),
            max_packet=int(packet),
            explicit_timestamp=bool(explicit),
            takes_files=known.get(_FILES) == "ON" and known.get(_SPLITS) != "ON",
            version=version,
            is_cluster=known.get(_CLUSTER) == "ON",
        )


def _demand_one(done: StatementResult) -> None:
    if done.count != 1:
        raise Halted(
            "checkpoint-mismatch",
            f"the checkpoint's row was locked, but saving it found {done.count} rows",
            todo="Restart the task: it continues from the target's checkpoint. Then compare source and target",
        )
