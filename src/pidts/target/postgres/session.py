"""One connection to PostgreSQL that satisfies the port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import structlog
from psycopg.pq import TransactionStatus

from pidts.model import (
    Checkpoint,
    DdlJournal,
    Halted,
    Lsn,
    PrecheckFailed,
    Rendered,
    Table,
    TableName,
    Tombstone,
    Transient,
)
from pidts.reduce import NetChange
from pidts.schema import AlterTable, Statement
from pidts.target.halts import HaltRecord
from pidts.target.meta import MetaStore
from pidts.target.meta_schema import USUAL, in_schema
from pidts.target.postgres import alter, meta
from pidts.target.postgres.arrays import register
from pidts.target.postgres.create import create_table
from pidts.target.postgres.dialect import qualified, type_name
from pidts.target.postgres.doubts import doubts
from pidts.target.postgres.errors import mapped
from pidts.target.postgres.exchange import Exchange
from pidts.target.postgres.finish import finish_table
from pidts.target.postgres.loader import Loader
from pidts.target.postgres.moves import PostgresMoves
from pidts.target.postgres.reader import read_rows
from pidts.target.postgres.shape import PgTable, read_shape
from pidts.target.postgres.tombstones import PostgresTombstones
from pidts.target.postgres.unique import unique_keys
from pidts.target.postgres.writer import Writer
from pidts.target.shadows import ShadowRecord
from pidts.target.watched import WatchedColumns

_log = structlog.get_logger(__name__)

_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET standard_conforming_strings = on",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 3",
    "SET bytea_output = 'hex'",
    "SET search_path = ''",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
    "SET statement_timeout = 0",
    "SET lock_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '5min'",
    # Rows come as arrays, of whose length a plan knows nothing. What is right for one row and for ten thousand, in a
    # table that was empty when the plan was made: look each up by its key. Nothing is planned twice.
    "SET jit = off",
    "SET enable_seqscan = off",
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    # Rows arrive table by table, parents and children in any order, and what triggers did on the source is in its log:
    # a replica fires neither. Who may not say so is told by `misfits` where it matters.
    """DO 'BEGIN PERFORM pg_catalog.set_config(''session_replication_role'', ''replica'', false);
    EXCEPTION WHEN insufficient_privilege THEN NULL; END'""",
)

_PREPARED = 500
"""Two for each table; with fewer, many tables would drive each other's plans out."""


class PostgresSession:
    """Made by `PostgresTarget.connect`."""

    transactional_ddl = True

    def __init__(self, connection: psycopg.Connection, *, meta_schema: str = USUAL) -> None:
        self._connection = connection
        self.meta_schema, self._named = meta_schema, in_schema(meta_schema, '"')
        register(connection)
        connection.prepared_max = _PREPARED
        self.exchange = Exchange(connection)
        self._meta = MetaStore(self._run)
        self.halts = HaltRecord(self._run)
        self.shadows = ShadowRecord(self._run)
        self.moves = PostgresMoves(self._run)
        self._tombstones = PostgresTombstones(self._run)
        self._writer = Writer(self.exchange, self._shape, self._note_unreal)
        self._loader = Loader(self.exchange, self._writer, self._note_unreal)
        self._watched = WatchedColumns(lambda name: unique_keys(lambda sql, values: self._run(sql, values)[0], name))
        self.unreal_dates: dict[tuple[TableName, str], int] = {}
        """Zero and partial dates written as NULL, by column."""
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise PrecheckFailed(
                "target-encoding",
                f"the database is in {encoding}; only UTF8 holds every text of a source",
                todo="CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
            )
        with mapped():
            connection.execute("; ".join(_SETTINGS))

    def begin(self) -> None:
        """Autocommit is on, so transactions begin and end with these statements alone."""
        if not self._connection.closed and self._in_transaction():
            raise Halted("target-refused", "a transaction is open already")
        self.exchange.later("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def commit(self) -> None:
        """COMMIT of a failed transaction is answered with ROLLBACK and no error."""
        answer = self.exchange.now("COMMIT").status
        if answer != "COMMIT":
            raise Transient("target-rolled-back", f"PostgreSQL answered COMMIT with {answer}")

    def rollback(self) -> None:
        """Also on a dead session."""
        self.exchange.drop()
        try:
            if not self._connection.closed and self._in_transaction():
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """The server rolls back what is open."""
        self._connection.close()

    def prepare_meta(self) -> None:
        """Two that start at once would collide in the catalog."""
        with self._transaction():
            self._run("SELECT pg_catalog.pg_advisory_xact_lock(7426801523490)", ())
            for sql in meta.STATEMENTS:
                self._run(sql, ())

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """The advisory lock orders two first claims, which have no row to lock yet."""
        with self._transaction():
            self._run(
                "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))",
                (f"pidts {task} {source}",),
            )
            return self._meta.claim(task, source, workers, start)

    def checkpoints(self, task: str, source: str) -> list[Checkpoint]:
        """Without locks."""
        return self._meta.checkpoints(task, source)

    def lock_checkpoint(self, task: str, source: str, worker: int) -> Checkpoint:
        """FOR UPDATE reads the newest committed version."""
        return self._meta.lock_checkpoint(task, source, worker)

    def hold(self, task: str, source: str) -> list[Checkpoint]:
        """FOR SHARE reads the newest committed version, too."""
        return self._meta.checkpoints(task, source, lock="FOR SHARE")

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """In the open transaction; that the row is there and of this epoch is asked by the statement itself."""
        values = meta.saved_values(checkpoint)
        self.exchange.later(
            self._named(meta.SAVE_CHECKPOINT), values, explain=lambda error: meta.not_saved(error, checkpoint)
        )

    def write(self, change: NetChange) -> None:
        """In the open transaction."""
        self._writer.write(change)

    def load(self, table: Table, rows: pa.Table) -> bool:
        """In the open transaction."""
        return self._loader.load(table, rows)

    def clear(self, name: TableName) -> None:
        """TRUNCATE would keep readers out."""
        self.exchange.later(f"DELETE FROM {qualified(name)}", table=str(name))

    def noted(self, task: str, source: str, name: TableName) -> str:
        """From `pidts_meta`."""
        return self._meta.noted(task, source, name)

    def note(self, task: str, source: str, name: TableName, text: str) -> None:
        """In the open transaction."""
        self._meta.note(task, source, name, text)

    def structure(self, name: TableName) -> Table | None:
        """From the catalog."""
        shape = self._shape(name)
        return shape.to_table() if shape else None

    def watched(self, table: Table) -> tuple[str, ...]:
        """From the catalog, once."""
        return self._watched.of(table)

    def misfits(self, table: Table) -> list[str] | None:
        """From the catalog."""
        shape = self._shape(table.name)
        return shape.misfits(table) if shape else None

    def fingerprint(self, name: TableName) -> str | None:
        """Nobody needs it here, DDL is part of the transaction; exact all the same."""
        shape = self._shape(name)
        return repr(shape) if shape else None

    def column_types(self, table: Table) -> tuple[str, ...]:
        """By the type mapping."""
        return tuple(type_name(column.type) for column in table.columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """With schema, keys and comments; before a copy with the primary key alone."""
        return create_table(table, with_keys=not before_copy)

    def leave_unfinished(self, name: TableName) -> None:
        """In `pidts_meta`, also if it is renamed: a table that somebody else has made keeps the keys that it has."""
        self._run(
            "INSERT INTO pidts_meta.unfinished (relation) VALUES (%s::regclass) ON CONFLICT DO NOTHING",
            (qualified(name),),
        )

    def finish_statements(self, table: Table) -> Rendered:
        """Looks at the target's own indexes."""
        shape = self._shape(table.name)
        if shape is None:
            return Rendered(())
        unfinished = self._run(
            "SELECT 1 FROM pidts_meta.unfinished WHERE relation = %s::regclass", (qualified(table.name),)
        )[0]
        return finish_table(table, shape, self._sequence, keys=bool(unfinished), meta=self._named(USUAL))

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """Looks at the target's own indexes and constraints, whose names it may not have given."""
        if isinstance(statement, AlterTable):
            old, new = before.get(statement.table), next((t for t in after.values() if t is not None), None)
            if old is not None and new is not None:
                for condition, refusal in doubts(statement, old, new, executed_at):
                    if self._run(f"SELECT 1 FROM {qualified(statement.table)} WHERE {condition} LIMIT 1", ())[0]:
                        raise refusal
        found = {name: shape for name in {*before, *after} if (shape := self._shape(name)) is not None}
        return alter.render(statement, before, after, found, executed_at)

    def execute(self, sql: str) -> None:
        """One DDL statement, never with parameters."""
        self.exchange.now(sql)
        self._writer.forget()
        self._watched.forget()

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Row locks fence DDL here; this is for callers who work outside of a transaction."""
        name = f"pidts ddl {task} {source}"
        self._run("SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended(%s, 0))", (name,))
        try:
            yield
        finally:
            if not self._connection.closed and not self._in_transaction():
                self._run("SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended(%s, 0))", (name,))

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
        """Kept for the record only."""
        return self._meta.read_journal(task, source, lsn)

    def write_journal(self, journal: DdlJournal) -> None:
        """Kept for the record only."""
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
        """In one transaction of its own if none is open."""
        shape = self._shape(table.name)
        if shape is None:
            raise Halted("target-shape", f"there is no table {table.name} on the target")
        if self._in_transaction():
            self.exchange.flush()
            return read_rows(self._connection, table, shape, keys=keys, after=after, limit=limit, lock=lock, only=only)
        with self._transaction():
            self.exchange.flush()
            return read_rows(self._connection, table, shape, keys=keys, after=after, limit=limit, lock=lock, only=only)

    def count(self, name: TableName) -> int:
        """Exact, and by the quickest way, which is none of those that rows are written by."""
        self.exchange.later("SET enable_seqscan = on")
        answer = self.exchange.now(f"SELECT count(*) FROM {qualified(name)}")
        self.exchange.later("SET enable_seqscan = off")
        self.exchange.flush()
        return int(answer.rows[0][0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def _in_transaction(self) -> bool:
        return self.exchange.is_waiting or self._connection.info.transaction_status is not TransactionStatus.IDLE

    def _shape(self, name: TableName) -> PgTable | None:
        return read_shape(lambda sql, values: self._run(sql, values)[0], name)

    def _run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        answer = self.exchange.now(self._named(sql), values)
        return answer.rows, answer.count

    def _sequence(self, table: str, column: str) -> str | None:
        ((name,),) = self._run("SELECT pg_catalog.pg_get_serial_sequence(%s, %s)", (table, column))[0]
        return None if name is None else str(name)

    def _note_unreal(self, table: Table, column: str, count: int) -> None:
        place = (table.name, column)
        if place not in self.unreal_dates:
            _log.warning("zero or partial dates become NULL", table=str(table.name), column=column, first_batch=count)
        self.unreal_dates[place] = self.unreal_dates.get(place, 0) + count
