"""What the target's record of structures says of groups, besides what they have agreed on.

Columns that members have dropped while the target has them, and what was run without members, which they owe. Both are
written by the commit of the change that makes it so, and read when an attempt of a part begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pidts.apply import SchemaChange, TargetSession, dropped_by, owed_by
from pidts.model import Lsn, Member, Table, TableName
from pidts.plan.shard_versions import same_version
from pidts.plan.shards import Owed

Records = dict[str, Mapping[TableName, Table | None]]
"""By what stands in the place of a source."""


def dropped_records(dropped: Mapping[Member, Collection[str]], agreed: Table) -> Records:
    """Such columns."""
    records: dict[str, dict[TableName, Table | None]] = {}
    for member, names in dropped.items():
        columns = tuple(column for column in agreed.columns if column.name.lower() in names)
        table = replace(agreed, name=member.table, columns=columns, keys=()) if columns else None
        records.setdefault(dropped_by(member.source), {})[member.table] = table
    return dict(records)


def dropped_under(
    renamed: Mapping[Member, Member], dropped: Mapping[Member, frozenset[str]], known: Mapping[Member, frozenset[str]]
) -> dict[Member, frozenset[str]]:
    """What is kept of members that have another name behind a change: by that, with their rows, and no more by the old.

    `dropped` is what the change makes another of what is `known`, by the names before it.
    """
    moved = {old: frozenset[str]() for old in renamed}
    moved |= {new: dropped.get(old, known.get(old, frozenset())) for old, new in renamed.items()}
    found = {**dropped, **moved}
    return {member: names for member, names in found.items() if names != known.get(member, frozenset())}


def dropped_by_gone(source: str, change: SchemaChange, known: Mapping[Member, Collection[str]]) -> Records:
    """Tables that are no members behind it have dropped nothing: rows of one that comes by their name are its own."""
    gone = (name for name, table in change.structures.items() if table is None and name not in change.renamed)
    return {dropped_by(source): {name: None for name in gone if known.get(Member(source, name))}}


def owed_records(behind: Owed, before: Owed) -> Records:
    """What members owe now, a record for each step."""
    records: dict[str, dict[TableName, Table | None]] = {}
    for member, owed in behind.items():
        for place in range(max(len(owed), len(before.get(member, ())))):
            step = owed[place] if place < len(owed) else None
            records.setdefault(owed_by(member.source, place), {})[member.table] = step
    return dict(records)


def owed_under(source: str, renamed: Mapping[TableName, TableName], behind: Owed) -> Owed:
    """What tables owe that have another name behind a change, and the names that they had, where that is another."""
    moved: dict[Member, tuple[Table, ...]] = {Member(source, old): () for old in renamed}
    moved |= {Member(source, new): behind.get(Member(source, old), ()) for old, new in renamed.items()}
    return {member: owed for member, owed in moved.items() if owed != behind.get(member, ())}


def load_owed(session: TargetSession, task: str, sources: Collection[str]) -> Owed:
    """Of all members of these."""
    found: dict[Member, tuple[Table, ...]] = {}
    for source in sorted(sources):
        place = 0
        while steps := session.load_structures(task, owed_by(source, place)):
            for name, step in steps.items():
                found[Member(source, name)] = (*found.get(Member(source, name), ()), step)
            place += 1
    return found


def settle_owed(
    session: TargetSession, task: str, source: str, landed: Mapping[TableName, Table | None], lsn: Lsn
) -> None:
    """Tables that go on behind a part of the log that nobody has read; in the open transaction.

    One that looks as something makes it that it owes has come there, and owes no more what lies up to that. Of any
    other nobody knows where it has been: it owes nothing, as one that is gone (None).
    """
    owed = load_owed(session, task, (source,)) if landed else {}
    left = {one: _behind(landed[one.table], steps) for one, steps in owed.items() if one.table in landed}
    for record, tables in owed_records(left, owed).items():
        session.save_structures(task, record, lsn, tables)


def _behind(landed: Table | None, owed: tuple[Table, ...]) -> tuple[Table, ...]:
    places = (place for place, step in enumerate(owed) if landed is not None and same_version(landed, step))
    return owed[next(places, len(owed)) + 1 :]
