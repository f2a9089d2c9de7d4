"""Reads a SELECT with many rows: compiled code writes the server's answer directly into Arrow's memory.

The driver makes an object of each value, which takes longer than the server needs to find the value. The compiled code
expects the text form that the source's column has. If the target's column has another form, `many_rows` returns None,
and the caller repeats the query through the driver.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pidts.model import Column, Halted, Kind, Table, Where
from pidts.target.mysql.driver import RawRows
from pidts.text_rows.cells import Cells

_AT_ONCE = 16 << 20


def many_rows(answer: RawRows, table: Table) -> pa.Table | None:
    """Returns all rows of an answer; None if the target sends a value in a different text form from the source's."""
    cells = Cells(replace(table, columns=tuple(map(_as_sent, table.columns))), Where(table=str(table.name)))
    found = []
    try:
        while True:
            is_odd = cells.take_all(answer)
            if cells.size >= _AT_ONCE:
                found.append(cells.table())
            if not is_odd:
                answer.receive()
            elif (row := answer.packet()) is not None:
                cells.take_row(row)
            else:
                break
        found.append(cells.table())
    except Halted:
        while answer.packet() is not None:
            pass
        return None
    return pa.concat_tables(found)


def _as_sent(column: Column) -> Column:
    """Returns the column as the server sends it: text is UTF-8, and years have four digits."""
    kind = column.type
    if kind.kind is Kind.YEAR:
        return replace(column, type=replace(kind, length=None))
    return replace(column, type=replace(kind, charset="utf8mb4")) if kind.is_text else column
