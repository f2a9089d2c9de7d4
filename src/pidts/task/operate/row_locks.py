"""Lists, shows and resolves the locked rows of a task. It uses only the target's records, and needs no running task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pidts.apply import TargetSession
from pidts.apply.locks.resolve import Begun, Outlook, Take, outlook, outlooks, resolve
from pidts.model import ConfigError, RowLock, TableName
from pidts.task.config.task_file import TaskConfig

ID_LENGTH = 12
"""The number of characters of an id that are shown. Any unique beginning of an id is accepted."""


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A locked row with the source of its changes."""

    source: str
    lock: RowLock

    @property
    def id(self) -> str:
        """Returns the displayed id."""
        return self.lock.id[:ID_LENGTH]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "id": self.id,
            "source": self.source,
            "table": str(self.lock.table.name),
            "key": self.lock.shown,
            "lsn": str(self.lock.lsn),
            "since": self.lock.since,
            "why": self.lock.why,
            "needs": self.lock.needs[:ID_LENGTH] or None,
        }


class TaskLocks:
    """The locks of a task over one session on its target."""

    def __init__(self, parts: Sequence[TaskConfig], target: TargetSession) -> None:
        self._task, self._target = parts[0].name, target
        self._sources = [part.source.source_id for part in parts]

    def counts(self) -> dict[tuple[str, TableName], int]:
        """Returns the number of locked rows of each table of each source."""
        found: dict[tuple[str, TableName], int] = {}
        for source in self._sources:
            for table, count in self._target.meta.row_locks.recorded(self._task, source).items():
                found[source, table] = count
        return found

    def rows(self, table: str = "", source: str = "") -> list[LockedRow]:
        """Returns the locked rows, the oldest of each table first; `table` is a name on the source or on the target."""
        found = [
            LockedRow(of, lock)
            for of, name in sorted(self.counts())
            if source in ("", of)
            for lock in self._target.meta.row_locks.read(self._task, of, name)
        ]
        return [one for one in found if table in ("", str(one.lock.table.name), str(one.lock.origin))]

    def named(self, ids: Collection[str], table: str = "") -> list[LockedRow]:
        """Returns the rows with these ids, or beginnings of ids; raises if one names no row or several rows.

        Rows of several tables may have the same id, since equal keys have equal ids.
        """
        rows = self.rows(table)
        chosen: dict[tuple[str, str, str], LockedRow] = {}
        for id_ in ids:
            found = [one for one in rows if one.lock.id.startswith(id_)] if id_ else []
            if len(found) != 1:
                what = f"{len(found)} locked rows have an id that begins with {id_!r}"
                tables = sorted({str(one.lock.table.name) for one in found})
                todo = f"Name the table: --table {tables[0]}" if len(tables) > 1 else "See: pidts locks list TASK"
                raise ConfigError("no-such-locked-row", what, todo=todo)
            one = found[0]
            chosen[one.source, str(one.lock.table.name), one.lock.id] = one
        return list(chosen.values())

    def outlook(self, one: LockedRow, take: Take, values: Mapping[str, str | None]) -> Outlook:
        """Returns the effect of resolving this lock."""
        return outlook(self._target, self._task, one.source, one.lock, take, values)

    def outlooks(self, rows: Collection[LockedRow], take: Take, values: Mapping[str, str | None]) -> list[Outlook]:
        """Returns the effects of `resolve`, including the rows that wait for these and are resolved with them."""
        found: list[Outlook] = []
        for source, table in _places(rows):
            mine = [one.lock for one in rows if (one.source, one.lock.table.name) == (source, table)]
            found += outlooks(self._target, self._task, source, mine, take, values)
        return found

    def resolve(
        self,
        rows: Collection[LockedRow],
        take: Take,
        values: Mapping[str, str | None],
        begun: Begun | None = None,
    ) -> list[Outlook]:
        """Resolves these locks, each table's in one transaction; returns those that still existed.

        `begun` are the commands on several zones that it may complete.
        """
        done: list[Outlook] = []
        for source, table in _places(rows):
            ids = {one.lock.id for one in rows if (one.source, one.lock.table.name) == (source, table)}
            done += resolve(self._target, self._task, source, table, ids, take, values, begun)
        return done


def _places(rows: Collection[LockedRow]) -> list[tuple[str, TableName]]:
    return sorted({(one.source, one.lock.table.name) for one in rows})


@contextmanager
def task_locks(parts: Sequence[TaskConfig]) -> Iterator[TaskLocks]:
    """Opens a session on the target and yields the task's locks."""
    with closing(parts[0].target.server.connect()) as target:
        yield TaskLocks(parts, target)
