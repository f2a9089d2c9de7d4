"""Applies a statement to a table that inherits an unknown charset.

The statement is applied with each of several charsets. Whatever is equal in all results is known: names, signs,
precisions, labels, keys. A text column that differs gets `UNKNOWN_CHARSET`. The log may show the column's charset with
the rows. If it does not, only the values of this column cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pidts.model.table import Column, Table
from pidts.model.types import UNKNOWN_CHARSET
from pidts.schema.charset_rules import Charset, closed
from pidts.schema.dialect import Dialect

CANDIDATES: tuple[Charset, ...] = (
    ("latin1", "latin1_swedish_ci"),
    ("utf8mb4", "utf8mb4_general_ci"),
    ("binary", "binary"),
)
"""Charsets with different numbers of bytes per character, and one for columns of bytes."""


def with_charset(table: Table, charset: Charset, dialect: Dialect) -> Table:
    """Returns the table. Its columns with an unknown charset get this charset."""
    columns = (
        closed(replace(column, type=replace(column.type, charset=None, collation=None)), charset, dialect)
        if column.type.has_unknown_charset
        else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def common(tables: Sequence[Table]) -> Table | None:
    """Returns one table with the properties that all of `tables` have; None if they differ in more than charsets.

    `tables` contains the same table with each of `CANDIDATES`, in this order. Columns with an unknown charset get the
    text type that they have in the first of these tables.
    """
    first, *others = tables
    if all(other == first for other in others):
        return first
    columns = [_common(same) for same in zip(*(table.columns for table in tables), strict=False)]
    known = tuple(column for column in columns if column is not None)
    rests = {replace(table, columns=(), charset=None, collation=None) for table in tables}
    if len(rests) > 1 or any(len(table.columns) != len(known) for table in tables):
        return None
    agreed = replace(first, columns=known)
    if len({(table.charset, table.collation) for table in tables}) > 1:
        return replace(agreed, charset=None, collation=None)
    return agreed


def _common(columns: Sequence[Column]) -> Column | None:
    first, *others = columns
    if all(other == first for other in others):
        return first
    names = {(column.name, column.nullable, column.generated, column.type.labels) for column in columns}
    if len(names) > 1 or not first.type.is_text:
        return None
    return replace(first, type=replace(first.type, charset=UNKNOWN_CHARSET, collation=None))
