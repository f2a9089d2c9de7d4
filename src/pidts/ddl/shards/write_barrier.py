"""Stops the other shards of a group from writing while the group's target table is being changed.

A member that has arrived at the change waits before it. Without this module, the other shards of the group would
continue to write to the table that is being changed. Their batches would wait for the end of the change, and the end of
the change would wait for their checkpoints. So these shards are held tables meanwhile. The change begins when all parts
of the task have stopped writing to the target table.

The state of the barrier is not durable. If a part does not report in time that it has stopped, the change begins
without this report. Either the part is down, or it is writing to a table that another session has locked: in the second
case, the target lets its writes wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import structlog

from pidts.model import TableName

_log = structlog.get_logger(__name__)

Keep = Callable[[frozenset[TableName]], None]
"""Signals to a source's planner which tables must wait."""


class WriteBarrier:
    """The write barrier of one process, which the threads of all parts of the task use."""

    def __init__(self, patience_seconds: float = 30.0) -> None:
        """A change waits at most `patience_seconds` for the other parts to stop writing."""
        self._patience_seconds = patience_seconds
        self._keeps: dict[str, Keep] = {}
        self._kept: dict[object, Mapping[str, frozenset[TableName]]] = {}
        """The held tables, keyed by the change for which they are held."""
        self._held: dict[str, frozenset[TableName]] = {}
        self._quiet: set[str] = set()
        self._moved = threading.Condition()

    def attend(self, source: str, keep: Keep, held: Collection[TableName] = ()) -> None:
        """Registers a source's new attempt, with the source's waiting tables."""
        with self._moved:
            self._keeps[source] = keep
            self._held[source] = frozenset(held)
            self._quiet.discard(source)
            keep(self._of(source))
            self._moved.notify_all()

    def leave(self, source: str, keep: Keep) -> None:
        """Removes an attempt that has ended and does not write any more."""
        with self._moved:
            if self._keeps.get(source) is keep:
                del self._keeps[source]
                self._moved.notify_all()

    def set_held(self, source: str, tables: Collection[TableName]) -> None:
        """Sets the tables of a source that wait after the source's last batch."""
        with self._moved:
            self._held[source] = frozenset(tables)
            self._moved.notify_all()

    @contextmanager
    def quiet(self, source: str) -> Iterator[None]:
        """Marks the time between two batches of a source, in which its tables are not written."""
        with self._moved:
            self._quiet.add(source)
            self._moved.notify_all()
        try:
            yield
        finally:
            with self._moved:
                self._quiet.discard(source)

    @contextmanager
    def holding(self, tables: Mapping[str, frozenset[TableName]]) -> Iterator[None]:
        """Stops the writing for these tables, keyed by their sources, while the block runs."""
        if not tables:
            yield
            return
        key = object()
        with self._moved:
            self._kept[key] = tables
            self._notify(tables)
            self._wait(tables)
        try:
            yield
        finally:
            with self._moved:
                del self._kept[key]
                self._notify(tables)

    def _wait(self, tables: Mapping[str, frozenset[TableName]]) -> None:
        deadline, left = time.monotonic() + self._patience_seconds, dict(tables)
        while True:
            left = {source: names for source, names in left.items() if not self._has_stopped(source, names)}
            seconds = deadline - time.monotonic()
            if not left or seconds <= 0:
                break
            self._moved.wait(min(seconds, 1.0))
        if left:
            _log.warning("a schema change begins while other shards may write to its table", sources=sorted(left))

    def _has_stopped(self, source: str, names: frozenset[TableName]) -> bool:
        if source not in self._keeps or source in self._quiet:
            return True
        return names <= self._held.get(source, frozenset())

    def _of(self, source: str) -> frozenset[TableName]:
        return frozenset[TableName]().union(*(kept.get(source, frozenset()) for kept in self._kept.values()))

    def _notify(self, sources: Collection[str]) -> None:
        for source in sources:
            keep = self._keeps.get(source)
            if keep is not None:
                keep(self._of(source))
