"""Writes one source's changes to its datacenter, from a claimed checkpoint until the channel is stopped or fails.

A schema change is a record like other records, and the datacenter runs no statement for it. So one thread does
everything in the order of the log. Each step is one commit (see `pidts.gate.committer`): the rows of a log part, or one
schema change with the rows of its own transaction. No table waits while others continue, since readers rely on the
order of the records. So the run ends at a schema change that PiDTS cannot interpret. An operator's ddl command or an
event filter lets the next run continue after the change.

Crash points: before a commit, nothing has happened. After a commit, the next start reads the new checkpoint with its
structures. The commit that carries out a ddl command also records that the command was carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from structlog.contextvars import bound_contextvars

from pidts.apply import TargetSession
from pidts.batch.batch_done import BatchDone
from pidts.batch.end_deadline import EndDeadline
from pidts.batch.known_tables import KnownTables
from pidts.batch.log_place import end_of_batch
from pidts.batch.workers import Workers
from pidts.ddl.due_change import DueChange
from pidts.ddl.interpreter import DueStatement, Interpreter
from pidts.ddl.outcome import ChangeDone, ChangeWaits
from pidts.ddl.shards.protected_rows import SharedTables
from pidts.gate.committer import Channel, ChannelCommitter
from pidts.gate.record_batch import Records, TransactionRange, next_transactions
from pidts.gate.record_prefetch import PreparedRecords, RecordPrefetch
from pidts.gate.records import SchemaRecord, of_schema_change
from pidts.gate.retention import Retention
from pidts.gate.schema_records import schema_records
from pidts.model import (
    Checkpoint,
    CommandKind,
    DdlCommand,
    Halt,
    Halted,
    LogEntry,
    Lsn,
    Shadow,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
    Where,
    with_gtids,
)
from pidts.plan import BatchPlan, Limits, PlanState, UnappliedSearch, plan_between
from pidts.reduce import Counts
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.watch import FolderWatch
from pidts.schema import CreateTable, CreateTableLike, IgnoredStatement, Statement, apply_charset, classify
from pidts.target.mysql.datacenter import Numbers
from pidts.time_spent import IDLE, CommitTime, StepTimes

if TYPE_CHECKING:
    from pidts.batch.context import JobContext
    from pidts.batch.transaction_classifier import TransactionClassifier
    from pidts.ddl.shards.coordinator import ShardGroups

_log = structlog.get_logger(__name__)

_POLL_SECONDS, _LOOK_SECONDS = 0.02, 0.1
_BUSY_SECONDS = 1.0
_LEAVE_SECONDS = 10.0
_UNKNOWN_TABLE = "The table was included after the channel began: exclude it, or begin a new channel"
_PURGE_ROWS, _PURGE_PIECES = 1_000, 50
"""The largest number of records that one transaction removes, and the largest number of such transactions in a row.
Both are small, so that other programs do not wait long for a lock.
"""


class ChannelStream:
    """The run of one channel. It has the attributes of a `TaskStream`, for the code that watches a run."""

    def __init__(
        self,
        *,
        context: JobContext,
        channel: Channel,
        checkpoint: Checkpoint,
        classifier: TransactionClassifier,
        limits: Limits,
        goal: Lsn | None,
        instance_of: Callable[[int], str],
        retention: int,
        on_commit: Callable[[BatchDone], None],
        shards: ShardGroups,
        leaves: Callable[[], bool],
    ) -> None:
        """`leaves` says whether the process is going to end: then `close` waits for a commit for a few seconds only.

        `instance_of` returns `ip:port` of the server that wrote the log with this number of failovers in its Lsns.

        `retention` is the age in seconds at which records may be removed; 0 means never.
        """
        self._context, self._classifier, self._limits, self._goal = context, classifier, limits, goal
        self._instance_of, self._retention, self._on_commit = instance_of, Retention(retention), on_commit
        self._shards = shards
        self._workers, self._state, claimed = Workers.claimed((checkpoint,))
        self._gtids = claimed.gtid
        self._unapplied = UnappliedSearch(classifier)
        self._relay = RelayReader(context.relay, context.source.source_id)
        self._known_tables = KnownTables(self._relay, classifier, _UNKNOWN_TABLE)
        self._watch = FolderWatch(Folder.of(context.relay, context.source.source_id).path)
        self._committer = ChannelCommitter(channel, sleep=self._pause)
        self._clear, self._passed = self._state.lsn, 0
        """The Lsn up to which the log has no changes for the task, and the number of skipped transactions before it."""
        self._ahead, self._relay_ahead = RecordPrefetch(), RelayReader(context.relay, context.source.source_id)
        self.times = StepTimes()
        self._closed = threading.Event()
        self._leaves = leaves
        self._failure: Exception | None = None
        self._halts: tuple[Halt, ...] = ()
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)

    @property
    def state(self) -> PlanState:
        """Returns the last state that is durable in the target."""
        return self._state

    @property
    def halts(self) -> tuple[Halt, ...]:
        """Returns the halt that ends the run, if it needs an operator."""
        return self._halts

    @property
    def rows_failed(self) -> bool:
        """Always false: no table of a channel can wait while other tables continue."""
        return False

    @property
    def being_copied(self) -> Mapping[TableName, int]:
        """Returns no tables: a channel copies none."""
        return {}

    @property
    def written(self) -> None:
        """Always None: a channel does not write a batch in parts."""

    @property
    def awaits_spark(self) -> bool:
        """Always false: a channel needs no Spark."""
        return False

    @property
    def spark_jobs(self) -> int:
        """Always 0: a channel needs no Spark."""
        return 0

    @property
    def commit_times(self) -> list[CommitTime]:
        """The time that all commits of this run have taken; one thread makes them."""
        return [self._committer.times.reading()]

    @property
    def spark(self) -> None:
        """Always None: a channel needs no Spark."""
        return

    @property
    def tables(self) -> Collection[TableName]:
        """Returns the tables whose structures the task has now."""
        return self._context.structures.keys()

    def only_halts_left(self, relay: RelayReader) -> bool:  # noqa: ARG002 - the arguments of TaskStream
        """Always false: work that needs an operator ends the run, so it is never the only work that is left."""
        return False

    @property
    def halted_tables(self) -> frozenset[TableName]:
        """Always empty: a halt ends the run of a channel."""
        return frozenset()

    @property
    def waiting(self) -> Mapping[TableName, Lsn]:
        """Always empty: no table of a channel waits while other tables continue."""
        return {}

    def unapplied(self, relay: RelayReader, received: Lsn, waiting: Mapping[TableName, Lsn]) -> LogEntry | None:
        """Returns the first received entry of the relay that the datacenter lacks, if there is one."""
        return self._unapplied.first(self._state, partial(relay.entries, joined=True), received, waiting)

    def oldest_waiting(
        self,
        relay: RelayReader,  # noqa: ARG002 - the arguments of TaskStream
        received: Lsn,  # noqa: ARG002
        waiting: Mapping[TableName, Lsn],  # noqa: ARG002
    ) -> None:
        """Always None: a channel has no waiting tables."""
        return

    def failure(self) -> Exception | None:
        """Returns the error that has ended the run; None while it runs."""
        return self._failure

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Waits for the current commit, and ends the thread.

        If the process is going to end, `close` waits for a few seconds only. Then the server ends the commit, and the
        next run finds out whether it succeeded.
        """
        self._closed.set()
        end_deadline = EndDeadline(self._leaves, _LEAVE_SECONDS)
        while self._thread.is_alive() and not end_deadline.is_over():
            self._thread.join(_LOOK_SECONDS)
        self._shards.forget(self._context.source.source_id)
        if self._thread.is_alive():
            _log.warning("a commit waits for the target and is left to the next run", at=str(self._state.lsn))
            return
        self._ahead.close()
        self._committer.close()
        self._relay.close()
        self._relay_ahead.close()
        self._watch.close()

    def _run(self) -> None:
        worked = time.monotonic()
        try:
            with bound_contextvars(source=self._context.source.source_id):
                while not self._closed.is_set():
                    has_worked = self._step()
                    self._remove_old()
                    if has_worked:
                        worked = time.monotonic()
                        continue
                    is_busy = time.monotonic() - worked < _BUSY_SECONDS
                    self.times.step(IDLE)
                    self._watch.wait(_POLL_SECONDS if is_busy else _LOOK_SECONDS)
        except _RunEndedError:
            pass
        except Exception as error:  # noqa: BLE001 - the thread that watches the run raises it
            self._failure = error

    def _step(self) -> bool:
        """Commits the next log part or schema change. Returns False if there is nothing to do yet."""
        self.times.step("plan")
        if (made := self._ahead.take(self._clear, self._context)) is not None:
            self._retention.passed(made.transactions.oldest)
            self._commit_rows(made.transactions, made)
            return True
        transactions = next_transactions(self._entries(self._clear), self._clear, self._classifier, self._limits)
        self._retention.passed(transactions.oldest)
        if transactions.due is not None and not transactions.entries:
            self._change(transactions.due)
            return True
        if transactions.entries:
            self._commit_rows(transactions)
            return True
        self._clear, self._passed = transactions.end, self._passed + transactions.count
        if self._passed >= self._limits.idle_entries or self._is_goal(transactions.end):
            self._commit_rows(transactions)
            return True
        return False

    def _is_goal(self, end: Lsn) -> bool:
        return self._goal is not None and self._state.lsn < self._goal <= end

    def _commit_rows(self, transactions: TransactionRange, made: PreparedRecords | None = None) -> None:
        plan = made.plan if made is not None else self._plan(transactions.end)
        self._known_tables.demand(self._context, plan)
        records = (
            made.records
            if made is not None
            else Records(self._context, self._relay, plan, transactions.entries, self._instance_of, self._zone)
        )
        if transactions.has_more:
            self._ahead.begin(transactions.end, partial(self._made_ahead, plan.end, self._context))
        self._commit(plan, records)

    def _made_ahead(self, state: PlanState, context: JobContext) -> PreparedRecords | None:
        """Returns the log part after a state, with its records already made. A separate thread calls this.

        Returns None if there are no rows yet, or if the records are too large to wait in memory.
        """
        relay = self._relay_ahead
        entries = partial(relay.entries, joined=True, most=self._limits.joined)
        transactions = next_transactions(entries(state.lsn), state.lsn, self._classifier, self._limits)
        if not transactions.entries:
            return None
        plan = plan_between(state, PlanState(transactions.end), entries, self._classifier)
        records = Records(context, relay, plan, transactions.entries, self._instance_of, self._zone).ahead()
        return PreparedRecords(transactions, plan, records) if records is not None else None

    def _entries(self, after: Lsn, to: Lsn | None = None) -> Iterator[LogEntry]:
        return self._relay.entries(after, to, joined=True, most=self._limits.joined)

    @property
    def _zone(self) -> str:
        return self._context.rules.expressions.time_zone

    def _plan(self, end: Lsn) -> BatchPlan:
        return plan_between(self._state, PlanState(end), self._entries, self._classifier)

    def _commit(
        self, plan: BatchPlan, records: Records, also: Callable[[TargetSession], None] = lambda _: None
    ) -> None:
        gtids = with_gtids(self._gtids, plan.gtids)
        place = end_of_batch(self._relay, self._workers.checkpoints, self._state.lsn, plan.end.lsn)
        moved = self._workers.moved(plan.end, gtids, place)
        counted = _RecordCount(records)
        has_records = bool(plan.log) or records.first is not None
        self.times.step("apply")
        self._committer.commit(self._state.lsn, moved.checkpoints[0], counted, has_records=has_records, also=also)
        self._state, self._gtids, self._workers = plan.end, gtids, moved
        self._clear, self._passed = plan.end.lsn, 0
        self._on_commit(BatchDone(plan, moved.checkpoints[0], counted.counts))

    def _change(self, entry: LogEntry) -> None:
        """Commits a schema change: its records, the rows of its own transaction, and the structures after it."""
        due = DueChange(self._context, self._classifier, self._relay, entry)
        command = self._command(entry.transaction.lsn)
        try:
            found = self._interpreted(due, command)
            change, statement = (found.change, found.statement) if found is not None else (None, None)
            structures = dict(change.structures) if change is not None else {}
            charsets = (
                {} if statement is None else apply_charset(statement, self._context.charsets, dialect=due.dialect)
            )
            before = self._context.structures
            after = ChangeDone(structures, charsets).applied_to(self._context)
            recorded = self._recorded(due, found, command, {**before, **structures})
        except Halted as error:
            self._report(due, error)
            raise
        self._context = after
        lsn = entry.transaction.lsn
        plan = self._plan(lsn)
        self._known_tables.demand(self._context, plan)
        first = of_schema_change(recorded, entry.transaction.begin, entry.transaction.timestamp)
        records = Records(after, self._relay, plan, (entry,), self._instance_of, self._zone, first)

        def also(session: TargetSession) -> None:
            task, source = after.task, after.source.source_id
            session.meta.structures.save(task, SourceTablesKey(source), lsn, structures)
            if change is not None and change.shadows:
                session.meta.shadows.save(task, source, change.shadows)
            if command is not None and not command.taken and not session.meta.ddl_commands.take(task, source, command):
                what, where = (
                    "another ddl command about this statement was given meanwhile",
                    Where(source=source, position=str(lsn)),
                )
                raise Transient("ddl-order-changed", what, where=where)

        try:
            self._commit(plan, records, also)
        except BaseException:
            self._context = replace(after, structures=before, charsets=due.context.charsets)
            raise
        if recorded:
            _log.info("schema change recorded", statement=due.query.sql, at=due.where.position)

    def _command(self, lsn: Lsn) -> DdlCommand | None:
        context = self._context
        with closing(context.target.connect()) as session:
            return session.meta.ddl_commands.find(context.task, context.source.source_id, lsn)

    def _interpreted(self, due: DueChange, command: DdlCommand | None) -> DueStatement | None:
        context = self._context

        def shadows() -> Mapping[TableName, Shadow]:
            with closing(context.target.connect()) as session:
                return session.meta.shadows.load(context.task, context.source.source_id)

        found = Interpreter(
            due=due,
            command=command,
            shared_tables=SharedTables(self._shards, context.source.source_id, context.rules),
            shadows=shadows,
            keyed_by=lambda _: frozenset(),
        ).found()
        assert not isinstance(found, ChangeWaits), "a channel has no shards"  # noqa: S101
        return found

    def _recorded(
        self,
        due: DueChange,
        found: DueStatement | None,
        command: DdlCommand | None,
        structures: dict[TableName, Table | None],
    ) -> list[SchemaRecord]:
        """Returns the records of a change: of its statement, or of the statements that an operator has given."""
        if found is None:
            return []
        before = self._context.structures
        statements: list[Statement | None] = [found.change.statement]
        if command is not None and command.kind is CommandKind.REPLACE:
            statements = [classify(sql, due.query.schema, dialect=due.dialect) for sql in command.statements]
        records = []
        for statement in statements:
            if statement is None or isinstance(statement, IgnoredStatement):
                continue
            changed = {name: structures.get(name) for name in statement.tables}
            if found.change.command is None and _makes_nothing(statement, found):
                continue
            records += schema_records(statement, before, changed)
        return records

    def _report(self, due: DueChange, error: Halted) -> None:
        """Records the halt on the target, where `pidts status` and `pidts ddl` read it."""
        halt = replace(due.failed_halt(error), since=time.time())
        task, source = self._context.task, self._context.source.source_id
        with suppress(Transient), closing(self._context.target.connect()) as session:
            earlier = (one for one in session.meta.halts.read(task, source) if one.place == halt.place)
            halt = replace(halt, since=min((one.since for one in earlier if one.since), default=halt.since))
            session.meta.halts.save(task, source, halt)
        self._halts = (halt,)

    def _remove_old(self) -> None:
        if not self._retention.is_due():
            return
        with suppress(Transient):
            for _ in range(_PURGE_PIECES):
                if self._committer.remove_old(self._retention.seconds, _PURGE_ROWS) < _PURGE_ROWS:
                    break
                if self._closed.is_set():
                    break

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise _RunEndedError


class _RunEndedError(Exception):
    """Raised if the run ends while it waits for the target."""


class _RecordCount:
    """Counts the records of a log part while they are made; if they are made again, the count begins anew."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.counts = Counts()

    def __call__(self, last: Numbers) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yields the pieces of `Records`, and counts their records."""
        self.counts = Counts()
        for rows, numbers in self._records(last):
            self.counts += _counts(rows["optype"])
            yield rows, numbers


def _counts(optypes: pa.ChunkedArray) -> Counts:
    found = {pair["values"]: pair["counts"] for pair in optypes.value_counts().to_pylist()}
    return Counts(found.get("INSERT", 0), found.get("UPDATE", 0), found.get("DELETE", 0))


def _makes_nothing(statement: Statement, found: DueStatement) -> bool:
    """Whether the statement creates a table that already exists (IF NOT EXISTS)."""
    return isinstance(statement, CreateTable | CreateTableLike) and statement.table not in found.change.structures
