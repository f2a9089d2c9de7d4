"""Decides when a schema change of one shard is run on the merged table that it shares with other shards.

All source tables that map to one target table form a *group*, and are its *members*. The structure that the group has
agreed on, G, is the structure of the target table. A member *arrives* at a schema change when all its earlier changes
are on the target. This module then decides whether the member goes on or waits. Only structures count, so the wording
of a statement does not matter. After a crash, all members arrive again and get the same answer.

**Pessimistic**: the first member to arrive waits for the others, until each of them has reached a change that leads to
the same structure. Then one statement is run for all of them. If the group already has that structure, a member
*passes*: it continues, and its statement is not run. The change cannot run when the first member arrives: after a
`DROP COLUMN c`, another member would still write values to `c`.

    A.t  v0 ──ALTER──▶ waits ················▶ v1
    B.t  v0 ─ rows ─ rows ─ rows ──ALTER──▶ runs, v1        the target's table: v0 until here, then v1

**Optimistic**: G is the union of all members' structures: every column that one of them has. A change that leads from G
to the new union is run at once, and no member waits. A change that does not alter the union passes. For example, the
first DROP of a column passes as long as other members still have the column: only the last DROP is run. Three kinds of
changes wait as in pessimistic mode:

- changes that no union can express, such as a renamed column
- changes that add a column again while the target still has the member's earlier values in it
- changes that give existing rows another value than the target gave them

**Missed changes** (pessimistic): a change that an operator has *unlocked* is run for the members that have arrived. All
other members *miss* this change until they have made it themselves. Structures alone do not show which members these
are. An example: member A adds a column without B and C, and drops it again. Then all three have the same structure. By
the structures alone, the ADD of B would wait for A, which has already made this change; and the next change of A would
not wait for B, since B's rows fit anyway. So the commit of the change records which changes each member misses, and in
which order. A member that reaches a missed change passes, and no longer misses this change and earlier changes. Every
other change waits until the members that miss something have also reached it.

The *head* is the structure of the members that miss nothing. If a column is not in the head, but a member has it or
misses a change with it, G keeps the column. When the last member has reached the structure without the column, only the
column is dropped: nothing else of this member's statement is run.

A new table is not a member before its CREATE TABLE has passed, so no member waits for it. The new table waits until its
rows can be written to G. This is possible even if the new table already has an additional index or nullable column.
Then no member waits for the new table to reach a structure that it already has.

The *leader* is the member whose statement is run. Candidates are the members that have arrived with the change, and
whose statement leads from G to the new structure. The first candidate by source and place in the log is the leader. So
as long as the same members have arrived, the leader is the same. If an operator gives a ddl command about one of the
candidates, that member is the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Literal, TypeAlias

from pidts.model import Arrival, Column, CommandKind, Lsn, Member, Table, TableName
from pidts.shards.structures import (
    fills_alike,
    fits,
    for_each_structure,
    indexed_like,
    is_fillable,
    joined,
    key_has,
    names_of,
    same_but_order,
    same_version,
    same_whole,
    taking_alike,
    unchanged,
    widened_like,
    with_kept,
    without,
    without_kept_columns,
)

ShardMode: TypeAlias = Literal["pessimistic", "optimistic"]

MissedChanges: TypeAlias = Mapping[Member, tuple[Table, ...]]
"""For each member, the structures that were made without it and that it still has to reach, in this order."""

Effect: TypeAlias = Callable[[Table], Table | None]
"""Returns the structure of a table after an arrival's statement; None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardGroup:
    """All source tables that map to one target table, and what is known about them."""

    target: TableName
    mode: ShardMode
    agreed: Table
    """The structure that the group has agreed on: the target table's structure, as far as the members show it."""
    members: Mapping[Member, Table]
    """Each member's structure after all its finished changes, with the column names of the target."""
    arrivals: Mapping[Member, Arrival]
    """The waiting schema changes, of members and of new tables."""
    dropped: Mapping[Member, Collection[str]] = field(default_factory=dict)
    """The columns that each member has dropped while the target still has them, with the member's old values."""
    missed: MissedChanges = field(default_factory=dict)
    """The changes that each member misses, in order; former members are included."""

    def missed_by(self, one: Arrival) -> tuple[Table, ...]:
        """Returns the changes that the member still misses at its current place."""
        return self.missed.get(one.member, ()) if one.runs else ()

    def missed_after(self, one: Arrival) -> tuple[Table, ...]:
        """Returns the changes that the member misses after its own change is made."""
        return still_missed(self.missed_by(one), one)

    def settles(self, one: Arrival) -> bool:
        """Whether the change that the member makes is one of the changes that it misses."""
        return len(self.missed_after(one)) < len(self.missed_by(one))

    @property
    def head(self) -> Table:
        """The structure of the members that miss nothing."""
        return next((steps[-1] for steps in self.missed.values() if steps), self.agreed)


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision that a member waits for others, with the reasons."""

    awaited: tuple[Member, ...] = ()
    """Members that have not arrived."""
    disagree: tuple[Arrival, ...] = ()
    """Members that have arrived with a change that leads to another structure than this member's change."""
    absent: tuple[str, ...] = ()
    """Sources whose members are not known yet."""
    begun: tuple[str, Lsn] | None = None
    """A source that has begun a change of the table, and the change's place. Only this source's run can complete it."""
    leader: Member | None = None
    """The member that runs the statement after all members have arrived."""
    differing_columns: tuple[str, ...] = ()
    """The member's new columns in which its rows have other values on the target than on the source."""


@dataclass(frozen=True, slots=True)
class RunDecision:
    """The decision to run the leader's statement for these members. After it, `agreed` is the group's structure."""

    leader: Arrival
    arrivals: tuple[Arrival, ...]
    agreed: Table
    left: tuple[Member, ...] = ()
    """Members that do not take part because an operator has given a ddl command."""
    rest: bool = False
    """Whether only some steps of the statement are run: the target already has the other steps, or the change only
    drops columns that no member except the leader still has.
    """
    passes: bool = False
    """Whether the target has the change already. Then nothing is run, but the change is recorded.

    Even if nothing is run, only one member passes at a time, and the next decision uses the result. Otherwise two
    members that drop a column at the same time would each leave the DROP to the other one. Or a member would rely on a
    column while it is being dropped.
    """

    @property
    def is_step(self) -> bool:
        """Whether the decision leads the group to the structure that the leader has after its statement."""
        one = self.leader
        is_alone = self.passes or self.rest or one.command is CommandKind.SKIP
        return not (is_alone or (one.runs and same_version(one.before, one.after)))


Decision: TypeAlias = Wait | RunDecision


def decide(group: ShardGroup, member: Member, effect: Effect = lambda _: None) -> Decision:
    """Returns the decision about an arrived member; `effect` computes the effect of its statement."""
    mine = group.arrivals[member]
    if mine.command is CommandKind.SKIP or (mine.runs and same_version(mine.before, mine.after)):
        return RunDecision(mine, (mine,), group.agreed)
    passing = _passes(group, mine) if group.mode == "pessimistic" else None
    if mine.command is CommandKind.REPLACE and mine.runs:
        if passing is not None and group.settles(mine):
            return RunDecision(mine, (mine,), passing.agreed)
        return _together(group, mine, effect)
    differing = _differing_columns(group, mine)
    if differing and (group.mode == "optimistic" or not same_version(mine.before, group.agreed)):
        awaited = tuple(sorted(member for member, one in group.members.items() if differing & names_of(one)))
        return Wait(awaited, differing_columns=tuple(sorted(differing)))
    if group.mode == "optimistic":
        # A change that adds a generated column waits for all members. When the column is added, existing rows of other
        # members get the expression's values. But if the target's column is a plain column, later rows of these members
        # would get the default.
        alone = None
        if not mine.computes:
            alone = _passes_whole(group, mine) or _runs_alone(group, mine, effect) or _runs_rest(group, mine)
        return alone or _together(group, mine, effect)
    return passing or _together(group, mine, effect)


def still_missed(missed: tuple[Table, ...], one: Arrival) -> tuple[Table, ...]:
    """Returns the changes of `missed` that the member still misses after it has made its change."""
    if not one.runs or same_version(one.before, one.after):
        return missed if one.runs else ()
    places = (place for place, step in enumerate(missed) if same_version(one.after, step))
    return missed[next(places, -1) + 1 :]


def missed_changes_after(group: ShardGroup, decision: RunDecision, mine: Arrival) -> MissedChanges:
    """Returns the changes that each member misses after the decision, without members for which nothing changes."""
    if group.mode == "optimistic":
        return {}
    found, head = dict(group.missed), group.head
    for one in decision.arrivals:
        found[one.member] = still_missed(found.get(one.member, ()), one)
    if decision.is_step and not group.settles(mine):
        head = decision.leader.after
        # Members of sources that are absent now are known only from the record of missed changes.
        is_alone = any(one.runs and one.unlocked for one in decision.arrivals)
        absent = [member for member in group.missed if is_alone and member not in group.members]
        left = {member: (*group.missed.get(member, ()), head) for member in (*decision.left, *absent)}
        found = dict.fromkeys(found, ()) | left
    kept = names_of(decision.agreed) - names_of(head)
    come_further = [one for one in decision.arrivals if not found[one.member]]
    found |= {one.member: (head,) for one in come_further if kept & names_of(one.after)}
    return {member: steps for member, steps in found.items() if steps != group.missed.get(member, ())}


def _passes(group: ShardGroup, mine: Arrival) -> RunDecision | None:
    """Returns the decision for a member that passes without running its statement; None if it cannot pass.

    A member passes in three cases: it reaches the structure of the others; it reaches a change that it misses; or it is
    late (`_is_late`) and its rows fit. When the last member passes, the columns that were kept for other members are
    removed.
    """
    has_place = _is_late(group, mine) and _takes(mine, group.agreed)
    if not (same_version(mine.after, group.agreed) or group.settles(mine) or has_place):
        return None
    gone = (
        names_of(group.agreed)
        - names_of(group.head)
        - names_of(mine.after, *group.missed_after(mine))
        - _needed(group, (mine,))
    )
    if not (gone and mine.runs):
        return RunDecision(mine, (mine,), group.agreed, passes=True)
    return RunDecision(mine, (mine,), without_kept_columns(group.agreed, gone, group.head), rest=True)


def _needed(group: ShardGroup, but: Collection[Arrival]) -> frozenset[str]:
    """Returns the columns in the structures and missed changes of the members; members in `but` do not count."""
    others = group.members.keys() - {one.member for one in but}
    missed = [step for member in others for step in group.missed.get(member, ())] if group.missed else []
    return names_of(*(group.members[member] for member in others), *missed)


def _is_late(group: ShardGroup, arrival: Arrival) -> bool:
    """Whether the member lacks the head's structure (`ShardGroup.head`). Then its rows only have to fit into it."""
    return not arrival.runs or bool(group.missed_by(arrival)) or not same_version(arrival.before, group.head)


def _together(group: ShardGroup, mine: Arrival, effect: Effect) -> Decision:
    goal, wanted = _goal(group, mine)
    gone = _nobodys(group)
    alike: list[Arrival] = []
    able: list[Arrival] = []
    disagree: list[Arrival] = []
    for kind in _kinds(group):
        one = kind[0]
        if one.runs and same_version(one.before, one.after):
            continue
        if _leads_to(group, one, goal) and _computes_alike(one, wanted) and not added_by_one(one, wanted):
            alike += kind
            if one.runs and same_version(one.before, without_kept_columns(group.head, gone, one.before)):
                able += kind
        elif one.runs and (group.missed_by(one) or not _has_place(group, one.before, goal)):
            # If a member's change leads to the structure before this change, the member will still reach this change:
            # it does not disagree.
            will_reach = same_version(one.after, mine.before) or group.settles(one)
            disagree += () if will_reach else kind
    here = {one.member for one in (*alike, *disagree)}
    is_there = for_each_structure(lambda one: same_version(one, goal) or _has_place(group, one, goal))
    awaited = [
        member
        for member, structure in group.members.items()
        if member not in here and (group.missed.get(member) or not is_there(structure))
    ]
    able = able or [one for one in alike if one.runs and (group.mode == "pessimistic" or one.unlocked)]
    if able and (not (awaited or disagree) or any(one.runs and one.unlocked for one in alike)):
        leader = min(able, key=lambda one: (one.command is None, one.member.source, one.lsn))
        run = tuple(sorted(alike, key=lambda one: (one.member.source, one.lsn)))
        left = tuple(sorted((*awaited, *(one.member for one in disagree))))
        kept = _kept(group, goal, leader, run) if left else ()
        kept += tuple(one for one in group.agreed.columns if one.name.lower() in gone)
        agreed = with_kept(goal, kept, group.agreed)
        made = effect(group.agreed) if group.mode == "optimistic" and mine == leader else None
        is_more = made is not None and mine.command is CommandKind.UNLOCK and names_of(made) == names_of(agreed)
        return RunDecision(leader, run, made if made is not None and is_more else agreed, left)
    return Wait(
        tuple(sorted(awaited, key=attrgetter("names"))),
        tuple(sorted(disagree, key=lambda one: (one.since, one.member))),
    )


def _kinds(group: ShardGroup) -> Collection[Sequence[Arrival]]:
    """Returns the arrivals, except skipped ones, by kind. `_together` decides the same for all arrivals of one kind.

    A thousand shards may have arrived at the same change. Two arrivals are of one kind if they differ only in their
    members, places, times and statements' texts. The arrival of a member that misses changes is the only one of its
    kind.
    """
    found: dict[object, list[Arrival]] = {}
    for one in _arrivals(group):
        # The arrival keeps both structures alive, so no other object can have the same `id()`.
        made = id(one.before), id(one.after), one.command, one.runs, one.revalues, one.computes, one.adds
        misses = one.member if group.missed and group.missed_by(one) else None
        found.setdefault((made, misses), []).append(one)
    return found.values()


def _arrivals(group: ShardGroup) -> list[Arrival]:
    return [one for one in group.arrivals.values() if one.command is not CommandKind.SKIP]


def _kept(group: ShardGroup, goal: Table, leader: Arrival, run: Collection[Arrival]) -> tuple[Column, ...]:
    """Returns the columns that the change would drop, and that other members have now or in a change that they miss.

    A column is kept only if it has a known value in rows of the arrived members. If a statement drops a column and also
    adds columns, the dropped column may have been renamed, so it is not kept.
    """
    needed = _needed(group, run) - names_of(goal)
    is_drop = names_of(goal) <= names_of(leader.before) and not any(one.command is CommandKind.REPLACE for one in run)
    needed -= frozenset() if is_drop else names_of(leader.before)
    return tuple(one for one in group.agreed.columns if one.name.lower() in needed and is_fillable(one))


def _nobodys(group: ShardGroup) -> frozenset[str]:
    """Returns the columns in which only rows of former members have values."""
    if group.mode != "optimistic":
        return frozenset()
    return names_of(group.agreed) - names_of(*group.members.values(), *(one.after for one in group.arrivals.values()))


def _has_place(group: ShardGroup, structure: Table, goal: Table) -> bool:
    """Whether a member need not make the change: it joined with a later structure, and its rows fit."""
    return not same_version(structure, group.head) and fits(structure, goal)


def _computes_alike(one: Arrival, other: Arrival) -> bool:
    """Whether both statements add generated columns with the same expressions, or one of them adds none."""
    return not (one.computes and other.computes) or one.computes == other.computes


def added_by_one(one: Arrival, other: Arrival) -> frozenset[str]:
    """Returns the columns that one of the two statements adds, and that the other statement makes by a rename.

    Comparing structures does not show this. For example, one shard's statement is `CHANGE a b INT`, which keeps the
    values. `DROP COLUMN a, ADD COLUMN b INT` leads to the same structure, but loses the values.
    """
    if one.before is other.before and one.after is other.after and one.adds == other.adds:
        return frozenset()
    brought = (names_of(each.after) - names_of(each.before) for each in (one, other))
    return frozenset.intersection(*brought) & (_new(one) ^ _new(other))


def _new(one: Arrival) -> frozenset[str]:
    """Returns the columns that the statement adds: all new columns, unless a column disappears and may be renamed."""
    had, has = names_of(one.before), names_of(one.after)
    return one.adds if had - has else has - had


def _goal(group: ShardGroup, mine: Arrival) -> tuple[Table, Arrival]:
    """Returns the structure that the change leads to, and the arrival whose statement defines it.

    The goal of a late member is the new structure of the first arrived member that is not late and whose new structure
    fits the late member's rows.
    """
    if _is_late(group, mine) and not group.missed_by(mine):
        for one in sorted(_arrivals(group), key=lambda one: (one.since, one.member)):
            if one.runs and not _is_late(group, one) and fits(mine.after, one.after):
                return one.after, one
    return mine.after, mine


def _takes(one: Arrival, there: Table) -> bool:
    """Whether the member's rows fit into a structure, with the values that they have on their source."""
    return fits(one.after, there) and one.revalues <= taking_alike(one.after, there)


def _leads_to(group: ShardGroup, arrival: Arrival, goal: Table) -> bool:
    is_ordered = arrival.command is CommandKind.REPLACE
    if arrival.runs and not is_ordered and _filled_otherwise(arrival, group.agreed):
        return False  # In the new columns, rows of this member have other values on the source than on the target.
    if same_version(arrival.after, goal):
        return True
    if group.mode == "optimistic" and same_but_order(arrival.after, goal):
        return True  # Rows are written by column names, so the order of columns does not matter.
    is_late = arrival.runs and _is_late(group, arrival) and not group.missed_by(arrival)
    return is_late and _takes(arrival, goal) and not _filled_otherwise(arrival, goal)


def _passes_whole(group: ShardGroup, mine: Arrival) -> RunDecision | None:
    before, after = _wholes(group, mine)
    if after is None or not mine.revalues <= taking_alike(mine.after, group.agreed):
        return None
    # The change drops these columns from its member's table, so the other members may have them in any form.
    left = names_of(mine.before) & names_of(after) - names_of(mine.after)
    unchanged = before is not None and same_whole(without(left, before), without(left, after))
    passes = (unchanged and fits(mine.after, group.agreed)) or same_whole(after, group.agreed)
    return RunDecision(mine, (mine,), group.agreed, passes=True) if passes else None


def _runs_alone(group: ShardGroup, mine: Arrival, effect: Effect) -> RunDecision | None:
    before, after = _wholes(group, mine)
    made = effect(group.agreed) if mine.runs else None
    if after is None or made is None:
        return None
    whole = effect(before) if before is not None else None
    if not same_whole(after, made) and (whole is None or not same_whole(after, whole)):
        return None
    return RunDecision(mine, (mine,), made)


def _runs_rest(group: ShardGroup, mine: Arrival) -> RunDecision | None:
    """Returns the decision to run only the steps that lead to the union; None if this is not possible.

    The whole statement cannot be run if other members have already made a part of the change, or still have columns
    that it drops. A dropped and an added column may be one renamed column, unless the statement says that the added
    column is new.
    """
    _, after = _wholes(group, mine)
    if after is None or not mine.runs or not mine.revalues <= taking_alike(mine.after, group.agreed):
        return None
    had, has, there = names_of(mine.before), names_of(mine.after), names_of(group.agreed)
    comes, goes, nobodys = names_of(after) - there, had & there - names_of(after), there - names_of(after) - had
    is_renamed = bool(had - has) and not has - had <= mine.adds
    if is_renamed or not comes <= has - had:
        return None
    new = [column for column in mine.after.columns if column.name.lower() in comes]
    # G may have a wider column than any member, because of a former member's rows.
    other = has & unchanged(mine.before, mine.after)
    after = widened_like(after, without(there - other, group.agreed))
    columns = (*widened_like(without(goes, group.agreed), after).columns, *new)
    left = (key for key in group.agreed.keys if key_has(key, nobodys) and not key.primary)
    made = replace(group.agreed, columns=columns, keys=(*indexed_like(group.agreed, after), *left))
    names = {key.name.lower() for key in made.keys}
    is_whole = len(names) == len(made.keys) and same_whole(after, without_kept_columns(made, nobodys, after))
    return RunDecision(mine, (mine,), made, rest=True) if is_whole else None


def _wholes(group: ShardGroup, mine: Arrival) -> tuple[Table | None, Table | None]:
    """Returns two structures that can store the rows of all members: one before the change, one after it.

    Each is None if there is no such structure.
    """
    others = [structure for member, structure in group.members.items() if member != mine.member]
    before = [*others, mine.before] if mine.runs or not others else others
    return joined(before, like=group.agreed), joined([*others, mine.after], like=group.agreed)


def _differing_columns(group: ShardGroup, mine: Arrival) -> frozenset[str]:
    """Returns the member's new columns in which its existing rows have other values on the target than on the source.

    After an unlock, a column does not count if it only has earlier values, or the values of a clock: the operator has
    accepted these. A column with two different defaults counts even then.
    """
    if not mine.runs:
        return frozenset()  # The new table has no rows yet.
    if mine.unlocked:
        return _filled_otherwise(mine, group.agreed)
    gone = {name.lower() for name in group.dropped.get(mine.member, ())}
    # If all members make the change together, their rows get the values of the leader's statement, even a clock's time.
    unlike = _filled_otherwise(mine, group.agreed, constant=group.mode == "optimistic")
    return unlike | (gone & names_of(mine.after) & names_of(group.agreed) - names_of(mine.before))


def _filled_otherwise(one: Arrival, there: Table, *, constant: bool = False) -> frozenset[str]:
    """Returns the columns that the member adds, and that existing rows get with another value on the target."""
    return _filled_unlike(one.before, one.after, there, constant)


@lru_cache(maxsize=64)
def _filled_unlike(before: Table, after: Table, there: Table, constant: bool) -> frozenset[str]:  # noqa: FBT001 - a key
    others = {column.name.lower(): column for column in there.columns}
    added = names_of(after) & others.keys() - names_of(before)
    mine = ((column.name.lower(), column) for column in after.columns if column.name.lower() in added)
    # Only the source knows the values of a generated column in existing rows.
    return frozenset(
        name for name, column in mine if column.generated or not fills_alike(column, others[name], constant=constant)
    )
