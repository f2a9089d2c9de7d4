"""One DDL of the log: understand it, run it on the target, and tell which structures it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import structlog

from pidts.apply import DdlRunner, Retry, SchemaChange
from pidts.batch.context import JobContext, watched_by
from pidts.batch.finishing import start_over
from pidts.batch.log import ddl_event
from pidts.batch.meaning import Meaning
from pidts.binlog import Query
from pidts.model import Halted, Kind, LogEntry, Table, TableName, Transient, Where
from pidts.plan import WorkKind
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema import (
    AddColumn,
    AlterTable,
    DropTable,
    RenameTable,
    Statement,
    StatementDml,
    Unknown,
    apply,
    apply_charset,
    classify,
)
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
) -> Changed:
    """Returns when the target has the change, for as long as that may take; `sleep` may raise to break it off.

    A table that has joined the task behind the statement is not the one of which it speaks (`concerns`). `filling` are
    tables that were empty when their copy began, which goes on: one whose copy has to begin anew is emptied.

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
    statement = _understood(classify(text, query.schema, dialect=dialect), text, where)
    if Meaning(allow, dialect).of_statement(statement).kind is WorkKind.NOTHING:
        # The planner could not tell without the modes that the statement ran under.
        return Changed()

    def is_ours(name: TableName) -> bool:
        return allow(name) and concerns(name)

    if statement.tables and not any(map(is_ours, statement.tables)):
        return Changed()
    statement = _only(statement, is_ours)
    changed = apply(statement, context.structures, context.charsets, dialect=dialect)
    ours = {name: table for name, table in changed.items() if is_ours(name)}
    change = SchemaChange(
        statement=statement,
        text=text,
        before={name: context.structures.get(name) for name in ours},
        after=ours,
        structures=ours,
        executed_at=0 if _needs_zone(statement) and not _in_utc(context, query) else entry.transaction.timestamp,
    )
    for name in Meaning(allow, context.dialect)(entry).recopied:
        table = change.before.get(name)
        if name in filling and table is not None:
            _patiently(partial(start_over, context, table, lsn), sleep)
    runner.run(change, lsn)
    _log.info("schema change applied", statement=text, at=where.position)
    made = [table for table in ours.values() if table is not None]
    with closing(context.target.connect()) as session:
        watched = watched_by(session, made, context.workers)
    return Changed(ours, apply_charset(statement, context.charsets, dialect=dialect), watched)


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
            todo="Run what it does on the target by hand and start a new task behind it, or leave its tables out",
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


def _only(statement: Statement, is_ours: Concerns) -> Statement:
    """One statement can name the task's tables and others, which the target may have for its own reasons."""
    if isinstance(statement, DropTable):
        return replace(statement, tables=tuple(filter(is_ours, statement.tables)))
    if isinstance(statement, RenameTable):
        return replace(statement, pairs=tuple(pair for pair in statement.pairs if any(map(is_ours, pair))))
    return statement


Name = TypeVar("Name")
Value = TypeVar("Value")


def _merged(known: Mapping[Name, Value], changed: Mapping[Name, Value | None]) -> dict[Name, Value]:
    """What is known after a change; None is gone."""
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
