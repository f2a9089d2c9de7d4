"""Tells an operator of rows that a task has set aside: each row once, and many together.

The record on the target says of which rows somebody was told:

1. Before COMMIT of that: the next look finds the rows again.
2. Behind COMMIT, before the program or the address has got the alert: these rows are not told again. `pidts status`,
   the log and the metric show them in any case.

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
from pidts.task.run.alert_delivery import Delivery

_PAUSE_SECONDS = 60.0
_SHOWN = 20


class LockAlerts:
    """The alerts of one source of a task."""

    def __init__(self) -> None:
        self._known: dict[TableName, set[str]] = {}
        """Locks of which nobody has to be told any more."""
        self._due_at = 0.0
        self._delivery = Delivery()

    def look(self, session: TargetSession, config: TaskConfig, tables: Sequence[TableName], *, now: bool) -> None:
        """Tells of locks that are new; `now`: although others were told a moment ago."""
        self._known = {name: ids for name, ids in self._known.items() if name in tables}
        if config.alerts is None or (not now and time.monotonic() < self._due_at):
            return
        new: list[RowLock] = []
        for table in tables:
            new += self._mark(session, config, table)
        if new:
            self._due_at = time.monotonic() + _PAUSE_SECONDS
            self._delivery.send(config.alerts, alert(config.name, config.source.source_id, new))

    def close(self) -> None:
        """Waits for an alert that is under way."""
        self._delivery.close()

    def _mark(self, session: TargetSession, config: TaskConfig, table: TableName) -> list[RowLock]:
        """Returns the locks of a table of which nobody was told, and notes that they are told."""
        task, source, record = config.name, config.source.source_id, session.meta.row_locks
        there = record.ids(task, source, table)
        unknown = there - self._known.get(table, set())
        new: list[RowLock] = []
        if unknown:
            session.begin()
            try:
                new = [one for one in record.lock(task, source, table, unknown) if not one.told]
                record.change(task, source, [replace(one, told=True) for one in new])
                session.commit()
            except PidtsError:
                session.rollback()
                raise
        self._known[table] = there
        return new


def alert(task: str, source: str, locks: Sequence[RowLock]) -> dict[str, Any]:
    """Returns the document of an alert: how many rows of each table, and some of them."""
    tables: dict[str, int] = {}
    for one in locks:
        tables[str(one.table.name)] = tables.get(str(one.table.name), 0) + 1
    return {
        "event": "rows-locked",
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
