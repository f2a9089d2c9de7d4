"""The next state of a task, from its state and what the relay holds.

Four rules make everything behind the planner simple:

- a batch ends at a transaction's end, so stopping, crashing and reading the target never tears a transaction;
- a batch never crosses a DDL: a DDL is a batch of its own, so one structure per table holds within a batch;
- a chunk is written by the batch whose log covers its whole window, or it is read again;
- equal arguments give equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pidts.model import Halted, LogEntry, Lsn, TableName, Where, xa_not_received
from pidts.plan.copying import ChunkRequest, CopyState, StagedChunk
from pidts.plan.state import BatchKind, PlanState


class WorkKind(Enum):
    """What a transaction means for the task."""

    NOTHING = "nothing"
    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction means, and what a DDL does to the tables that are being copied."""

    kind: WorkKind
    gone: tuple[TableName, ...] = ()
    gone_schemas: tuple[str, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()
    """Name before and name after the whole statement."""
    recopied: tuple[TableName, ...] = ()
    """Tables whose key may be another one now: how far a copy had come by the old key says nothing any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch may become. Transactions are never cut, so a batch may exceed them by one transaction."""

    transactions: int = 50_000
    row_events: int = 100_000
    bytes: int = 64 << 20
    chunk_rows: int = 20_000
    chunks: int = 4
    idle_entries: int = 10_000
    """So many transactions of other tables pass before the position is moved for their sake alone."""


def next_state(
    state: PlanState,
    entries: Iterable[LogEntry],
    staged: Mapping[TableName, StagedChunk],
    limits: Limits,
    work_of: Callable[[LogEntry], Work],
    goal: Lsn | None = None,
) -> PlanState | None:
    """The state after the next batch, or None where there is nothing to do yet.

    `entries` follow `state.lsn`; `staged` holds the chunks named by `state.reading`. Up to `goal` the position is moved
    even if nothing needs applying, so that a caller who waits for it sees it reached.
    """
    floor = max((chunk.high for chunk in staged.values()), default=None)
    lsn, has_work, count, rows, size = state.lsn, False, 0, 0, 0
    at_end = False
    for entry in entries:
        if entry.lacks_rows:
            if count == 0:
                raise xa_not_received(entry.transaction)
            break
        work = work_of(entry)
        if work.kind is WorkKind.DDL:
            if count == 0:
                copy = _after_ddl(state.durable().copy, work)
                return PlanState(entry.transaction.lsn, copy, BatchKind.DDL)
            break
        full = count >= limits.transactions or rows >= limits.row_events or size >= limits.bytes
        if full and (floor is None or lsn >= floor):
            break
        lsn = entry.transaction.lsn
        count += 1
        if work.kind is WorkKind.ROWS:
            has_work = True
            rows += entry.transaction.row_events
            size += (entry.prepared or entry.extent).size
    else:
        at_end = True
        if floor is not None and lsn < floor:
            return None
    if state.reading:
        # Also where a DDL stands before the end of a window, or a chunk's file is gone: then it is read again.
        has_work = True
    copy, written = _write_chunks(state, staged, lsn)
    if at_end:
        # Behind a backlog (or before a DDL) a chunk's window would be as long as the backlog, and so would its batch.
        copy = _read_chunks(copy, limits)
    if at_end and not has_work and copy == state.copy:
        # Not so before a DDL: it is planned once it is the first entry.
        towards_goal = goal is not None and state.lsn < goal <= lsn
        if count < limits.idle_entries and not towards_goal:
            return None
    return PlanState(lsn, copy, BatchKind.ROWS, written)


def _write_chunks(
    state: PlanState, staged: Mapping[TableName, StagedChunk], end: Lsn
) -> tuple[dict[TableName, CopyState], tuple[ChunkRequest, ...]]:
    copy = dict(state.durable().copy)
    written = []
    for name, chunk in staged.items():
        if chunk.high > end:
            continue
        if chunk.stale:
            # All of the log up to the reading is in this batch, and a batch holds no DDL.
            raise Halted(
                "changed-outside-log",
                "the table's structure was changed without a statement in the log",
                where=Where(table=str(name), position=str(chunk.high)),
                todo="Make the same change on the target, then start a new task for this table",
            )
        before = copy[name]
        copy[name] = CopyState(
            after=chunk.last_key if chunk.last_key is not None else before.after,
            upto=chunk.upto,
            reads=before.reads,
            rows=before.rows + chunk.rows,
            done=chunk.is_last,
        )
        written.append(chunk.request)
    return copy, tuple(written)


def _read_chunks(copy: dict[TableName, CopyState], limits: Limits) -> dict[TableName, CopyState]:
    open_tables = [name for name, state in copy.items() if not state.done]
    for name in open_tables[: limits.chunks]:
        state = copy[name]
        request = ChunkRequest(name, state.reads, state.after, state.upto, limits.chunk_rows)
        copy[name] = replace(state, reads=state.reads + 1, reading=request)
    return copy


def _after_ddl(copy: Mapping[TableName, CopyState], work: Work) -> dict[TableName, CopyState]:
    renamed = dict(work.renamed)
    return {
        renamed.get(name, name): state if state.done or name not in work.recopied else CopyState(reads=state.reads)
        for name, state in copy.items()
        if name not in work.gone and name.schema not in work.gone_schemas
    }
