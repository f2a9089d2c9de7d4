"""Makes the row of one zone that of all zones, and ends the locks of its key in all of them.

Two zones that change a row before they have met both keep theirs, and each has a lock: of the change that has come from
the other one. A third zone has the row that came first, and a lock of the other one. An operator names one lock, and
the zone that wins: the source of the lock's task (`--take source`), or its target (`--take keep`).

    another zone has the winner's row               its locks are dropped, with the changes that they hold
    a lock of another zone holds the winner's row   it is resolved with that row, and the zone's other locks are dropped
    another zone has neither                        refused: without a lock, nobody would know of it
    the winner has a lock of another zone's change  it is dropped, if that zone has the winner's row or a lock

So no two zones differ without a lock. It is done zone by zone, and last where the named lock is. What is written shows
that it comes from another zone, so it does not come back, and goes nowhere else: each zone gets the changes of each
other zone from that zone itself. This is for zones that all feed each other.

Changes that are on their way would come behind the choice, and some of them find what they expect:

    b    DELETE 1, INSERT 1, not in zone a yet       a    DELETE 1, which zone b has locked, and a wins: b loses its row
    task ba brings the DELETE, which finds no row, and the INSERT: zone a has a row that zone b has not, without a lock

So the command waits until all zones have what the others have logged. Where a lock is dropped, the winner's row is read
once more, while no task commits there: what comes later finds the row that it expects, or another one, and is locked.
A program that writes the row in a third zone meanwhile is noticed by nobody.

The winner is on record in the named lock before anything is done. These cases cover a break at each point:

1. Before that is committed: nothing has happened.
2. Between two zones: the named lock is still there, and says which zone wins. To say the command once more does the
   rest. Another winner is refused, for this lock and for each other one of its key: some zones may have the row of the
   first one, and no lock, so the zones would differ without a lock.
3. Behind the last one: all is done.

A command that was killed cannot be repeated where the winner has left the file, or where zones no longer all feed each
other. Then `--only-here` ends each lock by any choice, and says that the zones are to be compared. Where it can be
repeated, `--only-here` ends the named lock by the same choice: its zone gets the winner's row, or keeps it, and a zone
that has another one has its own lock still.

Two operators who name two locks of a row at once, for two winners: each puts its own on record first. So at least one
of them finds the other's, gives its own up, and has done nothing. Where both do, both locks are there as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.locks.follow_schema import structure_now
from pidts.apply.locks.resolve import Begun, Outlook, Take, Values, demand_winner, outlook, resolve_in
from pidts.apply.unread import unpacked
from pidts.model import PidtsError, PrecheckFailed, RowLock, TableName, Where


@dataclass(frozen=True, slots=True)
class TaskInto:
    """A task that brings one zone's changes into another zone."""

    zone: str
    """The zone whose changes it brings, and whose mark its sessions leave."""
    target: str
    name: str
    source: str
    """The source-id."""
    connect: Callable[[], TargetSession]
    await_all: Callable[[TableName], None]
    """Waits until the target has what the zone's log has of a table now; raises `PrecheckFailed` where that does not
    come."""


@dataclass(frozen=True, slots=True)
class ResolveInAll:
    """Ends the locks of some keys of a table in all zones."""

    tasks: Sequence[TaskInto]
    """All tasks between the zones; each zone feeds each other one."""
    named: TaskInto
    """The task whose locks an operator has named."""
    table: TableName
    ids: Collection[str]
    """The locks of the named task."""
    winner: str

    def outlooks(self) -> list[tuple[TaskInto, Outlook]]:
        """Returns what would become of the row in each zone that has a lock which is to end."""
        with closing(self.named.connect()) as session:
            locks = self._locks(session, self.named)
        found = []
        for lock in locks:
            winning = self._row(self.winner, lock)
            for zone in self._zones():
                with closing(self._into(zone)[0].connect()) as session:
                    for task, one, take in self._takes(session, zone, lock, winning):
                        found.append((task, outlook(session, task.name, task.source, one, take)))
        return found

    def run(self) -> list[tuple[TaskInto, Outlook]]:
        """Ends the locks; returns what has become of the row in each zone that had one."""
        before = self._put_on_record()
        try:
            for task in self.tasks:
                with closing(task.connect()) as session:
                    demand_winner(self._locks(session, task), Begun(self.winner))
            for task in self.tasks:
                task.await_all(self.table)
            for lock in before:
                self._demand_no_other_row(lock)
        except PidtsError:
            self._take_back(before)
            raise
        done: list[tuple[TaskInto, Outlook]] = []
        for lock in before:
            winning = self._row(self.winner, lock)
            for zone in self._zones():
                done += self._end(zone, lock, winning)
        return done

    def _demand_no_other_row(self, lock: RowLock) -> None:
        """Raises where a zone has another row than the winner, and no lock of the winner's."""
        winning = self._row(self.winner, lock)
        for zone in self._zones():
            with closing(self._into(zone)[0].connect()) as session:
                self._takes(session, zone, lock, winning)

    def _end(self, zone: str, lock: RowLock, winning: Values | None) -> list[tuple[TaskInto, Outlook]]:
        """Ends the locks of one key in one zone, in one transaction."""
        tasks = self._into(zone)
        with closing(tasks[0].connect()) as session:
            takes = self._takes(session, zone, lock, winning)
        writing = [task for task, _, take in takes if take is Take.SOURCE]
        done: list[tuple[TaskInto, Outlook]] = []
        # What is written has the mark of the zone that it comes from, which is the session's.
        with closing((writing or tasks)[0].connect()) as session:
            session.begin()
            try:
                for task in tasks:
                    session.meta.checkpoints.lock_shared(task.name, task.source)
                # What the winner has logged until now is in the locks, or comes behind this transaction.
                self._demand_unchanged(lock, winning)
                takes = self._takes(session, zone, lock, winning)
                # A lock that has come this moment is found by the next command.
                for task, one, take in () if any(t is Take.SOURCE and k not in writing for k, _, t in takes) else takes:
                    begun = Begun(self.winner)
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
                f"the row of zone {self.winner} has changed while the command was at work",
                where=Where(table=str(self.table), key=lock.shown),
                todo="Repeat the command while no program writes the row",
            )

    def _takes(
        self, session: TargetSession, zone: str, lock: RowLock, winning: Values | None
    ) -> list[tuple[TaskInto, RowLock, Take]]:
        """Returns how locks of a key end in one zone; what is not among them stays."""
        locks = [(task, one) for task in self._into(zone) for one in self._locks(session, task) if one.id == lock.id]
        if zone == self.winner:
            return [(task, one, Take.KEEP) for task, one in locks if self._agrees(task.zone, lock, winning)]
        made = {
            task.name: _plain(session, lock, outlook(session, task.name, task.source, one, Take.SOURCE).outcome)
            for task, one in locks
        }
        bringing = [task for task, _ in locks if _same(made[task.name], winning)]
        chosen = next(iter(sorted(bringing, key=lambda task: task.zone != self.winner)), None)
        if chosen is None and not _same(_row_in(session, lock), winning):
            raise PrecheckFailed(
                "zone-has-another-row",
                f"zone {zone} has another row than zone {self.winner}, and no lock that holds the row of zone "
                f"{self.winner}",
                where=Where(table=str(self.table), key=lock.shown),
                todo=f"Choose the row of zone {zone}, or make the row there as in zone {self.winner} by a program. Or "
                "resolve each lock by itself (--only-here)",
            )
        return [
            (task, one, Take.SOURCE if task == chosen else Take.KEEP)
            for task, one in sorted(locks, key=lambda each: each[0] != chosen)
        ]

    def _agrees(self, zone: str, lock: RowLock, winning: Values | None) -> bool:
        """Whether a zone has the winner's row, or a lock that tells of the difference."""
        tasks = self._into(zone)
        with closing(tasks[0].connect()) as session:
            if any(one.id == lock.id for task in tasks for one in self._locks(session, task)):
                return True
        return _same(self._row(zone, lock), winning)

    def _row(self, zone: str, lock: RowLock) -> Values | None:
        """Returns the row of a lock's key that a zone has."""
        with closing(self._into(zone)[0].connect()) as session:
            return _row_in(session, lock)

    def _into(self, zone: str) -> list[TaskInto]:
        """Returns the tasks into a zone, the named one last."""
        return sorted((one for one in self.tasks if one.target == zone), key=lambda one: (one == self.named, one.zone))

    def _zones(self) -> list[str]:
        """Returns all zones, that of the named lock last."""
        return sorted({one.target for one in self.tasks}, key=lambda zone: (zone == self.named.target, zone))

    def _locks(self, session: TargetSession, task: TaskInto) -> list[RowLock]:
        known = session.meta.row_locks.recorded(task.name, task.source)
        record, place = session.meta.row_locks, (task.name, task.source, self.table)
        return record.some(*place, self.ids) if self.table in known else []

    def _put_on_record(self) -> list[RowLock]:
        """Writes into the named locks which zone wins; returns those that are there still, as they were before."""
        with closing(self.named.connect()) as session:
            session.begin()
            try:
                found = self._of_named(session)
                demand_winner(found, Begun(self.winner))
                self._change(session, [replace(one, winner=self.winner) for one in found])
                session.commit()
            except BaseException:
                session.rollback()
                raise
        return found

    def _take_back(self, before: Sequence[RowLock]) -> None:
        """Makes the named locks as they were: a command that was killed earlier may have left its winner there."""
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
    """Returns the row of a lock's key, as a zone has it."""
    table = structure_now(lock, session.schema.structure(lock.table.name))
    rows = session.read_rows(table, keys=unpacked(lock.key))
    return _plain(session, lock, {name: rows[name][0] for name in rows.column_names} if rows.num_rows else None)


def _plain(session: TargetSession, lock: RowLock, row: Values | None) -> Values | None:
    """Returns a row without generated columns, which a log may lack."""
    if row is None:
        return None
    table = structure_now(lock, session.schema.structure(lock.table.name))
    generated = {column.name for column in table.columns if column.generated}
    return {name: value for name, value in row.items() if name not in generated}


def _same(one: Values | None, other: Values | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(value.equals(other[name]) for name, value in one.items())


def begun_here(zones: Collection[str], source: str, target: str, take: Take, *, sets: bool = False) -> Begun:
    """Returns the killed commands that end with the lock of one task alone.

    `zones` are those that all feed each other; without any, no command can be repeated. `source` and `target` are the
    task's. A row that gets other values (`sets`) is no zone's.
    """
    winners = {} if sets else {Take.SOURCE: source, Take.KEEP: target}
    return Begun(winners.get(take, "") if zones else "", zones)


def feeds_all(pairs: Mapping[tuple[str, str], bool]) -> bool:
    """Whether each zone feeds each other one, and none carries anything on; `pairs` say whether one does."""
    zones = {zone for pair in pairs for zone in pair}
    return not any(pairs.values()) and len(pairs) == len(zones) * (len(zones) - 1)
