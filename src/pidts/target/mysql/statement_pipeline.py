"""Sends statements to the server in few round trips.

A statement whose answer is not needed at once is queued (`later`). The next statement whose answer is needed (`now`) is
sent together with the queued statements, as one text. The server executes them in order and stops at the first error:
no later statement is executed, not even a COMMIT. So a transaction of a few rows costs two round trips: START
TRANSACTION with the lock of the checkpoint, then all writes with COMMIT.

The error of a statement is raised by the call that sends it, and names the statement's table. A large text is sent at
once, so that the server works on it while the next text is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pymysql
from pymysql.connections import Connection

from pidts.model import Halted, PidtsError
from pidts.target.mysql.driver import (
    RawRows,
    StatementResult,
    force_close,
    is_in_transaction,
    load,
    run,
    sql_literals,
)
from pidts.target.mysql.errors import StatementRefused, translate

ResultCheck = Callable[[StatementResult], None]
Rows = Sequence[tuple[Any, ...]]
Explain = Callable[[StatementRefused], PidtsError | None]
"""A function that returns an error with more details about a refusal; None if there are none."""

_WAITING_BYTES = 1 << 16
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Statement:
    sql: bytes
    table: str = ""
    check: ResultCheck | None = None
    explain: Explain | None = None


class StatementPipeline:
    """Sends the statements of one session."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._waiting: list[_Statement] = []
        self._queued: list[_Statement] = []
        self._bytes = 0
        self.trips = 0
        """The number of round trips so far."""

    def later(
        self, sql: bytes, table: str = "", *, check: ResultCheck | None = None, explain: Explain | None = None
    ) -> None:
        """Queues a statement; sends the queued statements if they are large together. `check` tests the result."""
        if self._bytes + len(sql) > _WAITING_BYTES:
            self.flush()
        self._waiting.append(_Statement(sql, table, check, explain))
        self._bytes += len(sql)
        if self._bytes > _WAITING_BYTES:
            self.flush()

    def now(self, sql: bytes, table: str = "") -> StatementResult:
        """Sends the queued statements and then this one; returns the result of this one. It concerns `table`."""
        if self._bytes + len(sql) > _WAITING_BYTES:
            self.flush()  # together, the statements might be larger than the server accepts
        place = len(self._waiting)
        self._waiting += [_Statement(sql, table), *self._queued]
        self._queued = []
        return self._sent()[place]

    def queue_query(self, sql: bytes) -> Callable[[], Rows]:
        """Queues a SELECT that is executed right after the next statement whose answer is needed, in its round trip.

        The returned function returns the rows, in the same transaction.
        """
        answers: list[StatementResult] = []
        statement = _Statement(sql, check=answers.append)
        self._queued.append(statement)

        def rows() -> Rows:
            if not answers:
                self._queued.remove(statement)
                self._waiting.append(statement)
                self._sent()
            return answers[0].rows

        return rows

    def load(self, sql: bytes, texts: Iterable[memoryview], table: str = "") -> StatementResult:
        """Sends the queued statements, and then LOAD DATA LOCAL with this text; returns the result of LOAD DATA."""
        self.flush()
        self.trips += 2
        try:
            return load(self._connection, sql, texts)
        except (pymysql.err.Error, OSError) as error:
            raise translate(error, table) from error

    def rows(self, sql: bytes, read: Callable[[RawRows], _T], table: str = "") -> _T:
        """Sends the queued statements, then this SELECT; returns what `read` returns, which has to consume all rows."""
        self.flush()
        self.trips += 1
        try:
            return read(RawRows(self._connection, sql))
        except (pymysql.err.Error, OSError) as error:
            raise translate(error, table) from error
        except BaseException:
            force_close(self._connection)  # else the unread rows would count as the answer to the next statement
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction was open after the last statement, according to the server's answer."""
        return is_in_transaction(self._connection)

    def flush(self) -> None:
        """Sends all queued statements."""
        if self._waiting:
            self._sent()

    def drop(self) -> None:
        """Discards the queued statements without sending them."""
        self._waiting, self._queued, self._bytes = [], [], 0

    def text(self, sql: str, values: Sequence[Any]) -> bytes:
        """Returns a statement with its values filled in."""
        text = sql % sql_literals(self._connection, values) if values else sql
        return text.encode("utf-8", "surrogateescape")

    def _sent(self) -> list[StatementResult]:
        statements, self._waiting, self._bytes = self._waiting, [], 0
        self.trips += 1
        answers: list[StatementResult] = []
        try:
            answers.extend(run(self._connection, [statement.sql for statement in statements]))
        except (pymysql.err.Error, OSError) as error:
            raise _said(error, statements[min(len(answers), len(statements) - 1)]) from error
        except BaseException:
            force_close(self._connection)  # else the unread answers would count as answers to the next statements
            raise
        if len(answers) != len(statements):
            raise Halted(
                "target-refused",
                f"the target gave {len(answers)} answers to {len(statements)} statements",
                todo="Connect to the server itself, not to a proxy",
            )
        for statement, answer in zip(statements, answers, strict=True):
            if statement.check is not None:
                statement.check(answer)
        return answers


def _said(error: Exception, failed: _Statement) -> PidtsError:
    said = translate(error, failed.table)
    if failed.explain is not None and isinstance(said, StatementRefused):
        return failed.explain(said) or said
    return said
