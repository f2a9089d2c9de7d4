"""The state of one group: which members have arrived at a change, and which statement is being run for the group."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias

from pidts.apply import MemberChange
from pidts.model import Arrival, Member, ShardLock, Table, TableName
from pidts.shards.decide import Decision, Effect, RunDecision, Wait

ArrivalKind: TypeAlias = tuple[TableName, bool, tuple[object, ...]]
"""A key that is equal for all arrivals that wait for the same reasons."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The effects that ddl commands for a waiting change would have. `Halt` has the same three fields."""

    unfit: tuple[str, ...]
    lacks: tuple[str, ...]
    stays: tuple[str, ...]

    def after(self, member: Member, wait: Wait, members: Mapping[Member, Table]) -> Outlook | None:
        """Returns the effects after one more member has arrived; None if they have to be computed again.

        `wait` is the common wait after the arrival. The columns that an unlock would keep depend on the structures of
        the members that have not arrived, but not on the number of these members.
        """
        structure = members.get(member)
        if structure is not None and not any(members.get(one) is structure for one in wait.awaited):
            return None
        return replace(self, unfit=tuple(one for one in self.unfit if one != str(member))) if self.unfit else self


@dataclass(frozen=True, slots=True)
class CommonWait:
    """The wait of a group whose arrived members are all of one kind, and wait only for members that have not arrived.

    If one more member of this kind arrives, the others stop waiting for it, and nothing else changes. So the group need
    not be examined again. Each examination takes time for each member, and a thousand shards may arrive one by one.
    """

    kind: ArrivalKind
    first: Arrival
    """Any of the arrivals: all of them have the same structures before and after the change."""
    wait: Wait

    @classmethod
    def of(cls, kind: ArrivalKind, wait: Wait, arrivals: Mapping[Member, Arrival]) -> CommonWait | None:
        """Returns the common wait of arrivals of one kind; None if they wait for other reasons, too."""
        if wait != Wait(wait.awaited) or not arrivals:
            return None
        first = next(iter(arrivals.values()))
        is_alike = all(one.before is first.before and one.after is first.after for one in arrivals.values())
        return cls(kind, first, wait) if is_alike and arrivals.keys().isdisjoint(wait.awaited) else None

    def after(self, kind: ArrivalKind, arrival: Arrival) -> CommonWait | None:
        """Returns the common wait after one more arrival; None if the group has to be examined."""
        if kind != self.kind or arrival.before is not self.first.before or arrival.after is not self.first.after:
            return None
        awaited, name = self.wait.awaited, attrgetter("names")
        place = bisect_left(awaited, arrival.member.names, key=name)
        if place < len(awaited) and awaited[place] == arrival.member:
            awaited = (*awaited[:place], *awaited[place + 1 :])
        return replace(self, wait=Wait(awaited)) if awaited else None


@dataclass(slots=True)
class Examination:
    """The result of the last examination of a group. It is deleted at each event that may change it."""

    waits: dict[ArrivalKind, Wait] = field(default_factory=dict)
    """The wait of the arrivals of each kind."""
    outlooks: dict[ArrivalKind, Outlook] = field(default_factory=dict)
    """The effects that ddl commands would have, for arrivals of each kind."""
    common: CommonWait | None = None
    """The wait of all arrived members; None if they wait for different reasons, or if this is not known."""

    def after(self, kind: ArrivalKind, arrival: Arrival, members: Mapping[Member, Table]) -> Examination | None:
        """Returns the result after one more arrival; None if the group has to be examined."""
        common = self.common.after(kind, arrival) if self.common is not None else None
        if common is None:
            return None
        found = self.outlooks.get(kind)
        outlook = found.after(arrival.member, common.wait, members) if found is not None else None
        return Examination({kind: common.wait}, {} if outlook is None else {kind: outlook}, common)


@dataclass(frozen=True, slots=True)
class RunByLeader:
    """The answer to a member whose change the leader has made and recorded for all arrived members."""

    change: MemberChange


@dataclass(slots=True)
class ArrivedMember:
    """A member that has arrived at a change."""

    arrival: Arrival
    change: MemberChange
    effect: Effect
    waits: bool = False
    ran: bool = False


@dataclass(slots=True)
class GroupState:
    """The state of one group, protected by the lock of `ShardGroups`."""

    agreed: Table | None = None
    was_shared: bool = False
    entries: dict[Member, ArrivedMember] = field(default_factory=dict)
    running: RunDecision | None = None
    member_changes: tuple[MemberChange, ...] = ()
    """The changes of the members that had arrived when the statement began, without the leader's change. The target
    records the statement for these members, even if members join or leave meanwhile.
    """
    in_doubt: set[str] = field(default_factory=set)
    """Sources whose attempt ended before it was known whether the change was made."""

    @property
    def arrivals(self) -> dict[Member, Arrival]:
        """Returns the arrivals of members whose change is not made yet."""
        return {member: entry.arrival for member, entry in self.entries.items() if not entry.ran}

    def begin(self, run: RunDecision) -> None:
        """Notes that the leader begins to run the statement for the arrived members."""
        others = [one.member for one in run.arrivals if one.member != run.leader.member]
        self.running, self.member_changes = run, tuple(self.entries[member].change for member in others)

    def end(self, run: RunDecision) -> None:
        """Notes that the statement is run and recorded: arrived members get `RunByLeader` if they arrive again."""
        self.running = None
        made = {(change.source, change.epoch, change.lsn) for change in self.member_changes}
        for one in run.arrivals:
            entry = self.entries.get(one.member)
            if entry is None or entry.arrival.lsn != one.lsn:
                continue
            change = entry.change
            if one.member == run.leader.member or (change.source, change.epoch, change.lsn) in made:
                entry.ran, entry.waits = True, False

    @property
    def _waiting(self) -> list[Arrival]:
        waiting = [entry.arrival for entry in self.entries.values() if entry.waits]
        return sorted(waiting, key=lambda one: (one.since, one.member))

    @property
    def first(self) -> Arrival | None:
        """Returns the arrival of the member that has waited longest; None if no member waits."""
        return next(iter(self._waiting), None)

    def lock(self, target: TableName, first: Arrival, decision: Decision) -> ShardLock:
        """Returns the shard lock that operators see. `decision` is the decision about the first member."""
        wait = decision if isinstance(decision, Wait) else Wait()
        return ShardLock(
            target=target,
            text=first.text,
            first=first.member,
            since=first.since,
            arrived=tuple(self._waiting),
            awaited=wait.awaited,
            disagree=wait.disagree,
            absent=wait.absent,
            running=self.running is not None,
        )
