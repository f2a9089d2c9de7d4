"""Begins a task: at the target's checkpoint, or for the first time.

The first start reads every table's structure *at the position where the log begins*, while the source is in use; see
`read_structures`. Later starts may have to change the target's records of the task, because tables
join it, leave it, or are copied again; see `table_set`.

Crash points of the first start: it creates tables and saves structures before the checkpoint's row exists. If that row
is missing, a restart does all of this again. It compares existing tables, overwrites the structures, and removes the
structures of tables that were dropped meanwhile. Structures and checkpoint are written under one lock. So if two runs
make their first start together, the structures of one run are never combined with the checkpoint of the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_not_fenced, demand_unaltered
from pidts.apply.claim import claim_workers, demand_all_workers
from pidts.apply.due_copies import remove_due
from pidts.apply.merge.merged_tables import record_shared_tables
from pidts.batch.workers import Workers, resume_point
from pidts.model import (
    Checkpoint,
    Halted,
    Lsn,
    Position,
    PrecheckFailed,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
    Where,
    epoch_before_first,
)
from pidts.model.advice import fill_zone
from pidts.model.errors import listed
from pidts.plan import PlanState
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.relay.structures import dialect_at, history_at
from pidts.rules import Rules
from pidts.schema import Dialect
from pidts.shards.structures import joined
from pidts.source import Session, log_end, schema_charsets, source_dialect
from pidts.source.finding import demand, is_ignored
from pidts.target.checkpoints import taken
from pidts.task.checks.added_source import fitting_structure
from pidts.task.checks.circles.ended_tasks import record_returned
from pidts.task.checks.circles.passed_check import is_checked, noted_claim
from pidts.task.checks.circles.running_tasks import circle_findings, demand_no_circle
from pidts.task.checks.joining.both_have_rows import demand_no_others, fits_between_zones
from pidts.task.checks.joining.opposite_task import await_opposite, begins_merging
from pidts.task.checks.restored_zone import demand_not_restored
from pidts.task.checks.shards import LOCK_NO_MERGED, differ_fix, locks_rows, structure_conflict, unlockable_text
from pidts.task.checks.switch_structures import structures_at_start
from pidts.task.checks.task_records import record_source
from pidts.task.checks.zone_start import demand_returned, demand_same_zone, demand_still_forwards, may_find_rows
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import demand_log
from pidts.task.run.attempt.relay_beginning import begin_of_relay, is_relay_empty
from pidts.task.run.cutover_under_way import demand_not_cut_over
from pidts.task.run.read_structures import (
    LoggedSchemaChange,
    LogPoint,
    StartStopped,
    StructureReader,
    StructureReading,
)
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.table_set import StartRequest, TableSet
from pidts.task.tables import rule_changes
from pidts.task.tables.copy_start import Patterns, copy_states, is_selected
from pidts.task.tables.merged import Shard, by_target, own_shards, shards_of_other_sources, with_extracted_keys
from pidts.task.tables.rewind_request import demand_sent
from pidts.task.tables.target_fit import TableFit, create_missing, demand_fit, fits_of

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartState:
    """The state with which an attempt begins."""

    checkpoints: tuple[Checkpoint, ...]
    structures: Mapping[TableName, Table]
    charsets: Mapping[str, tuple[str, str]]
    dialect: Dialect
    safe_until: Lsn | None
    rules: Rules
    """The task's rules, which also name the target tables with extracted columns in their keys."""
    joined: tuple[TableName, ...] = ()
    """Tables that joined the task at this start."""
    notes: tuple[str, ...] = ()
    """Texts for the user about tables that this start has changed."""


def begin_task(
    config: TaskConfig,
    source: Session | Transient,
    target: TargetSession,
    replicator: ReplicatorProcess,
    stop: threading.Event,
    wanted: StartRequest,
    other_parts: Sequence[TaskConfig] = (),
    on_claim: Callable[[int], None] = lambda _: None,
    epoch: int = 0,
    show_step: Callable[[str], None] = lambda _: None,
    *,
    has_begun: bool = False,
) -> StartState:
    """Starts the replicator, claims the task on the target, and returns the state to begin with.

    - `source`: if the source cannot be reached, the error. A task that has begun then continues with the relay's log.
    - `other_parts`: their tables may share target tables with this part.
    - `on_claim` receives the epoch just before the claim is committed. Otherwise the caller would not know the epoch if
      the answer to the COMMIT is lost, or if the start fails after the claim.
    - `epoch`: the epoch of this run's last claim. If another run has claimed the task since, this function raises.
    - `show_step` receives a text about what the start waits for.
    - `has_begun`: an earlier attempt of this run has begun the task. A missing checkpoint was then deleted.
    """
    target.meta.prepare()
    demand_not_cut_over(target, config)
    demand_not_restored(config, target)
    stored = target.meta.checkpoints.read(config.name, config.source.source_id)
    demand_not_fenced(stored, config.name, config.source.source_id, epoch, has_begun=has_begun)
    if stored:
        demand_same_zone(config, target, stored)
        demand_still_forwards(config, None if isinstance(source, Transient) else source, target, stored)
    demand_no_copy_between_zones(config, wanted)
    if isinstance(source, Transient):
        return _resume_without_source(config, source, target, replicator, stored, wanted, other_parts, on_claim)
    reader = StructureReader(config, source, replicator, stop, show_step)
    table_set = TableSet(config, source, target, reader, wanted, other_parts)
    if wanted.resync != ():
        # If all tables are copied again, it does not matter whether the former checkpoint is reliable.
        for row in stored:
            demand_unaltered(row)
        demand_all_workers(target, config.name, config.source.source_id, stored)
    if stored:
        rule_changes.require_unmoved_rows(config, target, other_parts)
        table_set.check(stored)
        if not table_set.is_new_beginning:
            _demand_same_log(config, stored)
            # Only an empty relay begins at this place, for example if the machine with the former relay is lost.
            replicator.resume_at = resume_point(stored)
            replicator.start()
        first = next((row for row in stored if row.altered), stored[0])
        latest = max(row.epoch for row in stored)
        claims = noted_claim(config, target, stored, on_claim)
        claimed = claim_workers(target, config.name, config.source.source_id, config.workers, first, latest, claims)
    else:
        if wanted.rewind is not None:
            demand_sent(config, source, stored, wanted.rewind)
        demand_returned(config, source)
        demand_no_others(config, source, target)
        if (note := _note_without_checkpoint(config, target, wanted.resync)) is not None:
            table_set.notes.append(note)
        claimed = _first_start(config, source, target, reader, other_parts, on_claim, wanted.resync)
    # A cutover may write its record after this check. Then it also claims the task later, and this run writes no more.
    demand_not_cut_over(target, config)
    checkpoints = table_set.settle(claimed) if stored else claimed
    config.zones.owners.moved(target.meta.range_owners.read())  # raises if the file contradicts the records
    rule_changes.record_rules(config, target)
    record_source(config, source, target, merges=begins_merging(config, target, checkpoints))
    begins_now = not stored and (config.mode != "incremental" or config.source.start is None)
    record_returned(
        config,
        source,
        target,
        checkpoints,
        lambda name: begins_now or is_selected(wanted.resync, name),
        is_first=not stored,
    )
    if not await_opposite(config, target, checkpoints, stop, show_step):
        raise StartStopped
    # The structures are read after the claim: before the claim, another run may still run a schema change, and commit a
    # checkpoint after this change.
    structures = target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id))
    # If two tasks start for the first time together, at least one task finds the other task's note here.
    demand_no_circle(config, source, target, structures, claimed[0].epoch)
    safe_until = target.meta.safe_range.read(config.name, config.source.source_id)
    charsets, dialect = schema_charsets(source), source_dialect(source)
    rules, _ = with_extracted_keys(target, config.rules, structures.values())
    notes = tuple(table_set.notes)
    return StartState(checkpoints, structures, charsets, dialect, safe_until, rules, table_set.joined, notes)


def _demand_same_log(config: TaskConfig, stored: Sequence[Checkpoint]) -> None:
    """Raises if the relay has another log than the checkpoints, or may never get the log of the checkpoints.

    Called before the first wait for the relay. If the source does not answer now, the next attempt checks again. A
    damaged relay is repaired later.
    """
    with suppress(Transient, Discontinuity), closing(RelayReader(config.relay, config.source.source_id)) as relay:
        demand_log(config, stored, relay)


def _resume_without_source(
    config: TaskConfig,
    absence: Transient,
    target: TargetSession,
    replicator: ReplicatorProcess,
    stored: Sequence[Checkpoint],
    wanted: StartRequest,
    other_parts: Sequence[TaskConfig],
    on_claim: Callable[[int], None],
) -> StartState:
    """Begins an attempt while the source does not answer: the task continues with the log in the relay.

    Raises `absence`, the error of the source, if this start needs the source. When the source is back, the attempt
    ends, and another attempt begins, in which tables can join.
    """
    source_id = config.source.source_id
    if not stored or wanted != StartRequest():
        raise absence
    if not (is_checked(config, target, stored) or is_ignored("circular_replication", config.ignored_checks)):
        _log.warning(
            "the log in the relay is not applied: only the source shows whether another task has carried these changes "
            "from the target to the source",
            source=source_id,
            cause=str(absence),
        )
        raise absence
    state = resumed_state(stored)
    rule_changes.require_unmoved_rows(config, target, other_parts)
    known = target.meta.structures.load(config.name, SourceTablesKey(source_id))
    if state.copying or not all(map(config.allow, known)):
        raise absence
    charsets, dialect = terms_of_relay(config, state.needs, absence)
    for row in stored:
        demand_unaltered(row)
    demand_all_workers(target, config.name, source_id, stored)
    replicator.resume_at = resume_point(stored)
    replicator.start()
    latest = max(row.epoch for row in stored)
    claims = noted_claim(config, target, stored, on_claim)
    claimed = claim_workers(target, config.name, source_id, config.workers, stored[0], latest, claims)
    demand_not_cut_over(target, config)
    if resumed_state(claimed).copying:
        raise absence
    rule_changes.record_rules(config, target)
    # The structures are read after the claim, as in a start with the source.
    structures = target.meta.structures.load(config.name, SourceTablesKey(source_id))
    safe_until = target.meta.safe_range.read(config.name, source_id)
    rules, _ = with_extracted_keys(target, config.rules, structures.values())
    _log.warning("the source cannot be reached: the log in the relay is applied", source=source_id, cause=str(absence))
    return StartState(claimed, structures, charsets, dialect, safe_until, rules)


def resumed_state(stored: Iterable[Checkpoint]) -> PlanState:
    """Returns one state for the checkpoints of all workers."""
    _, state, _ = Workers.claimed(tuple(stored))
    return state


def terms_of_relay(config: TaskConfig, needs: Lsn, absence: Transient) -> tuple[Mapping[str, tuple[str, str]], Dialect]:
    """Returns the default charsets of the source's databases at a place of the log, and the source's dialect.

    Raises `absence`, the error of the source, if the relay lacks the log up to this place, the charsets or the dialect.
    """
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        received = relay.received
        if received is None or received < needs:
            raise absence
        try:
            return history_at(relay, needs).charsets, dialect_at(relay, needs)
        except Transient:
            raise absence from None


def demand_no_copy_between_zones(config: TaskConfig, wanted: StartRequest) -> None:
    """Halts if a task between zones would copy again, and overwrite rows that the target's programs have written."""
    if config.is_between_zones and (wanted.resync, wanted.lost, wanted.rewind) != (None, None, None):
        raise Halted(
            "zone-copy",
            "tables cannot be copied again between zones: rows that were written in the target's zone would be lost",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo=f"Fill the whole zone again: {fill_zone(config.zones.target)} (docs/operate/zones.md)",
        )


def _note_without_checkpoint(config: TaskConfig, target: TargetSession, resync: Patterns) -> str | None:
    """Returns a note if the checkpoint of an incremental task seems to be deleted; None otherwise.

    Raises if the user has asked to copy tables again: an incremental task would copy nothing, and begin at the present
    end of the log.
    """
    if config.mode != "incremental" or config.is_between_zones:  # `pidts zones return` deletes checkpoints of zones
        return None
    if not rule_changes.tables_without_checkpoint(config, target):
        return None
    todo = (
        f"Write task-mode: all into the task file, and run {config.run_command(' --resync')}. When it is synced, you "
        "may write task-mode: incremental again"
    )
    if resync is not None:
        what = "a task with task-mode: incremental cannot copy tables again after its checkpoint was deleted"
        where = Where(source=config.source.source_id, file=str(config.path))
        raise PrecheckFailed("checkpoint-deleted", what, where=where, todo=todo)
    if config.source.start is not None:
        return None
    _log.warning("the target has records of this task, but no checkpoint", source=config.source.source_id, todo=todo)
    return (
        "the target has records of this task, but no checkpoint. If the task has run before, all changes since then "
        f"are left out. {todo}"
    )


def _first_start(
    config: TaskConfig,
    source: Session,
    target: TargetSession,
    reader: StructureReader,
    other_parts: Sequence[TaskConfig],
    on_claim: Callable[[int], None],
    resync: Patterns,
) -> tuple[Checkpoint, ...]:
    given = config.source.start if config.mode == "incremental" else None
    read = read_at_start(config, source, reader)
    copies = config.mode != "incremental"
    if given is not None:
        # A refusal after the claim would leave a checkpoint, so that another start in the task file had no effect.
        place = start_checkpoint(config, read, PlanState(read.lsn))
        demand(circle_findings(config, source, target, read.structures, first=lambda: place), config.ignored_checks)
    # The copy would remove rows that only the target has. So a table with rows is refused.
    fits = _fits(config, target, read.structures, other_parts, resync, copies=copies)
    if any(fit.problem for fit in fits):
        # The task may have begun with another source meanwhile, and the existing rows may be that source's rows.
        fits = _fits(config, target, read.structures, other_parts, resync, copies=copies)
    demand_fit(fits, is_first=True)
    create_missing(target, config.name, fits, before_copy=copies)
    # The target may already have the changes from the task file's start position to the present end of the log.
    safe_until = read.end if given is not None and config.safe_start else None
    copy = copy_states(source, read.structures, {fit.name: fit.mode for fit in fits}) if copies else {}
    first = start_checkpoint(config, read, PlanState(read.lsn, copy))
    # The lock is needed for two reasons:
    # - Several sources write the same records.
    # - Two runs may start a new source at the same time. Without the lock, the second run's structures could be
    #   combined with the first run's checkpoint. With the lock, the second run finds the first run's checkpoint.
    with target.meta.ddl_lock(config.name, "record of tables"):
        _put_on_record(config, target, other_parts, read, fits, safe_until)
        return claim_workers(target, config.name, config.source.source_id, config.workers, first, on_claim=on_claim)


def read_at_start(config: TaskConfig, source: Session, reader: StructureReader) -> StructureReading:
    """Starts the replicator at the place where the task begins, and returns the structures at that place."""
    given = config.source.start if config.mode == "incremental" else None
    replicator, begin = reader.replicator, given or log_end(source)
    if isinstance(begin, Position) and is_relay_empty(config):
        begin = begin_of_relay(config, source, begin, reader.stop)
    replicator.start_at = str(begin)
    replicator.start()
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        reader.wait_for(None, relay)
        now = reader.log_end(relay)
        if given is None:
            # Killed first starts may have left earlier log in the relay. On a full disk, it makes room.
            reader = replace(reader, needed=now.lsn)
            return reader.with_log_file(relay, reader.read(relay, now))
        start = _given_start(config, given, now, relay)
        if isinstance(given, Position) and (tables := structures_at_start(config, source)):
            end = max(start.lsn, now.lsn)
            _log.info("tables begin with the structures that they had at the cutover", position=str(given))
            read = StructureReading(start.lsn, end, start.gtids, start.position, tables, {})
        else:
            read = reader.read(relay, start, on_change=lambda change: _refuse_change(config, change))
        return reader.with_log_file(relay, read)


def _put_on_record(
    config: TaskConfig,
    target: TargetSession,
    other_parts: Sequence[TaskConfig],
    read: StructureReading,
    fits: Sequence[TableFit],
    safe_until: Lsn | None,
) -> None:
    task, source_id = config.name, config.source.source_id
    target.begin()
    if target.meta.checkpoints.read(task, source_id):
        target.rollback()
        raise taken("another run has made the first start of this task meanwhile")
    earlier = target.meta.structures.load(task, SourceTablesKey(source_id))
    target.meta.structures.save(
        task, SourceTablesKey(source_id), read.lsn, {**dict.fromkeys(earlier), **read.structures}
    )
    remove_due(target, task, source_id, read.structures)
    shared = {fit.target_table.name: fit.made or fit.target_table for fit in fits if fit.is_shared}
    is_first = not any(target.meta.checkpoints.read(task, other.source.source_id) for other in other_parts)
    record_shared_tables(target, task, read.lsn, shared, anew=is_first)
    target.meta.shadows.replace(task, source_id, read.shadows)
    target.meta.safe_range.save(task, source_id, safe_until)
    target.commit()


def _fits(
    config: TaskConfig,
    target: TargetSession,
    structures: Mapping[TableName, Table],
    other_parts: Sequence[TaskConfig],
    resync: Patterns,
    *,
    copies: bool,
) -> list[TableFit]:
    """Returns, for each table at a first start, whether its target table fits.

    If somebody has deleted the task's checkpoint, tables that `resync` selects may have rows on the target.
    """
    others = shards_of_other_sources(target, other_parts, config.rules, structures, asks=True)
    may_have_rows = config.zones.both_have_rows or may_find_rows(config, target)
    recorded = rule_changes.tables_without_checkpoint(config, target) if resync is not None else frozenset()
    fits = fits_of(
        target,
        structures.values(),
        config.rules,
        copies=copies,
        may_have_rows=lambda name: may_have_rows or (name in recorded and is_selected(resync, name)),
        other_shards=others,
    )
    if not may_have_rows:
        # A zone that returns is left out: it must get exactly its seed's rows (`removes_extra_rows`). Other tasks that
        # write to the zone have records there, and because of these records extra rows would stay.
        fits = rule_changes.with_other_writers(config, target, fits)
    fits = fits_between_zones(config, fits) if copies else fits
    own = own_shards(config.rules, structures.values(), begun=False)
    _, shards = with_extracted_keys(target, config.rules, structures.values(), [*others, *own])
    merged = by_target(shards)
    shared = {name: merged.get(name, []) for name in (fit.target_table.name for fit in fits if fit.is_shared)}
    for name, members in shared.items():
        if len(members) > 1 and locks_rows(config, members):
            where = Where(source=config.source.source_id, file=str(config.path))
            what = unlockable_text(name, listed(members))
            raise PrecheckFailed("merged-not-locked", what, where=where, todo=LOCK_NO_MERGED)
    wholes = {
        name: fitting_structure(config, target, other_parts, members)
        if any(one.begun for one in members)
        else _whole(config, target, members)
        for name, members in shared.items()
    }
    return [replace(fit, made=wholes.get(fit.target_table.name)) for fit in fits]


def _whole(config: TaskConfig, target: TargetSession, members: Sequence[Shard]) -> Table:
    """Returns a merged table's structure. Before their first schema change, its shards must have equal structures."""
    found = structure_conflict(members, config.shard_mode)
    if found:
        where = Where(source=config.source.source_id, file=str(config.path))
        raise PrecheckFailed("shards-differ", found, where=where, todo=differ_fix(config.shard_mode))
    own = config.source.source_id
    inorder = sorted(members, key=lambda one: (one.source or own, one.table.name))
    # MySQL and MariaDB describe the same structure in different ways. The target gets the description that loses least.
    first = {one.source: one for one in reversed(inorder)}.values()
    like = min(
        reversed(first), key=lambda one: len(target.schema.create_statements(one.target_table).notes)
    ).target_table
    return joined([like, *(one.target_table for one in inorder)], like=like) or like


def start_checkpoint(config: TaskConfig, read: StructureReading, state: PlanState) -> Checkpoint:
    """Returns the checkpoint of a first start."""
    return Checkpoint(
        task=config.name,
        source=config.source.source_id,
        worker=0,
        lsn=read.lsn,
        gtid=read.gtids,
        position=str(read.position),
        log_file=read.log_file,
        epoch=epoch_before_first(),
        copy=state.copy_json(),
    )


def _given_start(config: TaskConfig, given: Position | str, now: LogPoint, relay: RelayReader) -> LogPoint:
    if isinstance(given, Position):
        lsn = Lsn.at(given, now.lsn.change_no)
        return LogPoint(lsn, relay.position(lsn) or given, relay.gtid_set(lsn) or "")
    first = relay.first
    assert first is not None, "the relay has begun"  # noqa: S101 - wait_for_relay has returned
    # If the relay was empty before this start, it begins after the given GTIDs. But the relay may be older.
    if (begin := relay.gtid_set(first)) != given:
        raise Halted(
            "relay-start",
            f"the task is to begin after the GTIDs {given}, but its relay already has log, which begins after the "
            f"GTIDs {begin or '(they are not known)'}",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Give the task a relay of its own: another directory in pidts.relay. Or give the start as meta: "
            "{binlog-name, binlog-pos}, without binlog-gtid",
        )
    return LogPoint(first, relay.position(first) or now.position, given)


def _refuse_change(config: TaskConfig, change: LoggedSchemaChange) -> None:
    names = listed(sorted(map(str, change.tables))) or "a table"
    raise Halted(
        "structure-unknown",
        f"a schema change between the given start and now changed {names}, whose structure at the start is not known: "
        f"{change.statement[:200]}",
        where=Where(source=config.source.source_id, position=str(change.lsn)),
        todo=(
            "Start after that schema change, or with task-mode: all. If the start is the place of a cutover, and the "
            "account may not read the cutover's record, pidts grants TASK shows the missing privilege"
        ),
    )
