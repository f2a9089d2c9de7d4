"""Removes rows of a table without a key: as many copies of each row as the source has removed.

A row is found by the exact values of all its columns, often without an index. These steps keep the server from reading
the whole table once for each row:

1. For many rows at once, one statement counts how many copies of each the target has.
2. If the target has fewer copies than have to be removed, it differs from the source: nothing of the batch is
   committed.
3. One statement removes all rows of which every copy is to be removed.
4. For each other row, one statement removes some of its copies (LIMIT).

The number of removed rows is checked, in case another application removes a row between these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidts.model import Column, Halted, Table, Where
from pidts.model.advice import RESYNC
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.driver import StatementResult
from pidts.target.mysql.encode import StatementLimits, literals, statements, wrapped
from pidts.target.mysql.exact import rows_exactly
from pidts.target.mysql.shape import MyTable

Numbers: TypeAlias = npt.NDArray[np.int64]

_ROWS = 100
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
    ) -> None:
        self._table, self._found, self._written = table, found, written
        self._limits, self._execute = limits, execute
        self._from = f"FROM {qualified(table.name)} WHERE ".encode()

    def remove(self, rows: pa.Table, times: pa.Int64Array) -> None:
        """Removes copies of rows; `times` has the number of copies for each."""
        conditions = wrapped(rows_exactly(self._written, self._found, rows), b"(", b")")
        for first, last in self._groups(conditions):
            self._remove_group(
                rows.slice(first, last - first),
                conditions.slice(first, last - first),
                times.slice(first, last - first).to_numpy(),
            )

    def _groups(self, conditions: pa.Array) -> Iterator[tuple[int, int]]:
        """Yields ranges of rows, one for each statement.

        The conditions of a range fill at most a third of a statement, since the query that counts its rows has each
        condition twice.
        """
        limits = StatementLimits(_ROWS, self._limits.size // 3, self._limits.packet - 1024)
        return ((first, last) for _, first, last in statements(b"", conditions, b"", limits, cut=0))

    def _remove_group(self, rows: pa.Table, conditions: pa.Array, times: Numbers) -> None:
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

    def _near(self, rows: pa.Table) -> bytes:
        """Returns a condition that excludes most rows of the table by a list of numbers.

        Most rows of the table are not in `rows`. A list of numbers shows that faster than `… OR …` does.
        """
        for column in self._written:
            found = self._found.column(column.name)
            whole = column.type.is_integer and found is not None and found.type.is_integer
            if whole and not rows[column.name].null_count:
                numbers = b",".join(literals(column, rows[column.name]).to_pylist())
                return identifier(column.name).encode() + b" IN (" + numbers + b") AND "
        return b""

    def _counted(self, texts: Sequence[bytes], near: bytes) -> Numbers:
        """Returns the number of copies that the target has of each row."""
        places = b" ".join(b"WHEN %s THEN %d" % (text, place) for place, text in enumerate(texts))
        sql = b"SELECT CASE " + places + b" END, COUNT(*) " + self._from + near + _any_of(texts) + b" GROUP BY 1"
        there = np.zeros(len(texts), np.int64)
        for place, count in self._execute(sql).rows:
            there[int(place)] = int(count)
        return there

    def _demand(self, rows: pa.Table, place: int, sql: bytes, wanted: int) -> None:
        removed = self._execute(sql).count
        if removed != wanted:
            raise self._missing(rows, place, removed, wanted)

    def _missing(self, rows: pa.Table, place: int, there: int, wanted: int) -> Halted:
        return Halted(
            "row-missing",
            f"the target has {there} of {wanted} copies of a row that the source removed or changed",
            where=Where(table=str(self._table.name), key=self._shown(rows, place)),
            todo=f"The target differs from the source: copy the table again: {RESYNC}",
        )

    def _shown(self, rows: pa.Table, place: int) -> str:
        """Returns the row's first columns as SQL, since Python cannot represent a date that is in no calendar."""
        columns = self._written[:_SHOWN]
        values = [(c.name, literals(c, rows[c.name].slice(place, 1))[0].as_py()) for c in columns]
        texts = [
            f"{name}={'NULL' if text is None else text[:_WIDTH].decode(errors='replace')}" for name, text in values
        ]
        return ", ".join(texts) + (", ..." if len(self._written) > _SHOWN else "")


def _any_of(texts: Sequence[bytes]) -> bytes:
    return b"(" + b" OR ".join(texts) + b")"
