"""Which structure a table has at one place of a log.

The best is what the log tells in front of the rows (binlog_row_metadata=FULL). Else it is followed: from the CREATE
TABLE in the log through every change of it. Else it is what a catalogue says, as far as no change in the log ahead
contradicts that. Where none of them knows, the columns are called `@1`, `@2` and shown as the log writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pidts.binlog.charsets import charset_of
from pidts.binlog.table_map import TableMap
from pidts.cli.event_catalogue import ScriptCatalogue, ServerCatalogue
from pidts.cli.event_group import Group
from pidts.model import Halted, Kind, Lsn, Position, Table, TableName, Transaction
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.history import History, refined

_ID_SIZES = frozenset({4, 16})
"""Bytes of MariaDB's INET4, and of its INET6 and UUID, which its log calls BINARY."""
_CACHED = 4096


class Structures:
    """Goes along with the reader of a log; a server is asked only when the log does not tell."""

    def __init__(
        self, catalogue: ServerCatalogue | ScriptCatalogue | None, tables: AllowList, say: Callable[[str], None]
    ) -> None:
        self._catalogue = catalogue
        self._tables = tables
        self._say = say
        self._history = History(complete=False)
        self._begun = False
        self._dialect = Dialect()
        self._here: tuple[Position, Lsn] | None = None
        self._cache: dict[TableMap, Table] = {}
        self._refused: dict[TableName, Table] = {}
        """Structures that the log's own rows have contradicted."""
        self._told: set[TableName] = set()

    def enter(self, transaction: Transaction, group: Group) -> None:
        """Stand behind the statement of the next transaction, where its rows are, if it has any."""
        self._here = (Position(group.file, transaction.begin.offset), transaction.lsn)
        if not self._begun:
            self._begun = True
            self._dialect = Dialect.of(group.format.server_version)
            if isinstance(self._catalogue, ScriptCatalogue):
                self._history = self._catalogue.begin(self._dialect)
        if transaction.ddl is None:
            return
        dialect = self._dialect
        if group.statements:
            query = group.statements[0].query
            dialect = dialect.under(query.sql_mode)
            # What a new database inherits is the session's, and the statement tells it.
            if (charset := charset_of(query.server_collation)) is not None:
                dialect = replace(dialect, charset=charset, collation=None)
        before, self._history = self._history, self._history.after(transaction, dialect)
        if self._history is not before:
            self._cache.clear()

    def of(self, table_map: TableMap) -> Table | None:
        """The structure in which the rows behind a TABLE_MAP are written; None where they are not wanted."""
        if not self._tables(table_map.name):
            return None
        if (table := self._cache.get(table_map)) is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            table = self._cache[table_map] = self._find(table_map)
        return table

    def contradict(self, name: TableName) -> bool:
        """Rows do not fit the structure given for them; whether there is another to try."""
        given = next((table for told, table in self._cache.items() if told.name == name), None)
        if given is None or given.columns[0].name.startswith("@"):
            return False
        self._refused[name] = given
        self._cache.clear()
        return True

    def _find(self, table_map: TableMap) -> Table:
        name, told = table_map.name, table_map.to_table()
        if told is not None and not _may_be_identifiers(told):
            return refined(told, self._history.tables.get(name))
        try:
            known, why = self._known(name), ""
        except Halted as error:
            known, why = None, error.what
        if told is not None:
            return refined(told, known)
        if known is not None and known != self._refused.get(name):
            return known
        return self._unnamed(table_map, why or ("the known one does not fit the rows" if known else ""))

    def _known(self, name: TableName) -> Table | None:
        try:
            table = self._history.table(name)
        except Halted:
            if not isinstance(self._catalogue, ServerCatalogue):
                raise
            table = None
        if table is not None or not isinstance(self._catalogue, ServerCatalogue) or self._here is None:
            return table
        found, self._dialect = self._catalogue.at(*self._here, self._dialect)
        self._catalogue = None
        # What was followed from a CREATE TABLE up to here is exact.
        followed = self._history.tables
        unknown = {name: text for name, text in found.unknown.items() if name not in followed}
        self._history = replace(found, tables={**found.tables, **followed}, unknown=unknown)
        return self._history.table(name)

    def _unnamed(self, table_map: TableMap, why: str) -> Table:
        """The columns as the log writes them, with numbers for names."""
        if table_map.name not in self._told:
            self._told.add(table_map.name)
            self._say(
                f"{table_map.name}: its structure is not known here{f' ({why})' if why else ''}, so columns have no "
                "names, text is bytes and unsigned numbers may look negative. binlog_row_metadata=FULL on the source "
                "logs what is missing; a start behind the last change of the table, or --schema-from, may help"
            )
        made = table_map.to_table(placeholders=True)
        assert made is not None, "placeholders make names"  # noqa: S101 - what the call is for
        return made


def _may_be_identifiers(told: Table) -> bool:
    """Whether only a record can tell what some columns are."""
    return any(column.type.kind is Kind.BINARY and column.type.length in _ID_SIZES for column in told.columns)
