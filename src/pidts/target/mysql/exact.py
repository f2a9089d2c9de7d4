"""Makes conditions that only rows with exactly these values satisfy, whatever collations the target has.

Text is compared twice: by the column's collation, for which an index can be used, and byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Kind
from pidts.model.types import IDENTIFIERS, LABELED
from pidts.target.mysql.dialect import identifier
from pidts.target.mysql.encode import joined, stored_literals, wrapped
from pidts.target.mysql.shape import MyTable

_NULL = pa.scalar(b"NULL", pa.large_binary())


def rows_exactly(columns: Iterable[Column], found: MyTable, rows: pa.Table) -> pa.Array:
    """Returns, for each row, the SQL of "all these columns have exactly the row's values".

    `found` is the target's table.
    """
    each = [_exactly(column, found.column(column.name) or column, rows[column.name]) for column in columns]
    return joined(each, b" AND ")


def _exactly(column: Column, found: Column, values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns, for each value, the SQL of "the column is this value", NULL included.

    `found` is the target's column.
    """
    name = identifier(column.name).encode()
    value = pc.fill_null(stored_literals(column, found, values), _NULL)
    kind = found.type.kind
    if kind is Kind.JSON and not column.type.is_bytes:
        # Equal documents may have different texts (1 and 1.0): both are converted to the server's own text.
        return _pair(
            b"CAST(CAST(" + name + b" AS CHAR) AS BINARY) <=> ",
            value,
            b"CAST(CAST(CAST(",
            b" AS JSON) AS CHAR) AS BINARY)",
        )
    if kind is Kind.VECTOR:
        return _pair(b"CAST(" + name + b" AS BINARY) <=> ", value, b"CAST(", b" AS BINARY)")
    plain = _pair(name + b" <=> ", value, b"", b"")
    if not is_collated(found) or column.type.is_bytes:
        return plain
    by_bytes = _pair(b" AND CAST(CONVERT(" + name + b" USING utf8mb4) AS BINARY) <=> ", value, b"CAST(", b" AS BINARY)")
    return pc.binary_join_element_wise(plain, by_bytes, pa.scalar(b"", pa.large_binary()))


def is_collated(found: Column) -> bool:
    """Whether a collation decides which values of the column are equal; labels of one ENUM are never equal."""
    return found.type.is_text and found.type.kind not in LABELED | IDENTIFIERS


def _pair(condition: bytes, value: pa.Array, before: bytes, after: bytes) -> pa.Array:
    return wrapped(value, condition + before, after)
