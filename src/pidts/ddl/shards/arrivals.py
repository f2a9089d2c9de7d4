"""The state of one group: which members have arrived at a change, and which statement is being run for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pidts.apply import MemberChange
from pidts.model import Arrival, Member, ShardLock, Table, TableName
from pidts.shards.decide import Decision, Effect, RunDecision, Wait


@dataclass(frozen=True, slots=True)
class RunByLeader:
    """The result if another member, the leader, has made the change, and has recorded it for this member, too."""

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
    """The changes of the members that had arrived when the statement began, without that of the leader, which runs it.

    The target records the statement for these members, even if members join or leave meanwhile.
    """
    in_doubt: set[str] = field(default_factory=set)
    """Sources whose attempt ended while it was not known whether the change was made."""

    @property
    def arrivals(self) -> dict[Member, Arrival]:
        """Returns the arrivals of members for which nothing was run yet."""
        return {member: entry.arrival for member, entry in self.entries.items() if not entry.ran}

    def begin(self, run: RunDecision) -> None:
        """Notes that one member, the leader, begins to run the statement for the arrived members."""
        others = [one.member for one in run.arrivals if one.member != run.leader.member]
        self.running, self.member_changes = run, tuple(self.entries[member].change for member in others)

    def end(self, run: RunDecision) -> None:
        """Notes that the statement has run, and that the target has recorded it for the arrived members.

        If one of the arrived members arrives again, it gets `RunByLeader`.
        """
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
    def owner(self) -> Arrival | None:
        """Returns the arrival of the member that has waited longest; None if no member waits."""
        return next(iter(self._waiting), None)

    def lock(self, target: TableName, owner: Arrival, decision: Decision) -> ShardLock:
        """Returns the lock that shows what the group waits for. `decision` is the decision about the owner."""
        wait = decision if isinstance(decision, Wait) else Wait()
        return ShardLock(
            target=target,
            text=owner.text,
            owner=owner.member,
            since=owner.since,
            arrived=tuple(self._waiting),
            awaited=wait.awaited,
            disagree=wait.disagree,
            absent=wait.absent,
            running=self.running is not None,
        )
