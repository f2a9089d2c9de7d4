"""Reads and writes rows of meta tables whose key begins with a task, a source and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pidts.model import TableName
from pidts.target.meta_schema import Insert

OF_TABLE = "task = %s AND source = %s AND table_schema = %s AND table_name = %s"
"""The condition that selects the rows of one table; its values are (task, source, *schema_and_name(table))."""
DIGESTS_AT_ONCE = 1000
"""The number of digests in one statement."""


def schema_and_name(table: TableName) -> tuple[str, str]:
    """Returns the values of the columns that name a table."""
    return table.schema, table.name


def placeholders(values: Sequence[object]) -> str:
    """Returns the placeholders of these values, for a list in SQL."""
    return ", ".join(["%s"] * len(values))


def portions(values: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Returns the values in portions of at most `most` values, since a statement must not become too long."""
    return (values[first : first + most] for first in range(0, len(values), most))


def insert_about(
    insert: Insert,
    record: str,
    task: str,
    source: str,
    tables: Sequence[TableName],
    values: Mapping[str, Sequence[Any]],
) -> None:
    """Inserts rows into the meta table `record`, each about one of the tables. `values` are the other columns."""
    if not tables:
        return
    about = {
        "task": [task] * len(tables),
        "source": [source] * len(tables),
        "table_schema": [one.schema for one in tables],
        "table_name": [one.name for one in tables],
    }
    insert(record, {**about, **values})
