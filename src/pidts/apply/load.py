"""Loads rows of the source into the target, before a batch records that these rows were read.

**The rule**: a chunk is loaded only while no worker of the task has a checkpoint after `low`. `low` is the place in the
log up to which the chunk's rows contain all changes. Changes after `low` are newer than these rows, so they must be
written after the chunk. Otherwise a row that the log has deleted would come back and stay:

    read row 7 at low = 100        DELETE of row 7 at 120 is written, checkpoint 150        load row 7

If the source has no changes, the batch that records the reading ends where the batch that asked for the rows has ended.
So there is a second condition: no worker may be at a later batch than the batch that asked.

The loading transaction has shared locks on the checkpoints of all workers: it reads their current state, and no
checkpoint changes before the transaction ends. Many chunks can have these locks at the same time.

A load can be interrupted at these points:

1. Before COMMIT, by an error, a lost connection or a dead process: the server rolls back. Until then, the checkpoints
   stay locked, and the batch that would move them waits. The chunk is read again.
2. While COMMIT is under way, or after it and before its result is known: the target has all rows of the chunk, or none.
   In both cases the chunk is read again. If the target already has its rows, they are reduced together with the log of
   their window.
3. A run that was replaced may still have rows in memory. Before it loads them, it locks the checkpoints, finds another
   epoch or checkpoints after `low`, and loads nothing.

Rows of a table without a key cause no conflict when they are loaded twice. So only the first attempt loads such a
table. In the same transaction, this attempt records on the target that the table is loaded, with its result. A later
attempt returns the recorded result in place of its own: the snapshot of the later attempt may be older or newer than
the snapshot that the planner uses. Attempts wait for each other, since an attempt cannot see a record that another
attempt has not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from pidts.apply.checkpoint import demand_epoch, demand_unaltered
from pidts.apply.port import TargetSession
from pidts.model import Lsn, SourceTablesKey, Table, Transient, Where


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The request that asked for rows, and the place in the log at which these rows were read."""

    task: str
    source: str
    epoch: int
    batch: int
    """The number of the batch that asked for the rows."""
    low: Lsn


def load_chunk(session: TargetSession, asked: LoadRequest, table: Table, batches: Iterable[pa.Table]) -> bool:
    """Loads all rows and commits; returns False, with nothing loaded, if the target already has one of the rows.

    After an error the caller has to close the session.
    """
    session.begin()
    try:
        _demand_time(asked, table, _held(session, asked, table))
        if not all(session.load(table, rows) for rows in batches):
            session.rollback()
            return False
    except BaseException:
        session.rollback()
        raise
    session.commit()
    return True


def load_whole(
    session: TargetSession, asked: LoadRequest, table: Table, batches: Iterable[pa.Table], result: Callable[[], str]
) -> str | None:
    """Replaces all rows of the table, by the rule of this module; returns None if two of the new rows collide.

    Otherwise returns the text of `result`, or the text of an earlier attempt that has loaded the rows.
    """
    task, source = asked.task, asked.source
    prefix = f"{asked.epoch}/{asked.batch} "
    with session.meta.ddl_lock(task, f"{source} copy of {table.name}"):
        session.begin()
        try:
            furthest = _held(session, asked, table)
            known = session.meta.notes.read(task, SourceTablesKey(source), table.name)
            if known.startswith(prefix):
                session.rollback()
                return known.removeprefix(prefix)
            _demand_time(asked, table, furthest)
            session.clear(table.name)
            if not all(session.load(table, rows) for rows in batches):
                session.rollback()
                return None
            answer = result()
            session.meta.notes.write(task, SourceTablesKey(source), table.name, prefix + answer)
        except BaseException:
            session.rollback()
            raise
        session.commit()
        return answer


def _held(session: TargetSession, asked: LoadRequest, table: Table) -> Lsn:
    """Returns the latest Lsn of all workers; raises if the request is already done, or is another run's request.

    Locks the checkpoints of all workers, so that none of them changes before the transaction ends.
    """
    held = session.meta.checkpoints.lock_places(asked.task, asked.source)
    demand_epoch(held, asked.task, asked.source, asked.epoch)
    for checkpoint in held:
        demand_unaltered(checkpoint)
    if any(checkpoint.batch > asked.batch for checkpoint in held):
        raise _too_late(
            asked, table, "the rows are not needed any more: the request that they were read for is already done"
        )
    return max(checkpoint.lsn for checkpoint in held)


def _demand_time(asked: LoadRequest, table: Table, furthest: Lsn) -> None:
    if furthest > asked.low:
        what = f"rows were read when the log was at {asked.low}, but the target is already at {furthest}"
        raise _too_late(asked, table, what)


def _too_late(asked: LoadRequest, table: Table, what: str) -> Transient:
    where = Where(source=asked.source, table=str(table.name))
    return Transient("chunk-too-late", what, where=where, todo="Nothing to do: the rows are read again")
