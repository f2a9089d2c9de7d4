"""What a full copy begins with, table by table."""

from __future__ import annotations

from collections.abc import Mapping

from pidts.model import Lsn, Table, TableName
from pidts.plan import CopyState, Way
from pidts.rules import AllowList
from pidts.source import Session
from pidts.source.sizes import table_sizes

Patterns = tuple[str, ...] | None
"""Tables that are to be copied once more; empty: all. None: none."""


def is_meant(patterns: Patterns, name: TableName) -> bool:
    """Whether a table is to be copied once more."""
    return patterns is not None and (not patterns or AllowList.parse(",".join(patterns))(name))


def copy_states(
    source: Session, tables: Mapping[TableName, Table], ways: Mapping[TableName, Way], since: Lsn | None = None
) -> dict[TableName, CopyState]:
    """One for each table of `ways`; the rows in all are the source's guess."""
    sizes = table_sizes(source, ways)
    return {
        name: CopyState(
            way=way,
            estimate=sizes[name].rows if name in sizes else 0,
            row_bytes=sizes[name].bytes // max(sizes[name].rows, 1) if name in sizes else 0,
            since=since,
            keyless=not tables[name].identity,
        )
        for name, way in ways.items()
    }
