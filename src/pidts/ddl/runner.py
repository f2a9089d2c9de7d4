"""Carries out one DDL of the log: interprets it, runs it on the target, and returns the resulting structures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from shlex import quote

import structlog

from pidts.apply import (
    AttemptSuperseded,
    ChangeEnd,
    DdlRunner,
    MemberChange,
    OpenJournal,
    Retry,
    SchemaChange,
    SharedSession,
)
from pidts.apply.locks.follow_schema import carry, comes_again, locks_of, obstacle
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.apply.unseen_tables import forget_dropped
from pidts.batch.context import JobContext, watched_by
from pidts.batch.copy.finish import start_over
from pidts.ddl.admission import Admission, admit, carry_out
from pidts.ddl.due_change import DueChange
from pidts.ddl.interpreter import Interpreter, overrides
from pidts.ddl.key_overlap import demand_apart
from pidts.ddl.outcome import ChangeDone, ChangeWaits, Result
from pidts.ddl.row_locks_of_merged import demand_lockable
from pidts.ddl.shards.arrivals import RunByLeader
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.protected_rows import SharedTables
from pidts.ddl.shards.record import dropped_by_gone, missed_records, missed_under
from pidts.model import (
    CommandKind,
    DdlCommand,
    Halted,
    MergedTablesKey,
    RecordKey,
    RemainingRowsKey,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.model.advice import RETRY
from pidts.model.errors import plural
from pidts.schema import DropDatabase, DropTable, TruncateTable, apply_charset
from pidts.shards.decide import MissedChanges, Wait

_log = structlog.get_logger(__name__)

_PATIENT = Retry(attempts=1_000)
"""Retries nearly endlessly: another session may lock the table for hours, but only the changes of this table wait."""


def run_ddl(
    due: DueChange,
    groups: ShardGroups,
    sleep: Callable[[float], None],
    *,
    command: DdlCommand | None = None,
    records: SharedSession | None = None,
    is_superseded: Callable[[], bool] = lambda: False,
    again: bool = False,
    since: float = 0.0,
) -> Result:
    """Makes one attempt at a schema change. Its statement may take any time. `sleep` may raise, which ends the attempt.

    - `groups`: if other tables map to the same target table, their shard group decides whether the change may run.
    - `command` is an operator's ddl command for the change. `is_superseded` says whether there is a newer one.
    - `records` is the session on which all schema changes of a source read the target's records.
    - `again`: this run has tried the change before. Then the journal's entry "done" may come from another member, and
      the structures in the context may be older than the change.
    - `since` is when the change began to wait for other shards.

    A CREATE TABLE ... SELECT is logged in one transaction with its rows. A batch writes these rows like other rows.
    """
    context, source = due.context, due.source
    runner = DdlRunner(
        context.target,
        context.task,
        source,
        context.epoch,
        retry=_PATIENT,
        sleep=sleep,
        is_superseded=is_superseded,
        records=records,
    )
    if (changed := _made_before(due, groups, runner, again=again)) is not None:
        return changed
    shared_tables = SharedTables(groups, source, context.rules)
    due = _with_present_owners(due)
    if isinstance(due.statement, DropTable | DropDatabase):
        with closing(context.target.connect()) as session:
            forget_dropped(session, context.task, source, due.statement)
    found = Interpreter(
        due=due, command=command, shared_tables=shared_tables, shadows=runner.shadows, keyed_by=partial(_keyed, context)
    ).found()
    if found is None:
        return ChangeDone()
    if isinstance(found, ChangeWaits):
        return found
    _carry_locks(context, found.change, due)
    context = replace(context, rules=context.rules.with_keyed(found.keyed))
    demand_lockable(context, groups, found, due.where)
    demand_apart(context, groups, found, due.where, command, again=again)
    step = admit(groups, due, found, since)
    if isinstance(step, ChangeWaits):
        return step
    if isinstance(step, RunByLeader):
        return _made_for(due, step.change)
    staying = shared_tables.new_records(context.structures)
    leaves = shared_tables.leaves_rows(due.statement, step.change.structures, context.structures)
    change = _with_records(step.change, {MergedTablesKey(): staying, RemainingRowsKey(source): leaves})
    renamed, change = _renamed_missed(groups, step, change, source)

    def run() -> ChangeEnd:
        empties = change.statement is not None and not overrides(command)
        if empties and not _empty_recopied(due, shared_tables, sleep, is_superseded):
            return AttemptSuperseded()
        return runner.run(change, due.lsn)

    ended = carry_out(groups, step, context.epoch, run)
    if isinstance(ended, OpenJournal):
        return ChangeWaits(wait=Wait(begun=(ended.source, ended.lsn)))
    if isinstance(ended, AttemptSuperseded):
        return ended
    if staying:
        groups.recall(groups.next_read(), source, staying, {})
    _report(due, step, shared_tables)
    charsets: dict[str, tuple[str, str] | None] = {}
    if found.statement is not None:
        charsets = apply_charset(found.statement, context.charsets, dialect=due.dialect)
    made = [table for table in found.change.after.values() if table is not None]
    return ChangeDone(change.structures, charsets, _watched(context, made), found.keyed, renamed)


def _report(due: DueChange, step: Admission, shared_tables: SharedTables) -> None:
    place = due.where.position
    _log.info(_summary(step), statement=due.query.sql, at=place)
    for left in shared_tables.left:
        _log.warning("the target keeps the rows of a shard, since other shards share its table", what=left, at=place)


def _with_present_owners(due: DueChange) -> DueChange:
    """Returns the change with the present owners of rows: an operator may change owners while the task runs."""
    context = due.context
    if not context.writing.owners:
        return due
    with closing(context.target.connect()) as session:
        owners = context.writing.owners.moved(session.meta.range_owners.read())
    return replace(due, context=replace(context, writing=replace(context.writing, owners=owners)))


def _carry_locks(context: JobContext, change: SchemaChange, due: DueChange) -> None:
    """Records the new structures in the locks of rows; halts if held changes cannot be converted to them."""
    if not context.writing.looks_for_locks:
        return
    statement, there, then = change.statement, change.before, change.after
    if statement is None and not there:  # The target runs nothing, but later rows may have another structure.
        rules, known = context.rules, context.structures
        there = {
            rules.target_name(name): rules.target_table(known[name]) for name in change.structures if name in known
        }
        left = ((name, table) for name, table in change.structures.items() if name in known)
        then = {rules.target_name(name): None if table is None else rules.target_table(table) for name, table in left}
        statement = due.statement if due.comes_back else None
    emptied = {change.statement.table} if isinstance(change.statement, TruncateTable) else set()
    if due.comes_back and isinstance(due.statement, TruncateTable):
        emptied = {context.rules.target_name(due.statement.table)}
    with closing(context.target.connect()) as session:
        counts = session.meta.row_locks.tables(context.task, due.source)
        for name in sorted({*there, *then, *emptied} & counts.keys()):
            before, after = there.get(name), then.get(name)
            if statement is None and before == after:  # The rules leave out what the statement changes.
                continue
            why = obstacle(statement, change.command, before, after)
            if why is None and after is not None and context.writing.converges and context.writing.guards(after):
                why = "after it, the row with the later version stays (conflict: version), and no row stays locked"
            if why is None and before is not None and after is not None:
                locks = locks_of(session, context.task, due.source, name)
                why = next(filter(None, (comes_again(one, before, after) for one in locks)), None)
            if why is not None or after is None:
                raise Halted(
                    "rows-locked",
                    f"{plural('row', counts[name], 'is', 'are')} locked in {name}, and the held changes cannot be "
                    f"applied after this schema change: {why}",
                    where=replace(due.where, table=str(name)),
                    todo=f"To resolve these rows: pidts locks resolve TASK --table {quote(str(name))} --all --take "
                    f"source --yes. Then run: {RETRY}",
                )
            carry(session, context.task, due.source, name, after, context.epoch)


def _made_before(due: DueChange, groups: ShardGroups, runner: DdlRunner, *, again: bool) -> ChangeDone | None:
    """Returns the result if the change is already made; None if it is not. `again`: this run has tried it before."""
    if again and (change := groups.made(due.source, due.lsn)) is not None:
        return _made_for(due, change)
    is_done = runner.is_done(due.lsn)
    if not again:
        return ChangeDone() if is_done else None  # this run has the structures after the change
    if not is_done:
        return None
    # Another member has made the change, and this member has not been informed yet.
    _log.info("another shard has already made the schema change", statement=due.entry.transaction.ddl, at=str(due.lsn))
    context = due.context
    with closing(context.target.connect()) as session:
        known = session.meta.structures.load(context.task, SourceTablesKey(due.source))
    names = filter(due.concerns, due.planned.tables or context.structures)
    return _made(context, {name: known.get(name) for name in names if name in known or name in context.structures})


def _made_for(due: DueChange, change: MemberChange) -> ChangeDone:
    _log.info("another shard has made the schema change for this shard, too", statement=change.text, at=str(due.lsn))
    return _made(due.context, change.structures)


def _empty_recopied(
    due: DueChange, shared_tables: SharedTables, sleep: Callable[[float], None], is_superseded: Callable[[], bool]
) -> bool:
    """Empties target tables whose copy has to begin again. Returns False if there is a newer ddl command meanwhile."""
    for name in due.planned.recopied:
        table = due.context.structures.get(name)
        if name not in due.filling or table is None or shared_tables.shared(name):
            continue
        for attempt in range(1, _PATIENT.attempts + 1):
            try:
                start_over(due.context, table, due.lsn)
                break
            except Transient as error:
                if attempt == _PATIENT.attempts:
                    raise
                _log.warning("emptying a table is tried again", error=str(error))
            sleep(_PATIENT.pause(attempt))
            if is_superseded():
                return False
    return True


def _renamed_missed(
    groups: ShardGroups, step: Admission, change: SchemaChange, source: str
) -> tuple[MissedChanges, SchemaChange]:
    """Returns the missed changes under the new names of renamed shards, and the schema change with new records."""
    missed: MissedChanges = groups.known.missed
    change = _with_records(change, dropped_by_gone(source, change, groups.known.dropped))
    renamed = missed_under(source, change.renamed, {**missed, **step.missed})
    if not renamed:
        return {}, change
    records = missed_records({**step.missed, **renamed}, missed)
    return renamed, replace(change, records={**change.records, **records})


def _made(context: JobContext, structures: Mapping[TableName, Table | None]) -> ChangeDone:
    """Returns the result of a schema change that another shard has made and recorded."""
    tables = [table for table in structures.values() if table is not None]
    new = (table for name, table in structures.items() if table is not None and name not in context.structures)
    keyed = frozenset[TableName]().union(*(_keyed(context, table) for table in new))
    target_table = list(map(context.rules.with_keyed(keyed).target_table, tables))
    return ChangeDone(structures, {}, _watched(context, target_table), keyed)


def _watched(context: JobContext, made: Sequence[Table]) -> Mapping[TableName, tuple[str, ...]]:
    if not made or context.workers == 1:  # one worker gets all rows, whatever their columns
        return {}
    with closing(context.target.connect()) as session:
        return watched_by(session, made, context.workers)


def _keyed(context: JobContext, table: Table) -> frozenset[TableName]:
    """Returns the target table of a new source table if it exists and its key has extracted columns; else no table."""
    destination = context.rules.routes.destination(table.name)
    if not destination.extracted or destination.name in context.rules.keyed:
        return frozenset()
    with closing(context.target.connect()) as session:
        return keyed_targets(session, context.rules, [table])


def _with_records(change: SchemaChange, records: Mapping[RecordKey, Mapping[TableName, Table | None]]) -> SchemaChange:
    more = {record: {**change.records.get(record, {}), **tables} for record, tables in records.items() if tables}
    return replace(change, records={**change.records, **more}) if more else change


def _summary(step: Admission) -> str:
    if step.passes:
        return "schema change not run: the target's table needs no change for it now"
    change = step.change
    match change.command:
        case DdlCommand(kind=CommandKind.SKIP):
            return "schema change skipped by a ddl command"
        case DdlCommand(kind=CommandKind.REPLACE, statements=statements):
            return f"schema change replaced by a ddl command: {'; '.join(statements)}"
    if change.others:
        return f"schema change applied for {len(change.others) + 1} shards"
    return "schema change applied" if change.statement is not None else "schema change recorded, with nothing to run"
