"""Reads the records of a datacenter backwards: the last record of a row has the row's current values.

A record has the names that its table and columns had at its place. `TableNames` gives the current table for such a
name. It begins with the current tables and goes back, one schema change at a time. In this example, the text on the
right is the current table of each record:

    id 1  INSERT  shop.old  {"a":"1"}           shop.t, the value of b is not known
    id 2  RENAME  shop.old to shop.t
    id 3  ALTERTABLE  shop.t  a -> b            shop.t, and b is not known in earlier records
    id 4  INSERT  shop.t    {"b":"2"}           shop.t

CREATETABLE and TRUNCATE leave an empty table, so later records give all of its rows. DROP TABLE has no record. If a new
table gets the same name, it begins with CREATETABLE or RENAME.

An ALTERTABLE record does not describe the whole change. Earlier records do not have the values of a column that the
change adds or alters. If the record names no column and no index, the statement may have removed or added rows (DROP
PARTITION, EXCHANGE PARTITION), or changed texts (CONVERT TO). After such a statement, a row may differ from the records
without an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pidts.model import Table, TableName

Values = Mapping[str, str | None]
ROWS = frozenset({"INSERT", "UPDATE", "DELETE"})
"""The types of records about one row."""
_SIZE = 16
ALTER_PARTS = ("ADDCOLUMN", "ADDINDEX", "DROPCOLUMN", "CHANGECOLUMN", "DROPINDEX")
"""The parts of an ALTERTABLE record that may have clauses of the statement."""


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One row of `transfer_data`."""

    id: int
    tid: int
    table: TableName
    instance: str
    optype: str
    data: str

    @property
    def is_row(self) -> bool:
        """Whether the record is about one row."""
        return self.optype in ROWS


@dataclass(frozen=True, slots=True)
class ReplayedTable:
    """A current table, with the names that records at an earlier place have for it."""

    table: Table
    names: Mapping[str, str | None]
    """The earlier name of each current column; None if records at the earlier place do not have its current value."""
    age: int = 0
    """The number of ALTER TABLE statements after the earlier place."""
    has_key: bool = True
    """Whether the current key identifies one row at the earlier place."""
    may_lack_changes: bool = False
    """Whether, after the earlier place, rows may have been added, removed or changed without a record."""
    identity: tuple[str, ...] = field(init=False)
    """The current key."""
    is_same: bool = field(init=False)
    """Whether every current column has the same name at the earlier place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", self.table.identity)
        object.__setattr__(self, "is_same", all(name == there for name, there in self.names.items()))

    @classmethod
    def of(cls, table: Table) -> ReplayedTable:
        """Returns the table with its current names."""
        return cls(table, {column.name: column.name for column in table.columns}, has_key=bool(table.identity))

    def known(self, there: Iterable[str]) -> tuple[str, ...]:
        """Returns the key's columns, and the current columns for which an image with the columns `there` has values."""
        has = {*there, *self.identity}
        return tuple(name for name, own in self.names.items() if own is not None and name in has)

    def before(self, document: Mapping[str, Any]) -> ReplayedTable:
        """Returns the table before an ALTER TABLE; `document` is the JSON of the statement's record."""
        added = {one["field_name"].lower() for one in document.get("ADDCOLUMN", ())}
        changed = {one["field_name"].lower() for one in document.get("CHANGECOLUMN", ())}
        unknown = added | changed
        generated = {column.name for column in self.table.columns if column.generated} if unknown else frozenset()
        names = {
            name: None if there is None or there.lower() in unknown or name in generated else there
            for name, there in self.names.items()
        }
        columns = {str(self.names[name]).lower() for name in self.identity}
        added_keys = [{str(each).lower() for each in one["column_name"]} for one in document.get("ADDINDEX", ())]
        return ReplayedTable(
            self.table,
            names,
            self.age + 1,
            self.has_key and columns not in added_keys and all(names[name] is not None for name in self.identity),
            self.may_lack_changes or not any(document.get(part) for part in ALTER_PARTS),
        )


@dataclass(frozen=True, slots=True)
class TableNames:
    """The current tables, keyed by the names that they had at one place of the records."""

    tables: Mapping[TableName, ReplayedTable]
    whole: frozenset[TableName] = frozenset()
    """The current tables whose rows all follow from the records that were read."""
    first: Mapping[TableName, int] = field(default_factory=dict)
    """For each table in `whole`, the id of the record that created or emptied it."""

    @classmethod
    def of(cls, tables: Iterable[Table]) -> TableNames:
        """Returns the tables at the current place, each with its current names."""
        return cls({table.name: ReplayedTable.of(table) for table in tables})

    def concerned(self, record: TransferRow) -> list[TableName]:
        """Returns the names, at this place, of the tables that a schema record concerns."""
        return sorted(self.tables.keys() & _named(record))

    def before(self, record: TransferRow) -> TableNames:
        """Returns the tables with the names that they had before a schema record."""
        tables = dict(self.tables)
        match record.optype:
            case "RENAME":
                for pair in reversed(json.loads(record.data)["RENAME"]):
                    found = tables.pop(_name(pair["to"]), None)
                    if found is not None:
                        tables[_name(pair["from"])] = found
            case "ALTERTABLE" if record.table in tables:
                tables[record.table] = tables[record.table].before(json.loads(record.data))
            case "CREATETABLE" | "TRUNCATE" if record.table in tables:
                begun = tables.pop(record.table)
                if begun.has_key and not begun.may_lack_changes:
                    name = begun.table.name
                    return TableNames(tables, self.whole | {name}, {**self.first, name: record.id})
        return replace(self, tables=tables)


@dataclass(frozen=True, slots=True)
class ReplayedRow:
    """The current row of one key according to the records; None if there is no row."""

    key: tuple[str | None, ...]
    row: Values | None


class KeyChange(NamedTuple):
    """The row of one key before and after one record; None if there is no row.

    The class is a plain tuple, to save time and memory: there is one for each record.
    """

    key: tuple[str | None, ...]
    before: Values | None
    after: Values | None


def documents(texts: Iterable[str]) -> list[Any]:
    """Reads the JSON of many records."""
    found: list[Any] = json.loads(f"[{','.join(texts)}]")
    return found


def steps(document: Mapping[str, Any], followed: ReplayedTable) -> Sequence[KeyChange] | None:
    """Returns a record's changes of one or two keys, with current column names; None if the record lacks the key."""
    old, new = document.get("OLD"), document.get("NEW")
    before = None if old is None else _image(old, followed)
    after = None if new is None else _image(new, followed)
    identity = followed.identity
    old_key = None if before is None else _key(identity, before)
    if after is None:
        return None if old_key is None else (KeyChange(old_key, before, None),)
    new_key = _key(identity, after if before is None or after.keys() == before.keys() else {**before, **after})
    if new_key is None or (before is not None and old_key is None):
        return None
    if old_key is None or old_key == new_key:
        return (KeyChange(new_key, before, after),)
    return KeyChange(new_key, None, after), KeyChange(old_key, before, None)


def key_digest(table: TableName, key: tuple[str | None, ...]) -> bytes:
    """Returns a digest of a current table's key."""
    return _digest((table.schema, table.name, key))


def row_digest(row: Values | None) -> bytes:
    """Returns a digest of a row: of its columns, then of their values. It is empty if there is no row."""
    return b"" if row is None else _names_digest(tuple(row)) + _digest(tuple(row.values()))


def follows(before: bytes, after: bytes) -> bool:
    """Whether the image before a change may be the image after an earlier change.

    False if only one of the two has a row. True if the two have different columns: they cannot be compared then.
    """
    if bool(before) is not bool(after):
        return False
    return before[:_SIZE] != after[:_SIZE] or before == after


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


_names_digest = lru_cache(1024)(_digest)


def _image(pairs: Iterable[Mapping[str, str | None]], followed: ReplayedTable) -> dict[str, str | None]:
    there: dict[str, str | None] = {}
    for pair in pairs:
        there.update(pair)
    names = followed.names
    if followed.is_same and names.keys() == there.keys():
        return there
    return {name: there[own] for name, own in names.items() if own is not None and own in there}


def _key(identity: tuple[str, ...], row: Values) -> tuple[str | None, ...] | None:
    try:
        return tuple([row[name] for name in identity])
    except KeyError:
        return None


def _named(record: TransferRow) -> set[TableName]:
    if record.optype != "RENAME":
        return {record.table}
    return {_name(pair[side]) for pair in json.loads(record.data)["RENAME"] for side in ("from", "to")}


def _name(names: Mapping[str, str]) -> TableName:
    return TableName(names["dbname"], names["tablename"])
