"""Rows of the in-memory target: written one by one, each checked against all existing rows.

A server does the same within a statement. So a change is refused, as on a server, if it collides with a row that a
later row of the statement would move away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, ColumnType, Halted, Kind, Table, Where
from pidts.reduce import ExpectedRows, NetChange
from pidts.schema.literals import BytesLiteral, Number, TextLiteral, parse_default

Row = tuple[Any, ...]


@dataclass(slots=True)
class StoredTable:
    """Rows by the key with which a server would find them; values are in the order of the table's columns."""

    table: Table
    rows: dict[Row, Row] = field(default_factory=dict)
    folds: bool = False
    """Whether text is compared as with a `_ci` collation with PAD SPACE: without case and without trailing spaces."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def key(self, row: Row) -> Row:
        """Returns the identity's values as the server compares them; for a row of a table without an identity, a
        number.
        """
        identity = self.table.identity
        return self.values(identity, row) if identity else (next(self._numbers),)

    def values(self, names: Sequence[str], row: Row) -> Row:
        """Returns some columns of a row in a form that is equal if the server treats the values as equal."""
        all_names = self.table.arrow.names
        places = [all_names.index(name) for name in names]
        if not self.folds:
            return tuple([row[place] for place in places])
        return tuple(self.compared(self.table.columns[place], row[place]) for place in places)

    def folded(self, key: Row) -> Row:
        """Returns the identity in a form that is equal if the server treats the values as equal."""
        return self.as_compared(self.table.identity, key)

    def as_compared(self, names: Sequence[str], key: Row) -> Row:
        """Returns values of these columns in a form that is equal if the server treats the values as equal."""
        columns = [self.table.column(name) for name in names]
        return tuple(self.compared(column, value) for column, value in zip(columns, key, strict=True))

    def compared(self, column: Column, value: Any) -> Any:
        """Returns a value in a form that is equal if the server treats the values as equal."""
        folds = self.folds and column.type.is_text and not (column.type.collation or "").endswith("_bin")
        return value.casefold().rstrip(" ") if folds and isinstance(value, str) else value


class OpenTable:
    """A table as its writing transaction sees it."""

    def __init__(self, stored: StoredTable) -> None:
        self.stored = stored
        self.changes: dict[Row, Row | None] = {}
        """Written rows by key; None for removed ones."""

    def rows(self) -> dict[Row, Row]:
        """Returns all current rows."""
        both: dict[Row, Row | None] = {**self.stored.rows, **self.changes}
        return {key: row for key, row in both.items() if row is not None}

    def write(self, change: NetChange) -> None:
        """Removes rows, then writes rows."""
        rows = self.rows()
        if change.expected is not None:
            self._demand(change, change.expected, rows)
        if change.is_new is not None:
            new = change.upserts.filter(change.is_new).select(list(self.stored.table.identity))
            removed = set(map(self.stored.folded, tuples(change.deletes.select(list(self.stored.table.identity)))))
            if there := set(map(self.stored.folded, tuples(new))) & rows.keys() - removed:
                raise self._refused(f"{there} are there")
        taken = [_Taken(self.stored, key.columns, rows) for key in self.stored.table.keys if key.unique]
        for key in self._removed(change, rows):
            self._drop(key, rows, taken)
        names = change.upserts.column_names
        places = [names.index(column.name) if column.name in names else None for column in self.stored.table.columns]
        for row in tuples(change.upserts):
            self._put(self._values(row, places), places, change, rows, taken)

    def add(self, rows: pa.Table) -> bool:
        """Adds new rows.

        Adds none and returns False if a new row would collide with an existing row or with another new row.
        """
        there = self.rows()
        taken = [_Taken(self.stored, key.columns, there) for key in self.stored.table.keys if key.unique]
        names = rows.column_names
        places = [names.index(column.name) if column.name in names else None for column in self.stored.table.columns]
        added: dict[Row, Row] = {}
        for values in tuples(rows):
            row = tuple(self._values(values, places))
            key = self.stored.key(row)
            if key in there or key in added or any(unique.holder(row) is not None for unique in taken):
                return False
            added[key] = row
            for unique in taken:
                unique.take(key, row)
        self.changes.update(added)
        return True

    def clear(self) -> None:
        """Removes all rows."""
        self.changes.update(dict.fromkeys(self.rows()))

    def _demand(self, change: NetChange, expected: ExpectedRows, rows: dict[Row, Row]) -> None:
        """Raises unless the existing rows are the expected ones."""
        names = [column.name for column in self.stored.table.columns]
        identity = list(self.stored.table.identity)
        for row in tuples(pa.concat_tables([expected.removed, expected.changed]).select(names)):
            if rows.get(self.stored.key(row)) != row:
                raise self._refused(f"{row} is not there", "row-diverged")
        removed = set(map(self.stored.folded, tuples(change.deletes.select(identity))))
        new = change.upserts.filter(pc.invert(expected.is_changed)).select(identity)
        gone = set(map(self.stored.folded, tuples(expected.absent.select(identity))))
        gone |= set(map(self.stored.folded, tuples(new))) - removed
        if there := gone & rows.keys():
            raise self._refused(f"{there} are there", "row-diverged")

    def _removed(self, change: NetChange, rows: dict[Row, Row]) -> Iterator[Row]:
        if change.table.identity:
            yield from map(self.stored.folded, tuples(change.deletes.select(list(self.stored.table.identity))))
            return
        each = [] if change.times is None else change.times.to_pylist()
        copies: dict[Row, list[Row]] = {}
        names = [column.name for column in self.stored.table.columns]
        places = [names.index(name) for name in change.deletes.column_names]
        for key, row in rows.items():
            copies.setdefault(tuple(row[place] for place in places), []).append(key)
        for row, times in zip(tuples(change.deletes), each, strict=True):
            found = copies.get(row, [])
            if len(found) < times:
                raise self._refused(f"{len(found)} rows instead of {times} are {row}", "row-missing")
            yield from found[:times]

    def _values(self, row: Row, places: list[int | None]) -> list[Any]:
        """Returns the values of all columns; columns that the writer does not name have their defaults."""
        named = zip(self.stored.table.columns, places, strict=True)
        return [fill(column) if place is None else row[place] for column, place in named]

    def _put(
        self,
        values: list[Any],
        places: list[int | None],
        change: NetChange,
        rows: dict[Row, Row],
        taken: list[_Taken],
    ) -> None:
        key = self.stored.key(tuple(values))
        old = rows.get(key)
        if old is not None and change.safe and self._identity(old) != self._identity(tuple(values)):
            self._drop(key, rows, taken)
            old = None
        if old is not None:
            values = [was if place is None else new for was, new, place in zip(old, values, places, strict=True)]
        row = tuple(values)
        for unique in taken:
            holder = unique.holder(row)
            if holder is None or holder == key:
                continue
            if not change.safe:
                raise self._refused(f"duplicate {row} in ({', '.join(unique.names)})")
            self._drop(holder, rows, taken)
        if old is not None:
            if self._identity(old) != self._identity(row):
                raise self._refused(f"{row} would overwrite {old}")
            self._drop(key, rows, taken)
        rows[key] = self.changes[key] = row
        for unique in taken:
            unique.take(key, row)

    def _drop(self, key: Row, rows: dict[Row, Row], taken: list[_Taken]) -> None:
        if (row := rows.pop(key, None)) is not None:
            self.changes[key] = None
            for unique in taken:
                unique.leave(row)

    def _identity(self, row: Row) -> Row:
        names = [column.name for column in self.stored.table.columns]
        return tuple(row[names.index(name)] for name in self.stored.table.identity)

    def _refused(self, what: str, code: str = "target-refused") -> Halted:
        return Halted(code, what, where=Where(table=str(self.stored.table.name)))


class _Taken:
    """For each value of a unique key, the row that has it."""

    def __init__(self, stored: StoredTable, names: Sequence[str], rows: dict[Row, Row]) -> None:
        self._stored, self.names = stored, names
        self._holders: dict[Row, Row] = {}
        for key, row in rows.items():
            self.take(key, row)

    def holder(self, row: Row) -> Row | None:
        """Returns the identity of the row that has this row's value in the unique key."""
        return self._holders.get(self._stored.values(self.names, row))

    def take(self, key: Row, row: Row) -> None:
        """Notes the row's value in the unique key, unless a part of it is NULL."""
        value = self._stored.values(self.names, row)
        if None not in value:
            self._holders[value] = key

    def leave(self, row: Row) -> None:
        """Forgets the row's value, so that another row can have it."""
        self._holders.pop(self._stored.values(self.names, row), None)


def tuples(rows: pa.Table) -> list[Row]:
    """Returns rows as Python values; times are numbers, since zero and partial dates have no Python value."""
    columns = [column.combine_chunks().view(plain(column.type)).to_pylist() for column in rows.columns]
    return list(zip(*columns, strict=True))


def fill(column: Column) -> Any:
    """Returns the value of a column that a row's writer does not name."""
    parsed = parse_default(column.default)
    kind = column.type.arrow
    if isinstance(parsed, TextLiteral | Number):
        value = (
            pa.scalar(parsed.value).cast(kind)
            if not pa.types.is_binary(kind)
            else pa.scalar(parsed.value.encode(), kind)
        )
        return _number(value)
    if isinstance(parsed, BytesLiteral) and pa.types.is_integer(kind):
        return int.from_bytes(parsed.value)
    if isinstance(parsed, BytesLiteral):
        return parsed.value if pa.types.is_binary(kind) else parsed.value.decode()
    if column.nullable:
        return None
    return _implicit(column.type)


def _implicit(kind: ColumnType) -> Any:
    if kind.kind is Kind.ENUM:
        return kind.labels[0] if kind.labels else ""
    if pa.types.is_string(kind.arrow):
        return ""
    if pa.types.is_binary(kind.arrow):
        return b""
    return _number(pa.scalar(0, pa.int64()).cast(kind.arrow))


def _number(value: pa.Scalar) -> Any:
    return pa.array([value], value.type).view(plain(value.type)).to_pylist()[0]


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of the numbers that represent dates, times or timestamps; other types stay."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) else kind
