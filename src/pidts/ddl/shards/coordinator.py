"""Coordinates the groups of all parts of a task in one process: members, arrivals, and the statement that is run.

Every part registers its tables and reports each finished change of a member. A member that has arrived asks for a
decision, and asks again whenever something has moved. Nothing here is durable: after a crash every part registers
again, and all members arrive again.

While a statement runs for a group, no other member of the group begins one. The leader runs it in its own thread and
ends it with `ran` or `failed`. That holds also where its attempt has ended meanwhile: its statement is on its way on
the target.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace

from pidts.apply import Party
from pidts.ddl.outcome import Waits
from pidts.ddl.shards.arrivals import Desk, Entry, Ran
from pidts.ddl.shards.members import Roster
from pidts.ddl.shards.write_barrier import ShardHolds
from pidts.model import Arrival, Fenced, Halt, Lsn, Member, OrderKind, ShardLock, Table, TableName, Where
from pidts.rules import Rules
from pidts.shards.decide import Decision, Effect, MissedChanges, Run, ShardMode, Wait, behind_after, decide
from pidts.shards.preview import lacking_if_skipped, staying_if_unlocked, unfit_if_unlocked
from pidts.shards.structures import same_version


class ShardGroups:
    """The shard groups of one process, which all threads of all parts use."""

    def __init__(
        self,
        mode: str = "",
        expected: Collection[str] = (),
        rules: Mapping[str, Rules] | None = None,
        *,
        counts_apart: bool = False,
    ) -> None:
        """Takes `mode` as the task file has it, empty where it has none, and the sources of all parts (`expected`).

        `rules` are the parts' rules: with them the record tells where tables of an unreachable source are.
        `counts_apart` is the task file's promise that numbers which tables give their rows never meet.
        """
        self.counts_apart = counts_apart
        self.rules = dict(rules or {})
        self._mode: ShardMode = "optimistic" if mode == "optimistic" else "pessimistic"
        self.is_declared = bool(mode)
        self.roster = Roster(self._mode, expected)
        self._desks: dict[TableName, Desk] = {}
        self.holds = ShardHolds()
        self._epochs: dict[str, int] = {}
        """The epoch of each part's attempt."""
        self._flavors: dict[str, bool] = {}
        """Whether a part's source is a MariaDB."""
        self._moved = threading.Condition()
        self._moves = 0

    @property
    def moves(self) -> int:
        """Counts events that may change a decision: while the number is the same, all that waited still wait."""
        return self._moves

    def register(
        self, source: str, landed: Mapping[TableName, Table], *, epoch: int = 0, mariadb: bool = False
    ) -> None:
        """Registers an attempt of a part that begins, with its tables: their structures by the target's names."""
        with self._moved:
            self._epochs[source], self._flavors[source] = epoch, mariadb
            for desk in self._desks.values():
                if source in desk.doubted:
                    desk.doubted.discard(source)
                    desk.agreed = desk.agreed if desk.running is not None else None
            self._forget(source)
            if self.roster.begins(source, landed):
                # Until the attempt claimed the task, an earlier process may have continued.
                for desk in self._desks.values():
                    desk.agreed = desk.agreed if desk.running is not None else None
            for table in landed.values():
                self._desk(table.name)
            self._tell()

    @property
    def is_optimistic(self) -> bool:
        """Whether some changes are run for the first member that arrives."""
        return self._mode == "optimistic"

    def looks(self) -> int:
        """Returns the number of a read of the target's record, taken before it: a later read counts."""
        with self._moved:
            return self.roster.looks()

    def presume(self, source: str, landed: Mapping[TableName, Table]) -> None:
        """Presumes the members of a part that has not begun.

        The part's tables with rows on the target are all that is waited for.
        """
        with self._moved:
            if self.roster.presume(source, landed):
                self._tell()

    def absent_for(self, targets: Collection[TableName] | None = None) -> tuple[str, ...]:
        """Returns the parts that have to begin before it is known who shares these target tables; None: any table."""
        with self._moved:
            return self.roster.absent_for(targets)

    def recall(
        self,
        look: int,
        source: str,
        agreed: Mapping[TableName, Table],
        dropped: Mapping[TableName, Collection[str]],
        behind: MissedChanges | None = None,
    ) -> None:
        """Takes in the target's record of groups and members, read after a source has claimed the task.

        It says nothing new about events in this process since then. While some parts have not claimed, an earlier
        process may still continue with these, and change the record.
        """
        with self._moved:
            for target, table in agreed.items():
                self.roster.record(target, table, look, behind)
                self._desk(target).was_shared = True
            self.roster.recall(source, dropped)

    def stand_aside(self, source: str, *, aside: bool) -> None:
        """Sets aside a part that begins for the first time, so that nothing waits for it, or takes it back."""
        with self._moved:
            if self.roster.stand_aside(source, aside=aside):
                self._tell()

    def forget(self, source: str) -> None:
        """Forgets the arrivals of a part whose attempt has ended: they will arrive again."""
        with self._moved:
            self._forget(source)
            self._tell()

    def arrive(self, arrival: Arrival, party: Party, effect: Effect) -> Decision | Ran:
        """Returns the decision about a member that arrives.

        A member that gets a `Run` reports afterwards how it ended; all others ask again when something moves. An
        arrival from an attempt that was closed does not count. The next attempt arrives there itself, and would else
        not know that the change was done.
        """
        with self._moved:
            if party.epoch < self._epochs.get(party.source, party.epoch):
                what = f"another attempt of {party.source} has begun since"
                raise Fenced("fenced", what, where=Where(source=party.source), todo="Nothing to do here")
            desk = self._desk(arrival.after.name)
            entry = desk.entries.get(arrival.member)
            if entry is not None and entry.arrival.lsn == arrival.lsn and entry.ran:
                return Ran(entry.party)
            known = entry.arrival if entry is not None else None
            desk.entries[arrival.member] = entry = Entry(arrival, party, effect)
            decision = self._decision(desk, arrival)
            entry.waits = isinstance(decision, Wait)
            if isinstance(decision, Run):
                desk.begin(decision)
            if known != arrival:
                self._tell()
            return decision

    def still(self, waits: Waits) -> Waits | None:
        """Returns what a change waits for now; None where it may be tried again. Only `arrive` lets it continue."""
        with self._moved:
            arrival = waits.arrival
            if arrival is None:
                absent = self.roster.absent_for(waits.targets)
                return replace(waits, wait=Wait(absent=absent)) if absent else None
            target = arrival.after.name
            desk = self._desk(target)
            entry = desk.entries.get(arrival.member)
            if entry is None or entry.ran:
                return None
            decision = self._decision(desk, entry.arrival)
            if not isinstance(decision, Wait):
                return None
            return replace(waits, wait=decision, agreed=self._agreed(target, desk))

    def outlook(self, halt: Halt, arrival: Arrival) -> Halt:
        """Returns the halt with what orders about it would do to rows."""
        with self._moved:
            target, desk = arrival.after.name, self._desk(arrival.after.name)
            group = self.roster.group(target, self._agreed(target, desk) or arrival.before, desk.arrivals)
            unfit, stays = tuple(map(str, unfit_if_unlocked(group, arrival))), staying_if_unlocked(group, arrival)
            return replace(halt, unfit=unfit, lacks=lacking_if_skipped(group, arrival), stays=stays)

    def parties(self, run: Run) -> tuple[Party, ...]:
        """Returns the parties besides the leader for which it is run, as they were when the leader got the decision."""
        with self._moved:
            return self._desk(run.leader.after.name).parties

    def flavor(self, target: TableName) -> bool | None:
        """Whether the group's rows come from MariaDB; None where they are of several flavors, or of an unknown one."""
        with self._moved:
            found = {self._flavors.get(member.source) for member, _ in self.roster.of(target)}
        return found.pop() if len(found) == 1 else None

    def is_recorded(self, target: TableName) -> bool:
        """Whether the target's record says that the table is shared."""
        with self._moved:
            return target in self.roster.recorded

    def writers(self, run: Run) -> dict[str, frozenset[TableName]]:
        """Returns the group's tables that have not arrived, by source.

        The member that runs a statement holds them.
        """
        target = run.leader.after.name
        with self._moved:
            standing = self._desk(target).arrivals
            writing = [member for member, _ in self.roster.of(target) if member not in standing]
        return {
            source: frozenset(member.table for member in writing if member.source == source)
            for source in {member.source for member in writing}
        }

    def agreed(self, target: TableName) -> Table | None:
        """Returns the structure of the group's table, as far as members know; None where no member has it."""
        with self._moved:
            return self._agreed(target, self._desk(target))

    def ran(self, run: Run, behind: MissedChanges) -> None:
        """Notes that the target and its record have the change for all its arrivals; `behind` comes from `owing`."""
        with self._moved:
            desk = self._desk(run.leader.after.name)
            desk.end(run)
            joins = not run.leader.runs
            desk.was_shared = desk.was_shared or joins
            if not run.passes:
                desk.agreed = run.agreed
            if desk.was_shared and (joins or not run.passes):
                self.roster.record(run.leader.after.name, run.agreed, self.roster.looks())
            self.roster.members |= {one.member: one.after for one in run.arrivals}
            self.roster.owes(behind)
            self._tell()

    def owing(self, decision: Run, arrival: Arrival) -> MissedChanges:
        """Returns what members miss once the decision is carried out, for those where that differs from before."""
        target = arrival.after.name
        with self._moved:
            desk = self._desk(target)
            # A group that has no structure yet misses nothing.
            group = self.roster.group(target, self._agreed(target, desk) or arrival.before, desk.arrivals)
            return behind_after(group, decision, arrival)

    def failed(self, run: Run, *, moves: bool = True, in_doubt_since: int | None = None) -> None:
        """Notes that nothing was put on record, and that all arrivals are still before the change.

        Where that is in doubt, the leader's source has to begin again before anything is done: an attempt after this
        epoch knows the truth from the record. Without `moves` no other member has reason to ask again.
        """
        source = run.leader.member.source
        with self._moved:
            desk = self._desk(run.leader.after.name)
            desk.running = None
            if in_doubt_since is not None:
                desk.agreed = None
                if self._epochs.get(source, in_doubt_since) <= in_doubt_since:
                    desk.doubted.add(source)
            if moves:
                self._tell()
            else:
                self._moved.notify_all()

    def made(self, source: str, lsn: Lsn) -> Party | None:
        """Returns the party for which another member has put the change on record; None where none has."""
        with self._moved:
            entries = [entry for desk in self._desks.values() for entry in desk.entries.values() if entry.ran]
            return next((one.party for one in entries if (one.party.source, one.party.lsn) == (source, lsn)), None)

    def changed(
        self,
        source: str,
        structures: Mapping[TableName, Table | None],
        epoch: int | None = None,
        owed: MissedChanges | None = None,
    ) -> None:
        """Takes in a part's finished change: its tables by the target's names; None stands for a former member.

        A closed attempt may report a change after the next attempt has begun (`epoch`); that one knows it from the
        record.
        """
        with self._moved:
            if epoch is not None and epoch < self._epochs.get(source, epoch):
                return
            self.roster.stay(source, structures)
            for name, table in structures.items():
                member = Member(source, name)
                for desk in self._desks.values():
                    desk.entries.pop(member, None)
                if table is not None:
                    self.roster.come(member, table)
                    self._desk(table.name)
                else:
                    self.roster.leave(member)
            self.roster.owes(owed or {})
            for target in {table.name for table in structures.values() if table is not None}:
                self._agree(target)
            self._tell()

    def members(self, target: TableName) -> tuple[Member, ...]:
        """Returns the members of a group."""
        with self._moved:
            return tuple(member for member, _ in self.roster.of(target))

    def tables(self, source: str) -> tuple[TableName, ...]:
        """Returns the tables of a part."""
        with self._moved:
            return tuple(member.table for member in self.roster.members if member.source == source)

    def leaves(self, source: str, tables: frozenset[TableName]) -> None:
        """Notes all tables of a part that are blocked before a statement that removes them: nobody waits for these."""
        with self._moved:
            if self.roster.leaves(source, tables):
                self._tell()

    def drops(self, dropped: Mapping[Member, Collection[str]]) -> None:
        """Notes the columns that the target keeps after members have dropped them."""
        with self._moved:
            self.roster.drops(dropped)

    def kept(
        self, arrival: Arrival, agreed: Table, origins: Mapping[str, str | None], was: Table | None
    ) -> dict[Member, frozenset[str]]:
        """Returns the changes of `drops` once this member has arrived and the group has agreed on that structure."""
        with self._moved:
            return self.roster.kept(arrival, agreed, origins, was)

    def keeps_columns(self, member: Member) -> bool:
        """Whether the target has values of columns that this member has dropped."""
        with self._moved:
            return bool(self.roster.dropped.get(member))

    def wait(self, seen: int, seconds: float) -> int:
        """Waits until something has moved since `moves` was `seen`, or for so long; returns the present number."""
        with self._moved:
            if self._moves == seen:
                self._moved.wait(seconds)
            return self._moves

    def is_shared(self, target: TableName, besides: Member | None = None) -> bool:
        """Whether other members than this one map to the target table, now or earlier."""
        with self._moved:
            return self._desk(target).was_shared or any(one != besides for one, _ in self.roster.of(target))

    def shares_schema(self, source: str, schema: str, target_schema: str) -> bool:
        """Whether tables of other schemas, or of other sources, map to a schema of the target."""
        with self._moved:
            return self.roster.shares_schema(source, schema, target_schema)

    def locks(self) -> tuple[ShardLock, ...]:
        """Returns the locks that are waited for in this process."""
        with self._moved:
            return tuple(
                lock for target, desk in sorted(self._desks.items()) if (lock := self._lock(target, desk)) is not None
            )

    def _lock(self, target: TableName, desk: Desk) -> ShardLock | None:
        owner = desk.owner
        return desk.lock(target, owner, self._decision(desk, owner)) if owner is not None else None

    def _decision(self, desk: Desk, arrival: Arrival) -> Decision:
        """Returns the decision about a member; it waits while a statement runs, or where another member leads."""
        if desk.running is not None:
            leader = desk.running.leader.member
            return Wait(leader=leader)
        if desk.doubted:
            return Wait(absent=tuple(sorted(desk.doubted)))
        absent = self.roster.absent_for([arrival.after.name])
        if absent and not (arrival.unlocked or arrival.order is OrderKind.SKIP):
            return Wait(absent=absent)
        target = arrival.after.name
        agreed = self._agreed(target, desk)
        if agreed is None:  # the first member that arrives creates the table
            return Run(arrival, (arrival,), arrival.after)
        group = self.roster.group(target, agreed, desk.arrivals)
        decision = decide(group, arrival.member, desk.entries[arrival.member].effect)
        if isinstance(decision, Run) and decision.leader.member != arrival.member:
            return Wait(leader=decision.leader.member)
        return decision

    def _agreed(self, target: TableName, desk: Desk) -> Table | None:
        if desk.agreed is not None:
            return desk.agreed
        found = self.roster.agreed(target)
        if not self.roster.absent_for([target]):  # else other parts may have another structure
            desk.agreed = found
        return found

    def _agree(self, target: TableName) -> None:
        """Adopts the structure that all members have.

        An operator may have had all of them skip a change, so that the group never agreed on it.
        """
        desk, first = self._desk(target), next(table for _, table in self.roster.of(target))
        if desk.agreed is not None and self.roster.is_even(target):
            desk.agreed = desk.agreed if same_version(first, desk.agreed) else first

    def _desk(self, target: TableName) -> Desk:
        desk = self._desks.setdefault(target, Desk())
        desk.was_shared = desk.was_shared or sum(1 for _ in self.roster.of(target)) > 1
        return desk

    def _forget(self, source: str) -> None:
        self.roster.leaves(source, frozenset())
        for desk in self._desks.values():
            desk.entries = {member: entry for member, entry in desk.entries.items() if member.source != source}

    def _tell(self) -> None:
        self._moves += 1
        self._moved.notify_all()
