"""Rows that were read of the source, into the target ahead of the batch that settles their reading.

**The rule**: a chunk is loaded only while no worker of the task has a checkpoint behind `low`, the place in the log up
to which all changes show in its rows. What the log brings behind `low` is then still to be written, and is newer than
these rows. Loaded any later, a row that the log removed would be back for good:

    read row 7 at low = 100        DELETE of row 7 at 120 is written, checkpoint 150        load row 7

So the loading transaction holds the checkpoints of all workers: it sees them as they are, and none of them moves before
it ends. Many chunks hold them side by side. `low` is None where rows are not tied to places of the log: none of the
table's changes is carried while its rows are copied, which the planner sees to.

What holds when it breaks off at each point:

1. Before COMMIT, by an error, a lost connection or a dead process: the server rolls back. Until it has, the checkpoints
   stay held, and the batch that would move them waits; the chunk is read again.
2. While COMMIT is under way, or after it and before anybody knows: all rows of the chunk are in, or none. It is read
   again either way; where its rows are in, that is a conflict, and they are reduced with the log of their window.
3. A task that was taken over wakes up with rows in its hands: it finds another epoch, or checkpoints behind `low`,
   under the very lock under which it would load, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import pyarrow as pa

from pidts.apply.checkpoint import fenced
from pidts.apply.port import TargetSession
from pidts.model import Checkpoint, Fenced, Lsn, Table, Transient, Where


def load_chunk(
    session: TargetSession,
    task: str,
    source: str,
    epoch: int,
    low: Lsn | None,
    table: Table,
    batches: Iterable[pa.Table],
    *,
    batch: int | None = None,
    clear: bool = False,
) -> bool:
    """All rows in one transaction, which is committed here; False and nothing where one of them is there already.

    `batch` is the number of the batch that asked for the rows: on a source where nothing happens the next one stands at
    the same place of the log. `clear` removes all rows of the table first. After an error the session is to be closed.
    """
    # Two attempts that clear the table side by side would not see each other's rows, and both would stay.
    alone = session.ddl_lock(task, f"{source} copy of {table.name}") if clear else nullcontext()
    with alone:
        session.begin()
        try:
            held = session.hold(task, source)
            _demand_time(held, task, source, epoch, low, table)
            _demand_asked(held, source, batch, table)
            if clear:
                session.clear(table.name)
            if not all(session.load(table, rows) for rows in batches):
                session.rollback()
                return False
        except BaseException:
            session.rollback()
            raise
        session.commit()
        return True


def _demand_time(held: list[Checkpoint], task: str, source: str, epoch: int, low: Lsn | None, table: Table) -> None:
    if not held:
        raise Fenced("fenced", f"task {task} has no workers on this target", where=Where(source=source))
    for checkpoint in held:
        if checkpoint.epoch != epoch:
            raise fenced(checkpoint, epoch)
    furthest = max(checkpoint.lsn for checkpoint in held)
    if low is not None and furthest > low:
        raise Transient(
            "chunk-too-late",
            f"rows were read when the log was at {low}, and the target is at {furthest} by now",
            where=Where(source=source, table=str(table.name)),
            todo="Nothing: they are read again",
        )


def _demand_asked(held: list[Checkpoint], source: str, batch: int | None, table: Table) -> None:
    if batch is not None and any(checkpoint.batch > batch for checkpoint in held):
        what = "the request that these rows were read for has been settled without them"
        raise Transient("chunk-too-late", what, where=Where(source=source, table=str(table.name)))
