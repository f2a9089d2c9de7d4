"""The shape of a table on the target (its columns and keys), read from information_schema.

A server with thousands of tables needs milliseconds to find one of them in information_schema. A batch may write to
thousands of tables that its session does not know yet. Then each view of information_schema is queried once for all
these tables. The rows that were read are used once for each table, and forgotten when the batch's transaction ends. So
they are never older than the transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.model.errors import named
from pidts.model.types import BLOBS, IDENTIFIERS, LABELED
from pidts.reduce import ANYTHING, UniqueKey
from pidts.schema import Dialect, column_type
from pidts.target.fit import loss

Row: TypeAlias = tuple[Any, ...]
Run: TypeAlias = Callable[[str, Sequence[Any]], list[Row]]

_MANY = 32
"""The smallest number of tables that one query reads. For fewer tables, one query for each table is faster."""
_AT_ONCE = 2_000
"""The largest number of tables in one query, since servers limit the length of a query's text."""

_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_TYPE, TABLE_COLLATION FROM information_schema.TABLES {}"
_COLUMNS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, "
    "CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS {} ORDER BY ORDINAL_POSITION"
)
_DOUBLED = "REPLACE(COLUMN_TYPE, CHAR(92), CONCAT(CHAR(92), CHAR(92)))"
_KEYS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, NON_UNIQUE, SUB_PART "
    "FROM information_schema.STATISTICS {} ORDER BY INDEX_NAME = 'PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX"
)
_ONE = "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_TRANSACTIONAL = frozenset({"InnoDB", "ROCKSDB", "TokuDB", "ndbcluster"})
_NEVER_PADDED = LABELED | IDENTIFIERS | {Kind.CHAR}
"""Types whose values have no spaces at the end."""
_LOOSE_BYTES = frozenset({Kind.VARBINARY, *BLOBS})


@dataclass(frozen=True, slots=True)
class UniqueKeyParts:
    """The columns of a unique key, each with the length of its prefix in the key; None for the whole column."""

    parts: tuple[tuple[str, int | None], ...]

    @property
    def columns(self) -> frozenset[str]:
        """Returns the key's columns in lower case."""
        return frozenset(name.lower() for name, _ in self.parts)


@dataclass(frozen=True, slots=True)
class MyTable:
    """A table of the target; `optional` are columns that an INSERT may leave out."""

    table: Table
    engine: str
    is_view: bool
    optional: frozenset[str]
    unique: tuple[UniqueKeyParts, ...]
    """The unique keys, except those over expressions."""

    def column(self, name: str) -> Column | None:
        """Returns the column of this name, or None. Names are compared without case, as the server compares them."""
        wanted = name.lower()
        return next((column for column in self.table.columns if column.name.lower() == wanted), None)

    def misfits(self, table: Table) -> list[str]:
        """Returns the reasons why rows of `table` cannot be written to the target's table."""
        if self.is_view:
            return ["it is not a table"]
        found = []
        if self.engine not in _TRANSACTIONAL:
            found.append(f"its engine {self.engine} has no transactions")
        missing = [column.name for column in table.columns if self.column(column.name) is None]
        if missing:
            found.append(f"it lacks {named('column', missing)}")
        names = {column.name.lower() for column in table.columns}
        needy = [c.name for c in self.table.columns if c.name.lower() not in names and c.name not in self.optional]
        if needy:
            found.append(
                f"{named('column', needy, 'is', 'are')} NOT NULL without a default, and the source has no such column"
            )
        for column in table.columns:
            target = self.column(column.name)
            if target is not None and not target.generated and (lost := _lost(column.type, target.type)):
                found.append(f"column {column.name} is {target.type.kind} on the target and would lose {lost}")
        return found + self._key_misfits(table)

    def _key_misfits(self, table: Table) -> list[str]:
        identity = {name.lower() for name in table.identity}
        if not identity:
            return []
        if not any(key.unique and {name.lower() for name in key.columns} == identity for key in self.table.keys):
            return [f"it has no unique key over ({', '.join(table.identity)})"]
        columns = [column for name in table.identity if (column := self.column(name)) is not None]
        if all(column.generated for column in columns):
            return [
                f"its key ({', '.join(table.identity)}) is computed on the target, and rows need the source's values"
            ]
        loose = [column.name for column in columns if column.nullable and not column.generated]
        return [f"column {', '.join(loose)} of its key may be NULL"] if loose else []


def _lost(source: ColumnType, found: ColumnType) -> str | None:
    if (
        source.kind in (Kind.ENUM, Kind.SET)
        and found.kind is source.kind
        and not set(source.labels) <= set(found.labels)
    ):
        return f"labels {', '.join(sorted(set(source.labels) - set(found.labels)))}"
    if found.kind is Kind.CHAR and source.is_text and source.kind not in _NEVER_PADDED:
        return "trailing spaces"
    is_shorter = source.kind is Kind.BINARY and (source.length or 1) < (found.length or 1)
    if found.kind is Kind.BINARY and (source.kind in _LOOSE_BYTES or is_shorter):
        return "the length of short values"  # values are filled with zeros: a search for the shorter value fails
    return loss(source, found)


def shape_of(name: TableName, found: SchemaRows | None, dialect: Dialect) -> MyTable | None:
    """Returns the shape of a table; None if the target has no table or view with this name."""
    if found is None:
        return None
    engine, kind, collation = found.table
    columns = tuple(_column(row, dialect) for row in found.columns)
    parts: dict[str, list[tuple[str | None, int | None]]] = defaultdict(list)
    unique: dict[str, bool] = {}
    for index, column, non_unique, prefix in found.keys:
        parts[index].append((column, None if prefix is None else int(prefix)))
        unique[index] = not int(non_unique)
    named = {
        index: tuple((name, prefix) for name, prefix in pairs if name is not None)
        for index, pairs in parts.items()
        if all(name is not None for name, _ in pairs)
    }
    keys = tuple(
        Key(index, tuple(name for name, _ in pairs), unique=unique[index], primary=index == "PRIMARY")
        for index, pairs in named.items()
    )
    return MyTable(
        Table(name, columns, keys, collation=collation),
        str(engine),
        kind not in ("BASE TABLE", "SYSTEM VERSIONED"),
        frozenset(column.name for column, row in zip(columns, found.columns, strict=True) if _is_optional(column, row)),
        tuple(UniqueKeyParts(pairs) for index, pairs in named.items() if unique[index]),
    )


def _column(row: tuple[Any, ...], dialect: Dialect) -> Column:
    name, text, nullable, _, extra, charset, collation = row
    text = text.decode() if isinstance(text, bytes) else str(text)
    try:
        kind = column_type(text, charset, collation, dialect=dialect)
    except Halted:
        kind = ColumnType(Kind.LONGTEXT)  # the server is newer than this code; only the column's name is used
    return Column(
        str(name),
        kind,
        nullable=nullable == "YES",
        auto_increment="auto_increment" in extra.lower(),
        generated=any(word in extra.upper() for word in ("VIRTUAL", "STORED GENERATED", "PERSISTENT")),
    )


def _is_optional(column: Column, row: tuple[Any, ...]) -> bool:
    return column.nullable or column.generated or column.auto_increment or row[3] is not None


@dataclass(frozen=True, slots=True)
class SchemaRows:
    """The rows of information_schema for one table, without its name."""

    table: Row
    columns: Sequence[Row]
    keys: Sequence[Row]


class InformationSchema:
    """Reads information_schema in one session."""

    def __init__(self, run: Run, *, tidb: bool) -> None:
        self._run = run
        # TiDB does not write a backslash in a label twice, as MySQL and MariaDB do.
        self._columns = _COLUMNS.replace("COLUMN_TYPE", _DOUBLED) if tidb else _COLUMNS
        self._tables: dict[TableName, SchemaRows] = {}
        self._keys: dict[TableName, Sequence[Row]] = {}

    def read_ahead(self, names: Iterable[TableName]) -> None:
        """Reads these tables by a few queries, if they are many. The next call about each of them needs no query."""
        self.forget()
        for schema, mine in groupby(sorted(set(names)), key=lambda name: name.schema):
            wanted = [name.name for name in mine]
            for begin in range(0, len(wanted), _AT_ONCE) if len(wanted) >= _MANY else ():
                self._read(schema, wanted[begin : begin + _AT_ONCE])

    def table(self, name: TableName) -> SchemaRows | None:
        """Returns the rows of a table; None if there is no such table."""
        if name in self._tables:
            return self._tables.pop(name)
        place = (name.schema, name.name)
        found = self._run(_TABLES.format(_ONE), place)
        if not found:
            return None
        columns = self._run(self._columns.format(_ONE), place)
        return SchemaRows(found[0][2:], _unnamed(columns), _unnamed(self._run(_KEYS.format(_ONE), place)))

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
        # Servers compare these names without case: if `t` and `T` are wanted, MariaDB returns one of the two tables. So
        # a table is used only if its name is exactly the wanted one. A missing table is read by a query of its own.
        where = f"WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ({', '.join(['%s'] * len(names))})"
        tables, columns, keys = (
            _by_table(schema, self._run(view.format(where), (schema, *names)))
            for view in (_TABLES, self._columns, _KEYS)
        )
        for name in names:
            if name in tables and name in columns:
                place = TableName(schema, name)
                self._keys[place] = keys.get(name, ())
                self._tables[place] = SchemaRows(tables[name][0], columns[name], self._keys[place])


def _unnamed(rows: Iterable[Row]) -> list[Row]:
    return [row[2:] for row in rows]


def _by_table(schema: str, rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row[0] == schema:
            found[row[1]].append(row[2:])
    return dict(found)
