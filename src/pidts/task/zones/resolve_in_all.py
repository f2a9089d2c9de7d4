"""Gives all zones one zone's row, and resolves the locks of the row's key in all zones.

Two zones may change a row before either has the other zone's change. Then each zone keeps its own row, and has a lock
with the other zone's change. A third zone has the row that arrived first, and a lock with the change that arrived
later. An operator names one lock and the *winner*: the source zone of the lock's task (`--take source`), or its target
zone (`--take keep`). In each zone, one of these cases applies:

    another zone has the winner's row               its locks are dropped, with the changes that they hold
    a lock of another zone holds the winner's row   it is resolved with that row, and the zone's other locks are dropped
    another zone has neither                        refused: without a lock, the difference would not be noticed
    the winner has a lock of another zone's change  it is dropped, if that zone has the winner's row or a lock

So no two zones differ without a lock. The zones are changed one after the other, the zone of the named lock last. The
written rows have the mark of another zone, so tasks do not carry them back. No task forwards them either, since the
command only works for zones that all feed each other directly.

Changes that have not arrived yet would be dangerous: some would later find the row that they expect, and be applied:

    b    DELETE 1, INSERT 1, not in zone a yet       a    DELETE 1, which zone b has locked, and a wins: b loses its row
    task ba carries the DELETE, which finds no row, and the INSERT: zone a has a row that zone b lacks, without a lock

So the command first waits until all zones have the logged changes of all other zones. When it drops a lock, it reads
the winner's row again while no task commits in that zone. A later change then finds the row that it expects, or finds
another row and is locked. The command does not notice a program that writes the row in a third zone meanwhile.

The named lock records the winner before anything is changed. The state after a crash at each point:

1. Before the record in the named lock is committed: nothing has changed.
2. Between two zones: the named lock still exists, and names the winner. The repeated command resolves the lock in the
   remaining zones. The command refuses another winner for this lock, and for each other lock of the same key. Some
   zones may already have the first winner's row and no lock, so the zones would differ without a lock.
3. After the last zone: everything is done.

`--only-here` resolves only the lock of one task. After a killed command, there are two cases:

- The command can be repeated: `--only-here` accepts only the same choice for the named lock. The lock's zone gets or
  keeps the winner's row, and a zone with another row still has its own lock.
- The command cannot be repeated, because the winner was removed from the file, or some zones do not feed each other any
  more. Then `--only-here` accepts any choice for each lock, and advises the operator to compare the zones.

Two operators may name two locks of a row at the same time, and choose different winners. Each command first records its
own winner. So at least one command finds the record of the other, removes its own record, and changes nothing. If each
finds the other's record, both locks are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.locks.follow_schema import structure_now
from pidts.apply.locks.resolve import (
    ResolvePreview,
    ResolveWith,
    UnfinishedResolves,
    Values,
    demand_winner,
    outlook,
    resolve_in,
)
from pidts.apply.uncopied_keys import unpacked
from pidts.model import PidtsError, PrecheckFailed, RowLock, TableName, Where


@dataclass(frozen=True, slots=True)
class TaskIntoZone:
    """A task that carries one zone's changes into another zone."""

    zone: str
    """The zone whose changes the task carries. Rows that its sessions write get the mark of this zone."""
    target: str
    name: str
    source: str
    """The source-id."""
    connect: Callable[[], TargetSession]
    await_all: Callable[[TableName], None]
    """Waits until the target has all changes of a table that are in the zone's log now. Raises if it does not get them.
    """


@dataclass(frozen=True, slots=True)
class ResolveInAll:
    """Resolves the locks of some keys of a table in all zones."""

    tasks: Sequence[TaskIntoZone]
    """All tasks between the zones; each zone feeds every other zone."""
    named: TaskIntoZone
    """The task whose locks the operator has named."""
    table: TableName
    ids: Collection[str]
    """The locks of the named task."""
    winner: str

    def outlooks(self) -> list[tuple[TaskIntoZone, ResolvePreview]]:
        """Returns the locks that would be resolved, each with its task and the row that would result."""
        with closing(self.named.connect()) as session:
            locks = self._locks(session, self.named, self.ids)
        found = []
        for lock in locks:
            winning = self._row(self.winner, lock)
            for zone in self._zones():
                with closing(self._into(zone)[0].connect()) as session:
                    for task, one, take in self._takes(session, zone, lock, winning):
                        found.append((task, outlook(session, task.name, task.source, one, take)))
        return found

    def run(self) -> list[tuple[TaskIntoZone, ResolvePreview]]:
        """Resolves the locks. Returns them, each with its task and the row that resulted."""
        before = self._put_on_record()
        try:
            for task in self.tasks:
                with closing(task.connect()) as session:
                    demand_winner(self._locks(session, task, self.ids), UnfinishedResolves(self.winner))
            for task in self.tasks:
                task.await_all(self.table)
            for lock in before:
                self._demand_no_other_row(lock)
        except PidtsError:
            self._take_back(before)
            raise
        done: list[tuple[TaskIntoZone, ResolvePreview]] = []
        for lock in before:
            winning = self._row(self.winner, lock)
            for zone in self._zones():
                done += self._end(zone, lock, winning)
        return done

    def _demand_no_other_row(self, lock: RowLock) -> None:
        """Raises if a zone's row is not the winner's, and no lock there has the winner's row."""
        winning = self._row(self.winner, lock)
        for zone in self._zones():
            with closing(self._into(zone)[0].connect()) as session:
                self._takes(session, zone, lock, winning)

    def _end(self, zone: str, lock: RowLock, winning: Values | None) -> list[tuple[TaskIntoZone, ResolvePreview]]:
        """Resolves the locks of one key in one zone, in one transaction. Returns them, each with its task."""
        tasks = self._into(zone)
        with closing(tasks[0].connect()) as session:
            takes = self._takes(session, zone, lock, winning)
        writing = [task for task, _, take in takes if take is ResolveWith.SOURCE]
        done: list[tuple[TaskIntoZone, ResolvePreview]] = []
        # The written row gets the session's mark: that of the zone from which the row comes.
        with closing((writing or tasks)[0].connect()) as session:
            session.begin()
            try:
                for task in tasks:
                    session.meta.checkpoints.lock_shared(task.name, task.source)
                # While the checkpoints are locked, no task commits in this zone. So each logged change of the winner is
                # in a lock, or arrives after this transaction.
                self._demand_unchanged(lock, winning)
                takes = self._takes(session, zone, lock, winning)
                # A new lock may have the winner's row. This session would write that row with a wrong mark, so the lock
                # stays until the command is repeated.
                for task, one, take in (
                    () if any(t is ResolveWith.SOURCE and k not in writing for k, _, t in takes) else takes
                ):
                    begun = UnfinishedResolves(self.winner)
                    found = resolve_in(session, task.name, task.source, self.table, [one.id], take, begun=begun)
                    done += [(task, each) for each in found]
                session.commit()
            except BaseException:
                session.rollback()
                raise
        return done

    def _demand_unchanged(self, lock: RowLock, winning: Values | None) -> None:
        if not _same(self._row(self.winner, lock), winning):
            raise PrecheckFailed(
                "zone-behind",
                f"the row of zone {self.winner} has changed while the command was running",
                where=Where(table=str(self.table), key=lock.shown),
                todo="Repeat the command while no program writes the row",
            )

    def _takes(
        self, session: TargetSession, zone: str, lock: RowLock, winning: Values | None
    ) -> list[tuple[TaskIntoZone, RowLock, ResolveWith]]:
        """Returns how each lock of a key is resolved in a zone.

        Raises if the zone has neither the winner's row nor a lock with this row.
        """
        locks = [(task, one) for task in self._into(zone) for one in self._locks(session, task, [lock.id])]
        if zone == self.winner:
            return [(task, one, ResolveWith.KEEP) for task, one in locks if self._agrees(task.zone, lock, winning)]
        made = {
            task.name: _plain(session, lock, outlook(session, task.name, task.source, one, ResolveWith.SOURCE).outcome)
            for task, one in locks
        }
        bringing = [task for task, _ in locks if _same(made[task.name], winning)]
        chosen = next(iter(sorted(bringing, key=lambda task: task.zone != self.winner)), None)
        if chosen is None and not _same(_row_in(session, lock), winning):
            raise PrecheckFailed(
                "zone-has-another-row",
                f"the row of zone {zone} is not equal to that of zone {self.winner}, and no lock in zone {zone} has "
                f"the row of zone {self.winner}",
                where=Where(table=str(self.table), key=lock.shown),
                todo=f"Choose the row of zone {zone}, or let a program give the row there the values of zone "
                f"{self.winner}. Or resolve each lock separately (--only-here)",
            )
        return [
            (task, one, ResolveWith.SOURCE if task == chosen else ResolveWith.KEEP)
            for task, one in sorted(locks, key=lambda each: each[0] != chosen)
        ]

    def _agrees(self, zone: str, lock: RowLock, winning: Values | None) -> bool:
        """Whether a zone has the winner's row, or a lock that shows the difference."""
        tasks = self._into(zone)
        with closing(tasks[0].connect()) as session:
            if any(self._locks(session, task, [lock.id]) for task in tasks):
                return True
        return _same(self._row(zone, lock), winning)

    def _row(self, zone: str, lock: RowLock) -> Values | None:
        """Returns a zone's row with the key of a lock; None if the zone has no such row."""
        with closing(self._into(zone)[0].connect()) as session:
            return _row_in(session, lock)

    def _into(self, zone: str) -> list[TaskIntoZone]:
        """Returns the tasks into a zone, with the named task last."""
        return sorted((one for one in self.tasks if one.target == zone), key=lambda one: (one == self.named, one.zone))

    def _zones(self) -> list[str]:
        """Returns all zones, with the zone of the named lock last."""
        return sorted({one.target for one in self.tasks}, key=lambda zone: (zone == self.named.target, zone))

    def _locks(self, session: TargetSession, task: TaskIntoZone, ids: Collection[str]) -> list[RowLock]:
        known = session.meta.row_locks.recorded(task.name, task.source)
        record, place = session.meta.row_locks, (task.name, task.source, self.table)
        return record.some(*place, ids) if self.table in known else []

    def _put_on_record(self) -> list[RowLock]:
        """Records the winner in the named locks. Returns the locks that still exist, in their former state."""
        with closing(self.named.connect()) as session:
            session.begin()
            try:
                found = self._of_named(session)
                demand_winner(found, UnfinishedResolves(self.winner))
                self._change(session, [replace(one, winner=self.winner) for one in found])
                session.commit()
            except BaseException:
                session.rollback()
                raise
        return found

    def _take_back(self, before: Sequence[RowLock]) -> None:
        """Gives the locks that the operator named the winners that they had before this command.

        Such a lock may have had a winner, since an earlier command may have been killed.
        """
        winners = {one.id: one.winner for one in before}
        with closing(self.named.connect()) as session:
            session.begin()
            try:
                self._change(session, [replace(one, winner=winners.get(one.id, "")) for one in self._of_named(session)])
                session.commit()
            except BaseException:
                session.rollback()
                raise

    def _of_named(self, session: TargetSession) -> list[RowLock]:
        return session.meta.row_locks.lock(self.named.name, self.named.source, self.table, self.ids)

    def _change(self, session: TargetSession, locks: Sequence[RowLock]) -> None:
        if locks:
            session.meta.row_locks.change(self.named.name, self.named.source, locks)


def _row_in(session: TargetSession, lock: RowLock) -> Values | None:
    """Returns the row with the key of a lock in the session's zone; None if the zone has no such row."""
    table = structure_now(lock, session.schema.structure(lock.table.name))
    rows = session.read_rows(table, keys=unpacked(lock.key))
    return _plain(session, lock, {name: rows[name][0] for name in rows.column_names} if rows.num_rows else None)


def _plain(session: TargetSession, lock: RowLock, row: Values | None) -> Values | None:
    """Returns a row without generated columns, which a log may lack; None for no row."""
    if row is None:
        return None
    table = structure_now(lock, session.schema.structure(lock.table.name))
    generated = {column.name for column in table.columns if column.generated}
    return {name: value for name, value in row.items() if name not in generated}


def _same(one: Values | None, other: Values | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(value.equals(other[name]) for name, value in one.items())


def begun_here(
    zones: Collection[str], source: str, target: str, take: ResolveWith, *, sets: bool = False
) -> UnfinishedResolves:
    """Returns which killed commands on all zones may be completed by a command that resolves only one task's locks.

    `zones` are the zones that all feed each other. If there are none, no killed command can be repeated, so each killed
    command may be completed here. `source` and `target` are the task's zones. With `sets`, no zone has the row's new
    values.
    """
    winners = {} if sets else {ResolveWith.SOURCE: source, ResolveWith.KEEP: target}
    return UnfinishedResolves(winners.get(take, "") if zones else "", zones)


def feeds_all(pairs: Mapping[tuple[str, str], bool]) -> bool:
    """Whether each zone feeds every other zone, and no task forwards. `pairs` says which tasks forward."""
    zones = {zone for pair in pairs for zone in pair}
    return not any(pairs.values()) and len(pairs) == len(zones) * (len(zones) - 1)
