"""Many rows of a SELECT: compiled code writes what the server sends straight into Arrow's memory.

The driver makes an object of each value, which takes longer than the server takes to find it. The compiled code reads
a value as the source's column writes it. Where the target's column writes it in another way, there is no answer, and
the caller asks again through the driver.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pidts.model import Column, Halted, Kind, Table, Where
from pidts.target.mysql.driver import Answer
from pidts.text_rows.cells import Cells

_AT_ONCE = 16 << 20


def many_rows(answer: Answer, table: Table) -> pa.Table | None:
    """Returns all rows of an answer; None if a value is not as the source's column writes it."""
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
    """Text comes in UTF-8, and years with four digits."""
    kind = column.type
    if kind.kind is Kind.YEAR:
        return replace(column, type=replace(kind, length=None))
    return replace(column, type=replace(kind, charset="utf8mb4")) if kind.is_text else column
