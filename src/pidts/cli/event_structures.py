"""Which structure a table has at one place of a log.

The best is what the log tells in front of the rows (binlog_row_metadata=FULL). Else it is followed: from the CREATE
TABLE in the log through every change of it. Else it is what the server's catalogue says now, which may be of a later
time; where that does not fit, the columns are called `@1`, `@2` and shown as the log writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from pidts.binlog.table_map import TableMap
from pidts.model import Halted, Kind, Table, TableName, Transaction
from pidts.rules import AllowList
from pidts.schema import CreateTable, Dialect, Statement, Unknown, apply, apply_charset, classify
from pidts.source.connection import SourceConfig, connect
from pidts.source.structures import read_structures, schema_charsets

_Name = TypeVar("_Name")
_Value = TypeVar("_Value")

_IDENTIFIERS = frozenset({Kind.UUID, Kind.INET4, Kind.INET6})
"""Types of MariaDB's that its log calls BINARY."""


class Structures:
    """Goes along with the reader of a log; `server` is asked when the log does not tell, if there is one."""

    def __init__(self, server: SourceConfig | None, tables: AllowList, say: Callable[[str], None]) -> None:
        self._server = server
        self._tables = tables
        self._say = say
        self._catalogue: Mapping[TableName, Table] | None = None
        self._charsets: dict[str, tuple[str, str]] | None = None
        self._followed: dict[TableName, Table] = {}
        self._told: set[TableName] = set()

    def at(self, table_map: TableMap) -> Table:
        """The structure in which the rows behind a TABLE_MAP are written."""
        name = table_map.name
        told = table_map.to_table()
        known = self._followed.get(name) or self._current().get(name)
        if told is None:
            return known or self.unnamed(table_map)
        return told if known is None else _refined(told, known)

    def unnamed(self, table_map: TableMap) -> Table:
        """The columns as the log writes them, with numbers for names."""
        if table_map.name not in self._told:
            self._told.add(table_map.name)
            self._say(
                f"{table_map.name}: its structure is not known here, so columns have no names, text is bytes and "
                "unsigned numbers may look negative; binlog_row_metadata=FULL logs what is missing"
            )
        made = table_map.to_table(placeholders=True)
        assert made is not None, "placeholders make names"  # noqa: S101 - what the call is for
        return made

    def passed(self, transaction: Transaction, server_version: str) -> None:
        """Follow a schema change."""
        if transaction.ddl is None:
            return
        dialect = Dialect.of(server_version)
        statement = classify(transaction.ddl, transaction.ddl_schema, dialect=dialect)
        charsets = self._known_charsets()
        self._catalogue = None
        try:
            # Text in a table of a database whose charset is not known could be read wrongly.
            if not isinstance(statement, CreateTable) or statement.table.schema in charsets:
                _update(self._followed, apply(statement, self._followed, charsets, dialect=dialect))
        except Halted:
            self._forget(statement)
        _update(charsets, apply_charset(statement, charsets, dialect=dialect))

    def _forget(self, statement: Statement) -> None:
        names = statement.tables or (tuple(self._followed) if isinstance(statement, Unknown) else ())
        for name in names:
            self._followed.pop(name, None)

    def _current(self) -> Mapping[TableName, Table]:
        if self._catalogue is None:
            self._catalogue = {}
            if self._server is not None:
                with closing(connect(self._server)) as session:
                    self._catalogue = read_structures(session, self._tables)
        return self._catalogue

    def _known_charsets(self) -> dict[str, tuple[str, str]]:
        if self._charsets is None:
            self._charsets = {}
            if self._server is not None:
                with closing(connect(self._server)) as session:
                    self._charsets = schema_charsets(session)
        return self._charsets


def _update(known: dict[_Name, _Value], changes: Mapping[_Name, _Value | None]) -> None:
    for name, value in changes.items():
        if value is None:
            known.pop(name, None)
        else:
            known[name] = value


def _refined(told: Table, known: Table) -> Table:
    types = {column.name: column.type for column in known.columns if column.type.kind in _IDENTIFIERS}
    columns = tuple(
        replace(column, type=types[column.name]) if column.name in types and column.type.kind is Kind.BINARY else column
        for column in told.columns
    )
    return replace(told, columns=columns)
