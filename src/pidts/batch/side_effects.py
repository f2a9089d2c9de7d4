"""Decides whether a statement on other tables may also have changed tables of the task.

A session with binlog_format STATEMENT or MIXED logs a statement and not the rows that it changed. The statement may
change more tables than it names: by triggers, by a view, or by stored functions. MySQL logs the databases of all these
tables. MariaDB does not, and a database may have tables of the task and others. Then the source is asked which triggers
the named tables have now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial

from pidts.batch.relay_events import statement_events
from pidts.model import LogEntry, Lsn, TableName, Transaction, Transient
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.affected_tables import temporary_tables
from pidts.schema.parse.function_calls import calls
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.source import Session
from pidts.source.table_effects import table_effects

_MOST = 4096
"""The most temporary tables that are remembered."""


class SideEffects:
    """The side effects of statements on tables that are not the task's. Several threads may use it."""

    def __init__(
        self,
        allow: AllowList,
        dialect: Dialect,
        source: Callable[[], AbstractContextManager[Session]],
        relay: RelayReader | None = None,
    ) -> None:
        """`source` opens a session with the source.

        Without `relay`, the source is asked about each statement, and `may_reach` fails if the source does not answer.
        """
        self._allow, self._dialect, self._source, self._relay = allow, dialect, source, relay
        self._lock = threading.Lock()
        self._answers: dict[TableName, str] = {}
        self._upto: Lsn | None = None
        """The end of the relay when the source was asked. The answers count for statements up to this place."""
        self._found: set[Lsn] = set()
        """The statements that may have side effects. They are not judged again, so a batch always ends before them."""
        self._temporary: dict[TableName, None] = {}
        """The last temporary tables in the log. They have no triggers, and the source's catalog does not show them."""

    def may_reach(self, transaction: Transaction, tables: Collection[TableName], entry: LogEntry | None) -> bool:
        """Whether a statement that names only these tables may have changed tables of the task.

        This is also assumed if the source does not answer. `reason` asks again, unless an operator skips the statement.
        """
        with self._lock:
            if transaction.lsn in self._found:
                return True
            self._note_temporary(transaction)
            try:
                reason = self._reason(transaction, tables, entry, partial(self._known, transaction.lsn))
            except Transient as error:
                if self._relay is None:
                    raise
                reason = error.what
            if reason:
                self._found.add(transaction.lsn)
            return bool(reason)

    def reason(self, entry: LogEntry, tables: Collection[TableName]) -> str:
        """Returns why the statement may have changed tables of the task, as the source now answers; empty: it has not.

        An operator may have granted a privilege meanwhile.
        """
        with self._lock:
            return self._reason(entry.transaction, tables, entry, self._asked)

    def _note_temporary(self, transaction: Transaction) -> None:
        for name in temporary_tables(transaction.ddl or "", transaction.ddl_schema, self._dialect):
            self._temporary.pop(name, None)
            if len(self._temporary) >= _MOST:
                del self._temporary[next(iter(self._temporary))]
            self._temporary[name] = None

    def _reason(
        self,
        transaction: Transaction,
        tables: Collection[TableName],
        entry: LogEntry | None,
        answers_about: Callable[[Collection[TableName]], dict[TableName, str]],
    ) -> str:
        if entry is not None and self._is_elsewhere(entry):
            return ""
        try:
            called = calls(transaction.ddl or "", self._dialect)
        except NotUnderstoodError as error:
            return str(error)
        if called:
            return f"it calls {called[0]}, which may be a stored function"
        answers = answers_about(tables)
        return next((answers[name] for name in tables if answers[name]), "")

    def _is_elsewhere(self, entry: LogEntry) -> bool:
        """Whether the log says that all tables which were used are in databases without tables of the task."""
        if self._relay is None:
            return False
        has_statements = False
        for query in statement_events(self._relay, entry):
            has_statements = True
            if query.databases is None or any(map(self._allow.takes_schema, query.databases)):
                return False
        return has_statements

    def _known(self, lsn: Lsn, tables: Collection[TableName]) -> dict[TableName, str]:
        """Returns the source's answers. The source is asked again if the statement has come after the last answer."""
        if self._upto is None or lsn > self._upto:
            # The statements that are in the relay now have run before the source answers.
            self._answers, self._upto = {}, self._relay.received if self._relay is not None else None
        if missing := [name for name in tables if name not in self._answers]:
            self._answers |= self._asked(missing)
        return self._answers

    def _asked(self, tables: Collection[TableName]) -> dict[TableName, str]:
        with self._source() as session:
            return table_effects(session, tables, self._temporary)
