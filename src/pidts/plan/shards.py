"""When a schema change of one shard is run on the table that it shares with others.

All upstream tables that land in one table of the target are a *group*. What the group has agreed on, G, is the table of
the target. A member *arrives* with a schema change when all that lies before it is on the target; whether it goes on or
waits is decided here, from structures alone, so it does not matter who says what in which words, and after a crash all
arrive again and find the same.

**Pessimistic**: the first to arrive waits for the others, until all stand before a change that leads to one structure;
then one statement is run for all of them. Who finds the group there already passes. The counterexample to running it
for the first one: `DROP COLUMN c`, while another shard goes on writing values to `c`.

    A.t  v0 ──ALTER──▶ waits ················▶ v1
    B.t  v0 ─ rows ─ rows ─ rows ──ALTER──▶ runs, v1        the target's table: v0 until here, then v1

**Optimistic**: G is what all members' structures have in common as a whole: every column that one of them has. A change
that takes G to the new whole is run at once and nobody waits; one that does not change the whole passes, such as the
first DROP of a column that others still have, whose last DROP is the one that is run. What cannot be told as a whole,
such as a column that is renamed, waits as above. So does a column that comes again to a member while the target has the
values of before in it, and one whose value in rows that are there would be another than the one that the target gave.

A table that comes is no member before its CREATE TABLE has passed, so nobody waits for it, and it waits until its rows
can be written to G. They can be where it is ahead by an index or a column that may be NULL; then nobody waits for it to
come where it has been.

Leader, whose statement is run: of those who have arrived with it and whose statement leads from G to there, the first
by source and place in its log. While the same have arrived it is the same. An operator's order about one of them makes
that one the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pidts.model import Arrival, Lsn, Member, OrderKind, Table, TableName
from pidts.plan.shard_versions import fills_alike, fits, joined, same_version, same_whole

__all__ = [
    "Arrival",
    "Decision",
    "Effect",
    "Group",
    "Member",
    "Pass",
    "Run",
    "ShardMode",
    "Wait",
    "decide",
    "fits",
    "joined",
    "same_version",
]

ShardMode: TypeAlias = Literal["pessimistic", "optimistic"]

Effect: TypeAlias = Callable[[Table], Table | None]
"""What an arrival's statement makes of a structure; None where it cannot be said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All upstream tables that land in one table of the target."""

    target: TableName
    mode: ShardMode
    agreed: Table
    """What the target has, as far as it is made of the members."""
    members: Mapping[Member, Table]
    """Each one's structure as it lands, behind all of its changes that are done."""
    arrivals: Mapping[Member, Arrival] = field(default_factory=dict)
    """Members, and tables that come."""
    dropped: Mapping[Member, Collection[str]] = field(default_factory=dict)
    """Columns that a member has no more, while the target has them, and the member's values in them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """For others."""

    awaited: tuple[Member, ...] = ()
    """Who has not come."""
    disagree: tuple[Arrival, ...] = ()
    """Who has come with a change that leads elsewhere."""
    absent: tuple[str, ...] = ()
    begun: tuple[str, Lsn] | None = None
    """A source that has begun a change of the table, of which nobody else knows how far it is, and where."""
    """Sources of which nobody knows yet whether they have members."""
    leader: Member | None = None
    """All have come, and this one runs it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The target has it: the change is put on record, and nothing is run."""

    agreed: Table


@dataclass(frozen=True, slots=True)
class Run:
    """The leader's statement is run, for all of these; then the group has agreed on another structure."""

    leader: Arrival
    arrivals: tuple[Arrival, ...]
    agreed: Table


Decision: TypeAlias = Wait | Pass | Run


def decide(group: Group, member: Member, effect: Effect = lambda _: None) -> Decision:
    """About the member that has arrived; `effect` is that of its statement."""
    mine = group.arrivals[member]
    if mine.order is OrderKind.SKIP or (mine.runs and same_version(mine.before, mine.after)):
        return Run(mine, (mine,), group.agreed)
    if mine.order is OrderKind.REPLACE and mine.runs:
        return _together(group, mine)
    met = _met(group, mine)
    if met and mine.order is None and (group.mode == "optimistic" or _is_late(group, mine)):
        return Wait(tuple(sorted(member for member, one in group.members.items() if _has(one, met))))
    if group.mode == "optimistic":
        return _passes_whole(group, mine) or _runs_alone(group, mine, effect) or _together(group, mine)
    if same_version(mine.after, group.agreed) or (_is_late(group, mine) and fits(mine.after, group.agreed)):
        return Pass(group.agreed)
    return _together(group, mine)


def _is_late(group: Group, arrival: Arrival) -> bool:
    """Whether it never was where the others are, or is not yet: its structure only has to have a place in theirs."""
    return not arrival.runs or not same_version(arrival.before, group.agreed)


def _together(group: Group, mine: Arrival) -> Decision:
    goal = _goal(group, mine)
    waiting = [one for one in _arrivals(group) if not (one.runs and same_version(one.before, one.after))]
    alike = [one for one in waiting if _leads_to(group, one, goal)]
    others = [one for one in waiting if one.runs and one not in alike and not _has_place(group, one.before, goal)]
    # One that is a change behind will come to this one.
    behind = {one.member for one in others if same_version(one.after, mine.before)}
    disagree = [one for one in others if one.member not in behind]
    here = {one.member for one in (*alike, *disagree)}
    awaited = [
        member
        for member, structure in group.members.items()
        if member not in here and not same_version(structure, goal) and not _has_place(group, structure, goal)
    ]
    able = [one for one in alike if one.runs and same_version(one.before, group.agreed)]
    if group.mode == "pessimistic":
        able = able or [one for one in alike if one.runs]
    if able and (not (awaited or disagree) or any(one.unlocked for one in alike)):
        leader = min(able, key=lambda one: (one.order is None, one.member.source, one.lsn))
        keeps = bool(awaited or disagree) and _is_still_written(group, goal, {one.member for one in alike})
        if any(one.order is OrderKind.REPLACE for one in alike):
            keeps = False
        run = tuple(sorted(alike, key=lambda one: (one.member.source, one.lsn)))
        return Run(leader, run, group.agreed if keeps else goal)
    return Wait(tuple(sorted(awaited)), tuple(sorted(disagree, key=lambda one: (one.since, one.member))))


def _arrivals(group: Group) -> list[Arrival]:
    """Without those that go on alone, as an operator wants it."""
    return [one for one in group.arrivals.values() if one.order is not OrderKind.SKIP]


def _is_still_written(group: Group, goal: Table, arrived: Collection[Member]) -> bool:
    """Whether others have columns that go, and those who have arrived can do with these: the last one drops them."""
    names = {column.name.lower() for column in goal.columns}
    lost = {column.name.lower() for column in group.agreed.columns} - names
    others = (table for member, table in group.members.items() if member not in arrived)
    return bool(lost) and fits(goal, group.agreed) and any(_has(table, lost) for table in others)


def _has_place(group: Group, structure: Table, goal: Table) -> bool:
    """Whether a member that is not where the group is, since it came ahead of it, has no need to come along."""
    return not same_version(structure, group.agreed) and fits(structure, goal)


def _goal(group: Group, mine: Arrival) -> Table:
    """Where it goes; one that is late goes where the others do, if there is a place for it."""
    if _is_late(group, mine):
        for one in sorted(_arrivals(group), key=lambda one: (one.since, one.member)):
            if one.runs and not _is_late(group, one) and fits(mine.after, one.after):
                return one.after
    return mine.after


def _leads_to(group: Group, arrival: Arrival, goal: Table) -> bool:
    if same_version(arrival.after, goal):
        return True
    return arrival.runs and _is_late(group, arrival) and fits(arrival.after, goal)


def _passes_whole(group: Group, mine: Arrival) -> Pass | None:
    before, after = _wholes(group, mine)
    if after is None:
        return None
    unchanged = before is not None and same_whole(before, after) and fits(mine.after, group.agreed)
    return Pass(group.agreed) if unchanged or same_whole(after, group.agreed) else None


def _runs_alone(group: Group, mine: Arrival, effect: Effect) -> Run | None:
    before, after = _wholes(group, mine)
    made = effect(group.agreed) if mine.runs else None
    if after is None or made is None:
        return None
    whole = effect(before) if before is not None else None
    if not same_whole(after, made) and (whole is None or not same_whole(after, whole)):
        return None
    return Run(mine, (mine,), made)


def _wholes(group: Group, mine: Arrival) -> tuple[Table | None, Table | None]:
    """What all members have together, before the change and behind it."""
    others = [structure for member, structure in group.members.items() if member != mine.member]
    before = [*others, mine.before] if mine.runs or not others else others
    return joined(before, like=group.agreed), joined([*others, mine.after], like=group.agreed)


def _met(group: Group, mine: Arrival) -> frozenset[str]:
    """New columns of the member in which rows that are there have other values on the target than on its source."""
    if not mine.runs:
        return frozenset()  # it has no rows yet
    had = {column.name.lower() for column in mine.before.columns}
    there = {column.name.lower(): column for column in group.agreed.columns}
    gone = {name.lower() for name in group.dropped.get(mine.member, ())}
    # What all members do together gives their rows what the leader's statement gives them, also a clock's time.
    constant = group.mode == "optimistic"
    added = [column for column in mine.after.columns if column.name.lower() not in had]
    met = [(column, there[column.name.lower()]) for column in added if column.name.lower() in there]
    return frozenset(
        one.name.lower()
        for one, other in met
        if one.name.lower() in gone or not fills_alike(one, other, constant=constant)
    )


def _has(table: Table, names: Collection[str]) -> bool:
    return any(column.name.lower() in names for column in table.columns)
