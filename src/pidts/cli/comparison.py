"""A task's source and target as the two sides of a comparison, while nobody writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.model import Table
from pidts.source.connection import Session, connect, query
from pidts.source.rows import last_key, select_rows
from pidts.source.structures import quoted_table, read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.verify import EXACT, POSTGRES, Report, Side, compare, pages

_CHUNK_ROWS = 10_000


def compare_task(config: TaskConfig) -> Report:
    """Read every table of the task on both sides."""
    normals = POSTGRES if config.target.type == "postgresql" else EXACT
    with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
        tables = read_structures(source, config.allow).values()
        return compare(tables, _source_side(source), _target_side(target), normals=normals)


def _source_side(session: Session) -> Side:
    def read(table: Table, after: Sequence[Any] | None, limit: int) -> pa.Table:
        return select_rows(session, table, after, limit)

    rows = pages(read, _last, _CHUNK_ROWS)

    def find(table: Table, keys: pa.Table) -> pa.Table:
        # Asked only where the target counts more rows than the source: reading the table once more is good enough.
        wanted = {tuple(row.values()) for row in keys.to_pylist()}
        found = []
        for chunk in rows(table):
            identities = chunk.select(keys.column_names).to_pylist()
            found.append(chunk.filter(pa.array([tuple(row.values()) in wanted for row in identities], pa.bool_())))
        return pa.concat_tables(found) if found else table.arrow.empty_table()

    def count(table: Table) -> int:
        return int(query(session, f"SELECT COUNT(*) FROM {quoted_table(table.name)}")[0][0])

    return Side(rows, find, count)


def _target_side(session: TargetSession) -> Side:
    def read(table: Table, after: Sequence[Any] | None, limit: int) -> pa.Table:
        return session.read_rows(table, after=after, limit=limit)

    return Side(
        rows=pages(read, _last, _CHUNK_ROWS),
        find=lambda table, keys: session.read_rows(table, keys=keys),
        count=lambda table: session.count(table.name),
    )


def _last(rows: pa.Table, table: Table) -> Sequence[Any]:
    return last_key(rows, table) or ()
