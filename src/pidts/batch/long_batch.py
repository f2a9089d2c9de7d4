"""Carries out a *long* batch, which would need too much memory at once.

Each worker decodes the log for itself, and writes its changes part by part in one transaction of the target.

The driver and a Spark job use the same function. The crash points of `pidts.batch.applying` apply to both. In the
driver, a run may also end while the batch is under way:

1. The driver waits a while, since the batch may be almost done. Then the batch ends with `LeftBatchError` before it
   writes its next part. The committer rolls back its transaction. With `split-transactions`, earlier parts of the batch
   are transactions of their own, and stay committed with their checkpoints.
2. A part waits for a lock on the target, so the batch cannot be left between two parts. The process ends, and the
   server rolls back. The next run's claim waits for this.
3. With several workers, some may have committed the batch, and others have not. Each has its own checkpoint, and the
   next run begins at the place that all workers have reached (`pidts.batch.workers`).

In each case the next run plans again what is not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from pidts.apply import Committer
from pidts.batch.applying import apply_long
from pidts.batch.context import JobContext
from pidts.batch.decoding import decode_for
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit
from pidts.model import TableName
from pidts.plan import BatchPlan, LogSlice
from pidts.reduce import Counts


class LeftBatchError(Exception):
    """Raised if the run has to end before the batch is done."""


def long_work(
    context: JobContext, commit: Commit, plan: BatchPlan, is_left: Callable[[], bool] | None = None
) -> Callable[[Committer, int], Counts]:
    """Returns the function that writes one worker's changes of a long batch, and returns their counts.

    If `is_left()` is true, the function raises `LeftBatchError` instead of writing another part.

    If the batch moves held tables, no part is committed by itself. The batch is not in the order of the log, since the
    changes of the held tables come first. So an Lsn would not say which changes of the batch are committed. Only the
    plan shows whether held tables move: they may be held on another worker, and the worker's own places lack them.
    """
    split_rows = None if plan.moves_held else context.split_rows
    return partial(_written, context, commit, plan.log, plan.tables, split_rows, is_left)


def _written(
    context: JobContext,
    commit: Commit,
    log: Sequence[LogSlice],
    tables: Collection[TableName],
    split_rows: int | None,
    is_left: Callable[[], bool] | None,
    committer: Committer,
    worker: int,
) -> Counts:
    def log_parts() -> Iterator[LogPart]:
        found = decode_for(context, log, worker, in_whole_transactions=context.split_rows is not None)
        return found if is_left is None else until_left(found, is_left)

    return apply_long(committer, commit, worker, log_parts, split_rows, tables)


def until_left(log_parts: Iterator[LogPart], is_left: Callable[[], bool]) -> Iterator[LogPart]:
    """Yields the parts. If `is_left()` is true after a part is decoded, raises `LeftBatchError` in the part's place."""
    for log_part in log_parts:
        if is_left():
            raise LeftBatchError
        yield log_part
        del log_part  # otherwise a written part would stay in memory while the next one is decoded
