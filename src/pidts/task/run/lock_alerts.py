"""Tells an operator of rows that a task has set aside: each row once, and many together.

The record on the target says of which rows somebody was told. The document is kept by `Alerts` before it says so:

1. Before the document is kept: the next look finds the rows again.
2. Between that and COMMIT of the record: the next look finds the rows again, and they are told twice.
3. Behind COMMIT: `Alerts` delivers the document, in the next run if need be.

The first rows are told at once. What comes within a minute is told together, so a flood of locked rows is a few alerts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pidts.apply import TargetSession
from pidts.model import PidtsError, RowLock, TableName
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.alerts import Alerts

_PAUSE_SECONDS = 60.0
_SHOWN = 20


class LockAlerts:
    """The alerts of one source of a task."""

    def __init__(self, alerts: Alerts) -> None:
        self._known: dict[TableName, set[str]] = {}
        """Locks that need no report any more."""
        self._due_at = 0.0
        self._alerts = alerts

    def look(self, session: TargetSession, config: TaskConfig, tables: Sequence[TableName], *, now: bool) -> None:
        """Reports locks that are new; `now`: although others were reported a moment ago."""
        if config.alerts is None or (not now and time.monotonic() < self._due_at):
            return
        task, source, record = config.name, config.source.source_id, session.meta.row_locks
        there = {table: record.ids(task, source, table) for table in tables}
        unknown = {table: ids - self._known.get(table, set()) for table, ids in there.items()}
        new: list[RowLock] = []
        if any(unknown.values()):
            session.begin()
            try:
                for table, ids in unknown.items():
                    found = [one for one in record.lock(task, source, table, ids) if not one.told] if ids else []
                    record.change(task, source, [replace(one, told=True) for one in found])
                    new += found
                if new:
                    self._alerts.send(alert(task, source, new))
                session.commit()
            except PidtsError:
                session.rollback()
                raise
        self._known = there
        if new:
            self._due_at = time.monotonic() + _PAUSE_SECONDS


def alert(task: str, source: str, locks: Sequence[RowLock]) -> dict[str, Any]:
    """Returns the document of an alert: how many rows of each table, and some of them."""
    tables: dict[str, int] = {}
    for one in locks:
        tables[str(one.table.name)] = tables.get(str(one.table.name), 0) + 1
    return {
        "event": "rows-locked",
        "state": "firing",
        "task": task,
        "source": source,
        "rows": len(locks),
        "tables": tables,
        "examples": [
            {"id": one.id[:12], "table": str(one.table.name), "key": one.shown, "why": one.why, "lsn": str(one.lsn)}
            for one in locks[:_SHOWN]
        ],
        "todo": "pidts locks list TASK",
    }
