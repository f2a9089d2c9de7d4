"""Removes rows of a table without a key: as many copies of each row as the source has removed.

A row is found by the exact values of all its columns, often without an index. These steps keep the server from reading
the whole table once for each row, and from comparing each row with many others:

1. The target's rows with the same number in one column (*near* rows) are read and locked. If all near rows of a number
   have to be removed, one statement removes them by this number, together with many other numbers. If each row has a
   different number in this column, step 1 removes all rows.
2. For many other rows at once, one statement counts how many copies of each the target has.
3. If the target has fewer copies than have to be removed, it differs from the source: nothing of the batch is
   committed.
4. One statement removes all rows of which every copy has to be removed.
5. For every other row, one statement removes some of its copies (LIMIT).

The number of removed rows is checked, in case another application inserts or removes a row between these steps. Step 1
is left out in three cases: the table has no column of numbers; many rows have the same number; the target's columns
have other types than the source's. Step 1 compares the bytes of values. Values that the server treats as equal may have
different bytes (`-0.0`, other spellings of JSON): the other steps remove their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName, Where
from pidts.model.advice import RESYNC
from pidts.reduce.multiset import summed
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.driver import StatementResult
from pidts.target.mysql.encode import StatementLimits, literals, statements, wrapped
from pidts.target.mysql.exact import is_collated, rows_exactly
from pidts.target.mysql.shape import MyTable
from pidts.target.text import combined

Numbers: TypeAlias = npt.NDArray[np.int64]
ReadNear: TypeAlias = Callable[[Table, pa.Table, int], pa.Table]
"""Reads and locks rows by their keys. The arguments are the table, the keys and the largest number of rows."""

_ROWS, _SCANNED_ROWS = 100, 400
"""The most rows of a statement: with an index on the table, and without one. Without an index, each statement reads the
whole table.
"""
_NUMBERS = 1000
"""The most numbers in one statement that removes near rows."""
_CROWD, _FEW_NEAR = 4, 1000
"""Near rows are read only if the target has at most `_FEW_NEAR` of them, and at most `_CROWD` for each row to remove.
"""
_LISTED_BYTES = 64 << 10
"""The largest size in bytes of the texts in a list that excludes other rows."""
_SHOWN = 5
_WIDTH = 40


class CopyRemover:
    """Removes copies of rows from one table; `execute` runs a statement about it."""

    def __init__(
        self,
        table: Table,
        found: MyTable,
        written: Sequence[Column],
        limits: StatementLimits,
        execute: Callable[[bytes], StatementResult],
        read: ReadNear,
        crowded: set[TableName],
    ) -> None:
        """`crowded` are tables in which many rows have the same number; this object adds further tables to them."""
        self._table, self._found, self._written = table, found, written
        self._limits, self._execute, self._read, self._crowded = limits, execute, read, crowded
        self._from = f"FROM {qualified(table.name)} WHERE ".encode()

    def remove(self, rows: pa.Table, times: pa.Int64Array) -> None:
        """Removes copies of rows; `times` contains the number of copies of each."""
        near = self._near_column(rows)
        may_read = (
            rows.num_rows > 1 and self._table.name not in self._crowded and all(map(self._is_alike, self._written))
        )
        if near is not None and may_read:
            whole = self._whole(near, rows, times)
            self._remove_near(near, rows.filter(whole), times.filter(whole))
            rows, times = rows.filter(pc.invert(whole)), times.filter(pc.invert(whole))
        self._remove_counted(rows, times)

    def _whole(self, near: Column, rows: pa.Table, times: pa.Int64Array) -> pa.BooleanArray:
        """Returns a mask of the rows whose near rows are all to be removed; locks these near rows."""
        wanted = pc.sum(times).as_py()
        key = Key("near", (near.name,), unique=True, primary=True)
        table, most = replace(self._table, columns=tuple(self._written), keys=(key,)), _FEW_NEAR + _CROWD * wanted
        there = self._read(table, pa.table({near.name: pc.unique(rows[near.name])}), most + 1)
        if there.num_rows > most:
            self._crowded.add(self._table.name)
            return pa.repeat(pa.scalar(value=False), rows.num_rows)
        names = table.arrow.names
        columns = [pa.concat_arrays([combined(rows[name]), combined(there[name])]) for name in names]
        copies = pa.concat_arrays([times, pa.repeat(pa.scalar(-1, pa.int64()), there.num_rows)])
        sums = summed(columns, copies)
        odd = sums["place"].filter(pc.not_equal(sums["copies"], 0)).combine_chunks()
        numbers = columns[names.index(near.name)].take(odd)
        return pc.invert(pc.is_in(combined(rows[near.name]), value_set=numbers))

    def _remove_near(self, near: Column, rows: pa.Table, times: pa.Int64Array) -> None:
        """Removes all rows with the numbers of these rows."""
        if not rows.num_rows:
            return
        numbers = pc.unique(rows[near.name])
        values = wrapped(literals(near, numbers.take(pc.sort_indices(numbers))), b"", b",")
        head = b"DELETE " + self._from + identifier(near.name).encode() + b" IN ("
        limits = replace(self._limits, rows=_NUMBERS)
        removed = sum(self._execute(sql).count for sql, _, _ in statements(head, values, b")", limits, cut=1))
        if removed != (wanted := pc.sum(times).as_py()):
            raise self._missing(rows, 0, removed, wanted)

    def _remove_counted(self, rows: pa.Table, times: pa.Int64Array) -> None:
        """Removes copies of rows; the condition for a row is true only for the copies of this row."""
        if not rows.num_rows:
            return
        conditions = wrapped(rows_exactly(self._written, self._found, rows), b"(", b")")
        for first, last in self._ranges(conditions):
            self._remove_range(
                rows.slice(first, last - first),
                conditions.slice(first, last - first),
                times.slice(first, last - first).to_numpy(),
            )

    def _ranges(self, conditions: pa.Array) -> Iterator[tuple[int, int]]:
        """Yields ranges of rows, one for each statement.

        The conditions of a range fill at most a third of a statement, since the query that counts its rows contains
        each condition twice.
        """
        most = _ROWS if self._found.table.keys else _SCANNED_ROWS
        limits = StatementLimits(most, self._limits.size // 3, self._limits.packet - 1024)
        return ((first, last) for _, first, last in statements(b"", conditions, b"", limits, cut=0))

    def _remove_range(self, rows: pa.Table, conditions: pa.Array, times: Numbers) -> None:
        texts: list[bytes] = conditions.to_pylist()
        alone = np.arange(len(texts))
        if len(texts) > 1:
            near = self._near(rows)
            there = self._counted(texts, near)
            for place in np.flatnonzero(there < times):
                raise self._missing(rows, int(place), int(there[place]), int(times[place]))
            whole = np.flatnonzero(there == times)
            if len(whole):
                every = b"DELETE " + self._from + near + _any_of([texts[place] for place in whole])
                self._demand(rows, int(whole[0]), every, int(times[whole].sum()))
            alone = np.flatnonzero(there > times)
        for place in alone:
            some = b"DELETE " + self._from + texts[place] + f" LIMIT {times[place]}".encode()
            self._demand(rows, int(place), some, int(times[place]))

    def _is_alike(self, column: Column) -> bool:
        """Whether the target's column has the same type, so that its values are read in the source's form."""
        found = self._found.column(column.name)
        return found is not None and _form(found.type) == _form(column.type)

    def _near_column(self, rows: pa.Table) -> Column | None:
        """Returns a column of whole numbers without NULL in `rows`, best the first column of an index; else None."""
        begins = {key.columns[0].lower() for key in self._found.table.keys if key.columns}
        for column in sorted(self._written, key=lambda column: column.name.lower() not in begins):
            if self._has_numbers(column, rows):
                return column
        return None

    def _has_numbers(self, column: Column, rows: pa.Table) -> bool:
        found = self._found.column(column.name)
        is_whole = column.type.is_integer and found is not None and found.type.is_integer
        return is_whole and not rows[column.name].null_count

    def _near(self, rows: pa.Table) -> bytes:
        """Returns a condition that excludes most rows of the table by lists of values.

        The server searches a sorted list, which is much faster than `… OR …`. The first list has the values of the
        column from `_near_column`. If another column has more different values, its list follows.
        """
        near = self._near_column(rows)
        columns = [column for column in self._written if self._is_listed(column, rows)]
        if not columns:
            return b""
        most = max(columns, key=lambda column: pc.count_distinct(rows[column.name]).as_py())
        lists = [most] if near is None or near == most else [near, most]
        return b"".join(_is_one_of(column, rows) for column in lists)

    def _is_listed(self, column: Column, rows: pa.Table) -> bool:
        """Whether the values of `rows` in this column make a short list that excludes no row equal to one of `rows`."""
        if self._has_numbers(column, rows):
            return True
        found, values = self._found.column(column.name), rows[column.name]
        if found is None or not (is_collated(found) and is_collated(column)) or column.type.is_bytes:
            return False
        is_json = Kind.JSON in (column.type.kind, found.type.kind)
        return not is_json and not values.null_count and values.nbytes <= _LISTED_BYTES

    def _counted(self, texts: Sequence[bytes], near: bytes) -> Numbers:
        """Returns the number of copies that the target has of each row.

        The CASE has an alias. Without an alias, the result's column would have the whole CASE as its name. If some
        bytes of this name were not text, the client could not read the answer.
        """
        places = b" ".join(b"WHEN %s THEN %d" % (text, place) for place, text in enumerate(texts))
        sql = (
            b"SELECT CASE "
            + places
            + b" END AS pidts_place, COUNT(*) "
            + self._from
            + near
            + _any_of(texts)
            + b" GROUP BY 1"
        )
        there = np.zeros(len(texts), np.int64)
        for place, count in self._execute(sql).rows:
            there[int(place)] = int(count)
        return there

    def _demand(self, rows: pa.Table, place: int, sql: bytes, wanted: int) -> None:
        removed = self._execute(sql).count
        if removed != wanted:
            raise self._missing(rows, place, removed, wanted)

    def _missing(self, rows: pa.Table, place: int, there: int, wanted: int) -> Halted:
        what = f"the target has {there} of {wanted} copies of a row that the source removed or changed"
        if there > wanted:
            what = f"another program has added rows meanwhile: {there} rows match {wanted} that the source removed"
        return Halted(
            "row-missing",
            what,
            where=Where(table=str(self._table.name), key=self._shown(rows, place)),
            todo=f"The target differs from the source: copy the table again: {RESYNC}",
        )

    def _shown(self, rows: pa.Table, place: int) -> str:
        """Returns the row's first columns as SQL, since Python cannot represent a zero or partial date."""
        columns = self._written[:_SHOWN]
        values = [(c.name, literals(c, rows[c.name].slice(place, 1))[0].as_py()) for c in columns]
        texts = [
            f"{name}={'NULL' if text is None else text[:_WIDTH].decode(errors='replace')}" for name, text in values
        ]
        return ", ".join(texts) + (", ..." if len(self._written) > _SHOWN else "")


def _form(kind: ColumnType) -> tuple[object, ...]:
    return kind.kind, kind.unsigned, kind.precision, kind.scale, kind.fsp, kind.labels


def _is_one_of(column: Column, rows: pa.Table) -> bytes:
    values = b",".join(literals(column, pc.unique(rows[column.name])).to_pylist())
    return identifier(column.name).encode() + b" IN (" + values + b") AND "


def _any_of(texts: Sequence[bytes]) -> bytes:
    return b"(" + b" OR ".join(texts) + b")"
