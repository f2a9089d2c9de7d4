"""Carries out a *long* batch, which would need too much memory at once.

Each worker decodes the log for itself, and writes its changes part by part in one transaction of the target.

The driver and a Spark job use the same function. The crash points of `pidts.batch.applying` apply to both. In the
driver, a run may also end while the batch is under way:

1. The driver waits a while, since the batch may be almost done. Then the batch ends with `LeftBatchError` before it
   writes its next part. The committer rolls back its transaction. With `split-transactions`, earlier parts of the batch
   are transactions of their own, and stay committed with their checkpoints.
2. A part waits for a lock on the target, so the batch cannot be left between two parts. The process ends, and the
   server rolls back. The next run's claim waits for this.
3. With several workers, some may have committed the batch, and others have not. Each worker has its own checkpoint, and
   the next run begins at the place that all workers have reached (`pidts.batch.workers`).

In each case the next run plans again what is not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class LongBatch:
    """A long batch that the driver writes. Another thread reads how far it is, and may end it between two parts."""

    is_left: bool = False
    """Whether the batch ends with `LeftBatchError` instead of writing its next part."""
    _written: dict[int, int] = field(default_factory=dict)

    @property
    def written(self) -> int:
        """Returns how many changes the workers have written in their present attempts."""
        return sum(self._written.copy().values())

    def until_left(self, worker: int, log_parts: Iterator[LogPart]) -> Iterator[LogPart]:
        """Yields the parts of one attempt, and counts each part when the next one is asked for."""
        self._written[worker] = 0
        for log_part in log_parts:
            if self.is_left:
                raise LeftBatchError
            changes = len(log_part)
            yield log_part
            del log_part  # otherwise a written part would stay in memory while the next one is decoded
            self._written[worker] += changes


def long_work(
    context: JobContext, commit: Commit, plan: BatchPlan, batch: LongBatch | None = None
) -> Callable[[Committer, int], Counts]:
    """Returns the function that writes one worker's changes of a long batch, and returns their counts.

    If the batch moves held tables, no part is committed by itself. The batch is not in the order of the log, since the
    changes of the held tables come first. So an Lsn would not say which changes of the batch are committed. Only the
    plan shows whether held tables move: if a table is held on another worker, this worker's own places lack the table.
    """
    split_rows = None if plan.moves_held else context.split_rows
    return partial(_written, context, commit, plan.log, plan.tables, split_rows, batch)


def _written(
    context: JobContext,
    commit: Commit,
    log: Sequence[LogSlice],
    tables: Collection[TableName],
    split_rows: int | None,
    batch: LongBatch | None,
    committer: Committer,
    worker: int,
) -> Counts:
    def log_parts() -> Iterator[LogPart]:
        found = decode_for(context, log, worker, in_whole_transactions=context.split_rows is not None)
        return found if batch is None else batch.until_left(worker, found)

    return apply_long(committer, commit, worker, log_parts, split_rows, tables)
