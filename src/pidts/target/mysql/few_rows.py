"""Converts a few rows to SQL text value by value: for so few values, calls of Arrow take longer than the text itself.

The texts are the same bytes as those of `encode`, which converts a whole column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from pidts.model import Column, Kind
from pidts.target.json_decimals import losing_digits, reads_documents
from pidts.target.mysql.encode import StatementLimits, demand_fits, quoted, stored_literals
from pidts.target.text import combined

_CONVERTED = frozenset(
    {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME}
)
"""Types whose values do not become text by one simple rule: `encode` converts them."""


FewLiterals: TypeAlias = Callable[[pa.Array], list[bytes]]
"""Returns each value as a literal."""


def few_literals(column: Column, found: Column | None = None) -> FewLiterals:
    """Returns the function that writes a column's values as SQL for the target's column (`found`)."""
    kind = column.type.kind
    if column.type.is_integer or kind is Kind.BIT:
        return _numbers
    if kind in _CONVERTED:
        return partial(_converted, column, found)
    if reads_documents(column, found):
        return partial(_documents, column, found)
    return partial(_quoted, b"_binary'" if column.type.is_bytes else b"'")


def few_tuples(texts: Sequence[tuple[int, FewLiterals]], rows: pa.Table, ending: bytes) -> list[bytes]:
    """Returns `(1,'a',NULL),` for each row. `texts`: for each value, its column's index in `rows`, and its function."""
    columns = [text(combined(rows.column(place))) for place, text in texts]
    return [b"(" + b",".join(row) + ending for row in zip(*columns, strict=True)]


def _numbers(values: pa.Array) -> list[bytes]:
    return [b"NULL" if one is None else b"%d" % one for one in values.to_pylist()]


def _converted(column: Column, found: Column | None, values: pa.Array) -> list[bytes]:
    return [b"NULL" if one is None else one for one in stored_literals(column, found, values).to_pylist()]


def _documents(column: Column, found: Column | None, values: pa.Array) -> list[bytes]:
    return _quoted(b"'", values) if losing_digits(values) is None else _converted(column, found, values)


def _quoted(before: bytes, values: pa.Array) -> list[bytes]:
    if pa.types.is_string(values.type):
        values = values.view(pa.binary())  # otherwise each text would be decoded here and encoded again
    return [b"NULL" if one is None else quoted(one, before) for one in values.to_pylist()]


def few_statements(
    head: bytes, rows: Sequence[bytes], tail: bytes, limits: StatementLimits, *, cut: int
) -> Iterator[bytes]:
    """Yields statements over consecutive rows. A statement's last row loses the last `cut` bytes of its text."""
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
