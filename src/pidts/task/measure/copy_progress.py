"""Measures the progress of copying each table of one source.

A task may have 20,000 tables. The progress is shown several times a second, and updated after each batch. So each time,
only the tables that have changed or are being copied are examined.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pidts.model import TableName
from pidts.plan import CopyState, Phase
from pidts.task.operate.progress import TableProgress

_COPY_SECONDS = 20.0
"""The copy's rate is measured over this many seconds. A shorter time would not do: one job takes some seconds."""

_WAIT_SECONDS = 5.0
"""If no row is read for this time, the copy waits, for example for Spark or for a lock. Then its rate is 0.
Otherwise the rate would fall slowly, and the remaining time would seem to grow.
"""


class CopyProgress:
    """The copy state of each table of one source, with the rate of the last seconds. The caller has to hold a lock."""

    def __init__(self) -> None:
        self._states: dict[TableName, CopyState] = {}
        """The last known copy state of each table."""
        self._named: Mapping[TableName, CopyState] = {}
        """The copy states after the last batch: of tables whose copy is not complete, or has ended with this batch."""
        self._moments: deque[tuple[float, Mapping[TableName, int]]] = deque()
        """Samples of the last seconds. Each has the time, and the number of copied rows of each table for which this
        number has changed since the sample before.
        """
        self._before: dict[TableName, int] = {}
        """The number of copied rows of each table at the first sample."""
        self._moving: Counter[TableName] = Counter()
        """For each table, the number of samples after the first one that contain its row count."""
        self._moved_at = 0.0
        """When rows were read last."""
        self._unsettled: Mapping[TableName, int] = {}
        """The number of rows that are read, but do not count as copied yet."""
        self._looked_up: Counter[TableName] = Counter()
        """For each table, how many rows of the target were looked up on the source, to find extra rows."""
        self._changed: set[TableName] = set()
        """The tables whose `TableProgress` is no longer valid."""
        self._shown: dict[TableName, TableProgress] = {}
        """The progress of each table, sorted by name."""
        self._tables: tuple[TableProgress, ...] = ()

    @property
    def is_copying(self) -> bool:
        """Whether the copy of some table is not done."""
        return any(not one.done for one in self._named.values())

    def begin(self, copied: Iterable[TableName], copy: Mapping[TableName, CopyState], now: float) -> None:
        """Begins another attempt. The copy of a table in `copied` is done if `copy` does not name the table."""
        self._states = {name: self._states.get(name, CopyState(phase=Phase.FINISH)) for name in copied}
        self._named = dict(self._states)
        self._moments.clear()
        self._before, self._shown, self._tables, self._unsettled = {}, {}, (), {}
        self._looked_up.clear()
        self._moving.clear()
        self._changed = set(self._states)
        self._moved_at = now
        self.reached(copy, now)

    def reached(self, copy: Mapping[TableName, CopyState], now: float) -> None:
        """Notes the copy states after a batch. The copy of a table that `copy` does not name is done."""
        rows: dict[TableName, int] = {}
        if copy or self._named:
            found = {name: state for name, state in copy.items() if self._states.get(name) is not state}
            found |= {name: replace(self._states[name], done=True) for name in self._named.keys() - copy.keys()}
            for name, state in found.items():
                known, self._states[name] = self._states.get(name), state
                if known != state:
                    self._changed.add(name)
                if known is None or known.rows != state.rows:
                    rows[name] = state.rows
            self._named = copy
        if not self._moments:
            rows, self._before = {}, {name: state.rows for name, state in self._states.items()}
        if rows:
            self._moved_at = now
        self._moments.append((now, rows))
        self._moving.update(rows.keys())

    def being_copied(self, rows: Mapping[TableName, int], now: float) -> None:
        """Notes how many rows are read of each table, but do not count as copied yet: a long job shows its progress."""
        self._changed |= self._unsettled.keys() & self._states.keys()
        if sum(rows.values()) > sum(self._unsettled.values()):
            self._moved_at = now
        self._unsettled = rows

    def looked_up(self, rows: Mapping[TableName, int]) -> None:
        """Notes how many rows of the target a batch has looked up on the source, to find extra rows."""
        self._looked_up.update(rows)
        self._changed |= rows.keys() & self._states.keys()

    def tables(self, now: float) -> tuple[TableProgress, ...]:
        """Returns the progress of each table, sorted by name."""
        moments = self._moments
        while len(moments) > 2 and moments[1][0] < now - _COPY_SECONDS:
            moments.popleft()
            self._begin_at(moments[0][1])
        stale = self._changed | self._moving.keys() | self._unsettled.keys() & self._states.keys()
        if not stale:
            return self._tables
        seconds = max(now - moments[0][0], 1.0) if moments else 1.0
        waits, is_longer = now - self._moved_at > _WAIT_SECONDS, False
        for name in stale:
            state = self._states[name]
            is_longer = is_longer or name not in self._shown
            copied = state.rows if state.done else state.rows + self._unsettled.get(name, 0)
            self._shown[name] = TableProgress(
                name=str(name),
                copied=copied,
                estimate=state.estimate,
                done=state.done,
                phase=state.phase,
                looked_up=self._looked_up[name],
                rate=0.0 if waits else max(0, copied - self._before.get(name, 0)) / seconds,
            )
        if is_longer:
            self._shown = dict(sorted(self._shown.items(), key=lambda one: (one[0].schema, one[0].name)))
        self._changed = set()
        self._tables = tuple(self._shown.values())
        return self._tables

    def _begin_at(self, rows: Mapping[TableName, int]) -> None:
        """Makes the second sample the first one; `rows` are the rows of the second sample."""
        self._before.update(rows)
        self._changed.update(rows)
        for name in rows:
            self._moving[name] -= 1
            if not self._moving[name]:
                del self._moving[name]
