"""Reports to an operator the rows that a task has set aside: each row once, and many rows together.

The target records which rows were reported. `Alerts` stores the alert, a JSON document, before this record is written.
The crash points:

1. Before the document is stored: the next check finds the rows again.
2. After the document is stored, before the COMMIT of the record: the next check finds the rows again, and they are
   reported twice.
3. After the COMMIT: `Alerts` delivers the document, if necessary in the next run.

The first rows are reported at once. Rows that follow within a minute are reported together, so a flood of locked rows
causes only a few alerts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from pidts.apply import TargetSession
from pidts.model import PidtsError, RowLock, TableName
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.alerts import Alerts

_PAUSE_SECONDS = 60.0
_SHOWN = 20
_AT_ONCE = 1000
"""The largest number of locks that are in memory at once."""
_MANY = 10_000


class LockAlerts:
    """The alerts of one source of a task."""

    def __init__(self, alerts: Alerts) -> None:
        self._known: dict[TableName, set[str]] = {}
        """The locks that were already reported."""
        self._due_at = self._looked_at = 0.0
        self._alerts = alerts

    def look(self, session: TargetSession, config: TaskConfig, counts: Mapping[TableName, int], *, now: bool) -> None:
        """Reports new locks; with `now`, even if locks were reported within the last minute.

        `counts` has the number of locks of each table. If there are many locks, and their numbers stay the same, the
        method reads their ids at most once a minute.
        """
        if config.alerts is None or (not now and time.monotonic() < self._due_at):
            return
        stays = counts == {table: len(ids) for table, ids in self._known.items()}
        is_due = now or time.monotonic() >= self._looked_at + _PAUSE_SECONDS
        if stays and not is_due and sum(counts.values()) > _MANY:
            return
        task, source, record = config.name, config.source.source_id, session.meta.row_locks
        there = {table: record.ids(task, source, table) for table in sorted(counts)}
        unknown = {table: sorted(set(ids) - self._known.get(table, set())) for table, ids in there.items()}
        new: Counter[TableName] = Counter()
        examples: list[RowLock] = []
        if any(unknown.values()):
            session.begin()
            try:
                for table, ids in unknown.items():
                    for first in range(0, len(ids), _AT_ONCE):
                        part = record.lock(task, source, table, ids[first : first + _AT_ONCE])
                        found = [one for one in part if not one.is_reported]
                        record.change(task, source, [replace(one, is_reported=True) for one in found])
                        new[table] += len(found)
                        examples = nsmallest(_SHOWN, [*examples, *found], key=lambda one: (one.lsn, one.id))
                if new.total():
                    self._alerts.send(alert(task, source, new, examples))
                session.commit()
            except PidtsError:
                session.rollback()
                raise
        self._known = {table: set(ids) for table, ids in there.items()}
        self._looked_at = time.monotonic()
        if new.total():
            self._due_at = time.monotonic() + _PAUSE_SECONDS


def alert(task: str, source: str, counts: Mapping[TableName, int], examples: Sequence[RowLock]) -> dict[str, Any]:
    """Returns the document of an alert: the number of rows of each table, and some examples."""
    tables = {str(table): count for table, count in sorted(counts.items()) if count}
    return {
        "event": "rows-locked",
        "state": "firing",
        "task": task,
        "source": source,
        "rows": sum(tables.values()),
        "tables": tables,
        "examples": [
            {"id": one.id[:12], "table": str(one.table.name), "key": one.shown, "why": one.why, "lsn": str(one.lsn)}
            for one in examples
        ],
        "todo": "pidts locks list TASK",
    }
