"""One DDL of the log: understand it, run it on the target, and tell which structures it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import structlog

from pidts.apply import DdlRunner, Retry
from pidts.batch.context import JobContext, watched_by
from pidts.batch.ddl_meaning import Told
from pidts.batch.finishing import start_over
from pidts.batch.log import ddl_event
from pidts.batch.meaning import Meaning
from pidts.batch.ordered import overrides
from pidts.model import DdlOrder, LogEntry, Table, TableName, Transient, Where
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema import apply_charset

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
    where = Where(source=context.source.source_id, position=str(relay.position(lsn) or lsn))
    query = ddl_event(relay, entry)
    found = Told(
        context=context,
        allow=allow,
        entry=entry,
        query=query,
        where=where,
        is_ours=lambda name: allow(name) and concerns(name),
        order=order,
    ).found(runner.shadows)
    if found is None:
        return Changed()
    change = found.change
    if change.statement is not None and not overrides(order):
        for name in Meaning(allow, context.dialect)(entry).recopied:
            table = context.structures.get(name)
            if name in filling and table is not None:
                _patiently(partial(start_over, context, table, lsn), sleep)
    runner.run(change, lsn)
    says = "schema change applied" if change.statement is not None else "schema change put on record"
    _log.info(says, statement=query.sql, at=where.position)
    charsets: dict[str, tuple[str, str] | None] = {}
    if found.statement is not None:
        charsets = apply_charset(found.statement, context.charsets, dialect=context.dialect.under(query.sql_mode))
    made = [table for table in change.after.values() if table is not None]
    if not made:
        return Changed(change.structures, charsets)
    with closing(context.target.connect()) as session:
        return Changed(change.structures, charsets, watched_by(session, made, context.workers))


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
    """What is known after a change; None is gone."""
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
