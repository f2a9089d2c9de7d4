"""The shape of a table on the target (its columns and keys), read from information_schema."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.schema import Dialect, column_type
from pidts.target.fit import loss
from pidts.target.mysql.catalog import CatalogTable

_TRANSACTIONAL = frozenset({"InnoDB", "ROCKSDB", "TokuDB", "ndbcluster"})


_NEVER_PADDED = frozenset({Kind.CHAR, Kind.ENUM, Kind.SET, Kind.UUID, Kind.INET4, Kind.INET6})
"""Types whose values have no spaces at the end."""
_LOOSE_BYTES = frozenset({Kind.VARBINARY, Kind.TINYBLOB, Kind.BLOB, Kind.MEDIUMBLOB, Kind.LONGBLOB})


@dataclass(frozen=True, slots=True)
class UniqueParts:
    """The parts of a unique key over columns.

    If a part covers only a prefix of its column, it has the prefix's length.
    """

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
    unique: tuple[UniqueParts, ...]
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
            found.append(f"it lacks column {', '.join(missing)}")
        names = {column.name.lower() for column in table.columns}
        needy = [c.name for c in self.table.columns if c.name.lower() not in names and c.name not in self.optional]
        if needy:
            found.append(
                f"column {', '.join(needy)} is NOT NULL without a default, and the source has no column of that name"
            )
        for column in table.columns:
            target = self.column(column.name)
            if target is not None and not target.generated and (lost := _lost(column.type, target.type)):
                found.append(f"column {column.name} is {target.type.kind} there and would lose {lost}")
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
                f"its key ({', '.join(table.identity)}) is computed there, so its rows cannot get the source's values"
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


def shape_of(name: TableName, found: CatalogTable | None, dialect: Dialect) -> MyTable | None:
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
        tuple(UniqueParts(pairs) for index, pairs in named.items() if unique[index]),
    )


def _column(row: tuple[Any, ...], dialect: Dialect) -> Column:
    name, text, nullable, _, extra, charset, collation = row
    text = text.decode() if isinstance(text, bytes) else str(text)
    try:
        kind = column_type(text, charset, collation, dialect=dialect)
    except Halted:
        kind = ColumnType(Kind.LONGTEXT)  # a type of a server newer than this code; only the column's name is used
    return Column(
        str(name),
        kind,
        nullable=nullable == "YES",
        auto_increment="auto_increment" in extra.lower(),
        generated=any(word in extra.upper() for word in ("VIRTUAL", "STORED GENERATED", "PERSISTENT")),
    )


def _is_optional(column: Column, row: tuple[Any, ...]) -> bool:
    return column.nullable or column.generated or column.auto_increment or row[3] is not None
