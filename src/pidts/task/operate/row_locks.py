"""Lists, shows and resolves the locked rows of a task, with the target's records alone: the task need not run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pidts.apply import TargetSession
from pidts.apply.locks.resolve import ResolvePreview, ResolveWith, UnfinishedResolves, outlook, outlooks, resolve
from pidts.apply.locks.unique_values import unique_keys
from pidts.model import ConfigError, RowLock, TableName
from pidts.model.errors import listed
from pidts.task.config.task_file import TaskConfig

_AT_ONCE = 1000
ID_LENGTH = 12
"""The number of an id's characters that are shown. Any unique prefix of an id is accepted. Rows with equal keys have
equal ids. If the id belongs to rows of several tables, it is shown as `ID@TABLE`, or, in a task with several sources,
as `ID@SOURCE:TABLE`.
"""


@dataclass(frozen=True, slots=True)
class LockedRow:
    """A locked row, with its source and the ids that a user sees."""

    source: str
    lock: RowLock
    id: str
    """The displayed id, which names this row alone."""
    needs: str
    """The displayed id of the row for which this row waits; empty if there is none."""

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
            "needs": self.needs or None,
        }


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Locked rows of one table of one source. Only their ids are in memory, since there may be a million."""

    source: str
    table: TableName
    ids: Sequence[str]


class TaskLocks:
    """Reads and resolves the locks of a task, on one session of its target."""

    def __init__(self, parts: Sequence[TaskConfig], target: TargetSession) -> None:
        self._task, self._target = parts[0].name, target
        self._sources = [part.source.source_id for part in parts]

    def counts(self) -> dict[tuple[str, TableName], int]:
        """Returns, for each source, the number of locked rows of each table."""
        found: dict[tuple[str, TableName], int] = {}
        for source in self._sources:
            for table, count in self._target.meta.row_locks.recorded(self._task, source).items():
                found[source, table] = count
        return found

    def all_of(self, table: str = "") -> list[ChosenRows]:
        """Returns the locked rows of each table, the oldest first; `table` is a name on the source or on the target."""
        found = []
        for of, name in sorted(self.counts()):
            dots = [place for place, letter in enumerate(table) if letter == "."]
            origins = [TableName(table[:dot], table[dot + 1 :]) for dot in dots]
            named = [None] if table in ("", str(name)) else origins
            read = self._target.meta.row_locks.ids
            found += [ChosenRows(of, name, read(self._task, of, name, origin)) for origin in named]
        return [one for one in found if one.ids]

    def rows(self, chosen: ChosenRows, most: int | None = None) -> Iterator[LockedRow]:
        """Yields these locked rows, but no more than `most`; rows that are resolved meanwhile are left out."""
        for part in _portions(chosen.ids[:most]):
            found = self._target.meta.row_locks.some(self._task, chosen.source, chosen.table, part)
            by_id = {one.id: one for one in found}
            for lock in (by_id[one] for one in part if one in by_id):
                yield LockedRow(chosen.source, lock, self._shown(chosen, lock.id), self._shown(chosen, lock.needs))

    def named(self, ids: Collection[str], table: str = "") -> list[ChosenRows]:
        """Returns the rows with these ids or prefixes of ids. Raises if one of them names no row, or several rows.

        `@TABLE` or `@SOURCE:TABLE` may follow a prefix.
        """
        every = self.all_of(table)
        chosen: dict[tuple[str, TableName], list[str]] = {}
        for id_ in ids:
            start, _, place = id_.partition("@")
            at = [one for one in every if place in ("", str(one.table), f"{one.source}:{one.table}")] if start else []
            found = [(one, each) for one in at for each in one.ids if each.startswith(start)]
            if len(found) != 1:
                raise _not_one(id_, [self._shown(*one) for one in found])
            ((one, whole),) = found
            chosen.setdefault((one.source, one.table), []).append(whole)
        return [ChosenRows(*place, list(dict.fromkeys(mine))) for place, mine in sorted(chosen.items())]

    def _shown(self, of: ChosenRows, id_: str) -> str:
        short = id_[:ID_LENGTH]
        if short not in self._shared_ids:
            return short
        return f"{short}@{of.table}" if len(self._sources) == 1 else f"{short}@{of.source}:{of.table}"

    @cached_property
    def _shared_ids(self) -> Collection[str]:
        """The displayed ids that belong to rows of several tables or sources."""
        known, shared = set[str](), set[str]()
        of_each = self.all_of()
        for one in of_each if len(of_each) > 1 else ():
            own = {each[:ID_LENGTH] for each in one.ids}
            shared |= known & own
            known |= own
        return shared

    def outlook(self, one: LockedRow, take: ResolveWith, values: Mapping[str, str | None]) -> ResolvePreview:
        """Returns the effect of resolving this lock."""
        return outlook(self._target, self._task, one.source, one.lock, take, values)

    def outlooks(
        self, chosen: Iterable[ChosenRows], take: ResolveWith, values: Mapping[str, str | None]
    ) -> Iterator[ResolvePreview]:
        """Yields the effects of `resolve` on these rows, and on rows that wait for them and are resolved with them."""
        for one in chosen:
            for part, awaited in self._steps(one):
                locks = [each.lock for each in self.rows(part)]
                yield from outlooks(self._target, self._task, one.source, locks, take, values, awaited=awaited)

    def resolve(
        self,
        chosen: Iterable[ChosenRows],
        take: ResolveWith,
        values: Mapping[str, str | None],
        begun: UnfinishedResolves | None = None,
    ) -> Iterator[ResolvePreview]:
        """Resolves these locks; yields the locks that still existed.

        `begun` are interrupted commands on several zones, which this call may complete. More than a thousand locks of
        one table are resolved in several transactions, unless the table has a unique key besides its identity: see
        `_steps`.
        """
        for one in chosen:
            for part, awaited in self._steps(one):
                place = one.source, one.table, part.ids
                yield from resolve(self._target, self._task, *place, take, values, begun, awaited=awaited)

    def _steps(self, chosen: ChosenRows) -> Iterator[tuple[ChosenRows, bool]]:
        """Yields groups of locks, one for each transaction, and whether other locks may wait for locks of the group.

        Only in a table with unique keys may one lock wait for another. In other tables, a group has a thousand locks.
        """
        first = next(self.rows(chosen, _AT_ONCE), None) if len(chosen.ids) > _AT_ONCE else None
        if first is None or unique_keys(self._target, first.lock.structure):
            yield chosen, True
            return
        for part in _portions(chosen.ids):
            yield replace(chosen, ids=part), False


def _not_one(id_: str, found: Sequence[str]) -> ConfigError:
    count = f"{len(found):,} locked rows have" if found else "no locked row has"
    todo = f"Write more of the id: {listed(map(shlex.quote, found))}"
    if not found:
        todo = "The row may have been resolved already. To see the locked rows: pidts locks list TASK"
    return ConfigError("no-such-locked-row", f"{count} an id that begins with {id_!r}", todo=todo)


def _portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))


@contextmanager
def task_locks(parts: Sequence[TaskConfig]) -> Iterator[TaskLocks]:
    """Opens a session on the target and yields the task's locks."""
    with closing(parts[0].target.server.connect()) as target:
        yield TaskLocks(parts, target)
