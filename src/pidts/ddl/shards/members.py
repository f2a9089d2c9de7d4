"""The members of all groups.

Each source that has begun has registered its members. The members of the other sources are read from the target's
record.

This module takes no lock: `ShardGroups` calls it under its own lock. Other modules read `dropped` and `missed` without
that lock. So this module never changes these two mappings in place: it replaces a mapping as a whole, and each reader
has a consistent mapping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from pidts.model import Arrival, Member, Table, TableName
from pidts.shards.decide import MissedChanges, ShardGroup, ShardMode
from pidts.shards.structures import fits, joined, names_of, refilled, same_version, shared_object


class Members:
    """The members of all groups."""

    def __init__(self, mode: ShardMode, expected: Collection[str]) -> None:
        self._mode = mode
        self.sources = frozenset(expected)
        """All sources of the task."""
        self._known = set[str]()
        self._presumed, self._excluded = set[str](), set[str]()
        self._leaving: dict[str, frozenset[TableName]] = {}
        self._reads, self._last_read = 0, dict[TableName, int]()
        self.members: dict[Member, Table] = {}
        """Each member with its current structure under the target's names."""
        self.recorded: dict[TableName, Table] = {}
        """The structures that groups have agreed on."""
        self.dropped: dict[Member, frozenset[str]] = {}
        """The columns that the target keeps after members have dropped them."""
        self.missed: MissedChanges = {}
        """The changes that members and former members miss because of a ddl command."""

    @property
    def absent(self) -> frozenset[str]:
        """Returns the sources whose tables are not known and that are not excluded."""
        return self.sources - self._known - self._excluded

    def begins(self, source: str, target_table: Mapping[TableName, Table]) -> bool:
        """Sets a source's members. Returns whether the former members of the source came from the target's record."""
        self._known.add(source)
        self._excluded.discard(source)
        self.members = {member: table for member, table in self.members.items() if member.source != source}
        self._add_all(source, target_table)
        was_presumed = source in self._presumed
        self._presumed.discard(source)
        return was_presumed

    def take_recorded(self, source: str, target_table: Mapping[TableName, Table]) -> bool:
        """Adds a source's members from the record. Returns False if the source has registered its members itself."""
        if source in self._known:
            return False
        self._known.add(source)
        self._presumed.add(source)
        self._add_all(source, target_table)
        return True

    def _add_all(self, source: str, target_table: Mapping[TableName, Table]) -> None:
        """Adds members. Equal tables of one group become one object, since comparing an object with itself is quick."""
        counts = self.counts() + Counter(table.name for table in target_table.values())
        self.members |= {
            Member(source, name): shared_object(table) if counts[table.name] > 1 else table
            for name, table in target_table.items()
        }

    def exclude(self, source: str, *, excluded: bool) -> bool:
        """Sets whether the source is excluded: no shard waits for its members. Returns whether this has changed."""
        if source in self._known or excluded == (source in self._excluded):
            return False
        (self._excluded.add if excluded else self._excluded.discard)(source)
        return True

    def next_read(self) -> int:
        """Returns a number for the next reading of the target's record. The reading with the highest number counts."""
        self._reads += 1
        return self._reads

    def take_record(self, target: TableName, agreed: Table, read: int, missed: MissedChanges | None = None) -> None:
        """Stores the target's record of a group. `missed` has all changes that the group's members miss."""
        if read > self._last_read.get(target, 0):
            self._last_read[target], self.recorded[target] = read, agreed
            if missed is not None:
                others = {member: steps for member, steps in self.missed.items() if steps[0].name != target}
                self.missed = others | {member: steps for member, steps in missed.items() if steps[0].name == target}

    def note_missed(self, missed: MissedChanges) -> None:
        """Sets the changes that members miss now. Earlier readings of the record are ignored from now on."""
        targets = {step.name for member, steps in missed.items() for step in steps or self.missed.get(member, ())}
        self._last_read |= dict.fromkeys(targets, self.next_read())
        self.missed = {member: steps for member, steps in {**self.missed, **missed}.items() if steps}

    def group(self, target: TableName, agreed: Table, arrivals: Mapping[Member, Arrival]) -> ShardGroup:
        """Returns the group of a target table, for a decision about a member."""
        is_one, is_leaving = self._mode == "pessimistic", any(self._leaving.values())
        return ShardGroup(
            target=target,
            mode=self._mode,
            agreed=agreed,
            members={one: table for one, table in self.of(target) if not (is_leaving and self.is_leaving(one))},
            arrivals=arrivals,
            dropped=self.dropped,
            missed={one: steps for one, steps in self.missed.items() if is_one and steps[0].name == target},
        )

    def is_uniform(self, target: TableName) -> bool:
        """Whether all members have the group's structure, and none of them misses a change.

        In optimistic mode, the record must also have no further columns: rows of former members may have values there.
        """
        tables = [table for _, table in self.of(target)]
        has_missed = bool(self.missed) and any(member in self.missed for member, _ in self.of(target))
        recorded = self.recorded.get(target) if self._mode == "optimistic" else None
        more = recorded is not None and bool(names_of(recorded) - names_of(*tables))
        return not (has_missed or more) and all(same_version(tables[0], other) for other in tables)

    def recall(self, source: str, dropped: Mapping[TableName, Collection[str]]) -> None:
        """Stores the recorded dropped columns of a source that has not begun. Other sources report them themselves."""
        if source not in self._known or source in self._presumed:
            self.note_dropped({Member(source, name): names for name, names in dropped.items()})

    def note_dropped(self, dropped: Mapping[Member, Collection[str]]) -> None:
        """Notes the columns that the target keeps after members have dropped them."""
        self.dropped = {**self.dropped, **{member: frozenset(columns) for member, columns in dropped.items()}}

    def add(self, member: Member, table: Table) -> None:
        """Makes the table a member with this structure."""
        self.members[member] = shared_object(table)

    def remove(self, member: Member) -> None:
        """Removes the member and the record of its dropped columns.

        The record must not apply to a new table of this name: the rows of the new table replace the member's rows.
        """
        self.members.pop(member, None)
        self.dropped = {one: names for one, names in self.dropped.items() if one != member}

    def dropped_after(
        self, arrival: Arrival, agreed: Table, origins: Mapping[str, str | None], was: Table | None
    ) -> dict[Member, frozenset[str]]:
        """Returns the entries of `dropped` that the arrival's change alters; after it, `agreed` is the structure.

        `origins` has the earlier names of columns that keep their values under new names. `was` is the agreed structure
        before the change. If a column has another default in `was`, the target may have the old or the new default in
        rows of members that lack the column.
        """
        there = names_of(agreed)
        names = {old: new for new, old in origins.items() if old is not None and new in there}
        after = {
            member: frozenset(names.get(name, name) for name in self.dropped[member]) & there
            for member, _ in self.of(arrival.after.name)
            if member in self.dropped
        }
        if not arrival.runs:  # a new table's rows replace the rows that a former table of this name has left
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

    def set_leaving(self, source: str, tables: frozenset[TableName]) -> bool:
        """Sets the tables of a source that wait before a statement which removes them. Returns whether they changed."""
        if self._leaving.get(source, frozenset()) == tables:
            return False
        self._leaving[source] = tables
        return True

    def clear_leaving(self, source: str, tables: Collection[TableName]) -> None:
        """Notes that these tables no longer wait before a statement that removes them."""
        self._leaving[source] = self._leaving.get(source, frozenset()) - set(tables)

    def is_leaving(self, member: Member) -> bool:
        """Whether the member waits before a statement that removes it. Then no shard has to wait for it."""
        return member.table in self._leaving.get(member.source, ())

    def of(self, target: TableName) -> Iterator[tuple[Member, Table]]:
        """Yields the members of a group, each with its structure."""
        seen, is_of_target = None, False
        for member, table in self.members.items():
            if table is not seen:  # many shards may share one structure, whose name is compared only once
                seen, is_of_target = table, table.name == target
            if is_of_target:
                yield member, table

    def counts(self) -> Counter[TableName]:
        """Returns the number of members of each group."""
        return Counter(table.name for table in self.members.values())

    def shares_schema(self, source: str, schema: str, target_schema: str) -> bool:
        """Whether a table of another source, or of a schema other than `schema`, maps to `target_schema`."""
        return any(
            table.name.schema == target_schema and (member.source, member.table.schema) != (source, schema)
            for member, table in self.members.items()
        )

    def absent_for(self, targets: Collection[TableName] | None) -> tuple[str, ...]:
        """Returns the sources that must begin before all shards of these target tables (None: of all) are known.

        In optimistic mode, the result for given `targets` also has sources whose shards are known from the record, but
        which have not begun. An unfinished change of an earlier process may have changed the group's structure.
        """
        if targets is None:
            return tuple(sorted(self.absent))
        absent = set(self.absent) if targets else set[str]()
        if self._mode == "optimistic":
            absent |= {member.source for target in targets for member, _ in self.of(target)} & self._presumed
        return tuple(sorted(absent))

    def agreed(self, target: TableName) -> Table | None:
        """Returns the structure that the group has agreed on; None if there are no members.

        This is the members' structure if all members have the same structure and miss no change (`is_uniform`), and the
        recorded structure if not. Without a record, it is the structure that fits most members; in optimistic mode, a
        structure with the columns of all members.
        """
        tables = [table for _, table in self.of(target)]
        if not tables:
            return None
        if self.is_uniform(target):
            return tables[0]
        recorded = self.recorded.get(target)
        if recorded is None and self._mode == "optimistic":
            recorded = joined(tables)
        return recorded or max(tables, key=lambda one: sum(fits(other, one) for other in tables))
