"""Sends statements to PostgreSQL in few round trips.

A statement whose answer is not needed at once is queued (`later`). It is sent together with the next one whose answer
is needed (`now`), in one libpq pipeline. The server executes them in order and stops at the first error: no later
statement is executed, not even a COMMIT. So a transaction of any number of small writes costs two round trips: BEGIN
with the lock of the checkpoint, then all writes with COMMIT.

The call that sends statements raises their errors; an error names the table of the statement that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pidts.model import PidtsError
from pidts.target.postgres.encode.arrays import Parameter
from pidts.target.postgres.errors import StatementRefused, translate

Explain = Callable[[StatementRefused], PidtsError | None]
"""A function that returns an error with more details about a refusal; None if there are none."""

_SOUND = (TransactionStatus.IDLE, TransactionStatus.INTRANS)
_WAITING_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Statement:
    cursor: psycopg.Cursor[Any]
    sql: bytes
    values: Sequence[Any] | None
    table: str
    explain: Explain | None


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of one statement."""

    rows: list[tuple[Any, ...]]
    count: int
    status: str


class StatementPipeline:
    """Sends the statements of one session. Autocommit is on: only BEGIN and COMMIT begin and end transactions."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._waiting: list[_Statement] = []
        self._queued: list[_Statement] = []
        self._bytes = 0
        self._broken = False
        self.grant = ""
        """The statement that lets this role switch off triggers and foreign keys; empty if they are off."""
        self.trips = 0
        """The number of round trips so far."""

    def later(
        self,
        sql: str,
        values: Sequence[Any] = (),
        *,
        numbered: bool = False,
        table: str = "",
        explain: Explain | None = None,
    ) -> None:
        """Queues a statement that returns no rows. Placeholders are `%s`, or `$1` if `numbered`."""
        self._add(sql, values, numbered=numbered, table=table, explain=explain)
        if self._bytes > _WAITING_BYTES:
            self.flush()

    def now(
        self,
        sql: str,
        values: Sequence[Any] = (),
        *,
        numbered: bool = False,
        table: str = "",
        explain: Explain | None = None,
    ) -> StatementResult:
        """Sends the queued statements and this statement; returns the result of this statement."""
        cursor = self._add(sql, values, numbered=numbered, table=table, explain=explain)
        self._waiting += self._queued
        self._queued = []
        self.flush()
        return StatementResult(
            cursor.fetchall() if cursor.description else [], cursor.rowcount, cursor.statusmessage or ""
        )

    def queue_query(self, sql: str, values: Sequence[Any]) -> Callable[[], list[tuple[Any, ...]]]:
        """Queues a SELECT that is executed right after the next statement whose answer is needed, in its round trip.

        The returned function returns the rows, in the same transaction.
        """
        cursor = psycopg.Cursor(self._connection)
        statement = _Statement(cursor, sql.encode(), values, "", None)
        self._queued.append(statement)

        def rows() -> list[tuple[Any, ...]]:
            if statement in self._queued:
                self._queued.remove(statement)
                self._waiting.append(statement)
                self.flush()
            return cursor.fetchall()

        return rows

    def copy(self, sql: str, blocks: Iterable[memoryview], *, table: str = "", explain: Explain | None = None) -> None:
        """Sends the queued statements, and then COPY FROM STDIN with these blocks."""
        self.flush()
        self.trips += 2
        cursor = psycopg.Cursor(self._connection)
        try:
            self._mend()
            with cursor.copy(sql.encode()) as copy:
                for each in blocks:
                    copy.write(each)
        except psycopg.Error as error:
            self._broken = True
            raise self._said(error, _Statement(cursor, b"", None, table, explain)) from error

    def flush(self) -> None:
        """Sends the queued statements."""
        statements, self._waiting, self._bytes = self._waiting, [], 0
        if not statements:
            return
        self.trips += 1
        sent: _Statement | None = None
        try:
            self._mend()
            if len(statements) == 1:
                (sent,) = statements
                sent.cursor.execute(sent.sql, sent.values)
                return
            with self._connection.pipeline():
                for sent in statements:
                    sent.cursor.execute(sent.sql, sent.values)
        except psycopg.Error as error:
            self._broken = True
            failed = next((each for each in statements if each.cursor.pgresult is None), sent)
            raise self._said(error, failed) from error

    def drop(self) -> None:
        """Discards the queued statements without sending them."""
        self._waiting, self._queued, self._bytes = [], [], 0

    def _mend(self) -> None:
        """Removes prepared statements after an error: the driver believes they exist, but the server skipped them.

        The driver forgets prepared statements when it sees DEALLOCATE ALL, but only if it has not seen the same text
        before. So the text has another number each time.
        """
        if self._broken and self._connection.info.transaction_status in _SOUND:
            self._connection.execute(f"DEALLOCATE ALL /* {self.trips} */".encode())
            self._broken = False

    @property
    def is_waiting(self) -> bool:
        """Whether statements are queued."""
        return bool(self._waiting)

    def _add(
        self, sql: str, values: Sequence[Any], *, numbered: bool, table: str, explain: Explain | None
    ) -> psycopg.Cursor[Any]:
        cursor = psycopg.RawCursor(self._connection) if numbered else psycopg.Cursor(self._connection)
        self._waiting.append(_Statement(cursor, sql.encode(), values or None, table, explain))
        self._bytes += sum(len(value.data) for value in values if isinstance(value, Parameter))
        return cursor

    def _said(self, error: psycopg.Error, statement: _Statement | None) -> PidtsError:
        if statement is None:
            return translate(error)
        found = translate(error, statement.table, at_commit=statement.sql == b"COMMIT", grant=self.grant)
        if statement.explain is not None and isinstance(found, StatementRefused):
            return statement.explain(found) or found
        return found
