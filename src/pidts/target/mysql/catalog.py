"""Reads what information_schema has of a table, or of many tables at once.

A server with thousands of tables needs milliseconds to find one of them in information_schema. A batch may write to
thousands of tables that its session does not know yet. Then each view is queried once for all of them.

What was read for many tables is returned once for each table, and is forgotten when the batch's transaction ends. So it
is never older than the transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from pidts.model import TableName
from pidts.reduce import ANYTHING, UniqueKey

Row: TypeAlias = tuple[Any, ...]
Run: TypeAlias = Callable[[str, Sequence[Any]], list[Row]]

_MANY = 32
"""So many tables are read at once. To find one table takes the server less time than to look at all of them."""
_AT_ONCE = 2_000
"""The most tables in one query, since a server limits the length of its text."""

_TABLES = "SELECT TABLE_NAME, ENGINE, TABLE_TYPE, TABLE_COLLATION FROM information_schema.TABLES {}"
_COLUMNS = (
    "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, CHARACTER_SET_NAME, "
    "COLLATION_NAME FROM information_schema.COLUMNS {} ORDER BY ORDINAL_POSITION"
)
_KEYS = (
    "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, NON_UNIQUE, SUB_PART FROM information_schema.STATISTICS {} "
    "ORDER BY INDEX_NAME = 'PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX"
)
_ONE = "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The rows of information_schema for one table, without its name."""

    table: Row
    columns: Sequence[Row]
    keys: Sequence[Row]


class Catalog:
    """Reads information_schema in one session."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tables: dict[TableName, CatalogTable] = {}
        self._keys: dict[TableName, Sequence[Row]] = {}

    def read_ahead(self, names: Iterable[TableName]) -> None:
        """Reads these tables at once, if they are many, for the next call of each method with each of them."""
        self.forget()
        for schema, mine in groupby(sorted(set(names)), key=lambda name: name.schema):
            wanted = [name.name for name in mine]
            for begin in range(0, len(wanted), _AT_ONCE) if len(wanted) >= _MANY else ():
                self._read(schema, wanted[begin : begin + _AT_ONCE])

    def table(self, name: TableName) -> CatalogTable | None:
        """Returns the rows of a table; None if there is no such table."""
        if name in self._tables:
            return self._tables.pop(name)
        place = (name.schema, name.name)
        found = self._run(_TABLES.format(_ONE), place)
        if not found:
            return None
        columns = self._run(_COLUMNS.format(_ONE), place)
        return CatalogTable(found[0][1:], _unnamed(columns), _unnamed(self._run(_KEYS.format(_ONE), place)))

    def unique_keys(self, name: TableName) -> list[UniqueKey]:
        """Returns a table's unique keys, including those over prefixes and expressions; none if there is no table."""
        if name in self._keys:
            rows = self._keys.pop(name)
        else:
            rows = _unnamed(self._run(_KEYS.format(_ONE), (name.schema, name.name)))
        keys = [list(parts) for _, parts in groupby(rows, key=lambda row: row[0])]
        return [
            UniqueKey(
                tuple(ANYTHING if column is None else str(column) for _, column, _, _ in parts),
                whole=all(prefix is None for *_, prefix in parts),
            )
            for parts in keys
            if not int(parts[0][2])
        ]

    def forget(self) -> None:
        """Forgets what was read for many tables."""
        self._tables.clear()
        self._keys.clear()

    def _read(self, schema: str, names: Sequence[str]) -> None:
        # A server may find tables whose names differ in case, and may show a name in another case. Tables are taken by
        # their exact names, and others are read one by one.
        where = f"WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ({', '.join(['%s'] * len(names))})"
        tables, columns, keys = (
            _by_table(self._run(view.format(where), (schema, *names))) for view in (_TABLES, _COLUMNS, _KEYS)
        )
        for name in names:
            if name in tables and name in columns:
                place = TableName(schema, name)
                self._keys[place] = keys.get(name, ())
                self._tables[place] = CatalogTable(tables[name][0], columns[name], self._keys[place])


def _unnamed(rows: Iterable[Row]) -> list[Row]:
    return [row[1:] for row in rows]


def _by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for name, *row in rows:
        found[name].append(tuple(row))
    return dict(found)
