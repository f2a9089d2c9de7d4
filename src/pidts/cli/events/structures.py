"""Finds the structure that a table has at one place of a log.

The reader uses the first of these that it has:

1. The log's description of the columns before the rows (binlog_row_metadata=FULL).
2. The table's CREATE TABLE in the log, and all changes of the table after it.
3. A catalog outside the log, unless it contradicts the log: the server's catalog, or a file of CREATE TABLE statements.
4. Columns with the names `@1`, `@2`, … and the values as the log has them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pidts.binlog.table_map import TableMap
from pidts.binlog.values.charsets import charset_of
from pidts.cli.events.group import TransactionEvents
from pidts.cli.events.outside_structures import ScriptStructures, ServerStructures
from pidts.model import Halted, Kind, Lsn, Position, Table, TableName, Transaction
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures, refined

_ID_SIZES = frozenset({4, 16})
"""The lengths of MariaDB's types INET4 (4), INET6 and UUID (16). The log describes all three as BINARY."""
_CACHED = 4096


class Structures:
    """The structures at the current transaction. A server's catalog is read only if the log is not enough."""

    def __init__(
        self, outside: ServerStructures | ScriptStructures | None, tables: AllowList, say: Callable[[str], None]
    ) -> None:
        self._outside = outside
        self._tables = tables
        self._say = say
        self._history = KnownStructures(complete=False)
        self._begun = False
        self._dialect = Dialect()
        self._here: tuple[Position, Lsn] | None = None
        self._cache: dict[TableMap, Table] = {}
        self._refused: dict[TableName, Table] = {}
        """Structures that do not fit the rows in the log."""
        self._reported: set[TableName] = set()

    def enter(self, transaction: Transaction, group: TransactionEvents) -> None:
        """Moves to the next transaction. If it is a schema change, the structures are those after the change."""
        self._here = (Position(group.file, transaction.begin.offset), transaction.lsn)
        if not self._begun:
            self._begun = True
            self._dialect = Dialect.of(group.format.server_version)
            if isinstance(self._outside, ScriptStructures):
                self._history = self._outside.begin(self._dialect)
        if transaction.ddl is None:
            return
        dialect = self._dialect
        if group.statements:
            query = group.statements[0].query
            dialect = dialect.under(query.sql_mode, query.time_zone)
            # A new database gets the session's `collation_server`, which the statement's event contains.
            if (charset := charset_of(query.server_collation)) is not None:
                dialect = replace(dialect, charset=charset, collation=None)
        before, self._history = self._history, self._history.after(transaction, dialect)
        if self._history is not before:
            self._cache.clear()

    def of(self, table_map: TableMap) -> Table | None:
        """Returns the structure of the rows after a TABLE_MAP, or None if the rows are not wanted."""
        if not self._tables(table_map.name):
            return None
        if (table := self._cache.get(table_map)) is None:
            if self._is_sequence(table_map):
                return None
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            table = self._cache[table_map] = self._find(table_map)
        return table

    def contradict(self, name: TableName) -> bool:
        """Records that rows do not fit their structure. Returns whether there is another structure to try."""
        given = next((table for table_map, table in self._cache.items() if table_map.name == name), None)
        if given is None or given.columns[0].name.startswith("@"):
            return False
        self._refused[name] = given
        self._cache.clear()
        return True

    def _find(self, table_map: TableMap) -> Table:
        name, logged = table_map.name, table_map.to_table()
        if logged is not None and not _may_be_identifiers(logged):
            followed = self._history.tables.get(name)
            return refined(logged, followed and table_map.complete(followed))
        try:
            known, why = self._known(name), ""
        except Halted as error:
            known, why = None, error.what
        if logged is not None:
            return refined(logged, known and table_map.complete(known))
        if known is not None:
            fitted = table_map.complete(known, as_bytes=True)
            if fitted != self._refused.get(name):
                self._note_texts_as_bytes(table_map.complete(known), fitted)
                return fitted
        return self._unnamed(table_map, why or ("the known structure does not fit the rows" if known else ""))

    def _is_sequence(self, table_map: TableMap) -> bool:
        """Whether the rows are those of a SEQUENCE. If the log does not show this, reads the server's catalog."""
        name = table_map.name
        if self._history.is_sequence(name):
            return True
        if not table_map.may_be_sequence:
            return False
        with suppress(Halted):
            self._known(name)
        return self._history.is_sequence(name, looks_like_one=True)

    def _known(self, name: TableName) -> Table | None:
        try:
            table = self._history.table(name)
        except Halted:
            if not isinstance(self._outside, ServerStructures):
                raise
            table = None
        is_known = table is not None and not table.has_unknown_charset
        if is_known or not isinstance(self._outside, ServerStructures) or self._here is None:
            return table
        found, self._dialect = self._outside.at(*self._here, self._dialect)
        self._outside = None
        # If the reader has followed a table from its CREATE TABLE to this place, it knows the exact structure.
        followed = {
            name: table
            for name, table in self._history.tables.items()
            if not table.has_unknown_charset or name not in found.tables
        }
        unknown = {name: text for name, text in found.unknown.items() if name not in followed}
        sequences = found.sequences | self._history.sequences
        self._history = replace(
            found, tables={**found.tables, **followed}, unknown=unknown, sequences=sequences - {*followed}
        )
        return self._history.table(name)

    def _note_texts_as_bytes(self, known: Table, shown: Table) -> None:
        pairs = zip(known.columns, shown.columns, strict=True)
        names = [column.name for column, other in pairs if column != other]
        if names and known.name not in self._reported:
            self._reported.add(known.name)
            self._say(
                f"{known.name}: the log does not show the charset of the table's database, so text in column "
                f"{', '.join(names)} is shown as bytes. Set binlog_row_metadata=FULL on the source, or try "
                "--schema-from"
            )

    def _unnamed(self, table_map: TableMap, why: str) -> Table:
        """Returns a structure with numbers as column names, and with the types that the log shows."""
        if table_map.name not in self._reported:
            self._reported.add(table_map.name)
            self._say(
                f"{table_map.name}: its structure is not known{f' ({why})' if why else ''}, so columns have no "
                "names, text is shown as bytes, and unsigned numbers may look negative. Set binlog_row_metadata=FULL "
                "on the source, or try --schema-from, or --from a place after the last change of the table"
            )
        made = table_map.to_table(placeholders=True)
        assert made is not None, "placeholders make names"  # noqa: S101 - the option promises it
        return made


def _may_be_identifiers(logged: Table) -> bool:
    """Whether a column may be INET4, INET6 or UUID. Only the table's definition shows this."""
    return any(column.type.kind is Kind.BINARY and column.type.length in _ID_SIZES for column in logged.columns)
