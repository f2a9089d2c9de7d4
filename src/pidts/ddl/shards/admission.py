"""Asks a table's group whether a schema change may be made now, is made already, or has to wait.

The coordinator (`pidts.ddl.shards.coordinator`) holds what is known of the group. Here an interpreted change arrives at
its group, and the group's decision is put into the change. A change that may not be made yet ends in `ShardWaits`:
nothing has happened then, and the same change asks again later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from pidts.apply import SHARED, JournalOpen, OrderChanged, Party, PartyLeft, SchemaChange, dropped_by
from pidts.apply.merge.discriminating_keys import keyed_landings
from pidts.batch.context import JobContext
from pidts.ddl.shards.arrivals import Ran
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.record import dropped_records, dropped_under, load_owed, owed_records
from pidts.model import Arrival, Halted, Lsn, Member, OrderKind, Table, TableName, Where
from pidts.rules import Rules
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
    keys_there,
)
from pidts.schema.evolve.value_origins import origins
from pidts.shards.decide import Decision, Effect, Owed, Run, Wait
from pidts.shards.structures import key_has, names_of, revalued, same_version, same_whole


class ShardWaits(Exception):
    """The error that other shards, or sources that have not begun, have to come first.

    Without an arrival it waits for sources that have not begun; `absent` returns them as they are now.
    """

    def __init__(
        self,
        wait: Wait,
        arrival: Arrival | None = None,
        agreed: Table | None = None,
        absent: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        super().__init__(wait, arrival, agreed)
        self.wait, self.arrival, self.agreed, self.absent = wait, arrival, agreed, absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """An interpreted schema change, with its source and table."""

    source: str
    epoch: int
    lsn: Lsn
    where: Where
    table: TableName | None
    """The table by its source's name; None where the statement concerns none, or several."""
    change: SchemaChange
    dialect: Dialect
    strict: bool
    """Whether its server refuses values that do not fit, and changes none to make it fit."""
    since: float
    """The time at which it arrived first, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The step that is to be done now."""

    change: SchemaChange
    run: Run | None = None
    """The group's decision, of which the group learns how it has ended."""
    is_made: bool = False
    """Whether the leader has made the change for this member, too."""
    passes: bool = False
    dropped: Mapping[Member, Collection[str]] = field(default_factory=dict)
    """Columns that members have dropped while the target has them, for members where that differs from before."""
    behind: Owed = field(default_factory=dict)
    """The changes that members miss, for members where that differs from before."""


def turn(groups: ShardGroups, coming: Coming) -> Turn:
    """Returns the step that the group allows; raises `ShardWaits` where there is none yet."""
    change, table = coming.change, coming.table
    statement = change.statement
    if table is None or not isinstance(statement, AlterTable | CreateTable | CreateTableLike):
        return Turn(change)
    target = statement.table
    before, after = change.before.get(target), change.after.get(target)
    if after is None or (before is None and isinstance(statement, AlterTable)):
        return Turn(change)
    member = Member(coming.source, table)
    if isinstance(statement, AlterTable) and before is not None and groups.is_shared(target, member):
        _demand_values_stay(groups, coming, statement, before, after)
    effect = _effect(statement, target, coming.dialect)
    moved = origins(statement, before) if isinstance(statement, AlterTable) and before is not None else {}
    makes = not isinstance(statement, AlterTable)
    arrival = Arrival(
        member=member,
        lsn=coming.lsn,
        text=change.text,
        before=before or after,
        after=after,
        since=coming.since,
        position=coming.where.position,
        order=change.order.kind if change.order is not None else None,
        runs=not makes or not groups.is_shared(target, member),
        revalues=frozenset() if makes or before is None else revalued(before, after, moved, strict=coming.strict),
        computes=_computed_by(statement),
        adds=frozenset(name for name, old in moved.items() if old is None),
    )
    decision = groups.arrive(arrival, _party(coming), effect)
    try:
        return _decided(groups, coming, arrival, decision)
    except BaseException:
        if isinstance(decision, Run):
            groups.failed(decision)  # else all would wait for it
        raise


def _computed_by(statement: AlterTable | CreateTable | CreateTableLike) -> frozenset[tuple[str, object]]:
    added = (
        (one for one in statement.actions if isinstance(one, AddColumn)) if isinstance(statement, AlterTable) else ()
    )
    return frozenset(
        (one.column.name.lower(), one.computed.words if one.computed is not None else None)
        for one in added
        if one.column.generated
    )


def _demand_values_stay(
    groups: ShardGroups, coming: Coming, statement: AlterTable, before: Table, after: Table
) -> None:
    """Halt where values of one shard's rows would go, or move, while other shards' rows have values in that column.

    Comparing structures alone cannot show it. Run for one shard, the statement takes the others' values away. Skipped,
    it leaves the shard's own values where they were.
    """
    order, agreed = coming.change.order, groups.agreed(statement.table)
    if order is not None and order.kind is not OrderKind.REVERT:
        return
    had, there = names_of(before), names_of(agreed or before)
    alone = groups.is_optimistic or same_version(before, after)
    moved = [
        name
        for name, old in origins(statement, before).items()
        if name != old and ((name in had and alone) or (old is not None and name not in had and {name, old} <= there))
    ]
    if moved:
        raise Halted(
            "ddl-moves-values",
            f"column {', '.join(moved)} gets other values by this change, of one shard, and rows of other shards have "
            f"theirs in {statement.table}",
            where=replace(coming.where, table=str(coming.table)),
            todo="Make it on all shards in two steps, under another name; or say pidts ddl skip and have this shard's "
            "rows copied again; or pidts ddl replace, and the target runs it for the rows of all shards",
        )


def _decided(groups: ShardGroups, coming: Coming, arrival: Arrival, decision: Decision | Ran) -> Turn:
    change, member, target = coming.change, arrival.member, arrival.after.name
    agreed = groups.agreed(target)  # while one member runs a statement, no other changes the table
    if isinstance(decision, Wait):
        raise ShardWaits(decision, arrival, agreed)
    if isinstance(decision, Ran):
        return Turn(change, is_made=True)
    if not groups.is_shared(target, member):
        return Turn(change, decision)
    statement = change.statement
    was = origins(statement, arrival.before) if isinstance(statement, AlterTable) else {}
    parties = groups.parties(decision)
    dropped: dict[Member, frozenset[str]] = {}
    for one in decision.arrivals:
        dropped |= groups.kept(one, decision.agreed, was, agreed)
    dropped = dropped_under(_renamed(coming, parties), dropped, groups.roster.dropped)
    behind = groups.owing(decision, arrival)
    records = dropped_records(dropped, decision.agreed) | owed_records(behind, groups.roster.behind)
    joins = agreed is not None and not arrival.runs and arrival.order is None
    if joins:
        records[SHARED] = {target: decision.agreed}
    if joins or (decision.passes and arrival.order is not OrderKind.INJECT):
        passing = replace(change, statement=None, before={}, after={}, records=records, order=None)
        return Turn(passing, decision, passes=True, dropped=dropped, behind=behind)
    is_replaced = change.order is not None and change.order.kind is OrderKind.REPLACE
    if agreed is not None:
        restricted = _restricted(change.statement, decision, agreed)
        made = _effect(restricted, target, coming.dialect)(agreed) if restricted is not None else None
        is_same = same_version(arrival.before, arrival.after) and made is not None and same_version(made, agreed)
        is_unchanged = same_version(decision.agreed, agreed) and not is_same
        if (restricted is None or is_unchanged or decision.passes) and not is_replaced:
            # Nothing is run in two cases, unless it is ordered. Other members may still have the columns that go: then
            # the last of them drops these. Or the statement only repeats what the shard has already, where the target
            # has it as others do.
            change = replace(change, statement=None, before={}, after={})
        elif made is not None and same_whole(made, decision.agreed):
            before, after = {**change.before, target: agreed}, {**change.after, target: made}
            change = replace(change, statement=restricted, before=before, after=after)
        elif isinstance(restricted, AlterTable) and restricted != statement and not is_replaced:
            raise Halted(
                "unlock-keeps-columns",
                f"it drops columns of {target} that other shards still have, and it is not known what the rest of it "
                "makes of the table then",
                where=replace(coming.where, table=str(member.table)),
                todo="Make it on the other shards, too; or say pidts ddl replace with what the target is to run",
            )
    if isinstance(change.statement, AlterTable):
        change = replace(change, statement=replace(change.statement, mariadb=groups.flavor(target)))
    records[SHARED] = {target: decision.agreed}
    change = replace(change, shared=target, others=parties, records=records)
    return Turn(change, decision, dropped=dropped, behind=behind)


def _renamed(coming: Coming, parties: Iterable[Party]) -> dict[Member, Member]:
    """Returns the members that have another name after the change."""
    names = [(coming.source, coming.change.renamed), *((party.source, party.renamed) for party in parties)]
    return {Member(source, old): Member(source, new) for source, renamed in names for old, new in renamed.items()}


def _restricted(statement: Statement | None, run: Run, agreed: Table) -> Statement | None:
    """Returns the part of the statement that is run: no column goes that others still need."""
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
    """Yields the steps from one structure to the other, but for names; dropped columns leave keys by themselves."""
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


def _writers(groups: ShardGroups, now: Turn) -> Mapping[str, frozenset[TableName]]:
    """Returns the tables whose batches may write to the target table while it is changed."""
    is_skipped = now.change.order is not None and now.change.order.kind is OrderKind.SKIP
    if now.run is None or now.passes or is_skipped or now.change.shared is None:
        return {}
    return groups.writers(now.run)


@contextmanager
def told(groups: ShardGroups | None, now: Turn, epoch: int) -> Iterator[None]:
    """Tells the group how the step inside ends."""
    if groups is None or now.run is None:
        yield
        if groups is not None:
            groups.drops(now.dropped)
        return
    try:
        with groups.holds.holding(_writers(groups, now)):
            yield
    except JournalOpen:
        groups.failed(now.run, moves=False)  # the group asks again by itself, and no other member can continue for that
        raise
    except (Halted, OrderChanged, PartyLeft):
        groups.failed(now.run)
        raise
    except BaseException:
        groups.failed(now.run, in_doubt_since=epoch)  # the commit may have gone through without an answer
        raise
    groups.ran(now.run, now.behind)
    groups.drops(now.dropped)


def join(groups: ShardGroups, context: JobContext) -> None:
    """Registers an attempt of a part that has claimed its task: its tables, and the target's record of groups."""
    source, rules = context.source.source_id, context.rules
    if rules.routes.rules or len(groups.roster.sources) > 1:
        look = groups.looks()
        with closing(context.target.connect()) as session:
            agreed = session.meta.structures.load(context.task, SHARED)
            dropped = session.meta.structures.load(context.task, dropped_by(source))
            behind = load_owed(session, context.task, groups.roster.sources)
        named = {name: names_of(table) for name, table in dropped.items()}
        groups.recall(look, source, agreed, named, behind)
    landing = {name: rules.landed(table) for name, table in context.structures.items()}
    groups.register(source, landing, epoch=context.epoch, mariadb=context.dialect.mariadb)
    if groups.absent:
        _presume(groups, context)


def _presume(groups: ShardGroups, context: JobContext) -> None:
    """Reads the tables of sources that are down, so that only changes of those tables wait for them."""
    with closing(context.target.connect()) as session:
        for source in groups.absent:
            rules = groups.rules.get(source)
            if rules is None or not session.meta.checkpoints.read(context.task, source):
                continue
            tables = session.meta.structures.load(context.task, source)
            rules = replace(rules, keyed=keyed_landings(session, rules, tables.values()))
            groups.presume(source, {name: rules.landed(table) for name, table in tables.items()})


def landed(rules: Rules, structures: Mapping[TableName, Table | None]) -> dict[TableName, Table | None]:
    """Returns structures under the target's names, by the names of their source tables."""
    return {name: rules.landed(table) if table is not None else None for name, table in structures.items()}


def _party(coming: Coming) -> Party:
    change = coming.change
    return Party(
        source=coming.source,
        epoch=coming.epoch,
        lsn=coming.lsn,
        text=change.text,
        structures=change.structures,
        shadows=change.shadows,
        order=change.order,
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
