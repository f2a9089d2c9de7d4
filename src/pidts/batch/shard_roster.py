"""Who is a member of which group: what parts have told, and what the target's record says of those that have not.

Nothing in here locks: `ShardGroups` does, and asks. What others look at without its lock, `dropped` and `behind`,
is replaced as a whole and never changed, so that whoever reads it has what was true at one moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pidts.model import Arrival, Member, Table, TableName
from pidts.plan.shard_versions import fits, joined, names_of, refilled, same_version
from pidts.plan.shards import Group, Owed, ShardMode


class Roster:
    """Of all groups."""

    def __init__(self, mode: ShardMode, expected: Collection[str]) -> None:
        self._mode = mode
        self.sources = frozenset(expected)
        """Of all parts."""
        self._known = set[str]()
        self._presumed, self._aside = set[str](), set[str]()
        self._leaving: dict[str, frozenset[TableName]] = {}
        self._looks, self._looked = 0, dict[TableName, int]()
        self.members: dict[Member, Table] = {}
        """Each with the structure that it has now, as it lands."""
        self.recorded: dict[TableName, Table] = {}
        """What groups have agreed on."""
        self.dropped: dict[Member, frozenset[str]] = {}
        """Columns that the target keeps, of members that have them no more."""
        self.behind: Owed = {}
        """What was run without members, by an operator's order; also without some that are gone."""

    @property
    def absent(self) -> frozenset[str]:
        """Sources of which is not known what they have."""
        return self.sources - self._known - self._aside

    def begins(self, source: str, landed: Mapping[TableName, Table]) -> bool:
        """These are a source's members now; whether they were only presumed before."""
        self._known.add(source)
        self._aside.discard(source)
        self.members = {member: table for member, table in self.members.items() if member.source != source}
        self.members |= {Member(source, name): table for name, table in landed.items()}
        was_presumed = source in self._presumed
        self._presumed.discard(source)
        return was_presumed

    def presume(self, source: str, landed: Mapping[TableName, Table]) -> bool:
        """What a source had by the record; False where it has said so itself."""
        if source in self._known:
            return False
        self._known.add(source)
        self._presumed.add(source)
        self.members |= {Member(source, name): table for name, table in landed.items()}
        return True

    def stand_aside(self, source: str, *, aside: bool) -> bool:
        """Nobody waits for it, or all do again; whether that is news."""
        if source in self._known or aside == (source in self._aside):
            return False
        (self._aside.add if aside else self._aside.discard)(source)
        return True

    def looks(self) -> int:
        """The number of a look at the target's record: what is read later counts."""
        self._looks += 1
        return self._looks

    def record(self, target: TableName, agreed: Table, look: int, behind: Owed | None = None) -> None:
        """What the target's record says of a group; `behind`: all that its members owe."""
        if look > self._looked.get(target, 0):
            self._looked[target], self.recorded[target] = look, agreed
            if behind is not None:
                others = {member: owed for member, owed in self.behind.items() if owed[0].name != target}
                self.behind = others | {member: owed for member, owed in behind.items() if owed[0].name == target}

    def owes(self, behind: Owed) -> None:
        """What members owe now; what was read before that is old."""
        steps = [step for member, owed in behind.items() for step in owed or self.behind.get(member, ())]
        self._looked |= dict.fromkeys((step.name for step in steps), self.looks())
        self.behind = {member: owed for member, owed in {**self.behind, **behind}.items() if owed}

    def group(self, target: TableName, agreed: Table, arrivals: Mapping[Member, Arrival]) -> Group:
        """What decisions are made about."""
        is_one = self._mode == "pessimistic"
        return Group(
            target=target,
            mode=self._mode,
            agreed=agreed,
            members={one: table for one, table in self.of(target) if not self.is_leaving(one)},
            arrivals=arrivals,
            dropped=self.dropped,
            behind={one: owed for one, owed in self.behind.items() if is_one and owed[0].name == target},
        )

    def is_even(self, target: TableName) -> bool:
        """Whether the group has what each member has: all look alike, and none of them owes anything.

        In optimistic mode the target may also have columns that only rows of one who has left have values in.
        """
        tables = [table for _, table in self.of(target)]
        owes = any(member in self.behind for member, _ in self.of(target))
        recorded = self.recorded.get(target) if self._mode == "optimistic" else None
        more = recorded is not None and bool(names_of(recorded) - names_of(*tables))
        return not (owes or more) and all(same_version(tables[0], other) for other in tables)

    def recall(self, source: str, dropped: Mapping[TableName, Collection[str]]) -> None:
        """What it says of a source that has not begun; of one that has it is no news."""
        if source not in self._known or source in self._presumed:
            self.drops({Member(source, name): names for name, names in dropped.items()})

    def drops(self, dropped: Mapping[Member, Collection[str]]) -> None:
        """Columns that the target keeps, of members that have them no more."""
        self.dropped = {**self.dropped, **{member: frozenset(columns) for member, columns in dropped.items()}}

    def come(self, member: Member, table: Table) -> None:
        """It is a member, with this structure."""
        self.members[member] = table

    def leave(self, member: Member) -> None:
        """It is no member any more. Rows of a table that comes by its name take the place of those that stay."""
        self.members.pop(member, None)
        self.dropped = {one: names for one, names in self.dropped.items() if one != member}

    def kept(
        self, arrival: Arrival, agreed: Table, origins: Mapping[str, str | None], was: Table | None
    ) -> dict[Member, frozenset[str]]:
        """What of `dropped` is another than before, once this one is there and the group has agreed on that.

        `origins` says what columns were called before: under their new names they hold the same values. Where a default
        is another than it `was`, those who lack the column have values of before in it, too.
        """
        there = names_of(agreed)
        names = {old: new for new, old in origins.items() if old is not None and new in there}
        after = {
            member: frozenset(names.get(name, name) for name in self.dropped[member]) & there
            for member, _ in self.of(arrival.after.name)
            if member in self.dropped
        }
        if not arrival.runs:  # its rows come, each in the place of whatever stands there
            after[arrival.member] = frozenset()
        if arrival.runs:
            had = names_of(arrival.before) | self.dropped.get(arrival.member, frozenset())
            after[arrival.member] = had & there - names_of(arrival.after)
        filled = refilled(was, agreed, origins) if was is not None else frozenset[str]()
        for member, table in self.of(arrival.after.name) if filled else ():
            has = names_of(arrival.after if member == arrival.member else table)
            lacked = {name for name in filled - has if origins.get(name) not in has}
            after[member] = after.get(member, self.dropped.get(member, frozenset())) | lacked
        return {member: names for member, names in after.items() if names != self.dropped.get(member, frozenset())}

    def leaves(self, source: str, tables: frozenset[TableName]) -> bool:
        """All of a source that stand before a statement that takes them away; whether that is news."""
        if self._leaving.get(source, frozenset()) == tables:
            return False
        self._leaving[source] = tables
        return True

    def stay(self, source: str, tables: Collection[TableName]) -> None:
        """These do not stand before such a statement any more."""
        self._leaving[source] = self._leaving.get(source, frozenset()) - set(tables)

    def is_leaving(self, member: Member) -> bool:
        """Whether nobody has to wait for it."""
        return member.table in self._leaving.get(member.source, ())

    def of(self, target: TableName) -> Iterator[tuple[Member, Table]]:
        """The members of a group."""
        return ((member, table) for member, table in self.members.items() if table.name == target)

    def shares_schema(self, source: str, schema: str, target_schema: str) -> bool:
        """Whether tables of other schemas, or of other sources, land in a schema of the target."""
        return any(
            table.name.schema == target_schema and (member.source, member.table.schema) != (source, schema)
            for member, table in self.members.items()
        )

    def absent_for(self, target: TableName) -> tuple[str, ...]:
        """Sources that have to begin before it is known what the group has.

        In optimistic mode a change of an earlier process, which is not over yet, may have led it elsewhere.
        """
        absent = set(self.absent)
        if self._mode == "optimistic":
            absent |= {member.source for member, _ in self.of(target)} & self._presumed
        return tuple(sorted(absent))

    def agreed(self, target: TableName) -> Table | None:
        """From what all have; where that differs, from the record, or what has a place for most."""
        tables = [table for _, table in self.of(target)]
        if not tables:
            return None
        if self.is_even(target):
            return tables[0]
        recorded = self.recorded.get(target)
        if recorded is None and self._mode == "optimistic":
            recorded = joined(tables)
        return recorded or max(tables, key=lambda one: sum(fits(other, one) for other in tables))
