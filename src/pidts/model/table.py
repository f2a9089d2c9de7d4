"""Tables, their columns and keys, at one moment of their history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from pidts.model.types import ColumnType


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's full name; `schema` is what MySQL calls a database."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def names_to_json(names: Iterable[TableName]) -> list[list[str]]:
    """Returns the sorted names as plain values."""
    return [[name.schema, name.name] for name in sorted(names)]


def names_from_json(data: Iterable[list[str]]) -> frozenset[TableName]:
    """The inverse of `names_to_json`."""
    return frozenset(TableName(schema, name) for schema, name in data)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    """The default's SQL text (`'x'`, `0`, `current_timestamp(6)`); None if there is none."""
    auto_increment: bool = False
    generated: bool = False
    comment: str = ""
    computed: str = field(default="", compare=False)
    """The expression of a generated column on the source: `(a + b) STORED`. Empty if it is not known for certain."""


@dataclass(frozen=True, slots=True)
class Key:
    """An index over columns of one table.

    The fields after `primary` decide how a later statement changes the key on its server. If two keys differ only in
    these fields, they are the same for rows, so equality ignores them.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    """Whether no two rows may have the same values in these columns.

    False for a key over prefixes of columns, unless it is the primary key.
    """
    primary: bool = False
    prefixes: tuple[int | None, ...] = field(default=(), compare=False)
    """How many characters or bytes of each column are in the key, None for the whole column; empty: whole columns."""
    unique_prefixes: bool = field(default=False, compare=False)
    """Whether this is a unique key over prefixes, and not the primary key: the server refuses two rows with the same
    prefixes. Then `unique` is false.
    """
    fulltext: bool = field(default=False, compare=False)
    for_foreign_key: bool = field(default=False, compare=False)
    """Whether the server made the key for a foreign key, and drops it when another key can replace it."""
    descending: tuple[bool, ...] = field(default=(), compare=False)
    """Whether the server sorts each column in descending order; empty: no column, or unknown."""
    options: str = field(default="", compare=False)
    """The comment and similar options. If a statement drops a key and adds an equal key, the server changes nothing."""

    @property
    def declared_unique(self) -> bool:
        """Whether the server treats the key as unique, over whole columns or prefixes."""
        return self.unique or self.unique_prefixes


@dataclass(frozen=True, slots=True)
class Table:
    """A table's structure."""

    name: TableName
    columns: tuple[Column, ...]
    keys: tuple[Key, ...] = ()
    charset: str | None = None
    collation: str | None = None
    comment: str = ""
    _arrow: pa.Schema | None = field(default=None, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        """Returns the hash of the name. Equal tables have equal names, and hashing all columns takes long."""
        return hash(self.name)

    @property
    def identity(self) -> tuple[str, ...]:
        """Returns the columns of the primary key, else of the first unique key without nullable columns, else none."""
        for key in self.keys:
            if key.primary:
                return key.columns
        for key in self.keys:
            if key.unique and not any(self.column(name).nullable for name in key.columns):
                return key.columns
        return ()

    @property
    def secondary_unique(self) -> tuple[Key, ...]:
        """Returns the unique keys other than the identity. Two rows may swap their values of such a key."""
        identity = self.identity
        return tuple(key for key in self.keys if key.unique and key.columns != identity)

    @property
    def has_unknown_charset(self) -> bool:
        """Whether the charset of one of the table's columns is unknown."""
        return any(column.type.has_unknown_charset for column in self.columns)

    def column(self, name: str) -> Column:
        """Returns the column of exactly this name. MySQL ignores case here; callers pass names as declared."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}")

    @property
    def arrow(self) -> pa.Schema:
        """Returns one field per column. All fields are nullable, since an image may lack columns that are NOT NULL."""
        if self._arrow is None:  # cached, since each batch uses this schema some 20 times
            made = pa.schema([pa.field(column.name, column.type.arrow) for column in self.columns])
            object.__setattr__(self, "_arrow", made)
            return made
        return self._arrow

    @property
    def of_any_shard(self) -> Table:
        """Returns the structure without ZEROFILL and expressions of generated columns: shards may differ in them."""
        if not any(column.computed or column.type.zerofill is not None for column in self.columns):
            return self
        columns = (replace(column, computed="", type=replace(column.type, zerofill=None)) for column in self.columns)
        return replace(self, columns=tuple(columns))

    def computes_as(self, other: Table) -> bool:
        """Whether another table with the same columns has the same expressions for generated columns.

        Tables that differ only in these expressions count as equal (`==`).
        """
        return all(one.computed == another.computed for one, another in zip(self.columns, other.columns, strict=True))

    def renamed(self, name: TableName) -> Table:
        """Returns the same structure under another name."""
        return replace(self, name=name)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, for the target's record of structures and for Spark's tasks."""
        return {
            "schema": self.name.schema,
            "name": self.name.name,
            "charset": self.charset,
            "collation": self.collation,
            "comment": self.comment,
            "columns": [
                {
                    "name": column.name,
                    "type": column.type.to_json(),
                    "nullable": column.nullable,
                    "default": column.default,
                    "auto_increment": column.auto_increment,
                    "generated": column.generated,
                    "comment": column.comment,
                }
                | ({"computed": column.computed} if column.computed else {})
                for column in self.columns
            ],
            "keys": [_key_to_json(key) for key in self.keys],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Table:
        """The inverse of `to_json`."""
        return cls(
            name=TableName(data["schema"], data["name"]),
            columns=tuple(Column(**{**item, "type": ColumnType.from_json(item["type"])}) for item in data["columns"]),
            keys=tuple(_key_from_json(item) for item in data["keys"]),
            charset=data["charset"],
            collation=data["collation"],
            comment=data["comment"],
        )


def _key_to_json(key: Key) -> dict[str, Any]:
    """Returns plain values. Rare fields are left out if they have their defaults, so that records stay small."""
    data: dict[str, Any] = {
        "name": key.name,
        "columns": list(key.columns),
        "unique": key.unique,
        "primary": key.primary,
    }
    if key.prefixes:
        data["prefixes"] = list(key.prefixes)
    if key.descending:
        data["descending"] = list(key.descending)
    if key.options:
        data["options"] = key.options
    rare = ("unique_prefixes", "fulltext", "for_foreign_key")
    return data | {name: True for name in rare if getattr(key, name)}


def _key_from_json(data: dict[str, Any]) -> Key:
    lists = {name: tuple(data.get(name, ())) for name in ("columns", "prefixes", "descending")}
    return Key(**{**data, **lists})
