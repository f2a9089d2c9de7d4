"""Unique keys of a table of MySQL, MariaDB or TiDB, those over prefixes and expressions included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from pidts.model import TableName
from pidts.reduce import ANYTHING, UniqueKey

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def unique_keys(run: Run, name: TableName) -> list[UniqueKey]:
    """Returns the unique keys of a table; none where there is no such table."""
    rows = run(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        (name.schema, name.name),
    )
    keys = [list(parts) for _, parts in groupby(rows, key=lambda row: row[0])]
    return [
        UniqueKey(
            tuple(ANYTHING if column is None else str(column) for _, column, _ in parts),
            whole=all(prefix is None for _, _, prefix in parts),
        )
        for parts in keys
    ]
