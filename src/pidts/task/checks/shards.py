"""Checks merged tables over all sources of a task: their structures, and whether their key numbers overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from pidts.apply import TargetSession
from pidts.apply.apply_rules import is_guarded
from pidts.apply.merge.differences import differences_text
from pidts.ddl.shards.record import load_missed
from pidts.model import Member, MergedTablesKey, OnDivergence, PidtsError, SourceTablesKey, Table, TableName
from pidts.model.errors import listed
from pidts.shards.structures import joined, same_version
from pidts.source.connection import Session, connect, query
from pidts.source.finding import Finding, is_ignored
from pidts.source.structures import quoted, quoted_table, read_structures
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.merged import Shard, shards_of_other_sources, with_extracted_keys

SEPARATE_KEYS = (
    "Have the route extract the table's name into a column of the target's key (extract-table, extract-schema, and "
    "extract-source if two sources have the same names). Or make the numbers differ (column-mappings: partition id). "
    "If the tables never use the same numbers, skip this check with ignore-checking-items: [auto_increment_ID]"
)


LOCK_NO_MERGED = (
    "Set on-divergence to overwrite, warn or halt: rows of merged tables are then not compared. Or carry the merged "
    "tables in a task of their own"
)


def locks_rows(config: TaskConfig, shards: Iterable[Shard]) -> bool:
    """Whether the task locks rows of these shards. No rows are locked if versions decide in all of these shards."""
    is_locking = config.on_divergence is OnDivergence.LOCK
    return is_locking and not all(is_guarded(one.target_table, config.version_column) for one in shards)


_SHOWN = 4
"""The largest number of shards that a message names."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The range of a table's auto-increment numbers."""

    shard: Shard
    source: str
    first: int
    last: int
    """The number that the table's next row gets, if it is known; otherwise the highest number in the table."""

    def overlaps(self, other: KeyRange) -> bool:
        """Whether the ranges overlap: then rows with equal numbers would be one row on the target.

        The check is for tables that join the task. So two tables that the task already carries do not count.
        """
        is_news = not (self.shard.begun and other.shard.begun)
        is_apart = self.shard.discriminators != other.shard.discriminators
        return is_news and not is_apart and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{self.shard} ({self.first} to {self.last})"


def shard_findings(parts: Sequence[TaskConfig]) -> list[Finding]:
    """Returns findings about all merged tables; none if no table is merged, or if a server does not answer."""
    if len(parts) == 1 and not parts[0].rules.routes.rules:
        return []
    try:
        groups = _groups(parts)
    except PidtsError:  # the checks of the servers report this error
        return []
    return [finding for group in groups for finding in group.findings()]


@dataclass(frozen=True, slots=True)
class _Group:
    target_name: TableName
    members: Sequence[Shard]
    counted: Sequence[KeyRange]
    mode: str
    resumed: frozenset[str]
    """The sources of these shards with which the task has begun."""
    diverged: str
    """A message about shards that the task already carries and that differ from their merged table."""
    locks_rows: bool
    """Whether the task locks rows that differ. Rows of merged tables cannot be locked."""
    merges_now: bool
    """Whether a run would merge several shards at its start. Otherwise all but one of them join later, when the task
    reads in the log that they are created.
    """

    def findings(self) -> Iterator[Finding]:
        found = structure_conflict(self.members, self.mode)
        names = listed(self.members, _SHOWN)
        yield Finding(
            "schema_of_shard_tables",
            ok=bool(self.resumed) or not found,
            message="; ".join(filter(None, (found, self.diverged)))
            or f"{names} are merged into {self.target_name}, and have the same structure",
            fix=ALIKE if self.diverged else differ_fix(self.mode) if found and not self.resumed else "",
            code="shards-differ",
        )
        if self.locks_rows:
            outlook = "" if self.merges_now else "; the joining table will halt (merged-not-locked)"
            yield Finding(
                "row_locks",
                ok=not self.merges_now,
                message=unlockable_text(self.target_name, names) + outlook,
                fix=LOCK_NO_MERGED if self.merges_now else "",
                code="merged-not-locked",
            )
        overlaps = [(one, other) for one, other in combinations(self.counted, 2) if one.overlaps(other)]
        # A source of a running task may create a table that joins, with keys that overlap. Such a table must not
        # prevent the next start, which would stop all other tables.
        joining = [pair for pair in overlaps if {one.source for one in pair} <= self.resumed]
        refused = [pair for pair in overlaps if pair not in joining]
        if refused:
            yield Finding(
                "auto_increment_ID", ok=False, message=_overlap_text(self.target_name, refused), fix=SEPARATE_KEYS
            )
        elif joining:
            message = f"{_overlap_text(self.target_name, joining)}; the joining table will halt (shard-keys-meet)"
            yield Finding("auto_increment_ID", ok=True, message=message)


def unlockable_text(target_name: TableName, members: str) -> str:
    """Returns a message about a merged table of a task that locks rows."""
    return (
        f"{members} are merged into {target_name}: rows of merged tables cannot be locked (on-divergence: lock), so "
        "rows that other programs have changed would be overwritten"
    )


def ignores_key_overlap(config: TaskConfig) -> bool:
    """Whether the task file states that the tables never use the same numbers."""
    return is_ignored("auto_increment_ID", config.ignored_checks)


def overlapping_keys(
    config: TaskConfig,
    target: TargetSession,
    other_parts: Sequence[TaskConfig],
    new: Collection[Table],
    known: Collection[Table],
) -> str:
    """Returns a message about joining tables whose rows would overwrite rows of other shards; empty if none would."""
    if ignores_key_overlap(config) or not new:
        return ""
    source = config.source.source_id
    own = [Shard(table, config.rules, source) for table in new]
    own += [Shard(table, config.rules, source, begun=True) for table in known]
    others = shards_of_other_sources(target, other_parts, config.rules, [table.name for table in new], asks=False)
    _, members = with_extracted_keys(target, config.rules, new, [*own, *others])
    groups: dict[TableName, list[Shard]] = {}
    for one in members:
        if one.target_name is not None:
            groups.setdefault(one.target_name, []).append(one)
    news = {
        target_name: group
        for target_name, group in groups.items()
        if len(group) > 1 and not all(one.begun for one in group)
    }
    for target_name, counted in _ranges([config, *other_parts], news).items():
        if found := [(one, other) for one, other in combinations(counted, 2) if one.overlaps(other)]:
            return _overlap_text(target_name, found)
    return ""


def _overlap_text(target_name: TableName, pairs: Sequence[tuple[KeyRange, KeyRange]]) -> str:
    shown = "; ".join(f"{one} and {other}" for one, other in pairs[:3])
    return f"the numbers of these tables overlap, so their rows would overwrite each other in {target_name}: {shown}"


def structure_conflict(members: Sequence[Shard], mode: str) -> str:
    """Returns the reason why the structures of these tables cannot be merged now; empty if they can."""
    first, *others = members
    for other in others:
        one, two = first.target_table, other.target_table
        if same_version(one, two) or (mode == "optimistic" and joined([member.target_table for member in members])):
            continue
        return f"{first} and {other} are merged into {first.target_name} and differ in {differences_text(one, two)}"
    return ""


def differ_fix(mode: str) -> str:
    """Returns the advice for shards with different structures."""
    if mode == "optimistic":
        return "Give the tables the same structure, or write routes that lead them to different tables"
    return (
        "Finish the schema change on all of them first, or set shard-mode: optimistic, or write routes that lead them "
        "to different tables"
    )


def _groups(parts: Sequence[TaskConfig]) -> list[_Group]:
    with closing(parts[0].target.server.connect()) as target:
        sources = [part.source.source_id for part in parts]
        resumed = frozenset(source for source in sources if target.meta.checkpoints.read(parts[0].name, source))
        shards = []
        for part in parts:
            with closing(connect(part.source.server)) as source:
                tables = read_structures(source, part.allow)
            has_begun = part.source.source_id in resumed
            known = target.meta.structures.load(part.name, SourceTablesKey(part.source.source_id)) if has_begun else {}
            own = partial(Shard, rules=part.rules, source=part.source.source_id)
            shards += [own(table, begun=name in known) for name, table in tables.items()]
        by_target: dict[TableName, list[Shard]] = {}
        for shard in shards:
            if shard.target_name is not None:
                by_target.setdefault(shard.target_name, []).append(shard)
        groups = {target_name: members for target_name, members in by_target.items() if len(members) > 1}
        for target_name, members in groups.items():
            rules, _ = with_extracted_keys(target, members[0].rules, [members[0].table], members[1:])
            groups[target_name] = [replace(one, rules=replace(one.rules, keyed=rules.keyed)) for one in members]
        may_differ = parts[0].shard_mode == "optimistic" or not resumed
        differ = (
            []
            if may_differ
            else [target_name for target_name, members in groups.items() if structure_conflict(members, "")]
        )
        diverged = {name: diverged_text(target, parts[0].name, groups[name], resumed) for name in differ}
    ranges = _ranges(parts, {name: group for name, group in groups.items() if not all(one.begun for one in group)})
    return [
        _Group(
            target_name,
            [one if len(parts) > 1 else replace(one, source="") for one in members],
            ranges.get(target_name, []),
            parts[0].shard_mode,
            resumed & {one.source for one in members},
            diverged.get(target_name, ""),
            locks_rows=locks_rows(parts[0], members),
            merges_now=sum(one.begun or one.source not in resumed for one in members) > 1,
        )
        for target_name, members in sorted(groups.items())
    ]


def _ranges(
    parts: Sequence[TaskConfig], groups: Mapping[TableName, Sequence[Shard]]
) -> dict[TableName, list[KeyRange]]:
    """Returns the key ranges of the shards whose rows could have equal keys on the target.

    Keys can be equal if AUTO_INCREMENT numbers the rows, these numbers reach the target unchanged, and no extracted
    column distinguishes the rows of two shards.
    """
    found: dict[TableName, list[KeyRange]] = {}
    alike = Counter((target_name, one.discriminators) for target_name, members in groups.items() for one in members)
    for part in parts:
        own = [
            (target_name, one, column)
            for target_name, members in groups.items()
            for one in members
            if one.source == part.source.source_id and alike[target_name, one.discriminators] > 1
            if (column := _counter(one)) is not None
        ]
        if own:
            with closing(connect(part.source.server)) as source:
                for target_name, one, column in own:
                    first, last = _range(source, one.table, column)
                    shown = one if len(parts) > 1 else replace(one, source="")
                    found.setdefault(target_name, []).append(KeyRange(shown, one.source, first, last))
    return found


def _counter(shard: Shard) -> str | None:
    """Returns the auto-increment column of a table's key; None if there is none, or if a mapping changes the key."""
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


ALIKE = (
    "Give these shards the same structure on their sources, or keep shard-mode: optimistic until their "
    "structures are the same"
)


def diverged_text(target: TargetSession, task: str, begun: Sequence[Shard], sources: Collection[str]) -> str:
    """Returns a message about the shards whose structure differs from their merged table's; empty if there are none.

    A task in pessimistic mode may have such shards if it ran in optimistic mode before. The start is not refused, since
    the shards' rows fit. But the next schema change of the other shards does not wait for such shards
    (`pidts.shards.decide`).
    In pessimistic mode, an operator expects that it waits. So such shards are reported.

    If an operator has let a change run without a shard (`pidts ddl unlock`), the other shards do wait for this shard.
    So it is not reported. The compared structures are those at the checkpoints on the target, not the current ones.
    """
    recorded = target.meta.structures.load(task, MergedTablesKey())
    known = {source: target.meta.structures.load(task, SourceTablesKey(source)) for source in sources}
    missed_changes = load_missed(target, task, sources)
    found = []
    for one in begun:
        stood, agreed = known.get(one.source, {}).get(one.table.name), recorded.get(one.target_table.name)
        if stood is None or agreed is None or Member(one.source, one.table.name) in missed_changes:
            continue
        target_table = replace(one, table=stood).target_table
        if not same_version(target_table, agreed):
            found.append(f"{one} in {differences_text(target_table, agreed)}")
    if not found:
        return ""
    named = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return (
        f"these shards differ from {begun[0].target_name} on the target, which has the columns of all: {named}. "
        "In pessimistic mode, schema changes of other shards do not wait for these shards as long as their rows fit. A "
        "schema change of one of these shards waits for all other shards if it adds a column that the target lacks"
    )
