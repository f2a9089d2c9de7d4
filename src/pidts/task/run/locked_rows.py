"""Reads the number of locked rows from the target while the task runs, and reports new locked rows to an operator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress

from pidts.apply.rows.convergence import converges
from pidts.model import Halted, OnDivergence, Table, TableName, Transient, Where
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.alerts import Alerts
from pidts.task.run.lock_alerts import LockAlerts

_LOOK_SECONDS = 5.0


class LockedRows:
    """The number of locked rows of one source in each target table.

    The numbers are read when an attempt begins, and then every few seconds. If the task locks no rows, and the first
    reading finds none, there is no second reading.
    """

    def __init__(self, config: TaskConfig, alerts: Alerts) -> None:
        self._config, self._all_alerts = config, alerts
        self._looked_at = 0.0
        self._counts: Mapping[TableName, int] = {}
        self._alerts = LockAlerts(alerts)

    def begin_attempt(self, config: TaskConfig) -> Mapping[TableName, int]:
        """Returns the counts of this moment, and uses `config` from now on, since the task file may have changed."""
        self._config = config
        self._all_alerts.use(config.alerts)
        return self._read()

    def look(self, *, now: bool = False) -> Mapping[TableName, int]:
        """Returns counts that are a few seconds old at most; with `now`, the counts of this moment."""
        is_due = now or time.monotonic() >= self._looked_at + _LOOK_SECONDS
        if is_due and (self._counts or self._config.on_divergence is OnDivergence.LOCK):
            with suppress(Transient):
                self._read(now=now)
        return self._counts

    def _read(self, *, now: bool = False) -> Mapping[TableName, int]:
        config = self._config
        with closing(config.target.server.connect()) as session:
            self._counts = session.meta.row_locks.recorded(config.name, config.source.source_id)
            self._alerts.look(session, config, self._counts, now=now)
        self._looked_at = time.monotonic()
        return self._counts


def has_locked_rows(config: TaskConfig, tables: Iterable[TableName]) -> bool:
    """Whether rows of these source tables are locked on the target now."""
    with closing(config.target.server.connect()) as session:
        counts = session.meta.row_locks.recorded(config.name, config.source.source_id)
    return any(config.rules.target_name(name) in counts for name in tables)


def demand_unlocked(config: TaskConfig, counts: Mapping[TableName, int], tables: Iterable[Table]) -> None:
    """Raises if rows are locked in tables where versions decide. A run without `conflict: version` has locked them.

    A locked row keeps its values. When an operator resolves it, versions that arrived after the lock are ignored.
    """
    if not config.zones.converges:
        return
    there = map(config.rules.target_table, tables)
    found = sorted(table.name for table in there if table.name in counts and converges(table, config.version_column))
    if found:
        number = sum(counts[name] for name in found)
        raise Halted(
            "rows-locked",
            f"{number} rows of {', '.join(map(str, found))} are locked. The task cannot start with "
            "`pidts.conflict: version` while rows of these tables are locked",
            where=Where(source=config.source.source_id),
            todo=f"Look at these rows (pidts locks list {config.shell_path}), resolve them "
            f"(pidts locks resolve {config.shell_path} ID), and start again",
        )
