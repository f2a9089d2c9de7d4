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

**Left behind** (pessimistic): what an operator has *unlocked* is run for those who have arrived, and all others are
left behind: they owe this one change until they have come to it themselves. The counterexample to seeing from
structures alone who has yet to come: a adds a column without b and c and drops it again, and all three look alike; b's
column would wait for a, which has passed, and a's next change would not wait for b, whose rows have a place anyway. So
the commit that makes it so puts on record who owes what, in which order. Whoever comes to what it owes passes, and owes
no more what lies up to there. Whoever owes something is waited for by every other change, until it has come to that,
too. The *head* is where those are who owe nothing; a column that it has not, and that somebody has or owes, is kept in
G beside it until the last one has come to where it is gone. Nothing else of that one's statement is run.

A table that comes is no member before its CREATE TABLE has passed, so nobody waits for it, and it waits until its rows
can be written to G. They can be where it is ahead by an index or a column that may be NULL; then nobody waits for it to
come where it has been.

Leader, whose statement is run: of those who have arrived with it and whose statement leads from G to there, the first
by source and place in its log. While the same have arrived it is the same. An operator's order about one of them makes
that one the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pidts.model import Arrival, Column, Lsn, Member, OrderKind, Table, TableName
from pidts.plan.shard_versions import (
    fills_alike,
    fits,
    indexed_like,
    is_fillable,
    joined,
    key_has,
    names_of,
    same_version,
    same_whole,
    taking_alike,
    tidied,
    unchanged,
    widened_like,
    with_kept,
    without,
)

ShardMode: TypeAlias = Literal["pessimistic", "optimistic"]

Owed: TypeAlias = Mapping[Member, tuple[Table, ...]]
"""What was run without members, and they have to come to yet, in order."""

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
    behind: Owed = field(default_factory=dict)
    """What was run without each of these, in order; also without some that are gone since."""

    def owed(self, one: Arrival) -> tuple[Table, ...]:
        """What it still has to come to, where it stands."""
        return self.behind.get(one.member, ()) if one.runs else ()

    def left(self, one: Arrival) -> tuple[Table, ...]:
        """What it owes behind its change."""
        return come(self.owed(one), one)

    def settles(self, one: Arrival) -> bool:
        """Whether it comes to something that it owes."""
        return len(self.left(one)) < len(self.owed(one))

    @property
    def head(self) -> Table:
        """Where those are who owe nothing."""
        return next((owed[-1] for owed in self.behind.values() if owed), self.agreed)


@dataclass(frozen=True, slots=True)
class Wait:
    """For others."""

    awaited: tuple[Member, ...] = ()
    """Who has not come."""
    disagree: tuple[Arrival, ...] = ()
    """Who has come with a change that leads elsewhere."""
    absent: tuple[str, ...] = ()
    """Sources of which nobody knows yet whether they have members."""
    begun: tuple[str, Lsn] | None = None
    """A source that has begun a change of the table, of which nobody else knows how far it is, and where."""
    leader: Member | None = None
    """All have come, and this one runs it."""
    met: tuple[str, ...] = ()
    """Columns that come to it while the target has other values in them, in its rows, than its source."""


@dataclass(frozen=True, slots=True)
class Run:
    """The leader's statement is run, for all of these; then the group has agreed on another structure."""

    leader: Arrival
    arrivals: tuple[Arrival, ...]
    agreed: Table
    left: tuple[Member, ...] = ()
    """Those without whom it is run, by an operator's order."""
    rest: bool = False
    """Not the statement is run, but what the target lacks: it has a part, or only the leader still has what goes."""
    passes: bool = False
    """The target has it: nothing is run, the change is put on record.

    One at a time all the same, and the next is decided by what this one leaves. Else two that drop a column at once
    would both leave it to the other, or one would come to a column that is being dropped meanwhile.
    """

    @property
    def is_step(self) -> bool:
        """Whether it leads the group to where the leader is then."""
        one = self.leader
        is_alone = self.passes or self.rest or one.order is OrderKind.SKIP
        return not (is_alone or (one.runs and same_version(one.before, one.after)))


Decision: TypeAlias = Wait | Run


def decide(group: Group, member: Member, effect: Effect = lambda _: None) -> Decision:
    """About the member that has arrived; `effect` is that of its statement."""
    mine = group.arrivals[member]
    if mine.order is OrderKind.SKIP or (mine.runs and same_version(mine.before, mine.after)):
        return Run(mine, (mine,), group.agreed)
    passing = _passes(group, mine) if group.mode == "pessimistic" else None
    if mine.order is OrderKind.REPLACE and mine.runs:
        if passing is not None and group.settles(mine):
            return Run(mine, (mine,), passing.agreed)
        return _together(group, mine, effect)
    met = _met(group, mine)
    if met and (group.mode == "optimistic" or not same_version(mine.before, group.agreed)):
        awaited = tuple(sorted(member for member, one in group.members.items() if met & names_of(one)))
        return Wait(awaited, met=tuple(sorted(met)))
    if group.mode == "optimistic":
        alone = _passes_whole(group, mine) or _runs_alone(group, mine, effect) or _runs_rest(group, mine)
        return alone or _together(group, mine, effect)
    return passing or _together(group, mine, effect)


def come(owed: tuple[Table, ...], one: Arrival) -> tuple[Table, ...]:
    """What is left of what it owed, once it has made its change."""
    if not one.runs or same_version(one.before, one.after):
        return owed if one.runs else ()
    places = (place for place, step in enumerate(owed) if same_version(one.after, step))
    return owed[next(places, -1) + 1 :]


def behind_after(group: Group, decision: Run, mine: Arrival) -> Owed:
    """What members owe once that is done, where it is another than before."""
    if group.mode == "optimistic":
        return {}
    found, head = dict(group.behind), group.head
    for one in decision.arrivals:
        found[one.member] = come(found.get(one.member, ()), one)
    if decision.is_step and not group.settles(mine):
        head = decision.leader.after
        # Of a source that is not there it is known from the record that it owes something, and not more.
        is_alone = any(one.runs and one.unlocked for one in decision.arrivals)
        absent = [member for member in group.behind if is_alone and member not in group.members]
        left = {member: (*group.behind.get(member, ()), head) for member in (*decision.left, *absent)}
        found = dict.fromkeys(found, ()) | left
    kept = names_of(decision.agreed) - names_of(head)
    come_further = [one for one in decision.arrivals if not found[one.member]]
    found |= {one.member: (head,) for one in come_further if kept & names_of(one.after)}
    return {member: owed for member, owed in found.items() if owed != group.behind.get(member, ())}


def _passes(group: Group, mine: Arrival) -> Run | None:
    """Who comes to where the others are, or to what it owes, or is late and has a place; the last one clears up."""
    has_place = _is_late(group, mine) and _takes(mine, group.agreed)
    if not (same_version(mine.after, group.agreed) or group.settles(mine) or has_place):
        return None
    gone = (
        names_of(group.agreed)
        - names_of(group.head)
        - names_of(mine.after, *group.left(mine))
        - _needed(group, (mine,))
    )
    if not (gone and mine.runs):
        return Run(mine, (mine,), group.agreed, passes=True)
    return Run(mine, (mine,), tidied(group.agreed, gone, group.head), rest=True)


def _needed(group: Group, but: Collection[Arrival]) -> frozenset[str]:
    """Columns that others have, or owe."""
    others = group.members.keys() - {one.member for one in but}
    owed = [step for member in others for step in group.behind.get(member, ())]
    return names_of(*(group.members[member] for member in others), *owed)


def _is_late(group: Group, arrival: Arrival) -> bool:
    """Whether it never was where the others are, or is not yet: its structure only has to have a place in theirs."""
    return not arrival.runs or bool(group.owed(arrival)) or not same_version(arrival.before, group.head)


def _together(group: Group, mine: Arrival, effect: Effect) -> Decision:
    goal = _goal(group, mine)
    waiting = [one for one in _arrivals(group) if not (one.runs and same_version(one.before, one.after))]
    alike = [one for one in waiting if _leads_to(group, one, goal)]
    others = [
        one
        for one in waiting
        if one.runs and one not in alike and (group.owed(one) or not _has_place(group, one.before, goal))
    ]
    # One that is a change behind will come to this one.
    behind = {one.member for one in others if same_version(one.after, mine.before) or group.settles(one)}
    disagree = [one for one in others if one.member not in behind]
    here = {one.member for one in (*alike, *disagree)}
    awaited = [
        member
        for member, structure in group.members.items()
        if member not in here and _is_awaited(group, member, structure, goal)
    ]
    gone = _nobodys(group)
    able = [one for one in alike if one.runs and same_version(one.before, tidied(group.head, gone, one.before))]
    able = able or [one for one in alike if one.runs and (group.mode == "pessimistic" or one.unlocked)]
    if able and (not (awaited or disagree) or any(one.runs and one.unlocked for one in alike)):
        leader = min(able, key=lambda one: (one.order is None, one.member.source, one.lsn))
        run = tuple(sorted(alike, key=lambda one: (one.member.source, one.lsn)))
        left = tuple(sorted((*awaited, *(one.member for one in disagree))))
        kept = _kept(group, goal, leader, run) if left else ()
        kept += tuple(one for one in group.agreed.columns if one.name.lower() in gone)
        agreed = with_kept(goal, kept, group.agreed)
        made = effect(group.agreed) if group.mode == "optimistic" and mine == leader else None
        is_more = made is not None and mine.order is OrderKind.UNLOCK and names_of(made) == names_of(agreed)
        return Run(leader, run, made if made is not None and is_more else agreed, left)
    return Wait(tuple(sorted(awaited)), tuple(sorted(disagree, key=lambda one: (one.since, one.member))))


def _is_awaited(group: Group, member: Member, structure: Table, goal: Table) -> bool:
    """Of one that has not come; one that looks like there may have to come there once more."""
    is_there = same_version(structure, goal) or _has_place(group, structure, goal)
    return bool(group.behind.get(member)) or not is_there


def _arrivals(group: Group) -> list[Arrival]:
    """Without those that go on alone, as an operator wants it."""
    return [one for one in group.arrivals.values() if one.order is not OrderKind.SKIP]


def _kept(group: Group, goal: Table, leader: Arrival, run: Collection[Arrival]) -> tuple[Column, ...]:
    """Columns that go, while others have or owe them, and those who have arrived can do with these.

    One that goes while others come may have another name now, so it is not kept.
    """
    needed = _needed(group, run) - names_of(goal)
    is_drop = names_of(goal) <= names_of(leader.before) and not any(one.order is OrderKind.REPLACE for one in run)
    needed -= frozenset() if is_drop else names_of(leader.before)
    return tuple(one for one in group.agreed.columns if one.name.lower() in needed and is_fillable(one))


def _nobodys(group: Group) -> frozenset[str]:
    """Columns that only rows of those who are gone have values in."""
    alive = names_of(*group.members.values(), *(one.after for one in group.arrivals.values()))
    return names_of(group.agreed) - alive if group.mode == "optimistic" else frozenset()


def _has_place(group: Group, structure: Table, goal: Table) -> bool:
    """Whether a member that is not where the group is, since it came ahead of it, has no need to come along."""
    return not same_version(structure, group.head) and fits(structure, goal)


def _goal(group: Group, mine: Arrival) -> Table:
    """Where it goes; one that is late goes where the others do, if there is a place for it."""
    if _is_late(group, mine) and not group.owed(mine):
        for one in sorted(_arrivals(group), key=lambda one: (one.since, one.member)):
            if one.runs and not _is_late(group, one) and fits(mine.after, one.after):
                return one.after
    return mine.after


def _takes(one: Arrival, there: Table) -> bool:
    """Whether its rows have a place there, with the values that its source has given them."""
    return fits(one.after, there) and one.revalues <= taking_alike(one.after, there)


def _leads_to(group: Group, arrival: Arrival, goal: Table) -> bool:
    is_ordered = arrival.order is OrderKind.REPLACE
    if arrival.runs and not is_ordered and _filled_otherwise(arrival, group.agreed):
        return False  # its rows have values of before
    if same_version(arrival.after, goal):
        return True
    is_late = arrival.runs and _is_late(group, arrival) and not group.owed(arrival)
    return is_late and _takes(arrival, goal) and not _filled_otherwise(arrival, goal)


def _passes_whole(group: Group, mine: Arrival) -> Run | None:
    before, after = _wholes(group, mine)
    if after is None or not mine.revalues <= taking_alike(mine.after, group.agreed):
        return None
    # In which form others have what it drops is no part of its change.
    left = names_of(mine.before) & names_of(after) - names_of(mine.after)
    unchanged = before is not None and same_whole(without(left, before), without(left, after))
    passes = (unchanged and fits(mine.after, group.agreed)) or same_whole(after, group.agreed)
    return Run(mine, (mine,), group.agreed, passes=True) if passes else None


def _runs_alone(group: Group, mine: Arrival, effect: Effect) -> Run | None:
    before, after = _wholes(group, mine)
    made = effect(group.agreed) if mine.runs else None
    if after is None or made is None:
        return None
    whole = effect(before) if before is not None else None
    if not same_whole(after, made) and (whole is None or not same_whole(after, whole)):
        return None
    return Run(mine, (mine,), made)


def _runs_rest(group: Group, mine: Arrival) -> Run | None:
    """What the target lacks of a change of which it has a part, from members that are further by several changes.

    Columns come or go, not both: else one may be the other under a new name.
    """
    _, after = _wholes(group, mine)
    if after is None or not mine.runs or not mine.revalues <= taking_alike(mine.after, group.agreed):
        return None
    had, has, there = names_of(mine.before), names_of(mine.after), names_of(group.agreed)
    comes, goes, nobodys = names_of(after) - there, had & there - names_of(after), there - names_of(after) - had
    if (comes and had - has) or not comes <= has - had:
        return None
    new = [column for column in mine.after.columns if column.name.lower() in comes]
    # What this change does not speak of may be wider than all have it: rows of one who is gone are in it.
    other = has & unchanged(mine.before, mine.after)
    after = widened_like(after, without(there - other, group.agreed))
    columns = (*widened_like(without(goes, group.agreed), after).columns, *new)
    left = (key for key in group.agreed.keys if key_has(key, nobodys) and not key.primary)
    made = replace(group.agreed, columns=columns, keys=(*indexed_like(group.agreed, after), *left))
    names = {key.name.lower() for key in made.keys}
    is_whole = len(names) == len(made.keys) and same_whole(after, tidied(made, nobodys, after))
    return Run(mine, (mine,), made, rest=True) if is_whole else None


def _wholes(group: Group, mine: Arrival) -> tuple[Table | None, Table | None]:
    """What all members have together, before the change and behind it."""
    others = [structure for member, structure in group.members.items() if member != mine.member]
    before = [*others, mine.before] if mine.runs or not others else others
    return joined(before, like=group.agreed), joined([*others, mine.after], like=group.agreed)


def _met(group: Group, mine: Arrival) -> frozenset[str]:
    """New columns of the member in which rows that are there have other values on the target than on its source.

    An operator who says that it is to go on may mean values of before, or a clock's; no order makes two defaults one.
    """
    if not mine.runs:
        return frozenset()  # it has no rows yet
    if mine.unlocked:
        return _filled_otherwise(mine, group.agreed)
    gone = {name.lower() for name in group.dropped.get(mine.member, ())}
    # What all members do together gives their rows what the leader's statement gives them, also a clock's time.
    unlike = _filled_otherwise(mine, group.agreed, constant=group.mode == "optimistic")
    return unlike | (gone & names_of(mine.after) & names_of(group.agreed) - names_of(mine.before))


def _filled_otherwise(one: Arrival, there: Table, *, constant: bool = False) -> frozenset[str]:
    """Columns that come to it, of which its rows have another value than there."""
    others = {column.name.lower(): column for column in there.columns}
    added = names_of(one.after) & others.keys() - names_of(one.before)
    mine = ((column.name.lower(), column) for column in one.after.columns if column.name.lower() in added)
    # What a generated column has in rows that were there, only their source knows.
    return frozenset(
        name for name, column in mine if column.generated or not fills_alike(column, others[name], constant=constant)
    )
