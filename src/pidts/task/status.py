"""How a task is doing, as the record on its target tells it: how far it is with each source, and what waits.

This needs no running task, works from any machine, and changes nothing. What only the relay knows, how much log is kept
for tables that wait, is told where the relay is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pidts.apply import TargetSession
from pidts.batch.workers import Workers
from pidts.model import Lsn, Position, TableName
from pidts.replicate import silent_since
from pidts.task.compose import target_of
from pidts.task.config import TaskConfig
from pidts.task.locks import OpenLock, open_locks
from pidts.task.orders import OrderDesk, Standing, has_failed
from pidts.task.progress import TableProgress
from pidts.task.uneven_shards import UnevenColumn, uneven_columns
from pidts.task.waiting import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How far a task is with one of its sources."""

    source: str
    applied_lsn: Lsn | None = None
    """All of its log up to here is on the target, but for tables that are held; None: it has not begun."""
    gtid: str = ""
    position: Position | None = None
    moved_at: float = 0.0
    """When its checkpoint was stored last, in seconds since 1970."""
    silent_since: float = 0.0
    """Since when nobody receives its log here; 0 where somebody does, or the relay is on another machine."""
    tables: int = 0
    """Those that are copied, or were."""
    copying: tuple[TableProgress, ...] = ()
    """Those whose copy is not done."""
    held: Held
    halted: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """All of it."""

    task: str
    sources: tuple[SourceStatus, ...]
    locks: tuple[OpenLock, ...] = ()
    uneven: tuple[UnevenColumn, ...] = ()
    """What not all shards of a table have."""

    @property
    def has_begun(self) -> bool:
        """With one of its sources, at least."""
        return any(source.applied_lsn is not None for source in self.sources)

    @property
    def is_silent(self) -> bool:
        """Whether it does not run, as far as this machine can tell."""
        begun = [source for source in self.sources if source.applied_lsn is not None]
        return bool(begun) and all(source.silent_since for source in begun)

    @property
    def needs_operator(self) -> bool:
        """Whether something does not go on by itself. Shards that wait do, unless they disagree."""
        halts = [one.halt for source in self.sources for one in source.halted if one.halt is not None]
        return any(map(has_failed, halts)) or any(lock.disagrees for lock in self.locks)

    @property
    def held_bytes(self) -> int | None:
        """Of log that relays keep for tables that wait; None where one of them is on another machine."""
        held = [source.held for source in self.sources]
        return sum(one.log_bytes for one in held) if all(one.is_known for one in held) else None


def task_status(parts: Sequence[TaskConfig]) -> TaskStatus:
    """Over a session of its own."""
    with closing(target_of(parts[0]).connect()) as target:
        return status_on(target, parts)


def status_on(target: TargetSession, parts: Sequence[TaskConfig]) -> TaskStatus:
    """As this target has it on record."""
    name = parts[0].name
    if not any(target.checkpoints(name, part.source.source_id) for part in parts):
        sources = [part.source.source_id for part in parts]
        return TaskStatus(name, tuple(SourceStatus(source=source, held=Held(source, {}, 0)) for source in sources))
    desk = OrderDesk(parts, target)
    standing = [one for one in desk.counted(desk.standing()) if one.waits]
    known = [(source, table) for task, source, table in target.known() if task == name]
    found = [_source(target, part, held, known, standing) for part, held in zip(parts, desk.held(), strict=True)]
    return TaskStatus(name, tuple(found), tuple(open_locks(desk, standing)), uneven_columns(target, parts))


def _source(
    target: TargetSession,
    config: TaskConfig,
    held: Held,
    known: Sequence[tuple[str, TableName]],
    standing: Sequence[Standing],
) -> SourceStatus:
    source = config.source.source_id
    rows = tuple(target.checkpoints(config.name, source))
    if not rows:
        return SourceStatus(source=source, held=held)
    _, state, gtid = Workers.claimed(rows)
    position = min(rows, key=lambda row: row.lsn).position
    tables = {table for its, table in known if its == source and config.allow(table)} | state.copy.keys()
    return SourceStatus(
        source=source,
        applied_lsn=state.lsn,
        gtid=gtid,
        position=Position.parse(position) if position else None,
        moved_at=max(row.saved_at for row in rows),
        silent_since=silent_since(config.relay, source),
        tables=len(tables) if config.mode != "incremental" else 0,
        copying=tuple(
            TableProgress(name=str(table), copied=one.rows, estimate=one.estimate, phase=one.phase)
            for table, one in sorted(state.copy.items())
            if not one.done
        ),
        held=held,
        halted=tuple(one for one in standing if one.source == source),
    )
