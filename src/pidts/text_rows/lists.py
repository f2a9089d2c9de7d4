"""Collects a result's rows as lists of values, row by row: the version of `cells` without compiled code."""

from __future__ import annotations

import pyarrow as pa

from pidts.model import StructureChanged, Table, Where
from pidts.text_rows.values import Values, to_arrow


class Lists:
    """The rows of a result that have arrived so far."""

    def __init__(self, table: Table, where: Where) -> None:
        self.size = 0
        self._table = table
        self._where = where
        self._columns: list[Values] = [[] for _ in table.columns]

    def take_all(self, reader: object) -> bool:  # noqa: ARG002 - every row is taken by itself
        """Takes no row, and returns True: the caller then gives each row to `take_row`."""
        return True

    def take_row(self, row: bytes) -> None:
        """Reads one row of any size."""
        self.size += len(row)
        at = 0
        for column in self._columns:
            size = row[at]
            at += 1
            if size == 251:
                column.append(None)
                continue
            if size > 251:
                more = 2 if size == 252 else 3 if size == 253 else 8
                size = int.from_bytes(row[at : at + more], "little")
                at += more
            column.append(row[at : at + size])
            at += size

    def table(self) -> pa.Table:
        """Returns all rows that have been added so far. Rows that are added later do not change this table."""
        arrays = []
        for column, values in zip(self._table.columns, self._columns, strict=True):
            try:
                arrays.append(to_arrow(values, self._table.name, column))
            except pa.ArrowInvalid as error:
                what = f"column {column.name} has a value that a column of type {column.type.kind} cannot have: {error}"
                raise StructureChanged("structure-changed", what, where=self._where) from error
        self._columns = [[] for _ in self._columns]
        self.size = 0
        return pa.Table.from_arrays(arrays, schema=self._table.arrow)
