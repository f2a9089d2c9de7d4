"""The state with which the full copy of each table begins."""

from __future__ import annotations

from collections.abc import Mapping

from pidts.model import Lsn, Table, TableName
from pidts.plan import CopyMode, CopyState
from pidts.rules import AllowList
from pidts.source import Session
from pidts.source.sizes import table_sizes

Patterns = tuple[str, ...] | None
"""Patterns of tables to copy again; an empty tuple means all tables, None means no table."""


def is_selected(patterns: Patterns, name: TableName) -> bool:
    """Whether these patterns select a table to copy again."""
    return patterns is not None and (not patterns or AllowList.parse(",".join(patterns))(name))


def copy_states(
    source: Session, tables: Mapping[TableName, Table], modes: Mapping[TableName, CopyMode], since: Lsn | None = None
) -> dict[TableName, CopyState]:
    """Returns the copy state of each table of `modes`, with the source's estimate of its rows."""
    sizes = table_sizes(source, modes)
    return {
        name: CopyState(
            mode=mode,
            estimate=sizes[name].rows if name in sizes else 0,
            row_bytes=sizes[name].bytes // max(sizes[name].rows, 1) if name in sizes else 0,
            since=since,
            keyless=not tables[name].identity,
        )
        for name, mode in modes.items()
    }
