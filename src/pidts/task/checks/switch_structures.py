"""Reads the structures with which the task for the way back after a cutover begins.

If a task file gives the start, the task needs the tables' structures at this start. The catalog may not show them:

1. A cutover ends. The application writes to the new server.
2. A column is added there.
3. The task that carries changes back starts for the first time. The catalog shows the column, but the first rows in the
   log do not have it.

So the cutover records the structures at the switch. The record is on the new server, which is the source of this task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pidts.model import Position, Table, TableName
from pidts.source import Session, query
from pidts.target.meta import CutoverRecord
from pidts.target.meta_schema import in_schema
from pidts.task.checks.task_records import meta_schemas
from pidts.task.config.task_file import TaskConfig


def structures_at_start(config: TaskConfig, source: Session) -> dict[TableName, Table]:
    """Returns the tables' structures at the task file's start, if a cutover has recorded them on the source.

    Returns nothing if there was no such cutover, if an earlier version of PiDTS made the cutover, or if the account may
    not read the cutover's record.
    """
    given = config.source.start
    if config.mode != "incremental" or not isinstance(given, Position):
        return {}
    for schema in meta_schemas(partial(query, source)):
        found = _record(source, schema).structures_at(str(given))
        if found:
            return {name: table for name, table in found.items() if config.allow(name)}
    return {}


def _record(source: Session, schema: str) -> CutoverRecord:
    named = in_schema(schema, "`")

    def run(sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        return query(source, named(sql), values or None), 0

    return CutoverRecord(run)
