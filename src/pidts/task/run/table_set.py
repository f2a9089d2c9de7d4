"""Changes the tables of a task: tables join it, leave it, or are copied again.

All changes are made at the start of an attempt, in one transaction of the target. It changes the recorded structures,
and the copy's state in every worker's checkpoint. The transaction first locks the checkpoints and checks their epoch.
So a run that another run has replaced changes nothing.

**A table joins** if the rules select it, the source has it, and its structure is not recorded. There is one exception:
a table that the log after the checkpoint creates, or makes by renaming a table of the task. The task gets such a table
from the log. The structure of a joining table is read at a place `since` (see `read_structures`). The task
ignores the table's changes up to `since`, carries all later ones, and copies its rows. If an unrecorded table takes the
name of a recorded table, the table with this name joins anew. Between zones, a table with rows on the target does not
join: a copy would overwrite or remove these rows.

**A table leaves** when the rules no longer select it. The table's structure is removed from the record, and its later
changes are left out. So when the rules select the table again, it is copied. If the table then has rows on the target,
it is refused, unless `resync` names the table.

**A table is copied again** (`resync`) while it stays in the task. Its changes and schema changes are applied as before,
and its rows are read and corrected. The copy is recorded only after the replicator has accepted the source. If the log
is lost, all tables are copied again, and the task takes a new position.

If a table to copy again is halted because the target refuses its rows, the log with these rows is skipped. In these
cases, the table joins anew after the skipped log:

- The log has no later schema change of the table.
- The target's table is missing, or does not fit the structure before the next schema change.
- A statement that is not in the log has altered the table. So the log's rows do not fit the recorded structure,
  whatever statement comes later.

In all other cases, the table stays before its next schema change (`SchemaChangesAhead`). The table's changes up to this
schema change are skipped (`CopyState.since`). The schema change is run like any other, and the rows are copied when the
table has caught up. If the table joined anew, its schema change would also be skipped, and the target's table would
keep its former columns and keys.

In an incremental task no table joins. So a table with refused rows stays in any case. Its changes up to the next schema
change, or up to the present end of the log, are skipped. If a statement that is not in the log has altered the table,
the task refuses the copy (`check`): the table would halt again.

Crash points:

1. Before the missing tables are created on the target: nothing has changed.
2. After the tables are created, before the COMMIT: the tables exist, are empty, and fit; the next start does all of
   this again. If a table was changed on the source meanwhile, the target's table may no longer fit. Then the start is
   refused until somebody drops the empty table.
3. After the COMMIT: the tables are recorded, and are copied like any others.
4. When a new position is taken, the order is: check whether the tables fit; claim the task; empty the relay if it
   cannot continue; read the structures after the relay's new beginning; COMMIT. Between the emptying and the COMMIT,
   the checkpoint is before the relay's beginning. So the next start reports that the log is lost (`relay-purged`), and
   `--resync` has to be repeated. A checkpoint that was changed by hand stays marked as such until this COMMIT.
5. When a table stays before its next schema change, or, in an incremental task, skips changes up to the end of the log:
   before the COMMIT, the table is still halted. After the COMMIT, the checkpoint records the table's place, the state
   of its new copy, and `since`. So every later start skips the same changes. A later start with another
   `--resync` also skips them, even if the halt is no longer recorded: `since` never becomes earlier.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import fenced
from pidts.apply.due_copies import remove_due
from pidts.apply.merge.merged_tables import record_shared_tables
from pidts.apply.unseen_tables import record_unseen
from pidts.batch.online_ddl import online_of
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Workers, resume_point
from pidts.ddl.shards.record import settle_missed
from pidts.model import (
    Checkpoint,
    DdlState,
    Halted,
    Lsn,
    RemainingRowsKey,
    Shadow,
    SourceTablesKey,
    Table,
    TableName,
    Where,
)
from pidts.model.advice import fill_zone
from pidts.model.errors import listed, named, plural
from pidts.plan import CopyMode, CopyState, HeldTables, Phase, PlanState, RelevanceKind, copied_at, dealing_of, run_of
from pidts.plan.state import held_at
from pidts.relay import RelayReader
from pidts.relay.lock import empty_relay
from pidts.rules import AllowList
from pidts.schema import Statement
from pidts.schema.affected_tables import understood
from pidts.source import Session, position, read_structures, source_dialect, table_names
from pidts.task.checks.shards import SEPARATE_KEYS, overlapping_keys
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import LogLoss, find_loss, other_tasks
from pidts.task.run.attempt.relay_beginning import begin_of_relay
from pidts.task.run.pending_renames import joining_tables, removed_by
from pidts.task.run.read_structures import StartStopped, StructureReader, wait_for_relay
from pidts.task.run.rewind import Rewind, note_sent_again, notes_of
from pidts.task.tables.copy_start import Patterns, copy_states, is_selected, no_such_table
from pidts.task.tables.merged import changed_target_tables, own_shards, shards_of_other_sources, with_extracted_keys
from pidts.task.tables.rewind_request import RewindPoint, demand_sent
from pidts.task.tables.rule_changes import row_notes, with_other_writers, with_own_rows_only
from pidts.task.tables.target_fit import TableFit, create_missing, demand_fit, fits_of, followable

_log = structlog.get_logger(__name__)

_ALTERED = frozenset({"changed-outside-log"})
"""Codes of halts that mean: the log's rows do not have the recorded structure."""


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a start has to do before it continues from the checkpoint."""

    resync: Patterns = None
    unknown: frozenset[str] = frozenset()
    """The tables of the log whose structure the last attempt did not know."""
    renames: bool = False
    """Whether the log did not fit the known tables. A table may have got another name before it joined."""
    lost: LogLoss | None = None
    """The loss of log that the last attempt has found; None if it has found none."""
    rewind: RewindPoint | None = None
    """The place after which the log is sent again; None if nothing is sent again."""


@dataclass(slots=True)
class _Change:
    """The changes that are written together; None means that a table is removed."""

    structures: dict[TableName, Table | None] = field(default_factory=dict)
    shadows: dict[TableName, Shadow] = field(default_factory=dict)
    """The shadows of tables that join in the middle of an online schema change."""
    copy: dict[TableName, CopyState | None] = field(default_factory=dict)
    moved: set[TableName] = field(default_factory=set)
    """Tables that no longer stay at an earlier Lsn."""
    shared: dict[TableName, Table] = field(default_factory=dict)
    """Target tables that have become merged tables, or that keep the rows of a table that leaves."""


@dataclass(frozen=True, slots=True)
class SchemaChangesAhead:
    """The schema changes in the log that a table has not reached yet."""

    since: Lsn
    """The place directly before the first statement."""
    statements: tuple[str, ...]
    """The statements, each with its log file and byte."""

    @property
    def first(self) -> str:
        """Returns the first statement, with its place."""
        return self.statements[0]


class TableSet:
    """Decides which tables join, leave or are copied again at a start of a task that has begun before."""

    def __init__(
        self,
        config: TaskConfig,
        source: Session,
        target: TargetSession,
        reader: StructureReader,
        wanted: StartRequest,
        other_parts: Sequence[TaskConfig],
    ) -> None:
        self._config, self._source, self._target, self._reader = config, source, target, reader
        self._wanted, self._other_parts = wanted, other_parts
        self._loss: LogLoss | None = None
        self.joined: tuple[TableName, ...] = ()
        self._anew: set[TableName] = set()
        """The joining tables that were in the task before."""
        self._ahead: dict[TableName, SchemaChangesAhead] = {}
        """The schema changes ahead of the tables whose refused rows are skipped."""
        self._skipped: dict[TableName, Lsn] = {}
        """For each table that is copied again after refused rows and does not join anew: the place up to which its
        changes are skipped.
        """
        self._continued: dict[TableName, Table | None] = {}
        """Tables that continue after a skipped part of the log, each with its target table; None if it is unknown."""
        self.notes: list[str] = []
        self._unseen: Sequence[TableName] = ()
        """Tables of the log that the account does not see on the source."""

    @property
    def is_new_beginning(self) -> bool:
        """Whether the task takes a new position, so that its replicator must not begin at the checkpoint."""
        return self._loss is not None

    def check(self, stored: list[Checkpoint]) -> None:
        """Refuses requests that cannot succeed. Called before the claim, so another run may still be working."""
        wanted = self._wanted
        if wanted.rewind is not None:
            demand_sent(self._config, self._source, stored, wanted.rewind)
        if wanted.resync is None:
            return
        there = table_names(self._source, self._config.allow)
        known = self._target.meta.structures.load(self._config.name, SourceTablesKey(self._config.source.source_id))
        for pattern in wanted.resync:
            if not any(map(AllowList.parse(pattern), {*there, *known})):
                raise no_such_table(pattern, pattern, [(self._config, {*there, *known})])
        loss = self._found_loss(stored)
        if loss is None:
            self._demand_recorded_structures()
            return
        if wanted.resync:
            raise Halted(
                "position-lost",
                f"{loss.reason}: this affects all tables, so all of them have to be copied again",
                where=Where(source=self._config.source.source_id),
                todo=self._config.run_command(" --resync"),
            )
        if not loss.keeps_relay and (others := other_tasks(self._config)):
            raise _needed_by_others(self._config, loss, others)
        demand_fit(self._fits(read_structures(self._source, self._config.allow)))
        self._loss = loss

    def _found_loss(self, stored: Sequence[Checkpoint]) -> LogLoss | None:
        """Returns the loss of log, and whether the relay can be kept; None if no log is known to be lost."""
        known = self._wanted.lost
        if known is not None and known.code == "position-lost":
            return known
        # The relay on this machine shows whether it can be kept. It is empty if a relay server has refused to fill it.
        shown = find_loss(self._config, self._source, stored)
        if known is not None and known.code == "other-source" and (shown is None or shown.code != known.code):
            # The replicator has refused the source, whatever the relay has. With a kept relay, it would refuse again.
            return known
        return shown or known

    def _demand_recorded_structures(self) -> None:
        """Raises if a table to copy again no longer has its recorded structure, and the task is incremental."""
        altered = sorted(self._refused()[1]) if self._config.mode == "incremental" else []
        if altered:
            option = f" --resync {shlex.quote(','.join(map(str, altered)))}"
            raise Halted(
                "changed-outside-log",
                f"{listed(altered)}: the source has altered the table by a statement that is not in its log, and with "
                "task-mode: incremental a task does not read structures again",
                where=Where(source=self._config.source.source_id, file=str(self._config.path)),
                todo="Write task-mode: all into the task file, and copy the table again: "
                f"{self._config.run_command(option)}. When it is synced, you may write task-mode: incremental again",
            )

    def settle(self, claimed: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        """Makes all changes, and returns the checkpoints after them."""
        if self._loss is not None:
            return self._begin_anew(claimed, self._loss)
        reader = self._reader
        if self._wanted.resync is not None and not reader.replicator.await_connection(reader.stop, reader.say):
            raise StartStopped
        task, source_id = self._config.name, self._config.source.source_id
        known = self._target.meta.structures.load(task, SourceTablesKey(source_id))
        _, state, _ = Workers.claimed(claimed)
        change = _Change()
        self._leave(change, known, state)
        refused, altered = self._refused()
        end, self._ahead = self._schema_changes_ahead(refused, state) if refused else (state.lsn, {})
        self._skipped = {name: one.since for name, one in self._ahead.items()}
        if self._config.mode == "incremental":
            self._skipped |= dict.fromkeys(refused - self._ahead.keys(), end)
        else:
            self._anew = altered | (refused - self._staying(known))
        self._continued = dict.fromkeys(self._anew)
        left = {*change.structures, *self._anew}
        known = {name: table for name, table in known.items() if name not in left}
        since = self._join(change, known, state) if self._config.mode != "incremental" else None
        known = {name: table for name, table in known.items() if name not in change.copy}
        self._resync(change, known, state)
        self._rewind(change, known, state, claimed)
        if not change.copy and not change.structures:
            return claimed
        return self._commit(claimed, change, since or state.lsn)

    def _leave(self, change: _Change, known: Mapping[TableName, Table], state: PlanState) -> None:
        leaving = [name for name in sorted({*known, *state.copy}) if not self._config.allow(name)]
        if leaving:
            rules, _ = with_extracted_keys(self._target, self._config.rules, known.values())
            for name in leaving:
                if name in known and rules.routes.may_merge(name):
                    target_table = rules.target_table(known[name])
                    change.shared[target_table.name] = target_table
                change.structures[name] = change.copy[name] = None
                change.moved.add(name)
                self.notes.append(f"{name} leaves the task, its rows stay on the target")

    def _join(self, change: _Change, known: Mapping[TableName, Table], state: PlanState) -> Lsn | None:
        wanted, config = self._wanted, self._config
        there = table_names(self._source, config.allow)
        candidates = {name for name in there if name not in known}
        if not (candidates or wanted.unknown or wanted.renames):
            return None
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            self._reader.wait_for(state.needs, relay)
            only = None if wanted.renames else candidates | {_named(text, there) for text in wanted.unknown}
            read = self._reader.read(relay, self._reader.log_end(relay), only=only)
            pending = list(self._pending(relay, state.needs, read.end))
        since = {name: one.since for name, one in state.copy.items() if name in known and one.since is not None}
        new = joining_tables(known, pending, config.allow, since, read.structures)
        tables = {name: table for name, table in read.structures.items() if name in new or str(name) in wanted.unknown}
        fits = self._fits(tables, known, lambda name: name in known or self._is_selected(name))
        fits = [_with_changes_ahead(fit, self._ahead.get(fit.name)) for fit in fits]
        demand_no_rows_in_zone(config, fits)
        demand_fit(followable(self._source, fits))
        self._demand_apart([table for name, table in tables.items() if name not in self._anew], known)
        create_missing(self._target, config.name, fits, before_copy=True)
        change.structures |= tables
        change.shared |= self._shared(fits, tables, known)
        change.copy |= copy_states(self._source, tables, {fit.name: fit.mode for fit in fits}, read.end)
        # The log contains rows of tables that the source no longer has, and the DROP of these tables: all of this is
        # skipped.
        gone = {name for text in wanted.unknown if (name := _named(text, there)) not in tables and config.allow(name)}
        change.copy |= {name: CopyState(phase=Phase.FINISH, since=read.end) for name in gone}
        change.moved |= {*tables, *gone}
        self._warn_of_unseen(gone, pending)
        online = online_of(config.allow)
        change.shadows |= {
            name: shadow
            for name, shadow in read.shadows.items()
            if not tables.keys().isdisjoint(online.reals(name) or ())
        }
        self.joined = (*sorted(tables), *sorted(gone))
        for name in sorted(tables):
            self.notes.append(
                f"{name} is copied again: the task reads its present structure, skips its changes up to now, and then "
                "copies all its rows"
                if name in self._anew
                else f"{name} joins the task, its rows are copied"
            )
        self.notes += row_notes([fit for fit in fits if fit.name in self._anew or fit.mode is CopyMode.REPAIR])
        return read.end

    def _demand_apart(self, new: Sequence[Table], known: Mapping[TableName, Table]) -> None:
        """Raises if rows of a joining table would overwrite rows of other tables."""
        refused = overlapping_keys(self._config, self._target, self._other_parts, new, [*known.values()])
        if refused:
            raise Halted(
                "shard-keys-meet", refused, where=Where(source=self._config.source.source_id), todo=SEPARATE_KEYS
            )

    def _warn_of_unseen(self, gone: set[TableName], pending: Sequence[tuple[Lsn, Statement]]) -> None:
        """Warns of tables whose changes are skipped although no statement in the log removes the tables.

        Such a table may still exist: the source shows an account only the tables that the account may read.
        """
        self._unseen = sorted(gone - removed_by(pending, gone))
        for name in self._unseen:
            todo = (
                "If the table exists, the account may not read it: give it the SELECT that pidts grants TASK prints, "
                f"then copy the table: {self._config.run_command(f' --resync {shlex.quote(str(name))}')}"
            )
            _log.warning(
                "the account does not see a table whose changes are in the log, and they are left out",
                table=str(name),
                todo=todo,
            )
            self.notes.append(f"the account does not see {name} on the source, and its changes are left out. {todo}")

    def _pending(self, relay: RelayReader, after: Lsn, to: Lsn) -> Iterator[tuple[Lsn, Statement]]:
        """Yields the schema changes after the recorded structures."""
        dialect, task, source_id = source_dialect(self._source), self._config.name, self._config.source.source_id
        online = online_of(self._config.allow)
        for transaction in relay.schema_changes(after, to):
            journal = self._target.meta.journal.read(task, source_id, transaction.lsn)
            if transaction.ddl and (journal is None or journal.state is not DdlState.DONE):
                for statement in understood(transaction.ddl, transaction.ddl_schema, dialect):
                    # At the end of an online schema change, the shadow takes the table's name: it is the same table.
                    if (rest := online.split(statement).rest) is not None:
                        yield transaction.lsn, rest

    def _refused(self) -> tuple[set[TableName], set[TableName]]:
        """Returns two sets of tables to copy again that are halted because of their rows.

        The target has refused rows of the tables in the first set. A statement that is not in the log has altered the
        tables in the second set.
        """
        if self._wanted.resync is None:
            return set(), set()
        halts = self._target.meta.halts.read(self._config.name, self._config.source.source_id)
        codes = {name: halt.code for halt in halts if not halt.statement for name in halt.tables}
        altered = {name for name, code in codes.items() if code in _ALTERED and self._is_selected(name)}
        return {name for name in codes if name not in altered and self._is_selected(name)}, altered

    def _schema_changes_ahead(
        self, names: Collection[TableName], state: PlanState
    ) -> tuple[Lsn, dict[TableName, SchemaChangesAhead]]:
        """Returns the present end of the log, and the schema changes between each table's Lsn and this end."""
        config, source_id = self._config, self._config.source.source_id
        classifier = TransactionClassifier(config.allow, source_dialect(self._source), config.rules.events)
        found: dict[TableName, SchemaChangesAhead] = {}
        with closing(RelayReader(config.relay, source_id)) as relay:
            wait_for_relay(config, self._reader.replicator, state.needs, self._reader.stop, relay)
            log_end = self._reader.log_end(relay)
            self._reader.wait(relay, log_end)
            end = log_end.lsn
            for entry in relay.entries(min(map(state.at, names)), joined=True):
                transaction = entry.transaction
                if transaction.lsn > end:
                    break
                relevance = classifier(entry)
                if relevance.kind is not RelevanceKind.DDL:
                    continue
                meant = [name for name in names if transaction.lsn > state.at(name) and relevance.touches({name})]
                journal = self._target.meta.journal.read(config.name, source_id, transaction.lsn) if meant else None
                if journal is not None and journal.state is DdlState.DONE:
                    continue
                text = f"{transaction.ddl} (at {relay.position(transaction.lsn) or transaction.lsn})"
                for name in meant:
                    before = found.get(name, SchemaChangesAhead(transaction.prev_lsn, ()))
                    found[name] = replace(before, statements=(*before.statements, text))
        return end, found

    def _staying(self, known: Mapping[TableName, Table]) -> set[TableName]:
        """Returns the tables that stay before their next schema change, because the target's table fits them."""
        tables = {name: known[name] for name in self._ahead if name in known}
        fits = self._fits(tables, known) if tables else []
        return {fit.name for fit in fits if not fit.problem and not fit.missing}

    def _is_selected(self, name: TableName) -> bool:
        return is_selected(self._wanted.resync, name)

    def _resync(self, change: _Change, known: Mapping[TableName, Table], state: PlanState) -> None:
        meant = {name: table for name, table in known.items() if self._is_selected(name)}
        fits = self._copy_again(change, meant, known, state)
        skipping = sorted(name for name in meant if name in self._skipped)
        if others := sorted(meant.keys() - skipping):
            self.notes.append(f"{listed(others)} {'is' if len(others) == 1 else 'are'} copied again")
        self.notes += [
            f"{name} is copied again: the task skips its changes {self._end_of_skipping(name)}, "
            "and then copies all its rows"
            for name in skipping
        ]
        self.notes += row_notes(fits)

    def _rewind(
        self, change: _Change, known: Mapping[TableName, Table], state: PlanState, claimed: Sequence[Checkpoint]
    ) -> None:
        """Requests new copies of the rows that the log has changed since a past place (`pidts.task.run.rewind`)."""
        point = self._wanted.rewind
        if point is None:
            return
        config, reader = self._config, self._reader
        rewind = Rewind(config, self._source, self._target, reader.replicator, reader.stop, claimed[0])
        # When the last run ended, one worker may have been ahead of the others. That worker has the log up to here.
        reached = max(one.lsn for one in claimed)
        found = rewind.record(point, reached, state, known)
        again = {name: known[name] for name in {*found.keys, *found.whole}}
        fits = self._copy_again(change, again, known, state)
        for fit in fits:
            begun = change.copy[fit.name]
            if fit.missing:
                found.whole.setdefault(fit.name, "the target does not have it")
            elif fit.name not in found.whole and begun is not None:
                # Not NEW: before a schema change of its key, a table in mode NEW is emptied, to be copied as a whole.
                mode = CopyMode.ADD if fit.mode is CopyMode.NEW else fit.mode
                change.copy[fit.name] = replace(begun, mode=mode, phase=Phase.REREAD, estimate=0, sends_again=True)
        found.forget_keys_of_whole_tables()
        self.notes += notes_of(point, reached, found)
        self.notes += row_notes([fit for fit in fits if fit.name in found.whole or fit.mode is CopyMode.ADD])
        note_sent_again(config, reached, found)

    def _copy_again(
        self,
        change: _Change,
        meant: Mapping[TableName, Table],
        known: Mapping[TableName, Table],
        state: PlanState,
    ) -> list[TableFit]:
        """Lets the copies of these tables begin again. Returns, for each table, whether its target table fits."""
        fits = with_own_rows_only(self._config, self._target, self._fits(meant, known), meant)
        demand_fit(fits)
        create_missing(self._target, self._config.name, fits, before_copy=True)
        for name, begun in copy_states(self._source, meant, {fit.name: fit.mode for fit in fits}).items():
            # Changes that the former copy of the table has skipped stay skipped.
            places = [state.copy[name].since if name in state.copy else None]
            places.append(self._skipped.get(name))
            since = max((place for place in places if place is not None), default=None)
            change.copy[name] = replace(begun, since=since)
        return fits

    def _end_of_skipping(self, name: TableName) -> str:
        """Returns the part of a note that says up to where the task skips the changes of a table."""
        if name not in self._ahead:
            return "up to now"
        ahead = self._ahead[name]
        later = len(ahead.statements) - 1
        more = f" and {plural('later schema change', later)}" if later else ""
        return f"before its next schema change, runs {ahead.first}{more}"

    def _fits(
        self,
        tables: Mapping[TableName, Table],
        known: Mapping[TableName, Table] = MappingProxyType({}),
        may_have_rows: Callable[[TableName], bool] = lambda _: True,
    ) -> list[TableFit]:
        """Returns whether each table's target table fits, beside the tables in `known` and of other parts."""
        rules = self._config.rules
        others = shards_of_other_sources(self._target, self._other_parts, rules, tables, asks=False)
        others += own_shards(rules, known.values(), begun=True)
        fits = fits_of(
            self._target, tables.values(), rules, copies=True, may_have_rows=may_have_rows, other_shards=others
        )
        return with_other_writers(self._config, self._target, fits)

    def _shared(
        self, fits: Iterable[TableFit], tables: Mapping[TableName, Table], known: Mapping[TableName, Table]
    ) -> dict[TableName, Table]:
        """Returns the target tables that several tables share now, with their structures."""
        names = {fit.target_table.name: fit.target_table for fit in fits if fit.is_shared}
        if not names:
            return {}
        rules = self._config.rules
        others = shards_of_other_sources(self._target, self._other_parts, rules, tables, asks=False)
        others += own_shards(rules, known.values(), begun=True)
        _, group = with_extracted_keys(self._target, rules, tables.values(), others)
        begun = {one.target_table.name: one.target_table for one in group if one.begun and one.target_name in names}
        return {**names, **begun}

    def _begin_anew(self, claimed: tuple[Checkpoint, ...], loss: LogLoss) -> tuple[Checkpoint, ...]:
        config, replicator = self._config, self._reader.replicator
        if not loss.keeps_relay:
            here, gtids = position(self._source)
            begin = begin_of_relay(config, self._source, here, self._reader.stop)
            replicator.stop()
            empty_relay(config.relay, config.source.source_id)
            # The Lsns of a log that was reset must differ from the Lsns of the former log.
            lsn, gtid = Lsn.at(begin, max(one.lsn.change_no for one in claimed) + 1), gtids if begin == here else ""
            replicator.resume_at = replace(claimed[0], lsn=lsn, position=str(begin), log_file=None, gtid=gtid, copy="")
            if config.relay_from is not None:
                # The relay server's log continues with its own Lsns.
                replicator.resume_at, replicator.start_at = None, str(begin)
        replicator.start()
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            self._reader.wait_for(None, relay)
            read = self._reader.with_log_file(relay, self._reader.read(relay, self._reader.log_end(relay)))
        fits = self._fits(read.structures)
        demand_fit(fits)
        create_missing(self._target, config.name, fits, before_copy=True)
        shared = self._shared(fits, read.structures, {})
        known = self._target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id))
        left = sorted(name for name in known if name not in read.structures)
        self._continued = {
            **dict.fromkeys(left),
            **changed_target_tables(self._target, config.rules, known, read.structures),
        }
        self.notes += [f"the source has no table {name} any more, and its rows stay on the target" for name in left]
        self.notes.append(
            f"{loss.reason}; {plural('table', len(fits), 'is', 'are')} copied again, from {read.position} on"
        )
        self.notes += row_notes(fits)
        copy = copy_states(self._source, read.structures, {fit.name: fit.mode for fit in fits})
        text = PlanState(read.lsn, copy).copy_json()

        def moved(row: Checkpoint) -> Checkpoint:
            begun = replace(row, lsn=read.lsn, gtid=read.gtids, position=str(read.position))
            return replace(begun, log_file=read.log_file, copy=text, altered="")

        structures: dict[TableName, Table | None] = {**dict.fromkeys(left), **read.structures}
        begun = self._write(claimed, structures, read.lsn, moved, read.shadows, shared, copied=[*copy])
        replicator.resume_at = resume_point(begun)
        return begun

    def _commit(self, claimed: tuple[Checkpoint, ...], change: _Change, lsn: Lsn) -> tuple[Checkpoint, ...]:
        online, shadows = online_of(self._config.allow), None
        if self.joined:
            # The known shadows of a joining table belong to the skipped part of the log, so they are dropped.
            known = self._target.meta.shadows.load(self._config.name, self._config.source.source_id)
            kept = {name: one for name, one in known.items() if {*self.joined}.isdisjoint(online.reals(name) or ())}
            shadows = {**kept, **change.shadows}
        return self._write(
            claimed,
            change.structures,
            lsn,
            lambda row: _changed(row, change.copy, change.moved),
            shadows,
            change.shared,
            copied=[name for name, copy in change.copy.items() if copy is not None and not copy.sends_again],
        )

    def _write(
        self,
        claimed: tuple[Checkpoint, ...],
        structures: Mapping[TableName, Table | None],
        lsn: Lsn,
        changed: Callable[[Checkpoint], Checkpoint],
        shadows: Mapping[TableName, Shadow] | None = None,
        shared: Mapping[TableName, Table] = MappingProxyType({}),
        *,
        copied: Collection[TableName],
    ) -> tuple[Checkpoint, ...]:
        target, task, source_id = self._target, self._config.name, self._config.source.source_id
        with target.meta.ddl_lock(task, "record of tables"):  # several sources write the same records
            target.begin()
            try:
                rows = [changed(self._locked(one)) for one in claimed]
                self._keep_left(lsn, structures)
                settle_missed(target, task, source_id, self._continued, lsn)
                target.meta.structures.save(task, SourceTablesKey(source_id), lsn, structures)
                record_shared_tables(target, task, lsn, shared)
                if shadows is not None:
                    target.meta.shadows.replace(task, source_id, shadows)
                if self.joined:
                    record_unseen(target, task, source_id, self._unseen, self.joined)
                remove_due(target, task, source_id, copied)
                for row in rows:
                    target.meta.checkpoints.save(row)
                target.commit()
            except BaseException:
                target.rollback()
                raise
        return tuple(rows)

    def _keep_left(self, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Records, in the open transaction, the tables that leave the task and whose rows stay on the target."""
        task, source_id = self._config.name, self._config.source.source_id
        known = (
            self._target.meta.structures.load(task, SourceTablesKey(source_id)) if None in structures.values() else {}
        )
        gone = [name for name, table in structures.items() if table is None and name in known]
        left = {name: known[name] for name in gone if self._config.rules.routes.may_leave_rows(name)}
        self._target.meta.structures.save(task, RemainingRowsKey(source_id), lsn, left)

    def _locked(self, claimed: Checkpoint) -> Checkpoint:
        stored = self._target.meta.checkpoints.lock(claimed.task, claimed.source, claimed.worker)
        if stored.epoch != claimed.epoch:
            raise fenced(stored, claimed.epoch)
        return stored


def _needed_by_others(config: TaskConfig, loss: LogLoss, others: Sequence[str]) -> Halted:
    what = (
        f"{loss.reason}. To copy the tables again, PiDTS would have to empty the relay, but "
        f"{named('task', others, 'still needs', 'still need')} it"
    )
    todo = (
        "Give this task a relay of its own (pidts.relay), which begins at the task's place, and start the task without "
        "--resync. If it stops again, use --resync (docs/operate/source-changed.md#tasks-that-share-a-relay). "
        "If another task does not exist any more, or will also be copied again, stop that task, and run "
        f"pidts relay forget {shlex.quote(str(config.relay))} --task NAME"
    )
    return Halted("relay-still-needed", what, where=Where(source=config.source.source_id), todo=todo)


def _with_changes_ahead(fit: TableFit, ahead: SchemaChangesAhead | None) -> TableFit:
    """Returns the fit. If the fit has a problem, its text also lists the schema changes that the target lacks."""
    if not fit.problem or ahead is None:
        return fit
    problem = f"{fit.problem}. After the refused rows, the source has run: {'; '.join(ahead.statements)}"
    fix = (
        "Give the target's table the structure that it had before these statements: then the task runs them. Or give "
        f"it the source's present structure. {fit.fix}"
    )
    return replace(fit, problem=problem, fix=fix)


def demand_no_rows_in_zone(config: TaskConfig, fits: Iterable[TableFit]) -> None:
    """Halts if a table that joins has rows in the target's zone, since a copy would overwrite or remove them.

    For example, the task carries only `shop`, and another table takes the name of `shop.t`. The log does not give the
    new structure of `shop.t`, so this table joins anew:

        RENAME TABLE shop.t TO old.t, new.t TO shop.t
    """
    names = [str(fit.name) for fit in fits if fit.has_rows]
    if config.into_zone is not None and names:
        raise Halted(
            "zone-copy",
            f"the log does not show the structure of {listed(names)}, and the target's zone has rows under this name. "
            "A copy would overwrite or remove rows that were written there",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo=f"Fill the whole zone again: {fill_zone(config.into_zone)} (docs/operate/zones.md)",
        )


def _changed(row: Checkpoint, copy: Mapping[TableName, CopyState | None], moved: Collection[TableName]) -> Checkpoint:
    """Returns a worker's checkpoint with the copy states in `copy`, and without the places of the tables in `moved`.

    None in `copy` removes a table's copy state. The checkpoint's Lsn and epoch stay the same.
    """
    state = PlanState.from_checkpoint(row.lsn, row.copy)
    begun = state.joined({name: one for name, one in copy.items() if one is not None})
    left = {name: one for name, one in begun.copy.items() if copy.get(name, one) is not None}
    # A waiting table that is copied again still waits, since its schema change was not run yet.
    begun, place = replace(begun, copy=left, held=_held(state, moved)), copied_at(row.copy)
    place = place and replace(place, held=_held(place, moved))
    return replace(row, copy=begun.copy_json(run_of(row.copy), dealing_of(row.copy), place))


def _held(state: PlanState, moved: Collection[TableName]) -> tuple[HeldTables, ...]:
    return held_at({name: at for name, at in state.exceptions.items() if name not in moved}, state.lsn)


def _named(text: str, there: Iterable[TableName]) -> TableName:
    """Returns the table with this text as its name, even if the source does not have it."""
    schema, _, name = text.partition(".")
    return next((one for one in there if str(one) == text), TableName(schema, name))
