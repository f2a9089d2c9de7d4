"""Tables of the target, each with the rows of one or more source tables: its members.

Every server orders some keys, such as numbers, in the same way (`pidts.verify.keys`). With such keys, the members are
compared together: a span contains the rows of all members between two keys, and its checksum is the sum of the members'
checksums. So the servers send no rows that are equal, however many members there are.

Each server orders keys of other types in its own way. Then one member is compared after the other, and each key is
preceded by the member's number. No span of the target has the same rows as a member's span, so all rows are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from typing import Any

import pyarrow as pa

from pidts.model import Halted, Table, TableName, Where
from pidts.verify.compared_servers import (
    ComparedServer,
    EstimatedSize,
    Key,
    KeySpan,
    LogPlaces,
    NotCaughtUp,
    SourceCatchUp,
    Sum,
)
from pidts.verify.keys import is_ordered, rank
from pidts.verify.row_members import RowMembers

_FEWEST = 10
"""The fewest rows of a member that are read at a time, even if there are many members."""
_TIMES = 4
"""All members together may have this number of times as many rows in memory as a single table. With fewer rows, each
member would need more queries.
"""


@dataclass(frozen=True, slots=True)
class MergedTable:
    """A table of the target, and the source tables of its rows."""

    table: Table
    """The table with the compared columns: the columns that all members have."""
    cut: Table
    """The table with the key by which the members' rows are ordered; the target's key may be longer."""
    members: tuple[ComparedServer, ...]
    problem: str = ""
    """The reason why the table's rows cannot be compared."""
    most: Table | None = None
    """The table that also has the columns that only some members have; None if there are no such columns."""
    note: str = ""
    """A text that names the columns that are not compared."""

    @property
    def is_side_by_side(self) -> bool:
        """Whether every server orders the members' keys in the same way. Then the members are compared together."""
        return len(self.members) == 1 or is_ordered(self.cut)

    @property
    def catch_ups(self) -> tuple[SourceCatchUp, ...]:
        """Returns one `SourceCatchUp` for each source that has a member."""
        return tuple({id(member.catch_up): member.catch_up for member in self.members}.values())


MergedTables = Mapping[TableName, MergedTable]


class MergedSource:
    """The source tables of all merged tables, as one side of a comparison."""

    def __init__(self, read: Callable[[], MergedTables], members_now: Callable[[TableName], frozenset[str]]) -> None:
        self._read, self._members_now = read, members_now
        self.merged_tables: MergedTables = {}

    def tables(self) -> Sequence[Table]:
        """Returns the tables in the order of their names."""
        self.merged_tables = self._read()
        return [self.merged_tables[name].table for name in sorted(self.merged_tables)]

    def structure(self, name: TableName) -> Table | None:
        """Reads which members the table has now, and returns its structure; None if there is no such table."""
        self.merged_tables = self._read()
        merged = self.merged_tables.get(name)
        return None if merged is None else merged.table

    def signature(self, table: Table) -> str:
        """Returns a description of the compared columns and of the members in their order."""
        return json.dumps([table.to_json(), self.members(table)], sort_keys=True)

    def members(self, table: Table) -> Sequence[str]:
        """Returns the members' labels."""
        return [member.label for member in self._members(table)]

    def row_members(self, table: Table) -> RowMembers:
        """Returns the rule that finds the member to which a row belongs, by the row's extracted columns."""
        return RowMembers.of([member.extracted for member in self._members(table)])

    def confirm(self, table: Table) -> None:
        """Raises if a member has joined the table; it reads only the names of the sources' tables."""
        came = self._members_now(table.name) - set(self.members(table))
        if came:
            what = f"{', '.join(sorted(came))} joined this merged table while it was compared"
            raise Halted("structure-changed", what, where=Where(table=str(table.name)), todo="Run the command again")

    def size(self, table: Table) -> EstimatedSize:
        """Returns the number of rows of all members together, and the row size of the member with the largest rows."""
        sizes = [member.size() for member in self._members(table)]
        return EstimatedSize(sum(one.rows for one in sizes), max(one.row_bytes for one in sizes))

    def highest(self, table: Table) -> Key | None:
        """Returns the highest key of all members; None if they have no rows."""
        merged = self._merged(table)
        found = [(number, key) for number, member in enumerate(merged.members) if (key := member.highest()) is not None]
        if not found:
            return None
        if merged.is_side_by_side:
            return max((key for _, key in found), key=self._ranked(merged)) if len(found) > 1 else found[0][1]
        number, key = found[-1]
        return [number, *key]

    def spans(self, table: Table, span: KeySpan, rows: int, *, read: bool) -> Iterator[KeySpan]:
        """Yields spans, each of which ends where some member's span ends. See `SourceSide.spans`."""
        merged = self._merged(table)
        if len(merged.members) == 1:
            yield from merged.members[0].spans(span, rows)
        elif merged.is_side_by_side:
            yield from self._beside(merged, span, self._share(merged, span, rows) if read else rows)
        else:
            yield from self._in_turn(merged, span, rows)

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns a span's checksum; None if members are compared one by one, so that a span has only one of them."""
        merged = self._merged(table)
        if not merged.is_side_by_side:
            return None
        total = Sum(0, 0)
        for member in merged.members:
            found = member.sum(span)
            if found is None:
                return None
            total = Sum(total.rows + found.rows, total.digest + found.digest)
        return total

    def rows(self, table: Table, span: KeySpan) -> pa.Table:
        """Returns the rows of all members, or of the one member that the span belongs to."""
        merged = self._merged(table)
        if merged.is_side_by_side:
            return pa.concat_tables([_shaped(table, member.rows(span)) for member in merged.members])
        number, inner = _untagged(span)
        return _shaped(table, merged.members[number].rows(inner))

    def find(self, table: Table, keys: pa.Table, member: int) -> pa.Table:
        """Returns the rows with these keys from one member."""
        return _shaped(table, self._members(table)[member].find(keys))

    def count(self, table: Table) -> int:
        """Counts the rows of all members."""
        return sum(member.count() for member in self._members(table))

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields the rows of one member after the other."""
        return chain.from_iterable(member.all() for member in self._members(table))

    def _merged(self, table: Table) -> MergedTable:
        return self.merged_tables[table.name]

    def _members(self, table: Table) -> tuple[ComparedServer, ...]:
        return self._merged(table).members

    @staticmethod
    def _ranked(merged: MergedTable) -> Callable[[Key], tuple[Any, ...]]:
        return lambda key: rank(merged.cut, key)

    def _beside(self, merged: MergedTable, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        ranked = self._ranked(merged)
        ends = (self._ends(member, span, rows) for member in merged.members)
        after, last = span.after, None if span.after is None else ranked(span.after)
        for end in merge(*ends, key=ranked):
            if last is None or ranked(end) > last:
                yield KeySpan(after, end)
                after, last = end, ranked(end)

    @staticmethod
    def _ends(member: ComparedServer, span: KeySpan, rows: int) -> Iterator[Key]:
        return (one.upto for one in member.spans(span, rows) if one.upto is not None)

    def _share(self, merged: MergedTable, span: KeySpan, rows: int) -> int:
        """Returns how many rows to read of each member: at most `rows`, and at least `_FEWEST`.

        All members that have rows in the span together get about `_TIMES` times `rows`.
        """
        upto = list(span.upto or ())
        busy = 0
        for member in merged.members:
            first = next(member.spans(span, 1), None)
            busy += first is not None and list(first.upto or ()) != upto
        return min(rows, max(_FEWEST, _TIMES * rows // max(busy, 1)))

    def _in_turn(self, merged: MergedTable, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        end = span.upto or [0]
        begin = int(span.after[0]) if span.after else 0
        after = span.after
        for number in range(begin, int(end[0]) + 1):
            member = merged.members[number]
            upto = end[1:] if number == end[0] else member.highest()
            start = span.after[1:] if span.after and number == begin else None
            if upto is None or (start is not None and list(start) == list(upto)):
                continue
            for one in member.spans(KeySpan(start, upto), rows):
                reached = [number, *(one.upto or ())]
                yield KeySpan(after, reached)
                after = reached


def _untagged(span: KeySpan) -> tuple[int, KeySpan]:
    """Returns the number of the span's member, and the span without this number."""
    if span.upto is None:
        raise ValueError(span)
    number = int(span.upto[0])
    after = span.after[1:] if span.after and span.after[0] == number else None
    return number, KeySpan(after, span.upto[1:])


def _shaped(table: Table, rows: pa.Table) -> pa.Table:
    """Returns rows in the table's form. Members may have narrower types, and their columns in another order."""
    return rows.select(table.arrow.names).cast(table.arrow)


class MergedCatchUp:
    """Waits until the target has the log of all members of a table."""

    def __init__(self, merged_tables: Callable[[], MergedTables]) -> None:
        self._merged_tables = merged_tables

    def settled(self, table: TableName) -> LogPlaces:
        """Returns a place in each source's log: rows that are read from now on contain all changes before it."""
        return tuple(catch_up.settled() for catch_up in self._merged_tables()[table].catch_ups)

    def place(self, table: TableName) -> LogPlaces:
        """Returns the end of each source's log."""
        return tuple(catch_up.place() for catch_up in self._merged_tables()[table].catch_ups)

    def await_target(self, table: TableName, places: LogPlaces) -> dict[int, NotCaughtUp]:
        """Waits for one member after the other; returns the members whose log has not arrived, with the reasons.

        During each wait, the target also gets changes of the other members, so later waits are shorter.
        """
        merged = self._merged_tables()[table]
        wanted = dict(zip(map(id, merged.catch_ups), places, strict=True))
        found = {
            number: member.catch_up.await_target(member.name, wanted[id(member.catch_up)])
            for number, member in enumerate(merged.members)
        }
        return {number: state for number, state in found.items() if state is not None}

    def untouched(self, table: TableName, after: LogPlaces, upto: LogPlaces) -> bool:
        """Whether the logs from `after` to `upto` are known to have no change of any member."""
        merged = self._merged_tables()[table]
        between = dict(zip(map(id, merged.catch_ups), zip(after, upto, strict=True), strict=True))
        return all(member.catch_up.untouched(member.name, *between[id(member.catch_up)]) for member in merged.members)
