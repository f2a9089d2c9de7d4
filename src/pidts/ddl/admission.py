"""Asks a table's shard group whether a shard's schema change may be made now, has been made, or has to wait.

The coordinator (`pidts.ddl.shards.coordinator`) has the state of all groups. This module reports to a group that a
shard has arrived at a change, adapts the change to the group's decision, and reports how the change has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pidts.apply import AttemptSuperseded, ChangeEnd, MemberChange, OpenJournal, SchemaChange
from pidts.ddl.due_change import DueChange
from pidts.ddl.interpreter import DueStatement
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards.arrivals import RunByLeader
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.record import dropped_records, dropped_under, missed_records
from pidts.model import Arrival, CommandKind, Halted, Member, MergedTablesKey, Table, TableName
from pidts.model.advice import REPLACE, RESYNC, SKIP
from pidts.schema import (
    AddColumn,
    AddKey,
    AlterTable,
    CreateTable,
    CreateTableLike,
    Dialect,
    DropColumn,
    DropKey,
    ModifyColumn,
    Statement,
    apply,
    is_strict,
    keys_there,
)
from pidts.schema.compare import origins
from pidts.schema.statement_time import UNKNOWN_TIME
from pidts.shards.decide import Decision, Effect, MissedChanges, RunDecision, Wait
from pidts.shards.structures import key_has, names_of, revalued, same_version, same_whole, shared_object


@dataclass(frozen=True, slots=True)
class Admission:
    """A member's change in the form in which the group allows it now."""

    change: SchemaChange
    run: RunDecision | None = None
    """The group's decision; None if the change needs no decision. The caller has to report to the group how the attempt
    to make the change has ended.
    """
    passes: bool = False
    dropped: Mapping[Member, Collection[str]] = field(default_factory=dict)
    """For each member whose record changes: the columns that the member has dropped and the target still has."""
    missed: MissedChanges = field(default_factory=dict)
    """For each member whose record changes: the schema changes that the member misses."""

    @property
    def writers_wait(self) -> bool:
        """Whether the other shards of the group must not write during the change."""
        command = self.change.command
        return self.change.shared is not None and (command is None or command.kind is not CommandKind.SKIP)


def admit(
    groups: ShardGroups, due: DueChange, found: DueStatement, since: float
) -> Admission | RunByLeader | ChangeWaits:
    """Returns the admitted change, the change that the leader has made, or the wait.

    `since` is the time of the member's first arrival.
    """
    change, table = found.change, found.table
    statement = change.statement
    if table is None or not isinstance(statement, AlterTable | CreateTable | CreateTableLike):
        return Admission(change)
    target = statement.table
    before, after = change.before.get(target), change.after.get(target)
    if after is None or (before is None and isinstance(statement, AlterTable)):
        return Admission(change)
    member = Member(due.source, table)
    effect = _effect(statement, target, due.dialect)
    moved = origins(statement, before) if isinstance(statement, AlterTable) and before is not None else {}
    makes = not isinstance(statement, AlterTable)
    # In every SQL mode, ALTER IGNORE and the statements by which an online schema change copies rows do not fail at a
    # value that a column cannot store: the server changes the value.
    ignores = bool(change.shadows) or (isinstance(statement, AlterTable) and statement.ignore)
    strict = is_strict(due.query.sql_mode) and not ignores
    arrival = Arrival(
        member=member,
        lsn=due.lsn,
        text=change.text,
        before=shared_object(before or after),
        after=shared_object(after),
        since=since,
        position=due.where.position,
        command=change.command.kind if change.command is not None else None,
        runs=not makes or not groups.is_shared(target, member),
        revalues=frozenset() if makes or before is None else revalued(before, after, moved, strict=strict),
        computes=_computed_by(statement),
        adds=frozenset(name for name, old in moved.items() if old is None),
    )
    if isinstance(statement, AlterTable) and groups.is_shared(target, member):
        _demand_values_stay(groups, due, arrival, moved)
    decision = groups.arrive(arrival, _member_change(due, change), effect)
    try:
        return _decided(groups, due, change, arrival, decision)
    except BaseException:
        if isinstance(decision, RunDecision):
            groups.failed(decision)  # without this, the other members would wait forever
        raise


def carry_out(groups: ShardGroups, step: Admission, epoch: int, run: Callable[[], ChangeEnd]) -> ChangeEnd:
    """Makes the change while the group's other shards do not write, and reports the change's end to the group."""
    if step.run is None:
        return run()
    try:
        with groups.barrier.holding(groups.writers(step.run) if step.writers_wait else {}):
            ended = run()
    except Halted as error:
        groups.failed(step.run)
        if step.change.shared is not None and error.code == "ddl-not-translatable":
            error.todo += f". The rows of all shards of {step.change.shared} differ: name all shards after --resync"
        raise
    except BaseException:
        groups.failed(step.run, in_doubt_since=epoch)  # the last commit may have succeeded without an answer
        raise
    match ended:
        case OpenJournal():
            # This member tries again by itself. For the other members, nothing has changed.
            groups.failed(step.run, moves=False)
        case AttemptSuperseded():
            groups.failed(step.run)
        case _:
            groups.ran(step.run, step.missed)
            groups.note_dropped(step.dropped)
    return ended


def _computed_by(statement: AlterTable | CreateTable | CreateTableLike) -> frozenset[tuple[str, object]]:
    added = (
        (one for one in statement.actions if isinstance(one, AddColumn)) if isinstance(statement, AlterTable) else ()
    )
    return frozenset(
        (one.column.name.lower(), one.computed.words if one.computed is not None else None)
        for one in added
        if one.column.generated
    )


def _demand_values_stay(groups: ShardGroups, due: DueChange, arrival: Arrival, moved: Mapping[str, str | None]) -> None:
    """Halts if a change rewrites a column's values on one shard only, while the target has rows of other shards.

    Such a change drops the column and adds a new column with the same name, or renames another column to this name. A
    comparison of structures does not show this. If the target ran the statement for one shard, the other shards would
    lose their values. If the statement is skipped, the shard's own values stay in the old column.
    """
    if arrival.command not in {None, CommandKind.REVERT}:
        return
    before, target = arrival.before, arrival.after.name
    had, there = names_of(before), names_of(groups.agreed(target) or before)
    alone = groups.is_optimistic or same_version(before, arrival.after)
    names = [
        name
        for name, old in moved.items()
        if name != old and ((name in had and alone) or (old is not None and name not in had and {name, old} <= there))
    ]
    if names:
        raise Halted(
            "ddl-moves-values",
            f"this change rewrites the values of column {', '.join(names)} on one shard only, and {target} also has "
            "rows of other shards",
            where=replace(due.where, table=str(arrival.member.table)),
            todo=f"Make the change on all shards in two steps, with another name for the new column. Or skip it, and "
            f"copy this shard's "
            f"rows again: run {SKIP}; {RESYNC}. Or give SQL for the rows of all shards: run {REPLACE}",
        )


def _decided(
    groups: ShardGroups, due: DueChange, change: SchemaChange, arrival: Arrival, decision: Decision | RunByLeader
) -> Admission | RunByLeader | ChangeWaits:
    member, target = arrival.member, arrival.after.name
    agreed = groups.agreed(target)  # no other member changes the table while a member runs a statement
    if isinstance(decision, Wait):
        return ChangeWaits(wait=decision, arrival=arrival, agreed=agreed)
    if isinstance(decision, RunByLeader):
        return decision
    if not groups.is_shared(target, member):
        return Admission(change, decision)
    statement = change.statement
    was = origins(statement, arrival.before) if isinstance(statement, AlterTable) else {}
    member_changes = groups.member_changes(decision)
    dropped: dict[Member, frozenset[str]] = {}
    for one in decision.arrivals:
        dropped |= groups.dropped_after(one, decision.agreed, was, agreed)
    dropped = dropped_under(_renamed(due.source, change, member_changes), dropped, groups.known.dropped)
    missed = groups.missed_after(decision, arrival)
    records = dropped_records(dropped, decision.agreed) | missed_records(missed, groups.known.missed)
    joins = agreed is not None and not arrival.runs
    if joins:
        records[MergedTablesKey()] = {target: decision.agreed}
    if (joins and arrival.command is None) or (decision.passes and arrival.command is not CommandKind.INJECT):
        passing = replace(change, statement=None, before={}, after={}, records=records, command=None)
        return Admission(passing, decision, passes=True, dropped=dropped, missed=missed)
    is_replaced = change.command is not None and change.command.kind is CommandKind.REPLACE
    if agreed is not None:
        restricted = _restricted(change.statement, decision, agreed)
        made = _effect(restricted, target, due.dialect)(agreed) if restricted is not None else None
        is_same = same_version(arrival.before, arrival.after) and made is not None and same_version(made, agreed)
        is_unchanged = same_version(decision.agreed, agreed) and not is_same
        if (restricted is None or is_unchanged or decision.passes) and not is_replaced:
            # Without a ddl command, nothing is run in two cases. First, other members still have the columns that the
            # statement drops: the last of these members will drop them. Second, the statement only repeats what the
            # shard, the target's table and the other shards already have.
            change = replace(change, statement=None, before={}, after={})
        elif made is not None and same_whole(made, decision.agreed):
            before, after = {**change.before, target: agreed}, {**change.after, target: made}
            change = replace(change, statement=restricted, before=before, after=after)
        elif isinstance(restricted, AlterTable) and restricted != statement and not is_replaced:
            raise Halted(
                "unlock-keeps-columns",
                f"the statement drops columns of {target} that other shards still have, and PiDTS cannot separate "
                "these drops from the rest of the statement",
                where=replace(due.where, table=str(member.table)),
                todo=f"Make this change on the other shards, too; or give the SQL for the target: run {REPLACE}",
            )
    if isinstance(change.statement, AlterTable):
        # The other shards have converted their rows in sessions of their own, at other times.
        only = groups.only_mariadb(target)
        altered = replace(change.statement, mariadb=only, cuts_fractions=None, is_in_utc=None, zeroes_unreal_days=None)
        change = replace(change, statement=altered, executed_at=UNKNOWN_TIME)
    records[MergedTablesKey()] = {target: decision.agreed}
    change = replace(change, shared=target, others=member_changes, records=records)
    return Admission(change, decision, dropped=dropped, missed=missed)


def _renamed(source: str, change: SchemaChange, member_changes: Iterable[MemberChange]) -> dict[Member, Member]:
    names = [
        (source, change.renamed),
        *((one.source, one.renamed) for one in member_changes),
    ]
    return {Member(source, old): Member(source, new) for source, renamed in names for old, new in renamed.items()}


def _restricted(statement: Statement | None, run: RunDecision, agreed: Table) -> Statement | None:
    """Returns the part of the statement that the target runs; None: nothing. Columns that other members need stay."""
    if not isinstance(statement, AlterTable):
        return statement
    if run.rest:
        return replace(statement, actions=tuple(_steps(agreed, run.agreed)))
    there, kept = names_of(run.agreed), names_of(run.agreed) - names_of(run.leader.after)
    keys_kept = {key.name.lower() for key in run.agreed.keys if key_has(key, kept)}
    actions = tuple(
        one
        for one in statement.actions
        if not (
            (isinstance(one, DropColumn) and one.name.lower() in there)
            or (isinstance(one, DropKey) and one.name.lower() in keys_kept)
        )
    )
    return replace(statement, actions=actions) if actions else None


def _steps(there: Table, wanted: Table) -> Iterator[DropKey | AddKey | DropColumn | AddColumn | ModifyColumn]:
    """Yields actions that turn `there` into `wanted`. A key that only loses a dropped column needs no action."""
    had, has = {column.name.lower(): column for column in there.columns}, names_of(wanted)
    meant = {key.name.lower(): key for key in wanted.keys}
    for key in there.keys:
        left = replace(key, columns=tuple(name for name in key.columns if name.lower() in has))
        if left == meant.get(key.name.lower()):
            del meant[key.name.lower()]
        elif left.columns:
            yield DropKey(key.name)
    yield from (DropColumn(column.name) for column in there.columns if column.name.lower() not in has)
    for column in wanted.columns:
        was = had.get(column.name.lower())
        if was != column:
            yield AddColumn(column) if was is None else ModifyColumn(column)
    yield from map(AddKey, meant.values())


def _member_change(due: DueChange, change: SchemaChange) -> MemberChange:
    return MemberChange(
        source=due.source,
        epoch=due.context.epoch,
        lsn=due.lsn,
        text=change.text,
        structures=change.structures,
        shadows=change.shadows,
        command=change.command,
        renamed=change.renamed,
    )


def _effect(statement: Statement | None, target: TableName, dialect: Dialect) -> Effect:
    def effect(table: Table) -> Table | None:
        if not isinstance(statement, AlterTable) or keys_there(table, statement.actions):
            return None
        try:
            made = apply(statement, {target: table.renamed(target)}, {}, dialect=dialect)
        except Halted:
            return None
        return made.get(target)

    return effect
