"""Converts a few rows to SQL text value by value: for so few values, calls of Arrow take longer than the text itself.

The texts are the same bytes as those of `encode`, which converts a whole column at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pidts.model import Column, Kind
from pidts.target.mysql.encode import StatementLimits, demand_fits, literals
from pidts.target.text import combined

FEW_ROWS = 64
_CONVERTED = frozenset(
    {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME}
)
"""Types whose values become text by a rule of their own."""


def few_literals(column: Column, values: pa.ChunkedArray | pa.Array) -> list[bytes]:
    """Returns each value as a literal."""
    data = combined(values)
    kind = column.type.kind
    if column.type.is_integer or kind is Kind.BIT:
        return [b"NULL" if one is None else b"%d" % one for one in data.to_pylist()]
    if kind in _CONVERTED:
        return [b"NULL" if one is None else one for one in literals(column, data).to_pylist()]
    if pa.types.is_string(data.type):
        data = data.view(pa.binary())  # otherwise each text would be decoded here and encoded again
    elif pa.types.is_large_string(data.type):
        data = data.view(pa.large_binary())
    quote = b"_binary'" if column.type.is_bytes else b"'"
    return [b"NULL" if one is None else quote + _escaped(one) + b"'" for one in data.to_pylist()]


def few_tuples(columns: Sequence[Column], rows: pa.Table, ending: bytes = b"),") -> list[bytes]:
    """Returns `(1,'a',NULL),` for each row."""
    texts = [few_literals(column, rows.column(column.name)) for column in columns]
    return [b"(" + b",".join(row) + ending for row in zip(*texts, strict=True)]


def few_statements(
    head: bytes, rows: Sequence[bytes], tail: bytes, limits: StatementLimits, *, cut: int
) -> Iterator[bytes]:
    """Yields statements over consecutive rows; a row's text ends in `cut` bytes, which the last row does not have."""
    around = len(head) + len(tail)
    first = 0
    while first < len(rows):
        last, size = first + 1, around + len(rows[first])
        while last < len(rows) and last - first < limits.rows and size + len(rows[last]) <= limits.size:
            size += len(rows[last])
            last += 1
        demand_fits(size, limits)
        yield head + b"".join(rows[first:last])[:-cut] + tail
        first = last


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")
