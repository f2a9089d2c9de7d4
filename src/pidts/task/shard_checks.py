"""What is looked at of tables that become one, over all sources of a task: structures, and who counts their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from pidts.apply import TargetSession
from pidts.apply.unlike import unlike_words
from pidts.model import PidtsError, Table, TableName
from pidts.plan.shard_versions import joined, same_version
from pidts.source.connection import Session, connect, query
from pidts.source.finding import Finding
from pidts.source.structures import quoted, quoted_table, read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.shard_apart import ALIKE, standing_apart
from pidts.task.shards import Shard, shards_beside, with_keys

APART = (
    "Have the route extract what tells the tables apart (extract-table, extract-schema, and extract-source where two "
    "sources have the same names) and put it into the target's key, or make the numbers differ (column-mappings: "
    "partition id); where rows never meet, pass this check over with "
    "ignore-checking-items: [auto_increment_ID]"
)


_SHOWN = 4
"""So many of the tables that become one are named."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The numbers that a table gives its rows."""

    shard: Shard
    source: str
    first: int
    last: int
    """The next one that it will give, where that is known."""

    def meets(self, other: Counted) -> bool:
        """Whether one that comes may give a number that the other has given, or will; of old ones somebody knows."""
        is_news = not (self.shard.begun and other.shard.begun)
        is_apart = self.shard.apart != other.shard.apart
        return is_news and not is_apart and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{self.shard} ({self.first} to {self.last})"


def shard_findings(parts: Sequence[TaskConfig]) -> list[Finding]:
    """Of all tables that become one; nothing where none do, or where a server cannot be asked."""
    if len(parts) == 1 and not parts[0].rules.routes.rules:
        return []
    try:
        groups = _groups(parts)
    except PidtsError:  # told where each server is looked at
        return []
    return [finding for group in groups for finding in group.findings()]


@dataclass(frozen=True, slots=True)
class _Group:
    """The tables that become one."""

    lands: TableName
    members: Sequence[Shard]
    counted: Sequence[Counted]
    mode: str
    resumed: frozenset[str]
    """Sources of them that have begun."""
    apart: str = ""
    """What it means for those that have begun that they differ."""

    def findings(self) -> Iterator[Finding]:
        found = unlike(self.members, self.mode)
        names = ", ".join(map(str, self.members[:_SHOWN]))
        if len(self.members) > _SHOWN:
            names = f"{names} and {len(self.members) - _SHOWN} more"
        yield Finding(
            "schema_of_shard_tables",
            ok=bool(self.resumed) or not found,
            message="; ".join(filter(None, (found, self.apart))) or f"{names} become {self.lands}, and are alike",
            fix=ALIKE if self.apart else differ_fix(self.mode) if found and not self.resumed else "",
            code="shards-differ",
        )
        meeting = [(one, other) for one, other in combinations(self.counted, 2) if one.meets(other)]
        # What comes by the log of a source that goes on is no reason not to go on with all else of it.
        comes = [pair for pair in meeting if {one.source for one in pair} <= self.resumed]
        refused = [pair for pair in meeting if pair not in comes]
        if refused:
            yield Finding("auto_increment_ID", ok=False, message=_meeting(self.lands, refused), fix=APART)
        elif comes:
            message = f"{_meeting(self.lands, comes)}; what comes will halt (shard-keys-meet)"
            yield Finding("auto_increment_ID", ok=True, message=message)


def counts_apart(config: TaskConfig) -> bool:
    """Whether whoever wrote the task file says that numbers never meet."""
    return not {"auto_increment_ID", "all"}.isdisjoint(config.ignored_checks)


def meeting(
    config: TaskConfig,
    target: TargetSession,
    beside: Sequence[TaskConfig],
    new: Collection[Table],
    known: Collection[Table],
) -> str:
    """Which of the tables that join would have their rows in the place of others' rows; empty where none would."""
    if counts_apart(config) or not new:
        return ""
    source = config.source.source_id
    own = [Shard(table, config.rules, source) for table in new]
    own += [Shard(table, config.rules, source, begun=True) for table in known]
    others = shards_beside(target, beside, config.rules, [table.name for table in new], asks=False)
    _, members = with_keys(target, config.rules, new, [*own, *others])
    groups: dict[TableName, list[Shard]] = {}
    for one in members:
        if one.lands is not None:
            groups.setdefault(one.lands, []).append(one)
    news = {lands: group for lands, group in groups.items() if len(group) > 1 and not all(one.begun for one in group)}
    for lands, counted in _ranges([config, *beside], news).items():
        if found := [(one, other) for one, other in combinations(counted, 2) if one.meets(other)]:
            return _meeting(lands, found)
    return ""


def _meeting(lands: TableName, pairs: Sequence[tuple[Counted, Counted]]) -> str:
    shown = "; ".join(f"{one} and {other}" for one, other in pairs[:3])
    return f"rows of equal number would be one row of {lands}: {shown}"


def unlike(members: Sequence[Shard], mode: str) -> str:
    """Why these tables cannot become one now; empty where they can."""
    first, *others = members
    for other in others:
        one, two = first.landed, other.landed
        if same_version(one, two) or (mode == "optimistic" and joined([member.landed for member in members])):
            continue
        return f"{first} and {other} become {first.lands} and differ in {unlike_words(one, two)}"
    return ""


def differ_fix(mode: str) -> str:
    """What can be done about it."""
    if mode == "optimistic":
        return "Make the tables alike, or write routes that keep them apart"
    return (
        "Finish the change on all of them first, or take shard-mode: optimistic, or write routes that keep them apart"
    )


def _groups(parts: Sequence[TaskConfig]) -> list[_Group]:
    with closing(target_of(parts[0]).connect()) as target:
        sources = [part.source.source_id for part in parts]
        resumed = frozenset(source for source in sources if target.checkpoints(parts[0].name, source))
        shards = []
        for part in parts:
            with closing(connect(source_config(part))) as source:
                tables = read_structures(source, part.allow)
            has_begun = part.source.source_id in resumed
            known = target.load_structures(part.name, part.source.source_id) if has_begun else {}
            own = partial(Shard, rules=part.rules, source=part.source.source_id)
            shards += [own(table, begun=name in known) for name, table in tables.items()]
        by_landing: dict[TableName, list[Shard]] = {}
        for shard in shards:
            if shard.lands is not None:
                by_landing.setdefault(shard.lands, []).append(shard)
        groups = {lands: members for lands, members in by_landing.items() if len(members) > 1}
        for lands, members in groups.items():
            rules, _ = with_keys(target, members[0].rules, [members[0].table], members[1:])
            groups[lands] = [replace(one, rules=replace(one.rules, keyed=rules.keyed)) for one in members]
        may_differ = parts[0].shard_mode == "optimistic" or not resumed
        differ = [] if may_differ else [lands for lands, members in groups.items() if unlike(members, "")]
        apart = {name: standing_apart(target, parts[0].name, groups[name], resumed) for name in differ}
    ranges = _ranges(parts, {name: group for name, group in groups.items() if not all(one.begun for one in group)})
    return [
        _Group(
            lands,
            [one if len(parts) > 1 else replace(one, source="") for one in members],
            ranges.get(lands, []),
            parts[0].shard_mode,
            resumed & {one.source for one in members},
            apart.get(lands, ""),
        )
        for lands, members in sorted(groups.items())
    ]


def _ranges(parts: Sequence[TaskConfig], groups: Mapping[TableName, Sequence[Shard]]) -> dict[TableName, list[Counted]]:
    """Of tables that count their rows each for itself, and whose numbers arrive as they are."""
    found: dict[TableName, list[Counted]] = {}
    alike = Counter((lands, one.apart) for lands, members in groups.items() for one in members)
    for part in parts:
        own = [
            (lands, one, column)
            for lands, members in groups.items()
            for one in members
            if one.source == part.source.source_id and alike[lands, one.apart] > 1
            if (column := _counter(one)) is not None
        ]
        if own:
            with closing(connect(source_config(part))) as source:
                for lands, one, column in own:
                    first, last = _range(source, one.table, column)
                    shown = one if len(parts) > 1 else replace(one, source="")
                    found.setdefault(lands, []).append(Counted(shown, one.source, first, last))
    return found


def _counter(shard: Shard) -> str | None:
    """The column that counts, if rows of equal number would meet."""
    table = shard.table
    if shard.rules.maps_key(table):
        return None
    return next((name for name in table.identity if table.column(name).auto_increment), None)


def _range(source: Session, table: Table, column: str) -> tuple[int, int]:
    name = quoted(column)
    ((low, high),) = query(source, f"SELECT MIN({name}), MAX({name}) FROM {quoted_table(table.name)}")
    rows = query(
        source,
        "SELECT AUTO_INCREMENT FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        [table.name.schema, table.name.name],
    )
    following = int(rows[0][0]) if rows and rows[0][0] is not None else 1
    return (following if low is None else min(int(low), following)), max(int(high or 0), following)
