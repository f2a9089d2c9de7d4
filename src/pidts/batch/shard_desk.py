"""What is known of one group: who of it has arrived at a change, and what is being run for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pidts.apply import Party
from pidts.model import Arrival, Member, ShardLock, Table, TableName
from pidts.plan.shards import Decision, Effect, Run, Wait


@dataclass(frozen=True, slots=True)
class Ran:
    """The leader has run it, and has put it on record for this one."""


@dataclass(slots=True)
class Entry:
    """Who has arrived."""

    arrival: Arrival
    party: Party
    effect: Effect
    waits: bool = False
    ran: bool = False


@dataclass(slots=True)
class Desk:
    """Of one group; `ShardGroups` has the lock."""

    agreed: Table | None = None
    was_shared: bool = False
    entries: dict[Member, Entry] = field(default_factory=dict)
    running: Run | None = None
    parties: tuple[Party, ...] = ()
    """For whom that is put on record besides the leader, whoever comes or goes meanwhile."""
    doubted: set[str] = field(default_factory=set)
    """Sources whose attempt at a change has ended without its knowing whether that is made."""

    @property
    def arrivals(self) -> dict[Member, Arrival]:
        """Those for whom nothing was run yet."""
        return {member: entry.arrival for member, entry in self.entries.items() if not entry.ran}

    def begin(self, run: Run) -> None:
        """By the leader, for those who have arrived."""
        others = [one.member for one in run.arrivals if one.member != run.leader.member]
        self.running, self.parties = run, tuple(self.entries[member].party for member in others)

    def end(self, run: Run) -> None:
        """It was run, and is on record for these attempts; one that has begun since knows from the record."""
        self.running = None
        made = {(party.source, party.epoch, party.lsn) for party in self.parties}
        for one in run.arrivals:
            entry = self.entries.get(one.member)
            if entry is None or entry.arrival.lsn != one.lsn:
                continue
            if one.member == run.leader.member or (entry.party.source, entry.party.epoch, entry.party.lsn) in made:
                entry.ran, entry.waits = True, False

    @property
    def _waiting(self) -> list[Arrival]:
        waiting = [entry.arrival for entry in self.entries.values() if entry.waits]
        return sorted(waiting, key=lambda one: (one.since, one.member))

    @property
    def owner(self) -> Arrival | None:
        """Who has waited longest."""
        return next(iter(self._waiting), None)

    def lock(self, target: TableName, owner: Arrival, decision: Decision) -> ShardLock:
        """What is waited for, by what was decided about its owner."""
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
