"""A batch that is one DDL: understand it, run it on the target, and go on with the structures that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import structlog

from pidts.apply import DdlRunner, SchemaChange
from pidts.batch.context import JobContext
from pidts.batch.log import ddl_event
from pidts.batch.meaning import Meaning
from pidts.batch.workers import Commit
from pidts.binlog import Query
from pidts.model import Halted, Kind, LogEntry, Lsn, Where
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


def run_ddl(
    context: JobContext, allow: AllowList, relay: RelayReader, entry: LogEntry, commit: Commit
) -> tuple[JobContext, Commit]:
    """Returns the context with the new structures, and what is left to commit: the rows of a CREATE TABLE ... SELECT.

    Where nothing is left, both sides of the commit are the same. A CREATE TABLE ... SELECT's rows stand in its own
    transaction. The schema change then commits up to a point inside that
    transaction, before its first row; a restart from there finds the table made and writes the rows.
    """
    transaction = entry.transaction
    begin = transaction.begin
    inside = Lsn(begin.change_no, begin.log_index, begin.offset + 1)
    if transaction.row_events and commit.before[0].lsn >= inside:
        return context, commit
    query = ddl_event(relay, entry)
    dialect = context.dialect.under(query.sql_mode)
    text = query.sql
    where = Where(source=context.source.source_id, position=commit.after[0].position or str(transaction.lsn))
    statement = _understood(classify(text, query.schema, dialect=dialect), text, where)
    if Meaning(allow, dialect).of_statement(statement).kind is WorkKind.NOTHING:
        # The planner could not tell without the modes that the statement ran under.
        return context, commit
    statement = _only(statement, allow)
    changed = apply(statement, context.structures, context.charsets, dialect=dialect)
    ours = {name: table for name, table in changed.items() if allow(name)}
    change = SchemaChange(
        statement=statement,
        text=text,
        before={name: context.structures.get(name) for name in ours},
        after=ours,
        structures=ours,
        executed_at=0 if _needs_zone(statement) and not _in_utc(context, query) else transaction.timestamp,
    )
    reached = commit.after
    if transaction.row_events:
        reached = tuple(
            replace(after, lsn=max(before.lsn, inside), gtid=before.gtid, position=before.position)
            for before, after in zip(commit.before, commit.after, strict=True)
        )
    runner = DdlRunner(context.target, context.task, context.source.source_id, context.epoch)
    runner.run(change, commit.before[0].lsn, reached)
    _log.info("schema change applied", statement=text, at=where.position)
    context = replace(
        context,
        structures=_merged(context.structures, ours),
        charsets=_merged(context.charsets, apply_charset(statement, context.charsets, dialect=dialect)),
    )
    return context, Commit(reached, commit.after)


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


def _only(statement: Statement, allow: AllowList) -> Statement:
    """One statement can name the task's tables and others, which the target may have for its own reasons."""
    if isinstance(statement, DropTable):
        return replace(statement, tables=tuple(filter(allow, statement.tables)))
    if isinstance(statement, RenameTable):
        return replace(statement, pairs=tuple(pair for pair in statement.pairs if any(map(allow, pair))))
    return statement


Name = TypeVar("Name")
Value = TypeVar("Value")


def _merged(known: Mapping[Name, Value], changed: Mapping[Name, Value | None]) -> dict[Name, Value]:
    """What is known after a change; None is gone."""
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
