"""One connection to PostgreSQL: its settings, its transaction and its statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.pq import TransactionStatus

from pidts.model import Halted, PrecheckFailed, Transient
from pidts.target.meta_schema import USUAL, in_schema
from pidts.target.postgres.dialect import identifier
from pidts.target.postgres.encode.arrays import Element, parameter, register
from pidts.target.postgres.errors import mapped
from pidts.target.postgres.firing import GRANTABLE
from pidts.target.postgres.statement_pipeline import StatementPipeline
from pidts.target.text import combined

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
    # Rows are passed as arrays, and the server plans a statement without knowing their length. So the plan has to look
    # up each row by its key. This plan is right for any number of rows, even if the table was empty when it was made.
    "SET jit = off",
    "SET enable_seqscan = off",
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    # Rows arrive table by table, perhaps children before their parents, and the source's log contains the changes that
    # triggers made there. With this role neither foreign keys nor triggers are active. If the account may not set the
    # role, `misfits` reports the tables that have foreign keys or triggers.
    """DO 'BEGIN PERFORM pg_catalog.set_config(''session_replication_role'', ''replica'', false);
    EXCEPTION WHEN insufficient_privilege THEN NULL; END'""",
)

_STATE = "SELECT pg_catalog.current_setting('session_replication_role') = 'replica', current_user::text"
"""Shows whether triggers are off, and the session's role."""

_INSERTED = 5000
"""The largest number of rows that one statement inserts."""


class PostgresConnection:
    """A connection, its settings and its transaction. `PostgresSession` adds the methods that read and write rows."""

    def __init__(self, connection: psycopg.Connection, *, meta_schema: str = USUAL) -> None:
        self.driver = connection
        self.meta_schema, self.named = meta_schema, in_schema(meta_schema, '"')
        register(connection)
        self.pipeline = StatementPipeline(connection)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise PrecheckFailed(
                "target-encoding",
                f"the database is in {encoding}; only UTF8 can store every text of a source",
                todo="Name another database in target-database. To create one, run on the target: CREATE DATABASE ... "
                "ENCODING 'UTF8' TEMPLATE template0",
            )
        with mapped():
            cursor = connection.execute("; ".join((*_SETTINGS, _STATE)))
            while cursor.nextset():
                pass
            is_off, role = cursor.fetchall()[0]
        self.pipeline.acts = not is_off
        if not is_off and connection.info.server_version >= GRANTABLE:
            self.pipeline.grant = f"GRANT SET ON PARAMETER session_replication_role TO {identifier(str(role))}"

    @property
    def trips(self) -> int:
        """Returns the number of round trips so far."""
        return self.pipeline.trips

    def clock(self) -> float:
        """Returns the time by the server's clock, to the microsecond."""
        return float(self.rows("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])

    def begin(self, origin: str = "") -> None:  # noqa: ARG002 - no task reads this server's log
        """Begins a transaction. Autocommit is on, so no other statement begins a transaction."""
        if not self.driver.closed and self.in_transaction():
            raise Halted(
                "target-refused", "a transaction is already open", todo="This is a fault of pidts: please report it"
            )
        self.pipeline.later("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def commit(self) -> None:
        """Commits the transaction, or raises an error if PostgreSQL rolled it back.

        If a statement of the transaction has failed, PostgreSQL answers COMMIT with ROLLBACK and without an error.
        """
        answer = self.pipeline.now("COMMIT").status
        if answer != "COMMIT":
            raise Transient("target-rolled-back", f"PostgreSQL answered COMMIT with {answer}")

    def rollback(self) -> None:
        """Rolls the transaction back; works on a dead session, too."""
        self.pipeline.drop()
        try:
            if not self.driver.closed and self.in_transaction():
                self.driver.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """Closes the connection; the server rolls back an open transaction."""
        self.driver.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end of the block; rolls back after an error."""
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def in_transaction(self) -> bool:
        """Whether a transaction is open. Also true while BEGIN is queued."""
        return self.pipeline.is_waiting or self.driver.info.transaction_status is not TransactionStatus.IDLE

    def run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Executes a statement in which `pidts_meta` means the task's meta schema.

        Returns the rows, and the number of rows that the statement has found or changed.
        """
        answer = self.pipeline.now(self.named(sql), values)
        return answer.rows, answer.count

    def queue_query(self, sql: str, values: Sequence[Any]) -> Callable[[], Sequence[tuple[Any, ...]]]:
        """Queues a query for the round trip of the next statement. The returned function returns the rows."""
        return self.pipeline.queue_query(self.named(sql), values)

    def insert(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Inserts rows of texts and integers into a meta table. Each column is sent as one array."""
        elements = [Element.INT8 if isinstance(each[0], int) else Element.TEXT for each in columns.values()]
        arrays = ", ".join(f"${place}::{each.sql}[]" for place, each in enumerate(elements, 1))
        sql = self.named(f"INSERT INTO pidts_meta.{table} ({', '.join(columns)}) SELECT * FROM unnest({arrays})")
        rows = pa.table({name: pa.array(values) for name, values in columns.items()})
        for first in range(0, rows.num_rows, _INSERTED):
            part = rows.slice(first, _INSERTED)
            values = [parameter(combined(each), how) for each, how in zip(part.columns, elements, strict=True)]
            self.pipeline.later(sql, values, numbered=True)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Executes a statement and returns only the rows."""
        return self.run(sql, values)[0]
