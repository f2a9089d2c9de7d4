"""Sends statements to PostgreSQL in few round trips.

A statement whose answer is not needed at once is queued (`later`). The next statement whose answer is needed (`now`) is
sent together with the queued statements, in one libpq pipeline. The server executes them in order and stops at the
first error: no later statement is executed, not even a COMMIT. So a transaction of any number of small writes costs two
round trips: BEGIN with the lock of the checkpoint, then all writes with COMMIT.

The statements are given to libpq directly. The driver's own pipeline sends each statement by itself, and needs three
times the CPU time for a small transaction. So this module also decides which statements are prepared.

The error of a statement is raised by the call that sends it, and names the statement's table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from pidts.model import PidtsError
from pidts.target.postgres.encode.arrays import Parameter
from pidts.target.postgres.errors import StatementRefused, translate

Explain = Callable[[StatementRefused], PidtsError | None]
"""A function that returns an error with more details about a refusal; None if there are none."""

Key: TypeAlias = tuple[bytes, tuple[int, ...]]
"""A statement's text, and the types of its parameters."""

_SOUND = (TransactionStatus.IDLE, TransactionStatus.INTRANS)
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)
_WAITING_BYTES = 1 << 20
_PLACEHOLDER = re.compile("%[s%]")
_ALTERING = (b"ALTER", b"DROP")
"""Statements that may change result types. The server then refuses a prepared statement."""
_UNPREPARED = 5
"""The number of times that a statement is executed before it is prepared: some statements are executed only rarely."""
_PREPARED = 500
"""The largest number of prepared statements. Each table needs two statements. With a lower limit, they would replace
each other.
"""
_LONG = 1 << 10
"""The length in bytes above which a statement without parameters is not prepared: its text contains the values."""


@dataclass(slots=True)
class _Statement:
    sql: bytes
    values: Sequence[Any]
    table: str = ""
    explain: Explain | None = None
    result: PGresult | None = None
    """The server's answer, if the statement has succeeded."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of one statement."""

    rows: list[tuple[Any, ...]]
    count: int
    status: str


class PreparedStatements:
    """The prepared statements of one session; the last statement was used most recently."""

    def __init__(self, most: int = _PREPARED) -> None:
        self._most = most
        self._names: dict[Key, bytes] = {}
        self._seen: dict[Key, int] = {}
        """For each of the last statements that are not prepared: how often it was executed."""
        self._made = 0

    def known(self, key: Key) -> bytes | None:
        """Returns the name of a prepared statement; None if the statement is not prepared."""
        name = self._names.pop(key, None)
        if name is not None:
            self._names[key] = name
        return name

    def new(self, key: Key) -> bytes | None:
        """Returns a new name if the statement has to be prepared now; None if it has to be executed unprepared."""
        sql, types = key
        if not types and len(sql) > _LONG:
            return None
        seen = self._seen.pop(key, 0)
        if seen < _UNPREPARED:
            self._seen[key] = seen + 1
            while len(self._seen) > self._most:
                del self._seen[next(iter(self._seen))]
            return None
        self._made += 1
        self._names[key] = name = b"pidts_%d" % self._made
        return name

    def surplus(self) -> bytes | None:
        """Removes the least recently used statement if there are too many, and returns its name; else None."""
        return self._names.pop(next(iter(self._names))) if len(self._names) > self._most else None

    def forget(self) -> bool:
        """Forgets all prepared statements; returns whether there were any. Their names are not used again."""
        is_any = bool(self._names)
        self._seen |= dict.fromkeys(self._names, _UNPREPARED)
        self._names.clear()
        return is_any


class StatementPipeline:
    """Sends the statements of one session. Autocommit is on: only BEGIN and COMMIT begin and end transactions."""

    def __init__(self, connection: psycopg.Connection, prepared: PreparedStatements | None = None) -> None:
        """Stops the driver from preparing statements on the connection: only this object prepares them."""
        connection.prepare_threshold = None
        self._connection, self._prepared = connection, prepared or PreparedStatements()
        self._converter = Transformer(connection)
        self._waiting: list[_Statement] = []
        self._queued: list[_Statement] = []
        self._bytes = 0
        self._broken = False
        self.acts = False
        """Whether triggers and foreign keys are active in this session."""
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
        statement = self._add(sql, values, numbered=numbered, table=table, explain=explain)
        self._waiting += self._queued
        self._queued = []
        self.flush()
        return self._result(statement)

    def queue_query(self, sql: str, values: Sequence[Any]) -> Callable[[], list[tuple[Any, ...]]]:
        """Queues a SELECT that is executed right after the next statement whose answer is needed, in its round trip.

        The returned function returns the rows, in the same transaction.
        """
        statement = _Statement(_numbered(sql), values)
        self._queued.append(statement)

        def rows() -> list[tuple[Any, ...]]:
            if any(statement is each for each in self._queued):
                self._queued = [each for each in self._queued if each is not statement]
                self._waiting.append(statement)
                self.flush()
            return self._result(statement).rows

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
            self._forget()
            raise self._said(error, _Statement(b"", (), table, explain)) from error

    def flush(self) -> None:
        """Sends the queued statements."""
        statements, self._waiting, self._bytes = self._waiting, [], 0
        if not statements:
            return
        self.trips += 1
        try:
            self._mend()
            if len(statements) == 1 and not statements[0].values:
                statements[0].result = self._connection.execute(statements[0].sql).pgresult
            else:
                self._send(statements)
        except psycopg.Error as error:
            self._forget()
            raise self._said(error, next((each for each in statements if each.result is None), None)) from error
        if any(each.sql.startswith(_ALTERING) for each in statements):
            self._forget()

    def drop(self) -> None:
        """Discards the queued statements without sending them."""
        self._waiting, self._queued, self._bytes = [], [], 0

    def _send(self, statements: Sequence[_Statement]) -> None:
        """Sends statements in one pipeline, and records their results; raises the first error."""
        convert, server = self._converter, self._connection.pgconn
        ready = []
        for each in statements:
            try:
                values = convert.dump_sequence(each.values, [PyFormat.AUTO] * len(each.values))
            except psycopg.Error as error:
                raise self._said(error, each) from error
            ready.append((each, values, convert.types or (), convert.formats))
        sent: list[_Statement | None] = []
        server.enter_pipeline_mode()
        try:
            for each, values, types, formats in ready:
                name = self._prepared.known((each.sql, types))
                if name is None and (name := self._prepared.new((each.sql, types))) is not None:
                    server.send_prepare(name, each.sql, types)
                    sent.append(None)
                    if (surplus := self._prepared.surplus()) is not None:
                        server.send_query_params(b"DEALLOCATE " + surplus, None)
                        sent.append(None)
                if name is None:
                    server.send_query_params(each.sql, values, types, formats)
                else:
                    server.send_query_prepared(name, values, formats)
                sent.append(each)
            server.pipeline_sync()
            failure = self._connection.wait(_receive(server, sent))
            server.exit_pipeline_mode()
        except BaseException:
            self._connection.close()  # else the unread answers would count as answers to the next statements
            raise
        if failure is not None:
            raise failure

    def _result(self, statement: _Statement) -> StatementResult:
        result = statement.result
        if result is None:
            raise AssertionError("the statement was not sent")
        status = (result.command_status or b"").decode()
        if result.status != ExecStatus.TUPLES_OK:
            return StatementResult([], -1 if result.command_tuples is None else result.command_tuples, status)
        self._converter.set_pgresult(result)
        return StatementResult(self._converter.load_rows(0, result.ntuples, tuple), result.ntuples, status)

    def _forget(self) -> None:
        """Forgets the prepared statements: after an error, it is not known which of them the server has prepared."""
        self._broken |= self._prepared.forget()

    def _mend(self) -> None:
        """Removes the forgotten statements from the server, as soon as the failed transaction has ended."""
        if self._broken and self._connection.info.transaction_status in _SOUND:
            self._connection.execute(b"DEALLOCATE ALL")
            self._broken = False

    @property
    def is_waiting(self) -> bool:
        """Whether statements are queued."""
        return bool(self._waiting)

    def _add(
        self, sql: str, values: Sequence[Any], *, numbered: bool, table: str, explain: Explain | None
    ) -> _Statement:
        text = sql.encode() if numbered or not values else _numbered(sql)
        self._waiting.append(statement := _Statement(text, values, table, explain))
        self._bytes += sum(len(value.data) for value in values if isinstance(value, Parameter))
        return statement

    def _said(self, error: psycopg.Error, statement: _Statement | None) -> PidtsError:
        if statement is None:
            return translate(error)
        found = translate(error, statement.table, at_commit=statement.sql == b"COMMIT", grant=self.grant)
        if statement.explain is not None and isinstance(found, StatementRefused):
            return statement.explain(found) or found
        return found


@lru_cache
def _numbered(sql: str) -> bytes:
    """Returns a statement with placeholders `$1`, `$2` instead of `%s`, and with `%` instead of `%%`."""
    numbers = count(1)
    return _PLACEHOLDER.sub(lambda found: "%" if found[0] == "%%" else f"${next(numbers)}", sql).encode()


def _fetch(server: PGconn) -> PQGen[list[PGresult]]:
    results: list[PGresult] = yield from fetch_many(server)
    if not results:
        raise psycopg.OperationalError("the server has sent no result")
    return results


def _receive(server: PGconn, sent: Iterable[_Statement | None]) -> PQGen[psycopg.Error | None]:
    """Records the results of a pipeline's statements; returns the error of the statement that failed, if any.

    None stands for a command that belongs to the statement after it.
    """
    found = None
    try:
        yield from send(server)
        for statement in sent:
            result = (yield from _fetch(server))[0]
            if result.status == ExecStatus.FATAL_ERROR:
                found = found or error_from_result(result)
            elif result.status in _DONE and statement is not None:
                statement.result = result
        yield from fetch_many(server)
    except psycopg.OperationalError:
        if found is None:
            raise
        raise found from None
    return found
