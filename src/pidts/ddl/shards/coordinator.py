"""Coordinates the shard groups of a task in one process: members, arrivals, and running statements.

Every part of the task registers its tables and reports each finished change of a member. A member that has arrived at a
change asks for a decision, and asks again after each event that may change the decision. The state in this module is
not durable: after a crash, every part registers again, and all members arrive again.

While a statement runs for a group, no other member of the group begins one. The member that runs the statement, the
*leader*, does so in its own thread. The leader reports the end of the statement with `ran` or `failed`, even if the
leader's attempt has ended before: the statement may still run on the target.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pidts.apply import MemberChange
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards.arrivals import (
    ArrivalKind,
    ArrivedMember,
    CommonWait,
    Examination,
    GroupState,
    Outlook,
    RunByLeader,
)
from pidts.ddl.shards.members import Members
from pidts.ddl.shards.write_barrier import WriteBarrier
from pidts.model import Arrival, CommandKind, Fenced, Halt, Lsn, Member, ShardLock, Table, TableName, Where
from pidts.rules import Rules
from pidts.shards.decide import (
    Decision,
    Effect,
    MissedChanges,
    RunDecision,
    ShardMode,
    Wait,
    decide,
    missed_changes_after,
)
from pidts.shards.preview import effect_of_unlock, lacking_if_skipped
from pidts.shards.structures import same_version


class ShardGroups:
    """The shard groups of a task, which the threads of all parts of the task use."""

    def __init__(
        self,
        mode: str = "",
        expected: Collection[str] = (),
        rules: Mapping[str, Rules] | None = None,
        *,
        counts_apart: bool = False,
    ) -> None:
        """`mode` is the shard mode of the task file (empty: none), `expected` are all sources of the task.

        `rules` are the rules of each source: they show the target tables of a source that cannot be reached.
        `counts_apart`: the task file promises that tables never give the same number to two rows.
        """
        self.counts_apart = counts_apart
        self.rules = dict(rules or {})
        self._mode: ShardMode = "optimistic" if mode == "optimistic" else "pessimistic"
        self.is_declared = bool(mode)
        self.known = Members(self._mode, expected)
        self._states: dict[TableName, GroupState] = {}
        self.barrier = WriteBarrier()
        self._epochs: dict[str, int] = {}
        """The epoch of the current attempt of each part of the task, keyed by the source."""
        self._mariadb: dict[str, bool] = {}
        """Whether a source is a MariaDB server, keyed by the source."""
        self._moved = threading.Condition()
        self._moves = 0
        self._examined: dict[TableName, Examination] = {}
        """The results of examinations of groups since the last event."""

    @property
    def moves(self) -> int:
        """Returns the number of events that may have changed a decision.

        As long as this number stays the same, all waiting changes have to go on waiting.
        """
        return self._moves

    def register(
        self, source: str, target_table: Mapping[TableName, Table], *, epoch: int = 0, mariadb: bool = False
    ) -> None:
        """Registers a source's new attempt, with the source's tables and their structures under the target's names."""
        with self._changing():
            self._epochs[source], self._mariadb[source] = epoch, mariadb
            for state in self._states.values():
                if source in state.in_doubt:
                    state.in_doubt.discard(source)
                    state.agreed = state.agreed if state.running is not None else None
            self._forget(source)
            if self.known.begins(source, target_table):
                # An earlier process may have made schema changes until this attempt claimed the task. So the agreed
                # structures may not be valid any more.
                for state in self._states.values():
                    state.agreed = state.agreed if state.running is not None else None
            # Counting the members of each of 20,000 groups one by one would take longer than the rest of the start.
            counts = self.known.counts()
            for target in dict.fromkeys(table.name for table in target_table.values()):
                state = self._states.setdefault(target, GroupState())
                state.was_shared = state.was_shared or counts[target] > 1
            self._notify()

    @property
    def is_optimistic(self) -> bool:
        """Whether some changes are run as soon as the first member arrives."""
        return self._mode == "optimistic"

    def next_read(self) -> int:
        """Returns a number for the next reading of the target's record. The reading with the highest number counts."""
        with self._moved:
            return self.known.next_read()

    def take_recorded(self, source: str, target_table: Mapping[TableName, Table]) -> None:
        """Adds, from the target's record, the members of a source that has not begun.

        So other members wait only for those tables of the source whose rows are on the target.
        """
        with self._changing():
            if self.known.take_recorded(source, target_table):
                self._notify()

    def absent_for(self, targets: Collection[TableName] | None = None) -> tuple[str, ...]:
        """Returns the sources that must begin before all shards of these target tables (None: of all) are known."""
        with self._moved:
            return self.known.absent_for(targets)

    def recall(
        self,
        read: int,
        source: str,
        agreed: Mapping[TableName, Table],
        dropped: Mapping[TableName, Collection[str]],
        missed: MissedChanges | None = None,
    ) -> None:
        """Stores the target's record of groups and members, which was read after a source had claimed the task.

        The record lacks events of this process after the reading. An earlier process may still change the record, for
        sources for which this process has not claimed the task.
        """
        with self._changing():
            for target, table in agreed.items():
                self.known.take_record(target, table, read, missed)
                self._states.setdefault(target, GroupState()).was_shared = True
            self.known.recall(source, dropped)

    def exclude(self, source: str, *, excluded: bool) -> None:
        """Excludes a source that begins for the first time (no shard waits for it), or includes it again."""
        with self._changing():
            if self.known.exclude(source, excluded=excluded):
                self._notify()

    def forget(self, source: str) -> None:
        """Forgets the arrivals of a source whose attempt has ended; the source's members will arrive again."""
        with self._changing():
            self._forget(source)
            self._notify()

    def arrive(self, arrival: Arrival, change: MemberChange, effect: Effect) -> Decision | RunByLeader:
        """Returns the decision about a member that arrives.

        A member that gets a `RunDecision` carries it out and reports its end. Every other member calls `still` when
        `moves` has changed, and this method again if `still` returns None. If a later attempt has replaced the
        arrival's attempt, `Fenced` is raised. Otherwise the later attempt, which also arrives, would not be informed
        that the change is done.
        """
        with self._moved:
            if change.epoch < self._epochs.get(change.source, change.epoch):
                what = f"a later attempt has begun for source {change.source}"
                raise Fenced("fenced", what, where=Where(source=change.source), todo="Nothing to do here")
            target = arrival.after.name
            state = self._state(target)
            entry = state.entries.get(arrival.member)
            if entry is not None and entry.arrival.lsn == arrival.lsn and entry.ran:
                return RunByLeader(entry.change)
            known = entry.arrival if entry is not None else None
            state.entries[arrival.member] = entry = ArrivedMember(arrival, change, effect)
            # An arrival changes no decision about other groups.
            examined, kind = self._examined.pop(target, Examination()), self._kind(arrival)
            after = examined.after(kind, arrival, self.known.members) if kind is not None else None
            if kind is not None and after is not None:
                self._examined[target], entry.waits = after, True
                return after.waits[kind]
            decision = self._decision(state, arrival)
            entry.waits = isinstance(decision, Wait)
            if isinstance(decision, RunDecision):
                state.begin(decision)
            if self._all_wait_alike(state, arrival, decision):
                self._note_common_wait(state, kind, decision)
            elif known != arrival:
                self._notify()
            return decision

    def still(self, waits: ChangeWaits) -> ChangeWaits | None:
        """Returns the present reason why a change waits; None if it may be tried again with a new call of `arrive`."""
        with self._moved:
            arrival = waits.arrival
            if arrival is None:
                absent = self.known.absent_for(waits.targets)
                return replace(waits, wait=Wait(absent=absent)) if absent else None
            target = arrival.after.name
            state = self._state(target)
            entry = state.entries.get(arrival.member)
            if entry is None or entry.ran:
                return None
            decision = self._decision(state, entry.arrival)
            if not isinstance(decision, Wait):
                return None
            return replace(waits, wait=decision, agreed=self._agreed(target, state))

    def outlook(self, halt: Halt, arrival: Arrival) -> Halt:
        """Returns the halt with the effects on rows that the ddl commands `unlock` and `skip` would have."""
        with self._moved:
            target, state = arrival.after.name, self._state(arrival.after.name)
            kind, outlooks = self._kind(arrival), self._examination(target).outlooks
            found = outlooks.get(kind) if kind is not None else None
            if found is None:
                group = self.known.group(target, self._agreed(target, state) or arrival.before, state.arrivals)
                unlock, lacks = effect_of_unlock(group, arrival), lacking_if_skipped(group, arrival)
                found = Outlook(unfit=tuple(map(str, unlock.unfit)), lacks=lacks, stays=unlock.stays)
                if kind is not None:
                    outlooks[kind] = found
            return replace(halt, unfit=found.unfit, lacks=found.lacks, stays=found.stays)

    def member_changes(self, run: RunDecision) -> tuple[MemberChange, ...]:
        """Returns the changes of the members that had arrived when the statement began, without the leader's change."""
        with self._moved:
            return self._state(run.leader.after.name).member_changes

    def only_mariadb(self, target: TableName) -> bool | None:
        """Whether the group's rows come from MariaDB only; None if they also come from MySQL, or if it is unknown."""
        with self._moved:
            found = {self._mariadb.get(member.source) for member, _ in self.known.of(target)}
        return found.pop() if len(found) == 1 else None

    def is_recorded(self, target: TableName) -> bool:
        """Whether the target's record says that the table is shared."""
        with self._moved:
            return target in self.known.recorded

    def writers(self, run: RunDecision) -> dict[str, frozenset[TableName]]:
        """Returns the group's tables that have not arrived, keyed by source: they wait while the statement runs."""
        target = run.leader.after.name
        with self._moved:
            standing = self._state(target).arrivals
            writing = [member for member, _ in self.known.of(target) if member not in standing]
        return {
            source: frozenset(member.table for member in writing if member.source == source)
            for source in {member.source for member in writing}
        }

    def agreed(self, target: TableName) -> Table | None:
        """Returns the structure that the group has agreed on; None if the group has no member."""
        with self._moved:
            return self._agreed(target, self._state(target))

    def ran(self, run: RunDecision, missed: MissedChanges) -> None:
        """Notes that the target has the change for all arrived members. `missed`: the changes that members miss now."""
        with self._changing():
            state = self._state(run.leader.after.name)
            state.end(run)
            joins = not run.leader.runs
            state.was_shared = state.was_shared or joins
            if not run.passes:
                state.agreed = run.agreed
            if state.was_shared and (joins or not run.passes):
                self.known.take_record(run.leader.after.name, run.agreed, self.known.next_read())
            self.known.members |= {one.member: one.after for one in run.arrivals}
            self.known.note_missed(missed)
            self._notify()

    def missed_after(self, decision: RunDecision, arrival: Arrival) -> MissedChanges:
        """Returns the changes that members miss once the decision is carried out, for members for which they change."""
        target = arrival.after.name
        with self._moved:
            state = self._state(target)
            # If the group has no structure yet, no member misses a change.
            group = self.known.group(target, self._agreed(target, state) or arrival.before, state.arrivals)
            return missed_changes_after(group, decision, arrival)

    def failed(self, run: RunDecision, *, moves: bool = True, in_doubt_since: int | None = None) -> None:
        """Notes that no change was recorded: all arrived members are still before the change.

        With `in_doubt_since`, it is not known whether the change was recorded. The group then waits for an attempt of
        the leader's source with an epoch after `in_doubt_since`: such an attempt reads the record. `moves` is false if
        nothing has changed for the other members.
        """
        source = run.leader.member.source
        with self._changing():
            state = self._state(run.leader.after.name)
            state.running = None
            if in_doubt_since is not None:
                state.agreed = None
                if self._epochs.get(source, in_doubt_since) <= in_doubt_since:
                    state.in_doubt.add(source)
            if moves:
                self._notify()
            else:
                self._moved.notify_all()

    def made(self, source: str, lsn: Lsn) -> MemberChange | None:
        """Returns the recorded change of this source at this place in the log; None if no leader has recorded it."""
        with self._moved:
            entries = [entry for state in self._states.values() for entry in state.entries.values() if entry.ran]
            return next(
                (one.change for one in entries if (one.change.source, one.change.lsn) == (source, lsn)),
                None,
            )

    def changed(
        self,
        source: str,
        structures: Mapping[TableName, Table | None],
        epoch: int | None = None,
        missed: MissedChanges | None = None,
    ) -> None:
        """Stores the result of a change: a source's changed tables under the target's names (None: left its group).

        `epoch` is the epoch of the attempt that reports. If the next attempt has already begun, the report is ignored:
        that attempt has read the change from the record.
        """
        with self._changing():
            if epoch is not None and epoch < self._epochs.get(source, epoch):
                return
            self.known.clear_leaving(source, structures)
            for name, table in structures.items():
                member = Member(source, name)
                for state in self._states.values():
                    state.entries.pop(member, None)
                if table is not None:
                    self.known.add(member, table)
                    self._state(table.name)
                else:
                    self.known.remove(member)
            self.known.note_missed(missed or {})
            for target in {table.name for table in structures.values() if table is not None}:
                self._agree(target)
            self._notify()

    def members(self, target: TableName) -> tuple[Member, ...]:
        """Returns the members of a group."""
        with self._moved:
            return tuple(member for member, _ in self.known.of(target))

    def structures(self, target: TableName) -> tuple[Table, ...]:
        """Returns the structure of each member of a group, with the target's names."""
        with self._moved:
            return tuple(table for _, table in self.known.of(target))

    def tables(self, source: str) -> tuple[TableName, ...]:
        """Returns the tables of a source."""
        with self._moved:
            return tuple(member.table for member in self.known.members if member.source == source)

    def set_leaving(self, source: str, tables: frozenset[TableName]) -> None:
        """Sets the tables of a source that wait before a statement which removes them. No shard waits for them."""
        with self._changing():
            if self.known.set_leaving(source, tables):
                self._notify()

    def note_dropped(self, dropped: Mapping[Member, Collection[str]]) -> None:
        """Notes the columns that the target keeps after members have dropped them."""
        with self._changing():
            self.known.note_dropped(dropped)

    def dropped_after(
        self, arrival: Arrival, agreed: Table, origins: Mapping[str, str | None], was: Table | None
    ) -> dict[Member, frozenset[str]]:
        """Returns the argument for `note_dropped` after the arrival's change, after which `agreed` is the structure."""
        with self._moved:
            return self.known.dropped_after(arrival, agreed, origins, was)

    def keeps_columns(self, member: Member) -> bool:
        """Whether the target has values in columns that this member has dropped."""
        with self._moved:
            return bool(self.known.dropped.get(member))

    def wait(self, seen: int, seconds: float) -> int:
        """Waits until `moves` differs from `seen`, or until the time is over; returns the present value of `moves`."""
        with self._moved:
            if self._moves == seen:
                self._moved.wait(seconds)
            return self._moves

    def is_shared(self, target: TableName, besides: Member | None) -> bool:
        """Whether members other than `besides` map to the target table, or have mapped to it."""
        with self._moved:
            return self._state(target).was_shared or any(one != besides for one, _ in self.known.of(target))

    def shares_schema(self, source: str, schema: str, target_schema: str) -> bool:
        """Whether a table of another source, or of a schema other than `schema`, maps to `target_schema`."""
        with self._moved:
            return self.known.shares_schema(source, schema, target_schema)

    def locks(self) -> tuple[ShardLock, ...]:
        """Returns the shard locks of all groups in which a member waits."""
        with self._moved:
            return tuple(
                lock
                for target, state in sorted(self._states.items())
                if (lock := self._lock(target, state)) is not None
            )

    def _lock(self, target: TableName, state: GroupState) -> ShardLock | None:
        first = state.first
        return state.lock(target, first, self._decision(state, first)) if first is not None else None

    def _decision(self, state: GroupState, arrival: Arrival) -> Decision:
        """Returns the decision about a member, which waits while a statement runs, or if another member leads."""
        if state.running is not None:
            leader = state.running.leader.member
            return Wait(leader=leader)
        if state.in_doubt:
            return Wait(absent=tuple(sorted(state.in_doubt)))
        absent = self.known.absent_for([arrival.after.name])
        if absent and not (arrival.unlocked or arrival.command is CommandKind.SKIP):
            return Wait(absent=absent)
        target = arrival.after.name
        agreed = self._agreed(target, state)
        if agreed is None:  # no member has the table yet: this member creates it
            return RunDecision(arrival, (arrival,), arrival.after)
        kind, waits = self._kind(arrival), self._examination(target).waits
        known = waits.get(kind) if kind is not None else None
        if known is not None and known.leader != arrival.member:
            return known
        group = self.known.group(target, agreed, state.arrivals)
        decision = decide(group, arrival.member, state.entries[arrival.member].effect)
        if isinstance(decision, RunDecision) and decision.leader.member != arrival.member:
            decision = Wait(leader=decision.leader.member)
        if kind is not None and isinstance(decision, Wait):
            waits[kind] = decision
        return decision

    def _examination(self, target: TableName) -> Examination:
        if (found := self._examined.get(target)) is None:
            found = self._examined[target] = Examination()
        return found

    def _all_wait_alike(self, state: GroupState, arrival: Arrival, decision: Decision) -> bool:
        """Whether each arrived member still waits, so that no thread need be woken.

        This is so if the member that has just arrived waits, and all other arrived members are of its kind. Without
        this method, each of a thousand arrivals would wake a thousand threads.
        """
        kind = self._kind(arrival)
        if not isinstance(decision, Wait) or decision.leader is not None or kind is None:
            return False
        return all(self._kind(one) == kind for one in state.arrivals.values())

    def _note_common_wait(self, state: GroupState, kind: ArrivalKind | None, decision: Decision) -> None:
        """Notes why all arrivals of one kind wait, so that the next arrival of this kind need not be examined."""
        if kind is not None and isinstance(decision, Wait) and not self.known.missed:
            self._examination(kind[0]).common = CommonWait.of(kind, decision, state.arrivals)

    def _kind(self, arrival: Arrival) -> ArrivalKind | None:
        """Returns a key that is equal for all arrivals that wait for the same reasons.

        None: the member may wait for a reason that concerns no other member.

        A thousand shards that arrive at the same change wait for the same reasons. If each of them examined the whole
        group after each arrival, the time would grow with the third power of the number of shards.
        """
        member = arrival.member
        missed, dropped = self.known.missed, self.known.dropped
        has_own = (missed and member in missed) or (dropped and member in dropped) or arrival.command is not None
        if self.is_optimistic or has_own:
            return None
        made = arrival.before, arrival.after, arrival.revalues, arrival.computes, arrival.adds
        return arrival.after.name, arrival.runs, made

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock of all groups while an event changes a group, and forgets earlier examinations."""
        with self._moved:
            self._examined = {}
            yield

    def _agreed(self, target: TableName, state: GroupState) -> Table | None:
        if state.agreed is not None:
            return state.agreed
        found = self.known.agreed(target)
        if not self.known.absent_for([target]):  # the tables of parts that have not begun may differ from `found`
            state.agreed = found
        return found

    def _agree(self, target: TableName) -> None:
        """If all members have one structure, records it as the structure that the group has agreed on.

        For example, if an operator has skipped a change for every member, no decision has led to this structure.
        """
        state, first = self._state(target), next(table for _, table in self.known.of(target))
        if state.agreed is not None and self.known.is_uniform(target):
            state.agreed = state.agreed if same_version(first, state.agreed) else first

    def _state(self, target: TableName) -> GroupState:
        state = self._states.setdefault(target, GroupState())
        state.was_shared = state.was_shared or sum(1 for _ in self.known.of(target)) > 1
        return state

    def _forget(self, source: str) -> None:
        self.known.set_leaving(source, frozenset())
        for state in self._states.values():
            state.entries = {member: entry for member, entry in state.entries.items() if member.source != source}

    def _notify(self) -> None:
        self._moves += 1
        self._moved.notify_all()
