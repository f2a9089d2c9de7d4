"""Global transaction ids and sets of them, in MySQL's and in MariaDB's form.

MySQL numbers transactions per server UUID (and tag, since 8.3). A set is a list of intervals, and may have gaps.
MariaDB numbers them per replication domain, in the order of its log. A set has one position per domain, and includes
everything up to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Interval = tuple[int, int]
"""The first and the last number, both included."""

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_MARIADB = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)", re.ASCII)
_LAST_NUMBER = 2**63 - 2


@dataclass(frozen=True, slots=True, order=True)
class MySqlGtid:
    """One transaction of a MySQL server, e.g. `3e11fa47-71ca-11e1-9e33-c80aa9429562:7`, or with a tag `uuid:tag:7`."""

    uuid: str
    tag: str
    number: int

    def __post_init__(self) -> None:
        if not _UUID.fullmatch(self.uuid) or (self.tag and not _TAG.fullmatch(self.tag)):
            raise ValueError(f"not a MySQL GTID: {self.uuid!r} {self.tag!r} (expected lower case uuid and tag)")
        if not 0 < self.number <= _LAST_NUMBER:
            raise ValueError(f"GTID number out of range: {self.number}")

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag}:{self.number}" if self.tag else f"{self.uuid}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> MySqlGtid:
        """Parses the text that `str` returns; case and spaces do not matter."""
        uuid, *rest = (part.strip() for part in text.lower().split(":"))
        if len(rest) not in {1, 2} or not (rest[-1].isascii() and rest[-1].isdigit()):
            raise ValueError(f"not a MySQL GTID: {text!r} (expected uuid:number or uuid:tag:number)")
        return cls(uuid, rest[0] if len(rest) == 2 else "", int(rest[-1]))


@dataclass(frozen=True, slots=True, order=True)
class MariaDbGtid:
    """The GTID of one event group of a MariaDB server, e.g. `0-101-42`."""

    domain: int
    server: int
    sequence: int

    def __post_init__(self) -> None:
        if not (0 <= self.domain < 2**32 and 0 <= self.server < 2**32 and 0 <= self.sequence < 2**64):
            raise ValueError(f"GTID out of range: {self.domain}-{self.server}-{self.sequence}")

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> MariaDbGtid:
        """Parses the text that `str` returns."""
        if not (match := _MARIADB.fullmatch(text.strip())):
            raise ValueError(f"not a MariaDB GTID: {text!r} (expected domain-server-sequence)")
        return cls(*map(int, match.groups()))


@dataclass(frozen=True, slots=True)
class MySqlGtidSet:
    """Intervals per (uuid, tag): sorted, disjoint and not adjacent, so that equal sets are equal values."""

    members: tuple[tuple[tuple[str, str], tuple[Interval, ...]], ...] = ()

    @classmethod
    def of(cls, intervals: Mapping[tuple[str, str], Iterable[Interval]]) -> MySqlGtidSet:
        """Builds a set from intervals in any order, which may overlap."""
        merged = {source: _merge(pieces) for source, pieces in intervals.items()}
        return cls(tuple(sorted((source, pieces) for source, pieces in merged.items() if pieces)))

    @classmethod
    def parse(cls, text: str) -> MySqlGtidSet:
        """Parses `uuid:1-3:5:tag:1-2,other-uuid:7`; spaces and line ends are ignored; empty text is the empty set."""
        found: dict[tuple[str, str], list[Interval]] = {}
        for entry in "".join(text.lower().split()).split(","):
            if not entry:
                continue
            uuid, *rest = entry.split(":")
            if not _UUID.fullmatch(uuid) or not rest:
                raise ValueError(f"not a MySQL GTID set: {text!r} (at {entry!r})")
            tag = ""
            for part in rest:
                if match := _INTERVAL.fullmatch(part):
                    found.setdefault((uuid, tag), []).append(_interval(match, text))
                elif _TAG.fullmatch(part):
                    tag = part
                else:
                    raise ValueError(f"not a MySQL GTID set: {text!r} (at {part!r})")
        return cls.of(found)

    def __str__(self) -> str:
        """Returns the set in the server's form, on one line: uuids sorted, the untagged intervals first."""
        entries: dict[str, list[str]] = {}
        for (uuid, tag), intervals in self.members:
            parts = entries.setdefault(uuid, [uuid])
            if tag:
                parts.append(tag)
            parts += [f"{first}-{last}" if last > first else str(first) for first, last in intervals]
        return ",".join(":".join(parts) for parts in entries.values())

    def __bool__(self) -> bool:
        return bool(self.members)

    def contains(self, gtid: Gtid) -> bool:
        """Whether the transaction is in the set."""
        if not isinstance(gtid, MySqlGtid):
            return False
        return any(first <= gtid.number <= last for first, last in self._of((gtid.uuid, gtid.tag)))

    def add(self, gtid: Gtid) -> MySqlGtidSet:
        """Returns the set with one more transaction."""
        if not isinstance(gtid, MySqlGtid):
            raise TypeError(f"{gtid} is not a MySQL GTID")
        return self.union(MySqlGtidSet((((gtid.uuid, gtid.tag), ((gtid.number, gtid.number),)),)))

    def union(self, other: MySqlGtidSet) -> MySqlGtidSet:
        """Returns the transactions that are in at least one of the sets."""
        found = {source: list(intervals) for source, intervals in self.members}
        for source, intervals in other.members:
            found.setdefault(source, []).extend(intervals)
        return MySqlGtidSet.of(found)

    def subtract(self, other: MySqlGtidSet) -> MySqlGtidSet:
        """Returns the transactions of this set that are not in the other set."""
        return MySqlGtidSet.of({source: _minus(intervals, other._of(source)) for source, intervals in self.members})

    def issubset(self, other: MySqlGtidSet) -> bool:
        """Whether the other set includes everything in this one."""
        return not self.subtract(other)

    def _of(self, source: tuple[str, str]) -> tuple[Interval, ...]:
        for member, intervals in self.members:
            if member == source:
                return intervals
        return ()


@dataclass(frozen=True, slots=True)
class MariaDbGtidSet:
    """The last event group of each domain, sorted by domain. The set includes everything up to these event groups."""

    positions: tuple[MariaDbGtid, ...] = ()

    @classmethod
    def of(cls, gtids: Iterable[MariaDbGtid]) -> MariaDbGtidSet:
        """Returns the set with the last GTID of each domain.

        The last GTID has the largest sequence number; among equal numbers, the largest server id.
        """
        furthest: dict[int, MariaDbGtid] = {}
        for gtid in gtids:
            known = furthest.get(gtid.domain)
            if known is None or (gtid.sequence, gtid.server) > (known.sequence, known.server):
                furthest[gtid.domain] = gtid
        return cls(tuple(sorted(furthest.values())))

    @classmethod
    def parse(cls, text: str) -> MariaDbGtidSet:
        """Parses `0-1-5,1-2-3`; spaces are ignored; an empty text is the empty set."""
        return cls.of(MariaDbGtid.parse(part) for part in "".join(text.split()).split(",") if part)

    def __str__(self) -> str:
        return ",".join(map(str, self.positions))

    def __bool__(self) -> bool:
        return bool(self.positions)

    def contains(self, gtid: Gtid) -> bool:
        """Whether the event group is at or before its domain's position."""
        if not isinstance(gtid, MariaDbGtid):
            return False
        return any(at.domain == gtid.domain and gtid.sequence <= at.sequence for at in self.positions)

    def add(self, gtid: Gtid) -> MariaDbGtidSet:
        """Returns the set with this event group; the same set if it already includes the group."""
        if not isinstance(gtid, MariaDbGtid):
            raise TypeError(f"{gtid} is not a MariaDB GTID")
        return self if self.contains(gtid) else MariaDbGtidSet.of((*self.positions, gtid))

    def union(self, other: MariaDbGtidSet) -> MariaDbGtidSet:
        """Returns a set with the later of both positions of each domain."""
        return MariaDbGtidSet.of((*self.positions, *other.positions))

    def issubset(self, other: MariaDbGtidSet) -> bool:
        """Whether the other set includes everything in this one."""
        return all(other.contains(at) for at in self.positions)


Gtid = MySqlGtid | MariaDbGtid
GtidSet = MySqlGtidSet | MariaDbGtidSet


def parse_gtid(text: str) -> Gtid:
    """Parses a GTID of either form; only MySQL's has a colon."""
    return MySqlGtid.parse(text) if ":" in text else MariaDbGtid.parse(text)


def parse_gtid_set(text: str, mariadb: bool | None = None) -> GtidSet:  # noqa: FBT001 - a plain second argument
    """Parses a set of either form. If the server is unknown, an empty text means MySQL's empty set."""
    if mariadb is None:
        mariadb = bool(text.strip()) and ":" not in text
    return MariaDbGtidSet.parse(text) if mariadb else MySqlGtidSet.parse(text)


_last: tuple[str, GtidSet] = "", MySqlGtidSet()
"""The last result of `with_gtids`, as a text and as a set."""


def with_gtids(gtid_set: str, gtids: tuple[str, ...]) -> str:
    """Returns the text of a set with additional GTIDs."""
    global _last  # noqa: PLW0603 - the next batch begins with the text with which the last batch has ended
    if not gtids:
        return gtid_set
    mariadb = ":" not in gtids[0]
    text, known = _last
    if text != gtid_set or isinstance(known, MariaDbGtidSet) is not mariadb:
        known = parse_gtid_set(gtid_set, mariadb)
    more = parse_gtid_set(",".join(gtids), mariadb)
    if isinstance(known, MariaDbGtidSet):
        known = known.union(more) if isinstance(more, MariaDbGtidSet) else known
    elif isinstance(more, MySqlGtidSet):
        known = known.union(more)
    _last = (found := str(known)), known
    return found


def _interval(match: re.Match[str], text: str) -> Interval:
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if not 0 < first <= last <= _LAST_NUMBER:
        raise ValueError(f"not a MySQL GTID set: {text!r} (interval {match[0]!r})")
    return first, last


def _merge(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _minus(intervals: Iterable[Interval], holes: tuple[Interval, ...]) -> list[Interval]:
    left: list[Interval] = []
    for start, last in intervals:
        first = start
        for hole_first, hole_last in holes:
            if hole_last < first or hole_first > last:
                continue
            if hole_first > first:
                left.append((first, hole_first - 1))
            first = hole_last + 1
        if first <= last:
            left.append((first, last))
    return left
