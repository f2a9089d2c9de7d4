"""Carries out one DDL of the log: interprets it, runs it on the target, and returns the structures that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import structlog

from pidts.apply import SHARED, DdlRunner, Retry, SchemaChange, left_by
from pidts.apply.merge.discriminating_keys import keyed_landings
from pidts.batch.context import JobContext, watched_by
from pidts.batch.copy.finish import start_over
from pidts.batch.relay_events import ddl_event
from pidts.batch.relevance import Meaning
from pidts.batch.sequences import sequences_of
from pidts.ddl.interpreter import Told
from pidts.ddl.ordered_change import overrides
from pidts.ddl.shards.admission import Coming, Turn, told, turn
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.key_overlap import demand_apart
from pidts.ddl.shards.protected_rows import Sharing
from pidts.ddl.shards.record import dropped_by_gone, owed_records, owed_under
from pidts.model import DdlOrder, LogEntry, OrderKind, Table, TableName, Transient, Where
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema import AlterTable, Statement, apply_charset, classify, is_strict
from pidts.shards.decide import Owed

_log = structlog.get_logger(__name__)

Concerns: TypeAlias = Callable[[TableName], bool]

_PATIENT = Retry(attempts=1_000)
"""Somebody on the target may hold a lock on the table for hours; only this table's changes wait for it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The things that a schema change has altered; None stands for one that is gone."""

    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    charsets: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    keyed: frozenset[TableName] = frozenset()
    """Target tables whose key was found to tell rows of several tables apart."""
    owed: Owed = field(default_factory=dict)
    """The missed changes of shards that have another name now."""

    def applied_to(self, context: JobContext) -> JobContext:
        """Returns the context for the batches after the change."""
        return replace(
            context,
            structures=_merged(context.structures, self.structures),
            charsets=_merged(context.charsets, self.charsets),
            watched={**context.watched, **self.watched},
            rules=replace(context.rules, keyed=context.rules.keyed | self.keyed) if self.keyed else context.rules,
        )


def run_ddl(
    context: JobContext,
    allow: AllowList,
    relay: RelayReader,
    entry: LogEntry,
    sleep: Callable[[float], None],
    *,
    concerns: Concerns = lambda _: True,
    filling: Collection[TableName] = (),
    order: DdlOrder | None = None,
    groups: ShardGroups | None = None,
    arrived: bool = False,
    since: float = 0.0,
) -> Changed:
    """Returns when the target has the change, for as long as that may take; `sleep` may raise to break it off.

    A table that has joined the task after the statement is not the one that the statement names (`concerns`). `filling`
    are tables that were empty when their copy, still under way, began: one whose copy has to begin again is emptied.
    `order` is an operator's order about the change.

    Where other sources map to the same target table, their `groups` decide. `ShardWaits` is raised for as long as they
    do not let the change continue, and says `since` when. In the run in which a change has `arrived` there, "done" in
    the journal may come from another member, after the structures that are known here.

    The rows of a CREATE TABLE ... SELECT are in the same entry. They are rows like others and come with a batch.
    """
    lsn, source = entry.transaction.lsn, context.source.source_id
    runner = DdlRunner(context.target, context.task, source, context.epoch, retry=_PATIENT, sleep=sleep)
    is_done = runner.is_done(lsn)
    if is_done and not arrived:
        return Changed()  # the structures were read from the target after this
    party = groups.made(source, lsn) if groups is not None and arrived else None
    if party is not None:
        # The statement is not interpreted again: the target has forgotten the parts of a finished online schema change.
        _log.info("schema change was made by another shard, for this one, too", statement=party.text, at=str(lsn))
        return _made(context, party.structures)
    if is_done:
        # Another member has made the change, and this one has not been told of it.
        _log.info("schema change is on record as made", statement=entry.transaction.ddl, at=str(lsn))
        concerned = Meaning(allow, context.dialect)(entry).tables or context.structures
        return _made(context, _recorded(context, filter(concerns, concerned)))
    where = Where(source=source, position=str(relay.position(lsn) or lsn))
    query = ddl_event(relay, entry)
    statement = classify(query.sql, query.schema, dialect=context.dialect.under(query.sql_mode))
    sequences = sequences_of(relay, entry.transaction, statement, context.structures, context.dialect)
    told_by = partial(
        Told,
        allow=allow,
        entry=entry,
        query=query,
        where=where,
        is_ours=lambda name: allow(name) and concerns(name) and name not in sequences,
        order=order,
    )
    sharing = Sharing(groups, source, context.rules) if groups is not None else None
    found = told_by(context=context, sharing=sharing).found(runner.shadows)
    comes = (found.table, found.change.structures.get(found.table)) if found is not None and found.table else None
    keyed = _keyed(context, *comes) if comes is not None else frozenset[TableName]()
    if keyed:
        # The table's key tells rows of several tables apart, which was not known before there was one of them.
        context = replace(context, rules=replace(context.rules, keyed=context.rules.keyed | keyed))
        found = told_by(context=context, sharing=sharing).found(runner.shadows)
    if found is None:
        return Changed()
    dialect = context.dialect.under(query.sql_mode)
    now = Turn(found.change)
    if groups is not None:
        demand_apart(context, groups, found, where, order, again=arrived)
        coming = Coming(
            source=source,
            epoch=context.epoch,
            lsn=lsn,
            where=where,
            table=found.table,
            change=found.change,
            dialect=dialect,
            # An online schema change copies its rows by a statement that the server does not refuse for values that do
            # not fit.
            strict=is_strict(query.sql_mode) and not (found.change.shadows or _bends(found.change.statement)),
            since=since,
        )
        now = turn(groups, coming)
    change = now.change
    staying = sharing.new_records(context.structures) if sharing is not None else {}
    if sharing is not None:
        leaves = sharing.leaves_rows(statement, change.structures, context.structures)
        change = _with_records(change, {SHARED: staying, left_by(source): leaves})
    owed, change = _named_behind(groups, now, change, source)
    with told(groups, now, context.epoch):
        if change.statement is not None and not overrides(order) and not now.is_made:
            for name in Meaning(allow, context.dialect)(entry).recopied:
                table = context.structures.get(name)
                if name in filling and table is not None and not (sharing is not None and sharing.shared(name)):
                    _patiently(partial(start_over, context, table, lsn), sleep)
        if not now.is_made:
            runner.run(change, lsn)
    if groups is not None and staying:
        groups.recall(groups.looks(), source, staying, {})
    _log.info(_said(now), statement=query.sql, at=where.position)
    for left in sharing.left if sharing is not None else ():
        _log.warning("the target keeps the rows of a shard, since others share its table", what=left, at=where.position)
    charsets: dict[str, tuple[str, str] | None] = {}
    if found.statement is not None:
        charsets = apply_charset(found.statement, context.charsets, dialect=dialect)
    made = [table for table in found.change.after.values() if table is not None]
    return Changed(change.structures, charsets, _watched(context, made), keyed, owed)


def _bends(statement: Statement | None) -> bool:
    """Whether the server changes values that do not fit, whatever its mode is."""
    return isinstance(statement, AlterTable) and statement.ignore


def _named_behind(
    groups: ShardGroups | None, now: Turn, change: SchemaChange, source: str
) -> tuple[Owed, SchemaChange]:
    """Returns the missed changes of renamed shards, which still miss them; dropped shards are forgotten."""
    if groups is None:
        return {}, change
    behind: Owed = groups.roster.behind
    change = _with_records(change, dropped_by_gone(source, change, groups.roster.dropped))
    owed = owed_under(source, change.renamed, {**behind, **now.behind})
    if not owed:
        return {}, change
    records = owed_records({**now.behind, **owed}, behind)
    return owed, replace(change, records={**change.records, **records})


def _made(context: JobContext, structures: Mapping[TableName, Table | None]) -> Changed:
    """Returns the changes that another shard has put on record."""
    keyed = frozenset[TableName]().union(*(_keyed(context, *named) for named in structures.items()))
    rules = replace(context.rules, keyed=context.rules.keyed | keyed)
    landed = [rules.landed(table) for table in structures.values() if table is not None]
    return Changed(structures, {}, _watched(context, landed), keyed)


def _recorded(context: JobContext, names: Iterable[TableName]) -> dict[TableName, Table | None]:
    with closing(context.target.connect()) as session:
        known = session.meta.structures.load(context.task, context.source.source_id)
    return {name: known.get(name) for name in names if name in known or name in context.structures}


def _watched(context: JobContext, made: Sequence[Table]) -> Mapping[TableName, tuple[str, ...]]:
    if not made:
        return {}
    with closing(context.target.connect()) as session:
        return watched_by(session, made, context.workers)


def _keyed(context: JobContext, name: TableName, table: Table | None) -> frozenset[TableName]:
    """Returns the target table that a new source table maps to, if it exists and its key has extracted columns."""
    if table is None or name in context.structures:
        return frozenset()
    landing = context.rules.routes.landing(table.name)
    if not landing.extracted or landing.name in context.rules.keyed:
        return frozenset()
    with closing(context.target.connect()) as session:
        return keyed_landings(session, context.rules, [table])


def _with_records(change: SchemaChange, records: Mapping[str, Mapping[TableName, Table | None]]) -> SchemaChange:
    more = {record: {**change.records.get(record, {}), **tables} for record, tables in records.items() if tables}
    return replace(change, records={**change.records, **more}) if more else change


def _said(now: Turn) -> str:
    if now.is_made:
        return "schema change was made by another shard, for this one, too"
    if now.passes:
        return "schema change passes, other shards have made it"
    change = now.change
    match change.order:
        case DdlOrder(kind=OrderKind.SKIP):
            return "schema change skipped, as ordered"
        case DdlOrder(kind=OrderKind.REPLACE, statements=statements):
            return f"schema change replaced, as ordered: {'; '.join(statements)}"
    if change.others:
        return f"schema change applied for {len(change.others) + 1} shards"
    return "schema change applied" if change.statement is not None else "schema change put on record"


def _patiently(work: Callable[[], None], sleep: Callable[[float], None]) -> None:
    for attempt in range(1, _PATIENT.attempts + 1):
        try:
            return work()
        except Transient as error:
            if attempt == _PATIENT.attempts:
                raise
            _log.warning("emptying a table is tried again", error=str(error))
        sleep(_PATIENT.pause(attempt))
    return None


Name = TypeVar("Name")
Value = TypeVar("Value")


def _merged(known: Mapping[Name, Value], changed: Mapping[Name, Value | None]) -> dict[Name, Value]:
    """Returns the known values after a change; None stands for one that is gone."""
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
