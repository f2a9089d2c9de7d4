"""Decides whether a statement on other tables may also have changed tables of the task.

In binlog_format STATEMENT or MIXED, the log has a statement and not the rows that it changed. The statement may change
more tables than it names: by triggers, by a view, or by stored functions. MySQL logs the databases of all these tables,
but a database may have tables of the task and others. MariaDB logs no databases. If the log does not decide, the source
is asked which triggers the named tables have now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import TypeAlias, TypeVar

from pidts.batch.relay_events import statement_events
from pidts.binlog import Query
from pidts.model import LogEntry, Lsn, TableName, Transaction, Transient
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema import Dialect, StatementDml, Unknown
from pidts.schema.affected_tables import temporary_tables
from pidts.schema.parse.classify import classify
from pidts.schema.parse.function_calls import calls
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.source import Session
from pidts.source.table_effects import table_effects

Logged: TypeAlias = Callable[[], Iterable[Query]]
"""Reads the statements of a transaction from the log, with the modes and the databases that the index lacks."""

_Key = TypeVar("_Key")
_MOST = 4096
"""The most temporary tables that are remembered."""
_MOST_PASSED = 1 << 16
"""The most statements without side effects that are remembered."""


class SideEffects:
    """The side effects of statements on tables that are not the task's. Several threads may use it."""

    def __init__(
        self,
        allow: AllowList,
        dialect: Dialect,
        source: Callable[[], AbstractContextManager[Session]],
        relay: RelayReader | None = None,
    ) -> None:
        """`source` opens a session. Without `relay`, the source is asked about each statement, and must answer."""
        self._allow, self._dialect, self._source, self._relay = allow, dialect, source, relay
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """Held while the relay is read: only one thread at a time may use the reader."""
        self._answers: dict[TableName, str] = {}
        self._upto: Lsn | None = None
        """The end of the relay when the source was asked. The answers are valid for statements up to this place."""
        self._found: set[Lsn] = set()
        """The statements that may have side effects. A batch always ends before such a statement: it is judged once."""
        self._passed: dict[Lsn, None] = {}
        """The last statements without side effects. Such a statement is not judged again: it may have a million
        characters, and each table that has waited reads the log again.
        """
        self._temporary: dict[TableName, None] = {}
        """The last temporary tables in the log. Such tables have no triggers, and are not in the source's catalog."""

    def logged(self, entry: LogEntry) -> Logged:
        """Returns a function that reads the statements of an entry of the relay."""
        return partial(statement_events, self._relay, entry) if self._relay is not None else tuple

    def judged(self, lsn: Lsn) -> bool | None:
        """Returns what `may_reach` has found for the statement at this place; None if it is not known."""
        return True if lsn in self._found else False if lsn in self._passed else None

    def may_reach(self, transaction: Transaction, tables: Collection[TableName], logged: Logged) -> bool:
        """Whether a statement that names only these tables may have changed tables of the task.

        True also if the source does not answer. Then `reason` asks again, unless an operator skips the statement.
        """
        made = temporary_tables(transaction.ddl or "", transaction.ddl_schema, self._dialect)
        reason = self._reason_in(logged)  # without a lock: parsing a long statement takes long
        with self._lock:
            for name in made:
                _remember(self._temporary, name, _MOST)
            if (known := self.judged(transaction.lsn)) is not None:
                return known
            try:
                if reason is None:
                    reason = _first(self._known(transaction.lsn, tables), tables)
            except Transient as error:
                if self._relay is None:
                    raise
                reason = error.what
            if reason:
                self._found.add(transaction.lsn)
            else:
                _remember(self._passed, transaction.lsn, _MOST_PASSED)
            return bool(reason)

    def reason(self, entry: LogEntry, tables: Collection[TableName]) -> str:
        """Returns the reason why the statement may have changed tables of the task; empty: it has not changed them.

        If the statements do not show it, the source is asked once more: an operator may have granted a privilege since
        the last answer.
        """
        reason = self._reason_in(self.logged(entry))
        with self._lock:
            return _first(self._asked(tables), tables) if reason is None else reason

    def _read(self, logged: Logged) -> Generator[Query, None, None]:
        """Yields the statements one by one: a transaction may have more of them than fit into the memory."""
        with self._reading:
            queries = iter(logged())
        while True:
            with self._reading:
                query = next(queries, None)
            if query is None:
                return
            yield query

    def _reason_in(self, logged: Logged) -> str | None:
        """Returns the reason that is in the statements; empty if they have no side effects; None to ask the source."""
        has_any, asks = False, False
        with closing(self._read(logged)) as queries:
            for query in queries:
                has_any = True
                if self._is_elsewhere(query):
                    continue
                asks = True
                dialect = self._dialect.under(query.sql_mode)
                if self._names_more(query, dialect):
                    return "under the SQL mode of its session it names other tables"
                try:
                    called = next(calls(query.sql, dialect), "")
                except NotUnderstoodError as error:
                    return str(error)
                if called:
                    return f"it calls {called}, which may be a stored function"
        if not has_any:
            return "the log does not have it"
        return None if asks else ""

    def _names_more(self, query: Query, dialect: Dialect) -> bool:
        """Whether the statement names a table of the task, or unknown tables, under the SQL mode of its session.

        The index has no modes. Without its mode, a statement may seem to name fewer tables. For example, a text that
        ends with a backslash hides the next names, unless the mode is NO_BACKSLASH_ESCAPES.
        """
        if not (dialect.ansi_quotes or dialect.no_backslash_escapes):
            return False
        statement = classify(query.sql, query.schema, dialect=dialect)
        return isinstance(statement, StatementDml | Unknown) and (
            not statement.tables or any(map(self._allow, statement.tables))
        )

    def _is_elsewhere(self, query: Query) -> bool:
        """Whether the log says that the statement used only databases without tables of the task."""
        return query.databases is not None and not any(map(self._allow.takes_schema, query.databases))

    def _known(self, lsn: Lsn, tables: Collection[TableName]) -> dict[TableName, str]:
        """Returns the source's answers. If the statement has come after the last answer, the source is asked again."""
        if self._upto is None or lsn > self._upto:
            # The statements that are in the relay now have run before the source answers.
            with self._reading:
                self._answers, self._upto = {}, self._relay.received if self._relay is not None else None
        if missing := [name for name in tables if name not in self._answers]:
            self._answers |= self._asked(missing)
        return self._answers

    def _asked(self, tables: Collection[TableName]) -> dict[TableName, str]:
        with self._source() as session:
            return table_effects(session, tables, self._temporary)


def _first(answers: Mapping[TableName, str], tables: Iterable[TableName]) -> str:
    return next((answers[name] for name in tables if answers[name]), "")


def _remember(found: dict[_Key, None], key: _Key, most: int) -> None:
    """Adds a key as the last one, and removes the first one if there are too many."""
    found.pop(key, None)
    if len(found) >= most:
        del found[next(iter(found))]
    found[key] = None
