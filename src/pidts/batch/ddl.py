"""One DDL of the log: understand it, run it on the target, and tell which structures it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import structlog

from pidts.apply import DdlRunner, Retry, SchemaChange
from pidts.batch.context import JobContext, watched_by
from pidts.batch.finishing import start_over
from pidts.batch.log import ddl_event
from pidts.batch.meaning import Meaning
from pidts.batch.online import followed, made_of, online_of
from pidts.batch.ordered import overrides, unfollowed
from pidts.batch.statement import apart, landed, taken
from pidts.binlog import Query
from pidts.model import DdlOrder, Halted, Kind, LogEntry, Spoken, Table, TableName, Transient, Where
from pidts.plan import WorkKind
from pidts.relay import RelayReader
from pidts.rules import AllowList, Rules
from pidts.schema import (
    AddColumn,
    AlterTable,
    Statement,
    StatementDml,
    Unknown,
    apply_charset,
    classify,
)
from pidts.schema.online_swap import untranslated
from pidts.source import is_utc

_log = structlog.get_logger(__name__)

Concerns: TypeAlias = Callable[[TableName], bool]

_PATIENT = Retry(attempts=1_000)
"""Somebody on the target may hold a lock on the table for hours; only this table's changes wait for it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is another than before; None is gone."""

    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    charsets: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)

    def applied_to(self, context: JobContext) -> JobContext:
        """What the batches behind the change work with."""
        return replace(
            context,
            structures=_merged(context.structures, self.structures),
            charsets=_merged(context.charsets, self.charsets),
            watched={**context.watched, **self.watched},
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
) -> Changed:
    """Returns when the target has the change, for as long as that may take; `sleep` may raise to break it off.

    A table that has joined the task behind the statement is not the one of which it speaks (`concerns`). `filling` are
    tables that were empty when their copy began, which goes on: one whose copy has to begin anew is emptied. `order` is
    what an operator wants to be done about it.

    The rows of a CREATE TABLE ... SELECT stand in the same entry. They are rows like others and come with a batch.
    """
    lsn = entry.transaction.lsn
    runner = DdlRunner(
        context.target, context.task, context.source.source_id, context.epoch, retry=_PATIENT, sleep=sleep
    )
    if runner.is_done(lsn):
        return Changed()  # the structures were read from the target after this
    query = ddl_event(relay, entry)
    dialect = context.dialect.under(query.sql_mode)
    text = query.sql
    where = Where(source=context.source.source_id, position=str(relay.position(lsn) or lsn))
    statement = classify(text, query.schema, dialect=dialect)

    def is_ours(name: TableName) -> bool:
        return allow(name) and concerns(name)

    def as_ordered(
        order: DdlOrder,
        known: Mapping[TableName, Table | None] = MappingProxyType({}),
        forgotten: Mapping[TableName, None] = MappingProxyType({}),
    ) -> Changed:
        change = unfollowed(context, order, text, query.schema, dialect, is_ours)
        change = replace(change, structures={**change.structures, **known}, shadows=forgotten)
        runner.run(change, lsn)
        return Changed(change.structures)

    if order is not None and overrides(order) and isinstance(statement, StatementDml | Unknown):
        return as_ordered(order)
    if isinstance(statement, Unknown) and taken(statement, text, context.rules, where, dialect) is None:
        return Changed()
    online = online_of(allow)
    if online.parted(statement).rest is not None:
        statement = _understood(statement, text, where)
    work = Meaning(allow, dialect).of_statement(statement)
    if work.kind is WorkKind.NOTHING:
        # The planner could not tell without the modes that the statement ran under.
        return Changed()
    if work.tables is not None and not any(map(is_ours, work.tables)):
        return Changed()
    shadows = runner.shadows() if online.is_on else {}
    try:
        found = followed(context, allow, statement, Spoken(text, query.schema, query.sql_mode), shadows, is_ours)
    except Halted:
        if order is None or not overrides(order):
            raise
        return as_ordered(order, *untranslated(online, statement, shadows))
    if found.statement is None:
        change = SchemaChange(statement=None, text=text, before={}, after={}, shadows=found.shadows, order=order)
        runner.run(change, lsn)
        _log.info("part of an online schema change is remembered", statement=text, at=where.position)
        return Changed()
    statement, ours = found.statement, found.structures
    rules = context.rules
    runs: Statement | None = statement
    if not overrides(order):
        runs = taken(statement, found.text, rules, where, dialect, context.structures)
        runs = runs and apart(runs, context.merges, rules, where)
    there = {} if runs is None else ours if runs is statement else made_of(context, runs, dialect, is_ours)
    # A database that goes takes no table along that others have rows in, too.
    there = {name: table for name, table in there.items() if table is not None or not context.merges(name)}
    change = SchemaChange(
        statement=landed(runs, rules) if runs is not None else None,
        text=text,
        before={rules.landed_name(name): _landed(rules, context.structures.get(name)) for name in there},
        after={rules.landed_name(name): _landed(rules, table) for name, table in there.items()},
        structures=ours,
        shadows=found.shadows,
        order=order,
        executed_at=0 if _needs_zone(statement) and not _in_utc(context, query) else entry.transaction.timestamp,
    )
    for name in Meaning(allow, context.dialect)(entry).recopied:
        table = context.structures.get(name)
        if runs is not None and name in filling and table is not None:
            _patiently(partial(start_over, context, table, lsn), sleep)
    runner.run(change, lsn)
    _log.info(
        "schema change applied" if runs is not None else "schema change filtered", statement=text, at=where.position
    )
    made = [table for table in change.after.values() if table is not None]
    with closing(context.target.connect()) as session:
        watched = watched_by(session, made, context.workers)
    return Changed(ours, apply_charset(statement, context.charsets, dialect=dialect), watched)


def _landed(rules: Rules, table: Table | None) -> Table | None:
    return None if table is None else rules.landed(table)


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


def _understood(statement: Statement, text: str, where: Where) -> Statement:
    table = ", ".join(map(str, statement.tables))
    where = replace(where, table=table)
    if isinstance(statement, Unknown):
        raise Halted(
            "ddl-not-understood",
            f"a statement in the log cannot be followed ({statement.reason}): {text[:200]}",
            where=where,
            todo="Have the target do it and skip it, or replace it (pidts ddl skip, pidts ddl replace), then run again",
        )
    if isinstance(statement, StatementDml):
        raise Halted(
            "statement-format",
            f"rows were changed by a statement in the log instead of row events: {text[:200]}",
            where=where,
            todo="SET GLOBAL binlog_format = 'ROW' on the source, reconnect its clients, and copy the table again",
        )
    return statement


def _needs_zone(statement: Statement) -> bool:
    """Existing rows get the session's own wall clock: a DATETIME column that is new and defaults to now."""
    return isinstance(statement, AlterTable) and any(
        isinstance(action, AddColumn)
        and action.column.type.kind is Kind.DATETIME
        and (action.column.default or "").lower().startswith("current_timestamp")
        for action in statement.actions
    )


def _in_utc(context: JobContext, query: Query) -> bool:
    return is_utc(query.time_zone) if query.time_zone not in ("", "SYSTEM") else context.clock_is_utc


Name = TypeVar("Name")
Value = TypeVar("Value")


def _merged(known: Mapping[Name, Value], changed: Mapping[Name, Value | None]) -> dict[Name, Value]:
    """What is known after a change; None is gone."""
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
