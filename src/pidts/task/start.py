"""How a task begins: from the target's checkpoint, or for the first time.

The first start reads every table's structure while the source goes on, and must know the structure *at the position
where the log begins*; see `reading`. What later starts may have to change in what the target remembers of the task
(tables that join it, leave it, or are copied once more) is `membership`'s.

Crash points of the first start: tables are created and structures saved before the checkpoint's row exists. Without
that row a restart does it all again: tables that exist are compared, structures are overwritten.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.shared_record import put_on_record
from pidts.batch.workers import resume_point
from pidts.model import Checkpoint, Halted, Lsn, Position, PrecheckFailed, Table, TableName, Transient, Where
from pidts.plan import PlanState
from pidts.plan.shard_versions import joined
from pidts.relay import RelayReader
from pidts.rules import Rules
from pidts.schema import Dialect
from pidts.source import Session, clock_is_utc, position, schema_charsets, source_dialect
from pidts.task import landings
from pidts.task.config import TaskConfig
from pidts.task.copying import copy_states
from pidts.task.fit import Fit, create_missing, demand_fit, fits_of
from pidts.task.membership import Membership, Wanted
from pidts.task.reading import Reader, Reading, change_no, wait_for_relay
from pidts.task.replicator_process import ReplicatorProcess
from pidts.task.shard_checks import differ_fix, unlike
from pidts.task.shard_start import demand_place
from pidts.task.shards import Shard, own_shards, shards_beside, with_keys


@dataclass(frozen=True, slots=True)
class Begin:
    """What a run begins with."""

    checkpoints: tuple[Checkpoint, ...]
    structures: Mapping[TableName, Table]
    charsets: Mapping[str, tuple[str, str]]
    dialect: Dialect
    clock_is_utc: bool
    safe_until: Lsn | None
    rules: Rules
    """The task's, with what the target's keys say of where rows land."""
    joined: tuple[TableName, ...] = ()
    """Tables that were unknown before."""
    notes: tuple[str, ...] = ()
    """What became of tables at this start."""


def begin(
    config: TaskConfig,
    source: Session,
    target: TargetSession,
    replicator: ReplicatorProcess,
    stop: threading.Event,
    wanted: Wanted,
    beside: Sequence[TaskConfig] = (),
) -> Begin:
    """Start the replicator, claim the task on the target, and say where it stands.

    `beside` are the task's other sources, whose tables may land where those of this one do.
    """
    target.prepare_meta()
    stored = target.checkpoints(config.name, config.source.source_id)
    reader = Reader(config, source, replicator, stop)
    membership = Membership(config, source, target, reader, wanted, beside)
    if stored:
        landings.demand_unmoved(config, target, beside)
        membership.check(stored)
        if not membership.is_new_beginning:
            # Only an empty relay begins there: the machine that held the old one may be gone.
            replicator.resume_at = resume_point(stored)
            replicator.start()
        first = stored[0]
    else:
        first = _first_start(config, source, target, reader, beside)
    claimed = target.claim(config.name, config.source.source_id, config.workers, first)
    checkpoints = membership.settle(tuple(claimed)) if stored else tuple(claimed)
    landings.remember(config, target)
    # Not before the claim: until then, another run may commit a schema change and move the checkpoint behind it.
    structures = target.load_structures(config.name, config.source.source_id)
    safe_until = target.safe_until(config.name, config.source.source_id)
    charsets, dialect = schema_charsets(source), source_dialect(source)
    utc = clock_is_utc(source)
    rules, _ = with_keys(target, config.rules, structures.values())
    notes = tuple(membership.notes)
    return Begin(checkpoints, structures, charsets, dialect, utc, safe_until, rules, membership.joined, notes)


def _first_start(
    config: TaskConfig, source: Session, target: TargetSession, reader: Reader, beside: Sequence[TaskConfig]
) -> Checkpoint:
    here, gtids = position(source)
    given = config.source.start if config.mode == "incremental" else None
    replicator = reader.replicator
    replicator.start_at = str(given or here)
    replicator.start()
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        wait_for_relay(config, replicator, None, reader.stop, relay)
        if given is not None:
            lsn, gtids = _given_start(given, relay)
            read = reader.read(relay, lsn, here, gtids, on_change=lambda at: _refuse_change(config, at))
        else:
            read = reader.read(relay, Lsn.at(here, change_no(relay)), here, gtids)
    copies = config.mode != "incremental"
    # Rows that are there already would be removed where the source has not got them, so they are refused here, too.
    fits = _fits(config, target, read.structures, beside, copies=copies)
    if any(fit.problem for fit in fits):
        # Another source may have begun meanwhile, and rows that are there now be its own.
        fits = _fits(config, target, read.structures, beside, copies=copies)
    demand_fit(fits, is_first=True)
    create_missing(target, config.name, fits, before_copy=copies)
    # What lies between a start that was given and now may be on the target already, by whatever way.
    safe_until = read.end if given is not None and config.safe_start else None
    with target.ddl_lock(config.name, "record of tables"):  # several sources put the same on record
        _put_on_record(config, target, beside, read, fits, safe_until)
    copy = copy_states(source, read.structures, {fit.name: fit.way for fit in fits}) if copies else {}
    return _checkpoint(config, read, PlanState(read.lsn, copy))


def _put_on_record(
    config: TaskConfig,
    target: TargetSession,
    beside: Sequence[TaskConfig],
    read: Reading,
    fits: Sequence[Fit],
    safe_until: Lsn | None,
) -> None:
    task, source_id = config.name, config.source.source_id
    target.begin()
    if target.checkpoints(task, source_id):
        target.rollback()
        raise Transient("task-taken", "another run of this task has made the first start meanwhile")
    target.save_structures(task, source_id, read.lsn, read.structures)
    shared = {fit.landed.name: fit.made or fit.landed for fit in fits if fit.is_shared}
    is_first = not any(target.checkpoints(task, other.source.source_id) for other in beside)
    put_on_record(target, task, read.lsn, shared, anew=is_first)
    target.shadows.begin(task, source_id, read.shadows)
    target.save_safe_until(task, source_id, safe_until)
    target.commit()


def _fits(
    config: TaskConfig,
    target: TargetSession,
    structures: Mapping[TableName, Table],
    beside: Sequence[TaskConfig],
    *,
    copies: bool,
) -> list[Fit]:
    others = shards_beside(target, beside, config.rules, structures, asks=True)
    fits = fits_of(target, structures.values(), config.rules, copies=copies, beside=others)
    fits = landings.beside_strangers(config, target, fits)
    own = own_shards(config.rules, structures.values(), begun=False)
    _, shards = with_keys(target, config.rules, structures.values(), [*others, *own])
    shared = {fit.landed.name: [one for one in shards if one.lands == fit.landed.name] for fit in fits if fit.is_shared}
    wholes = {
        name: demand_place(config, target, beside, members)
        if any(one.begun for one in members)
        else _whole(config, target, members)
        for name, members in shared.items()
    }
    return [replace(fit, made=wholes.get(fit.landed.name)) for fit in fits]


def _whole(config: TaskConfig, target: TargetSession, members: Sequence[Shard]) -> Table:
    """What tables that become one have together; they must not differ before the first of their changes is seen."""
    found = unlike(members, config.shard_mode)
    if found:
        where = Where(source=config.source.source_id, file=str(config.path))
        raise PrecheckFailed("shards-differ", found, where=where, todo=differ_fix(config.shard_mode))
    own = config.source.source_id
    inorder = sorted(members, key=lambda one: (one.source or own, one.table.name))
    # Sources of several products say the same in other words, and the target knows one's better than another's.
    first = {one.source: one for one in reversed(inorder)}.values()
    like = min(reversed(first), key=lambda one: len(target.create_statements(one.landed).notes)).landed
    return joined([like, *(one.landed for one in inorder)], like=like) or like


def _checkpoint(config: TaskConfig, read: Reading, state: PlanState) -> Checkpoint:
    return Checkpoint(
        task=config.name,
        source=config.source.source_id,
        worker=0,
        lsn=read.lsn,
        gtid=read.gtids,
        position=str(read.position),
        copy=state.copy_json(),
    )


def _given_start(given: Position | str, relay: RelayReader) -> tuple[Lsn, str]:
    if isinstance(given, Position):
        lsn = Lsn.at(given, change_no(relay))
        return lsn, relay.gtid_set(lsn) or ""
    first = relay.first
    assert first is not None, "the relay has begun"  # noqa: S101 - wait_for_relay has returned
    return first, given


def _refuse_change(config: TaskConfig, at: Lsn) -> None:
    raise Halted(
        "structure-unknown",
        "a table was changed between the given start and now, and its structure at the start is not known",
        where=Where(source=config.source.source_id, position=str(at)),
        todo="Start behind that change, or with task-mode: all",
    )
