"""Reads and updates the target's record of dropped columns and missed changes of shard groups.

Dropped columns are columns that members have dropped and the target still has. The commit of a schema change writes
both records, and each new attempt reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from pidts.apply import SchemaChange, TargetSession
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.batch.context import JobContext
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import (
    DroppedColumnsKey,
    Lsn,
    Member,
    MergedTablesKey,
    MissedChangesKey,
    RecordKey,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.shards.decide import MissedChanges
from pidts.shards.structures import names_of, same_version

Records = dict[RecordKey, Mapping[TableName, Table | None]]


def join(groups: ShardGroups, context: JobContext) -> None:
    """Registers a source's new attempt, which has claimed the task: the source's tables, and the groups' records."""
    source, rules = context.source.source_id, context.rules
    if rules.routes.rules or len(groups.known.sources) > 1:
        read = groups.next_read()
        with closing(context.target.connect()) as session:
            agreed = session.meta.structures.load(context.task, MergedTablesKey())
            dropped = session.meta.structures.load(context.task, DroppedColumnsKey(source))
            missed = load_missed(session, context.task, groups.known.sources)
        named = {name: names_of(table) for name, table in dropped.items()}
        groups.recall(read, source, agreed, named, missed)
    target_table = {name: rules.target_table(table) for name, table in context.structures.items()}
    groups.register(source, target_table, epoch=context.epoch, mariadb=context.dialect.mariadb)
    if absent := groups.absent_for():
        _presume(groups, context, absent)


def _presume(groups: ShardGroups, context: JobContext, absent: Collection[str]) -> None:
    """Reads the tables of sources that have not begun from the target's record.

    Without these tables, every change would wait for these sources. With them, a change waits only for the shards of
    its target table.
    """
    with closing(context.target.connect()) as session:
        for source in absent:
            rules = groups.rules.get(source)
            if rules is None or not session.meta.checkpoints.read(context.task, source):
                continue
            tables = session.meta.structures.load(context.task, SourceTablesKey(source))
            rules = replace(rules, keyed=keyed_targets(session, rules, tables.values()))
            groups.take_recorded(source, {name: rules.target_table(table) for name, table in tables.items()})


def dropped_records(dropped: Mapping[Member, Collection[str]], agreed: Table) -> Records:
    """Returns the records of columns that members have dropped while the target still has them."""
    records: dict[RecordKey, dict[TableName, Table | None]] = {}
    for member, names in dropped.items():
        columns = tuple(column for column in agreed.columns if column.name.lower() in names)
        table = replace(agreed, name=member.table, columns=columns, keys=()) if columns else None
        records.setdefault(DroppedColumnsKey(member.source), {})[member.table] = table
    return dict(records)


def dropped_under(
    renamed: Mapping[Member, Member], dropped: Mapping[Member, frozenset[str]], known: Mapping[Member, frozenset[str]]
) -> dict[Member, frozenset[str]]:
    """Returns the dropped columns, keyed by the new names of members, and an empty entry for each old name.

    `dropped` has the columns after the change, `known` the columns before it, both keyed by the old names.
    """
    moved = {old: frozenset[str]() for old in renamed}
    moved |= {new: dropped.get(old, known.get(old, frozenset())) for old, new in renamed.items()}
    found = {**dropped, **moved}
    return {member: names for member, names in found.items() if names != known.get(member, frozenset())}


def dropped_by_gone(source: str, change: SchemaChange, known: Mapping[Member, Collection[str]]) -> Records:
    """Returns records that clear the dropped columns of former members.

    Without this, a new table with a former member's name would get that member's dropped columns.
    """
    gone = (name for name, table in change.structures.items() if table is None and name not in change.renamed)
    return {DroppedColumnsKey(source): {name: None for name in gone if known.get(Member(source, name))}}


def missed_records(missed: MissedChanges, before: MissedChanges) -> Records:
    """Returns the records of the changes that members miss now: one record for each change of a member."""
    records: dict[RecordKey, dict[TableName, Table | None]] = {}
    for member, steps in missed.items():
        for place in range(max(len(steps), len(before.get(member, ())))):
            step = steps[place] if place < len(steps) else None
            records.setdefault(MissedChangesKey(member.source, place), {})[member.table] = step
    return dict(records)


def missed_under(source: str, renamed: Mapping[TableName, TableName], missed: MissedChanges) -> MissedChanges:
    """Returns the changes that renamed tables miss, keyed by the new names, and an empty entry for each old name."""
    moved: dict[Member, tuple[Table, ...]] = {Member(source, old): () for old in renamed}
    moved |= {Member(source, new): missed.get(Member(source, old), ()) for old, new in renamed.items()}
    return {member: steps for member, steps in moved.items() if steps != missed.get(member, ())}


def load_missed(session: TargetSession, task: str, sources: Collection[str]) -> MissedChanges:
    """Returns the changes that members of these sources miss."""
    found: dict[Member, tuple[Table, ...]] = {}
    for source in sorted(sources):
        place = 0
        while steps := session.meta.structures.load(task, MissedChangesKey(source, place)):
            for name, step in steps.items():
                found[Member(source, name)] = (*found.get(Member(source, name), ()), step)
            place += 1
    return found


def settle_missed(
    session: TargetSession, task: str, source: str, target_table: Mapping[TableName, Table | None], lsn: Lsn
) -> None:
    """Updates the missed changes of tables that continue after an unread part of the log, in the open transaction.

    If a table has the structure after one of its missed changes, it no longer misses this change and the changes before
    it. For any other table, and for a dropped table (None), all missed changes are removed.
    """
    missed = load_missed(session, task, (source,)) if target_table else {}
    left = {
        one: _still_missed(target_table[one.table], steps) for one, steps in missed.items() if one.table in target_table
    }
    for record, tables in missed_records(left, missed).items():
        session.meta.structures.save(task, record, lsn, tables)


def _still_missed(target_table: Table | None, steps: tuple[Table, ...]) -> tuple[Table, ...]:
    places = (
        place for place, step in enumerate(steps) if target_table is not None and same_version(target_table, step)
    )
    return steps[next(places, len(steps)) + 1 :]
