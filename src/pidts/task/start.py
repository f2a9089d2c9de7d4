"""How a task begins: from the target's checkpoint, or for the first time.

The first start reads every table's structure while the source goes on, and must know the structure *at the position
where the log begins*. It reads the position, the structures, and the position again; if the log between the two holds
a DDL of one of the task's tables, it reads again. Nothing is locked.

Crash points of the first start: tables are created and structures saved before the checkpoint's row exists. Without
that row a restart does it all again: tables that exist are compared, structures are overwritten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import structlog

from pidts.apply import TargetSession
from pidts.batch.meaning import Meaning
from pidts.batch.workers import resume_point
from pidts.model import (
    Checkpoint,
    Halted,
    Lsn,
    PidtsError,
    Position,
    PrecheckFailed,
    Table,
    TableName,
    Transient,
    Where,
)
from pidts.plan import CopyState, PlanState, WorkKind
from pidts.relay import RelayReader
from pidts.schema import Dialect
from pidts.source import Session, clock_is_utc, position, read_structures, schema_charsets, source_dialect
from pidts.task.config import TaskConfig
from pidts.task.replicator_process import ReplicatorProcess

_log = structlog.get_logger(__name__)

_RELAY_SECONDS = 60.0


class Stopped(Exception):
    """The user asked to stop before the task was under way."""


@dataclass(frozen=True, slots=True)
class Begin:
    """What a run begins with."""

    checkpoints: tuple[Checkpoint, ...]
    structures: Mapping[TableName, Table]
    charsets: Mapping[str, tuple[str, str]]
    dialect: Dialect
    clock_is_utc: bool
    safe_until: Lsn | None


def begin(
    config: TaskConfig, source: Session, target: TargetSession, replicator: ReplicatorProcess, stop: threading.Event
) -> Begin:
    """Start the replicator, claim the task on the target, and say where it stands."""
    target.prepare_meta()
    stored = target.checkpoints(config.name, config.source.source_id)
    if stored:
        # Only an empty relay begins there: the machine that held the old one may be gone.
        replicator.resume_at = resume_point(stored)
        replicator.start()
        first = stored[0]
    else:
        first = _first_start(config, source, target, replicator, stop)
    claimed = target.claim(config.name, config.source.source_id, config.workers, first)
    # Not before the claim: until then, another run may commit a schema change and move the checkpoint behind it.
    structures = target.load_structures(config.name, config.source.source_id)
    safe_until = target.safe_until(config.name, config.source.source_id)
    charsets, dialect = schema_charsets(source), source_dialect(source)
    return Begin(tuple(claimed), structures, charsets, dialect, clock_is_utc(source), safe_until)


def wait_for_relay(
    config: TaskConfig, replicator: ReplicatorProcess, lsn: Lsn | None, stop: threading.Event, relay: RelayReader
) -> None:
    """Until the relay has everything up to `lsn` (None: until it has begun)."""
    deadline = time.monotonic() + _RELAY_SECONDS
    last = None
    while True:
        received = relay.received
        if received is not None and (lsn is None or received >= lsn):
            return
        if relay.damage is not None:
            raise relay.damage
        if received != last:
            last, deadline = received, time.monotonic() + _RELAY_SECONDS
        replicator.watch()
        if stop.wait(0.02):
            raise Stopped
        if time.monotonic() > deadline:
            raise PidtsError(
                "relay-stuck",
                f"the relay has received nothing for {_RELAY_SECONDS:.0f} seconds",
                where=Where(source=config.source.source_id),
                todo=f"See {config.relay / config.source.source_id / 'replicator.log'}",
            )


def _first_start(
    config: TaskConfig, source: Session, target: TargetSession, replicator: ReplicatorProcess, stop: threading.Event
) -> Checkpoint:
    here, gtids = position(source)
    given = config.source.start if config.mode == "incremental" else None
    replicator.start_at = str(given or here)
    replicator.start()
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        wait_for_relay(config, replicator, None, stop, relay)
        if given is not None:
            lsn, gtids = _given_start(given, relay)
        else:
            lsn = Lsn.at(here, _change_no(relay))
        while True:
            structures = read_structures(source, config.allow)
            after, gtids_after = position(source)
            end = Lsn.at(after, lsn.change_no)
            wait_for_relay(config, replicator, end, stop, relay)
            changed = _schema_change(Meaning(config.allow, source_dialect(source)), relay, lsn, end)
            if changed is None:
                break
            if given is not None:
                raise _structures_lost(config, changed)
            _log.info("a table changed while structures were read, reading again", at=str(changed))
            lsn, here, gtids = end, after, gtids_after
        start = relay.position(lsn) or here
        # A busy server's own answer may lack the last few transactions; the log's lacks none.
        gtids = relay.gtid_set(lsn) or gtids
    _prepare_tables(config, target, structures)
    target.begin()
    if target.checkpoints(config.name, config.source.source_id):
        target.rollback()
        raise Transient("task-taken", "another run of this task has made the first start meanwhile")
    target.save_structures(config.name, config.source.source_id, lsn, structures)
    # What lies between a start that was given and now may be on the target already, by whatever way.
    target.save_safe_until(config.name, config.source.source_id, end if given is not None else None)
    target.commit()
    copy = {name: CopyState() for name in structures} if config.mode != "incremental" else {}
    return Checkpoint(
        task=config.name,
        source=config.source.source_id,
        worker=0,
        lsn=lsn,
        gtid=gtids,
        position=str(start),
        copy=PlanState(lsn, copy).copy_json(),
    )


def _change_no(relay: RelayReader) -> int:
    received = relay.received
    return received.change_no if received else 0


def _given_start(given: Position | str, relay: RelayReader) -> tuple[Lsn, str]:
    if isinstance(given, Position):
        lsn = Lsn.at(given, _change_no(relay))
        return lsn, relay.gtid_set(lsn) or ""
    first = relay.first
    assert first is not None, "the relay has begun"  # noqa: S101 - wait_for_relay has returned
    return first, given


def _schema_change(meaning: Meaning, relay: RelayReader, start: Lsn, end: Lsn) -> Lsn | None:
    for entry in relay.entries(start):
        if entry.transaction.lsn > end:
            break
        if meaning(entry).kind is WorkKind.DDL:
            return entry.transaction.lsn
    return None


def _structures_lost(config: TaskConfig, at: Lsn) -> Halted:
    return Halted(
        "structure-unknown",
        "a table was changed between the given start and now, and its structure at the start is not known",
        where=Where(source=config.source.source_id, position=str(at)),
        todo="Start behind that change, or with task-mode: all",
    )


def _prepare_tables(config: TaskConfig, target: TargetSession, structures: Mapping[TableName, Table]) -> None:
    """All misfits are found before the first table is created."""
    missing, problems = [], []
    for name, table in structures.items():
        misfits = target.misfits(table)
        if misfits is None:
            missing.append(name)
        else:
            problems += [f"{name}: {misfit}" for misfit in misfits]
    if config.mode == "incremental":
        problems += [f"{name}: does not exist on the target" for name in missing]
    if problems:
        raise PrecheckFailed(
            "target-shape",
            "tables on the target do not fit: " + "; ".join(problems),
            todo="Change or drop them on the target, or leave them out by block-allow-list",
        )
    for name in missing:
        rendered = target.create_statements(structures[name])
        for note in rendered.notes:
            _log.info("note on a created table", table=str(name), note=note)
        if target.transactional_ddl:
            target.begin()
        for statement in rendered.statements:
            target.execute(statement)
        if target.transactional_ddl:
            target.commit()
