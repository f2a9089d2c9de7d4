"""Finds the rows of one source table as texts: in the records of a datacenter, and on the source.

The source's rows are printed in the same way as the records' (`pidts.gate.value_text`). So equal rows have equal texts,
and no value has to be read back from a record's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.gate.replay import ReplayedRow, Values
from pidts.gate.value_text import printed
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.source.connection import Session, server_info
from pidts.source.position import row_lock
from pidts.source.rows import find_rows
from pidts.target.text import unreal
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.text_rows.values import to_arrow
from pidts.verify import LogPlaces, NotCaughtUp, RowMembers

_TEXT = ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")
KeyText = tuple[str | None, ...]


def text_table(table: Table, columns: Sequence[str]) -> Table:
    """Returns a table with these columns as texts, and the key of `table`, whose columns are among them."""
    key = Key("PRIMARY", table.identity, unique=True, primary=True)
    return Table(table.name, tuple(Column(name, _TEXT) for name in columns), (key,))


def text_rows(texts: Table, rows: Sequence[Values]) -> pa.Table:
    """Returns rows of texts as an Arrow table with the columns of `texts`."""
    return pa.table(
        [pa.array([row[name] for row in rows], pa.string()) for name in texts.arrow.names], schema=texts.arrow
    )


def text_keys(texts: Table, keys: Sequence[KeyText]) -> pa.Table:
    """Returns keys of texts as an Arrow table with the key columns of `texts`."""
    names = texts.identity
    columns = [pa.array([key[place] for key in keys], pa.string()) for place in range(len(names))]
    return pa.table(columns, names=list(names))


def texts_of_keys(keys: pa.Table) -> list[KeyText]:
    """Returns the keys of a table that `text_keys` has returned."""
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """Finds rows of one table of the source by the texts of their keys."""

    session: Session
    table: Table
    zone: str

    def members(self, table: Table) -> Sequence[str]:  # noqa: ARG002 - the protocol needs it
        """Returns only the table itself: a channel merges no tables."""
        return [str(self.table.name)]

    def row_members(self, table: Table) -> RowMembers:  # noqa: ARG002 - the protocol needs it
        """Returns a rule without extracted columns: each record names its table, so they are not needed."""
        return RowMembers.of([{}])

    def find(self, table: Table, keys: pa.Table, member: int = 0) -> pa.Table:  # noqa: ARG002 - the protocol needs it
        """Returns the rows of these keys at the end of the log.

        A server may log a change before other sessions see it. Then this method waits until the change is visible.
        """
        own = self._cut(table)
        kinds = [own.column(name) for name in own.identity]
        typed = pa.table(
            [_typed(keys.column(column.name), own.name, column, self.zone) for column in kinds],
            names=[column.name for column in kinds],
        ).drop_null()
        lock = row_lock(server_info(self.session))
        return self.printed(table, find_rows(self.session, own, typed, whole=True, lock=lock))

    def printed(self, table: Table, rows: pa.Table) -> pa.Table:
        """Returns the source's rows as texts."""
        columns = [
            printed(self.table.column(name).type, rows.column(name), self.zone).cast(pa.string())
            for name in table.arrow.names
        ]
        return pa.table(columns, schema=table.arrow)

    def _cut(self, table: Table) -> Table:
        keys = tuple(key for key in self.table.keys if key.columns == self.table.identity)
        return replace(self.table, columns=tuple(self.table.column(name) for name in table.arrow.names), keys=keys)


@dataclass(slots=True)
class RecordedTexts:
    """Finds rows of one table in the records, including records that are written during the comparison."""

    later: Callable[[Sequence[KeyText]], Mapping[KeyText, Sequence[ReplayedRow]]]
    """Reads the new records. Returns, for each of these keys, the successive rows that they show."""
    facts: Mapping[KeyText, ReplayedRow]
    unknown: set[KeyText] = field(default_factory=set)
    """Keys whose rows the records do not show: an image that lacked columns has given a row this key."""

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the rows that these keys have according to the records."""
        asked = texts_of_keys(keys)
        came = self.later(asked)
        rows: list[Values] = []
        for key in asked:
            row = self.facts[key].row
            for fact in came.get(key, ()):
                row = None if fact.row is None else {**(row or {}), **fact.row}
            if row is None:
                self.unknown.discard(key)
                continue
            row = {**row, **dict(zip(table.identity, key, strict=True))}
            if all(name in row for name in table.arrow.names):
                self.unknown.discard(key)
                rows.append(row)
            else:
                self.unknown.add(key)
        return text_rows(table, rows)

    def locked(self, table: Table, keys: pa.Table) -> Sequence[int]:  # noqa: ARG002 - the protocol needs it
        """Returns no places: a channel sets no row aside."""
        return ()


@dataclass(frozen=True, slots=True)
class OneSource:
    """The log of a channel's only source: where the log ends, and whether the datacenter has it up to an Lsn."""

    catch_up: TaskCatchUp

    def settled(self, table: TableName) -> LogPlaces:  # noqa: ARG002 - the protocol needs it
        """Returns an Lsn. Later reads get all changes before this Lsn."""
        return (self.catch_up.settled(),)

    def place(self, table: TableName) -> LogPlaces:  # noqa: ARG002 - the protocol needs it
        """Returns the end of the log."""
        return (self.catch_up.place(),)

    def await_target(self, table: TableName, places: LogPlaces) -> dict[int, NotCaughtUp]:
        """Waits until the datacenter has the table's log up to `places`.

        If it does not get this log, returns the reason, with the key 0: the number of the only source.
        """
        (lsn,) = places
        found = self.catch_up.await_target(table, lsn)
        return {} if found is None else {0: found}

    def untouched(self, table: TableName, after: LogPlaces, upto: LogPlaces) -> bool:
        """Whether the log between two Lsns is known to have no change of the table."""
        return self.catch_up.untouched(table, after[0], upto[0])


def _typed(texts: pa.ChunkedArray, table: TableName, column: Column, zone: str) -> pa.Array:
    """Returns the values from which these texts were printed."""
    values = texts.to_pylist()
    if column.type.is_bytes:
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], pa.binary())
    if column.type.is_text:
        return pa.array(values, pa.string())
    found = to_arrow([None if value is None else value.encode() for value in values], table, column)
    if column.type.kind is Kind.TIMESTAMP and zone not in {"+00:00", "UTC"} and unreal(found) is None:
        wall = found.cast(pa.timestamp("us"))
        instants = pc.assume_timezone(wall, zone, ambiguous="earliest", nonexistent="earliest")
        return instants.cast(pa.timestamp("us", "UTC"))
    return found
