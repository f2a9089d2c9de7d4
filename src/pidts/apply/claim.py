"""Claims a task, and notes its number of workers.

By this note, a later command notices if a checkpoint was deleted by hand. The note is written in the transaction of the
claim. Each command that begins a task uses this module. Otherwise this could happen: a run notes four workers, a
command then claims the task for two, and the next run reports the two other checkpoints as deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pidts.apply.port import TargetSession
from pidts.model import Checkpoint, Halted, SourceTablesKey, TableName, Where
from pidts.model.advice import CHECKPOINT, MAKE_EQUAL
from pidts.model.errors import named
from pidts.model.records.altered_record import reading_note

_WORKERS = TableName("", "workers")
"""Among a task's records, the key of the note with the number of workers of the last claim."""


def claim_workers(
    target: TargetSession,
    task: str,
    source: str,
    workers: int,
    first: Checkpoint,
    read: int | None = None,
    on_claim: Callable[[int], None] = lambda _: None,
) -> tuple[Checkpoint, ...]:
    """Claims the task, and returns the checkpoints of its workers.

    Raises if another run has claimed the task since this run has read the epoch `read`.
    """

    def claims(epoch: int) -> None:
        # The note is part of the claim's transaction.
        target.meta.notes.write(task, SourceTablesKey(source), _WORKERS, str(workers))
        on_claim(epoch)

    return tuple(target.meta.checkpoints.claim(task, source, workers, first, read=read, on_claim=claims))


def demand_all_workers(target: TargetSession, task: str, source: str, stored: Sequence[Checkpoint]) -> None:
    """Raises if the checkpoint of a worker was deleted by hand.

    The other workers may have committed a batch of which the target lacks the rows of this worker. The claim would give
    this worker the place of the other workers.
    """
    noted = target.meta.notes.read(task, SourceTablesKey(source), _WORKERS)
    with reading_note(task, source, _WORKERS.name):
        missing = sorted(set(range(int(noted or 0))) - {row.worker for row in stored}) if stored else []
    if missing:
        raise Halted(
            "checkpoint-deleted",
            f"the target has no checkpoint of {named('worker', missing)} of task {task}",
            where=Where(source=source),
            todo="Somebody has deleted it, and changes of this worker may be missing on the target. Insert the "
            f"worker's row into {CHECKPOINT} again, with all of its old values. Or remove the rows of the "
            f"other workers, too, and {MAKE_EQUAL}",
        )
