"""The groups of all parts of a task, in one process: who is a member, who has arrived, and who runs what.

Every part tells what it has and when a change of a member is done; whoever has arrived asks, and asks again whenever
something has moved. Nothing in here is durable: after a crash every part registers anew, and all arrive again.

While a statement runs for a group, nobody else of the group begins one. The leader runs it in its own thread and ends
that with `ran` or `failed`, also where its attempt has ended meanwhile: what it runs is on its way on the target.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace

from pidts.apply import Party
from pidts.batch.shard_desk import Desk, Entry, Ran
from pidts.batch.shard_holds import ShardHolds
from pidts.batch.shard_roster import Roster
from pidts.model import Arrival, Fenced, Halt, Lsn, Member, OrderKind, ShardLock, Table, TableName, Where
from pidts.plan.shard_outlook import lacking_if_skipped, staying_if_unlocked, unfit_if_unlocked
from pidts.plan.shard_versions import same_version
from pidts.plan.shards import Decision, Effect, Owed, Run, ShardMode, Wait, behind_after, decide
from pidts.rules import Rules


class ShardGroups:
    """Of one process; all threads of all parts use it."""

    def __init__(
        self,
        mode: str = "",
        expected: Collection[str] = (),
        rules: Mapping[str, Rules] | None = None,
        *,
        counts_apart: bool = False,
    ) -> None:
        """`mode` as the task file has it: empty where it says nothing; `expected`: the sources of all parts.

        `rules` are theirs: by them it is known from the record where tables of a source are that cannot be reached.
        `counts_apart`: whoever wrote the task file says that numbers which tables give their rows never meet.
        """
        self.counts_apart = counts_apart
        self.rules = dict(rules or {})
        self._mode: ShardMode = "optimistic" if mode == "optimistic" else "pessimistic"
        self.is_declared = bool(mode)
        self.roster = Roster(self._mode, expected)
        self._desks: dict[TableName, Desk] = {}
        self.holds = ShardHolds()
        self._epochs: dict[str, int] = {}
        """Of each part's attempt."""
        self._flavors: dict[str, bool] = {}
        """Whether a part's source is a MariaDB."""
        self._moved = threading.Condition()
        self._moves = 0

    @property
    def moves(self) -> int:
        """Counts whatever may change a decision: where it stays the same, all who waited still wait."""
        return self._moves

    def register(
        self, source: str, landed: Mapping[TableName, Table], *, epoch: int = 0, mariadb: bool = False
    ) -> None:
        """An attempt of a part begins: its tables, by their own names, as they land."""
        with self._moved:
            self._epochs[source], self._flavors[source] = epoch, mariadb
            for desk in self._desks.values():
                if source in desk.doubted:
                    desk.doubted.discard(source)
                    desk.agreed = desk.agreed if desk.running is not None else None
            self._forget(source)
            if self.roster.begins(source, landed):
                # Until it claimed, an earlier process may have gone on with it.
                for desk in self._desks.values():
                    desk.agreed = desk.agreed if desk.running is not None else None
            for table in landed.values():
                self._desk(table.name)
            self._tell()

    @property
    def is_optimistic(self) -> bool:
        """Whether some changes are run for the first that comes."""
        return self._mode == "optimistic"

    def looks(self) -> int:
        """Whoever is about to read the target's record: what is read later counts."""
        with self._moved:
            return self.roster.looks()

    def presume(self, source: str, landed: Mapping[TableName, Table]) -> None:
        """What a part had that has not begun yet: all that it has rows of on the target, and all that is waited for."""
        with self._moved:
            if self.roster.presume(source, landed):
                self._tell()

    def absent_for(self, target: TableName) -> tuple[str, ...]:
        """Parts that have to begin before it is known what its group has."""
        with self._moved:
            return self.roster.absent_for(target)

    def recall(
        self,
        look: int,
        source: str,
        agreed: Mapping[TableName, Table],
        dropped: Mapping[TableName, Collection[str]],
        behind: Owed | None = None,
    ) -> None:
        """What the target has on record, read behind the claim of a source: of groups, and of its members.

        Of what has happened in this process since, it is no news. While some parts have not claimed, an earlier process
        may still go on with these, and change the record.
        """
        with self._moved:
            for target, table in agreed.items():
                self.roster.record(target, table, look, behind)
                self._desk(target).was_shared = True
            self.roster.recall(source, dropped)

    def stand_aside(self, source: str, *, aside: bool) -> None:
        """A part that begins for the first time comes later than what waits now, or it is waited for again."""
        with self._moved:
            if self.roster.stand_aside(source, aside=aside):
                self._tell()

    def forget(self, source: str) -> None:
        """An attempt of a part has ended: who of it has arrived will arrive again."""
        with self._moved:
            self._forget(source)
            self._tell()

    def arrive(self, arrival: Arrival, party: Party, effect: Effect) -> Decision | Ran:
        """Whoever is told to run something says afterwards how it ended; all others ask again when something moves.

        A thread of an attempt that was closed counts for nothing: the next one comes there itself, and else would not
        know that it was done.
        """
        with self._moved:
            if party.epoch < self._epochs.get(party.source, party.epoch):
                what = f"another attempt of {party.source} has begun since"
                raise Fenced("fenced", what, where=Where(source=party.source), todo="Nothing to do here")
            desk = self._desk(arrival.after.name)
            entry = desk.entries.get(arrival.member)
            if entry is not None and entry.arrival.lsn == arrival.lsn and entry.ran:
                return Ran()
            known = entry.arrival if entry is not None else None
            desk.entries[arrival.member] = entry = Entry(arrival, party, effect)
            decision = self._decision(desk, arrival)
            entry.waits = isinstance(decision, Wait)
            if isinstance(decision, Run):
                desk.begin(decision)
            if known != arrival:
                self._tell()
            return decision

    def stands(self, arrival: Arrival) -> Wait | None:
        """What one who has arrived waits for; None where it goes on, if it asks."""
        with self._moved:
            desk = self._desk(arrival.after.name)
            entry = desk.entries.get(arrival.member)
            if entry is None or entry.ran:
                return None
            decision = self._decision(desk, entry.arrival)
            return decision if isinstance(decision, Wait) else None

    def outlook(self, halt: Halt, arrival: Arrival) -> Halt:
        """The same, with what orders about it would do to rows."""
        with self._moved:
            target, desk = arrival.after.name, self._desk(arrival.after.name)
            group = self.roster.group(target, self._agreed(target, desk) or arrival.before, desk.arrivals)
            unfit, stays = tuple(map(str, unfit_if_unlocked(group, arrival))), staying_if_unlocked(group, arrival)
            return replace(halt, unfit=unfit, lacks=lacking_if_skipped(group, arrival), stays=stays)

    def parties(self, run: Run) -> tuple[Party, ...]:
        """For whom it is run besides the leader, as the one who was told to run it has found them."""
        with self._moved:
            return self._desk(run.leader.after.name).parties

    def flavor(self, target: TableName) -> bool | None:
        """Whether rows of the group are MariaDB's; None where they are not of one flavor, as far as is known."""
        with self._moved:
            found = {self._flavors.get(member.source) for member, _ in self.roster.of(target)}
        return found.pop() if len(found) == 1 else None

    def is_recorded(self, target: TableName) -> bool:
        """Whether the target's record says that it is shared."""
        with self._moved:
            return target in self.roster.recorded

    def writers(self, run: Run) -> dict[str, frozenset[TableName]]:
        """Tables of the group that stand before no change of it, by their sources: whoever runs one holds them."""
        target = run.leader.after.name
        with self._moved:
            standing = self._desk(target).arrivals
            writing = [member for member, _ in self.roster.of(target) if member not in standing]
        return {
            source: frozenset(member.table for member in writing if member.source == source)
            for source in {member.source for member in writing}
        }

    def agreed(self, target: TableName) -> Table | None:
        """What the group's table is, as far as members know; None where nobody has it."""
        with self._moved:
            return self._agreed(target, self._desk(target))

    def ran(self, run: Run, behind: Owed) -> None:
        """The target has it, and its record, for all for whom it was run; `behind` as `owing` has said."""
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

    def owing(self, decision: Run, arrival: Arrival) -> Owed:
        """What members owe once that is done, where it is another than before."""
        target = arrival.after.name
        with self._moved:
            desk = self._desk(target)
            # Where nobody has it, nobody owes anything.
            group = self.roster.group(target, self._agreed(target, desk) or arrival.before, desk.arrivals)
            return behind_after(group, decision, arrival)

    def failed(self, run: Run, *, moves: bool = True, in_doubt_since: int | None = None) -> None:
        """Nothing was put on record, and all still stand before it.

        Where that is in doubt, the leader's source has to begin anew before anything is done: an attempt behind this
        epoch knows from the record. Without `moves` nobody else has reason to look again.
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
        """What another one has put on record for one who has arrived with it; None where nobody has."""
        with self._moved:
            entries = [entry for desk in self._desks.values() for entry in desk.entries.values() if entry.ran]
            return next((one.party for one in entries if (one.party.source, one.party.lsn) == (source, lsn)), None)

    def changed(
        self,
        source: str,
        structures: Mapping[TableName, Table | None],
        epoch: int | None = None,
        owed: Owed | None = None,
    ) -> None:
        """A change of a part is done: its tables as they land now; None is gone, and no member any more.

        An attempt that was closed may come with it behind the next one (`epoch`), which knows from the record.
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
        """Of a group."""
        with self._moved:
            return tuple(member for member, _ in self.roster.of(target))

    def tables(self, source: str) -> tuple[TableName, ...]:
        """What a part has."""
        with self._moved:
            return tuple(member.table for member in self.roster.members if member.source == source)

    def leaves(self, source: str, tables: frozenset[TableName]) -> None:
        """All of a part that stand before a statement that takes them away: nobody waits for these."""
        with self._moved:
            if self.roster.leaves(source, tables):
                self._tell()

    def drops(self, dropped: Mapping[Member, Collection[str]]) -> None:
        """Columns that the target keeps, of members that have them no more."""
        with self._moved:
            self.roster.drops(dropped)

    def kept(
        self, arrival: Arrival, agreed: Table, origins: Mapping[str, str | None], was: Table | None
    ) -> dict[Member, frozenset[str]]:
        """What of `drops` is another than before, once this one is there and the group has agreed on that."""
        with self._moved:
            return self.roster.kept(arrival, agreed, origins, was)

    def keeps_columns(self, member: Member) -> bool:
        """Whether the target has values of columns that this one has dropped."""
        with self._moved:
            return bool(self.roster.dropped.get(member))

    def wait(self, seen: int, seconds: float) -> int:
        """Until something has moved since `moves` was this, or so long; how often it has moved by then."""
        with self._moved:
            if self._moves == seen:
                self._moved.wait(seconds)
            return self._moves

    @property
    def absent(self) -> tuple[str, ...]:
        """Parts that have not begun: nobody knows what they have."""
        with self._moved:
            return tuple(sorted(self.roster.absent))

    def is_shared(self, target: TableName, besides: Member | None = None) -> bool:
        """Whether others than this one land there, or have."""
        with self._moved:
            return self._desk(target).was_shared or any(one != besides for one, _ in self.roster.of(target))

    def shares_schema(self, source: str, schema: str, target_schema: str) -> bool:
        """Whether tables of other schemas, or of other sources, land in a schema of the target."""
        with self._moved:
            return self.roster.shares_schema(source, schema, target_schema)

    def locks(self) -> tuple[ShardLock, ...]:
        """What is waited for in this process."""
        with self._moved:
            return tuple(
                lock for target, desk in sorted(self._desks.items()) if (lock := self._lock(target, desk)) is not None
            )

    def _lock(self, target: TableName, desk: Desk) -> ShardLock | None:
        owner = desk.owner
        return desk.lock(target, owner, self._decision(desk, owner)) if owner is not None else None

    def _decision(self, desk: Desk, arrival: Arrival) -> Decision:
        """Of one that has arrived; a statement that is running, or that another one leads, is waited for."""
        if desk.running is not None:
            leader = desk.running.leader.member
            return Wait(leader=leader)
        if desk.doubted:
            return Wait(absent=tuple(sorted(desk.doubted)))
        absent = self.roster.absent_for(arrival.after.name)
        if absent and not (arrival.unlocked or arrival.order is OrderKind.SKIP):
            return Wait(absent=absent)
        target = arrival.after.name
        agreed = self._agreed(target, desk)
        if agreed is None:  # the first one that comes makes the table
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
        if not self.roster.absent_for(target):  # else others may have another structure
            desk.agreed = found
        return found

    def _agree(self, target: TableName) -> None:
        """All may have come to what others have not: an operator has had them skip it."""
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
