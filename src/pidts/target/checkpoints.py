"""The checkpoints in `pidts_meta`, read and written with SQL that all servers understand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pidts.model import Checkpoint, Fenced, Halted, Lsn, OtherCheckpoint, Transient, Where
from pidts.model.advice import NO_CHECKPOINT
from pidts.model.records.altered_record import reading_record
from pidts.target.checkpoint_row import read_progress, written_progress
from pidts.target.meta_schema import META_EXISTS, Run, seconds

_COLUMNS = "task, source, worker, batch, lsn, gtid, log_position, epoch, copy_progress"

_BEGIN = 48
"""The digest is within this number of characters at the beginning of a copy progress (see `checkpoint_row`)."""

_OF_A_TASK = (
    "ddl_journal",
    "ddl_order",
    "halt",
    "note",
    "moved",
    "reread",
    "row_lock",
    "locked_form",
    "locked_structure",
    "held_change",
)
"""The tables from which a new task deletes the records of an earlier task of the same name."""


class CheckpointRecord:
    """Reads and writes the checkpoints by plain statements. Each kind of server adds the locks of `claim`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._saved: tuple[Checkpoint, tuple[Any, ...]] | None = None
        """The last saved checkpoint with the values of its columns. The run's next batch passes the same object."""
        self._accepted: dict[tuple[Any, ...], str] = {}
        """The rows that `_places` found last, each with the reason why it is not accepted; empty if it is accepted."""

    def read(self, task: str, source: str) -> list[Checkpoint]:
        """Returns the checkpoints of a task's workers without locking them."""
        return self._rows(task, source)

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Locks a worker's row and returns it."""
        rows, _ = self._run(
            f"SELECT {_COLUMNS} FROM pidts_meta.checkpoint WHERE task = %s AND source = %s AND worker = %s FOR UPDATE",
            (task, source, worker),
        )
        if not rows:
            raise no_checkpoint(task, source, worker)
        return _checkpoint(rows[0])

    def advance(self, left: Checkpoint, new: Checkpoint) -> bool:  # noqa: ARG002 - no row is advanced
        """Returns False: the caller then locks the row, reads it and saves it."""
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        """Overwrites a worker's checkpoint; raises if the row has another epoch, even if this run has not locked it."""
        new = checkpoint
        _, matched = self._run(
            "UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, copy_progress = %s, "
            "updated_at = CURRENT_TIMESTAMP(6) WHERE task = %s AND source = %s AND worker = %s AND epoch = %s",
            (*saved_values(new), new.task, new.source, new.worker, new.epoch),
        )
        if matched != 1:
            raise Fenced(
                "fenced",
                f"worker {new.worker} of task {new.task} has no row of epoch {new.epoch}",
                where=Where(source=new.source),
                todo="Another run has taken over the task. See: pidts status TASK",
            )

    def _advancing(self, left: Checkpoint, new: Checkpoint) -> tuple[Any, ...]:
        """Returns the values for a statement that writes `new` over `left`: new values, key, former values, epoch."""
        if self._saved is not None and self._saved[0] is left:
            former = self._saved[1]
        else:
            former = saved_values(left)
        self._saved = new, (values := saved_values(new))
        return (*values, left.task, left.source, left.worker, *former, left.epoch)

    def claim(
        self,
        task: str,
        source: str,
        workers: int,
        start: Checkpoint,
        *,
        read: int | None = None,
        on_claim: Callable[[int], None] = lambda _: None,
    ) -> list[Checkpoint]:
        """Claims the task in a transaction of its own; see the port (`pidts.apply.meta_port`)."""
        with self._claiming(task, source):
            stored = self._rows(task, source, lock="FOR UPDATE")
            claimed, rewrite = claimed_rows(stored, task, source, workers, start, read)
            if not stored:
                # The records of an earlier task with this name do not apply to the new task, even at the same Lsn.
                for table in _OF_A_TASK:
                    self._run(f"DELETE FROM pidts_meta.{table} WHERE task = %s AND source = %s", (task, source))
            if rewrite:
                self._run("DELETE FROM pidts_meta.checkpoint WHERE task = %s AND source = %s", (task, source))
                for row in claimed:
                    self._run(
                        f"INSERT INTO pidts_meta.checkpoint ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                        (
                            *(task, source, row.worker, row.batch, str(row.lsn), row.gtid, row.position, row.epoch),
                            written_progress(row),
                        ),
                    )
            else:
                self._run(
                    "UPDATE pidts_meta.checkpoint SET epoch = %s WHERE task = %s AND source = %s",
                    (claimed[0].epoch, task, source),
                )
            on_claim(claimed[0].epoch)
            return claimed

    def _claiming(self, task: str, source: str) -> AbstractContextManager[None]:
        """Returns the transaction of a claim, which also makes a second claim of this task wait."""
        raise NotImplementedError

    def _rows(self, task: str, source: str, *, lock: str = "") -> list[Checkpoint]:
        """Returns all workers' rows; none if no task has run. `lock` is the SQL clause that locks them."""
        if not lock and not self._run(META_EXISTS, ())[0]:
            return []
        rows, _ = self._run(
            f"SELECT {_COLUMNS}, updated_at FROM pidts_meta.checkpoint "
            f"WHERE task = %s AND source = %s ORDER BY worker {lock}",
            (task, source),
        )
        return [_checkpoint(row) for row in rows]

    def _places(self, task: str, source: str, *, lock: str) -> list[Checkpoint]:
        """Locks all workers' rows, and returns them without copy progress. If a row is new, reads all rows with it.

        A row is new if the last call has not read it with these values. The beginning of the copy progress is enough to
        know this, since it contains the digest of all values.
        """
        shorter = _COLUMNS.replace("copy_progress", f"LEFT(copy_progress, {_BEGIN})")
        rows, _ = self._run(
            f"SELECT {shorter} FROM pidts_meta.checkpoint WHERE task = %s AND source = %s ORDER BY worker {lock}",
            (task, source),
        )
        short = [tuple(row) for row in rows]
        if any(row not in self._accepted for row in short):
            # The rows are locked already, so they are still the same.
            self._accepted = dict(zip(short, [row.altered for row in self._rows(task, source, lock=lock)], strict=True))
        return [replace(_parsed(row), copy="", altered=self._accepted[row]) for row in short]


def claimed_rows(
    stored: Sequence[Checkpoint], task: str, source: str, workers: int, start: Checkpoint, read: int | None
) -> tuple[list[Checkpoint], bool]:
    """Returns the rows of the next epoch, and whether they must replace the stored rows.

    If there are no stored rows, the epoch is one higher than that of `start`.

    Rows that somebody has altered are claimed only if `start.altered` says that the caller knows this. They stay marked
    as altered until the caller saves a new checkpoint. Without the mark, the altered Lsn would look like an Lsn of the
    task if this run ended before its first save.

    `read` is the epoch that the caller has read: if another run has claimed the rows since, the claim is refused.

    With another number of workers, some keys move to other workers. This is safe only if all workers are at the same
    Lsn: otherwise the changes of some keys would be written twice or not at all.
    """
    if not stored:
        if read is not None:
            raise taken("the checkpoint of this task was deleted while this run was starting")
        fresh = replace(start, task=task, source=source, epoch=start.epoch + 1, altered="")
        return [replace(fresh, worker=worker) for worker in range(workers)], True
    altered = next((row.altered for row in stored if row.altered), "")
    if altered and not start.altered:
        raise Transient("task-taken", "a checkpoint of this task was altered while the task was starting")
    latest_epoch = max(row.epoch for row in stored)
    if read is not None and read != latest_epoch:
        raise taken("another run has claimed this task while this run was starting")
    epoch = latest_epoch + 1
    if [row.worker for row in stored] == list(range(workers)):
        return [replace(row, epoch=epoch) for row in stored], False
    places = {(row.lsn, row.copy) for row in stored}
    if len(places) > 1:
        raise Halted(
            "worker-count-changed",
            f"the target has checkpoints of {len(stored)} workers of task {task} at {len(places)} different "
            f"places, and worker-count is now {workers}",
            where=Where(source=source),
            todo=f"Run the task with worker-count: {len(stored)} until its batch is done, then change worker-count",
        )
    latest = max(stored, key=lambda row: row.batch)
    return [replace(latest, worker=worker, epoch=epoch, altered=altered) for worker in range(workers)], True


def taken(what: str) -> Transient:
    """Returns the error for a run that starts its task while another run starts it, too; `what` is the message."""
    return Transient(
        "task-taken",
        what,
        todo="Find the other run and stop one of the two: a task may have only one run at a time. This run tries "
        "again; if it then claims the task, the other run ends with the code fenced",
    )


def no_checkpoint(task: str, source: str, worker: int) -> Fenced:
    """Returns the error of a worker without a row: it never claimed the task, or a later claim removed its row."""
    return Fenced(
        "fenced",
        f"task {task} has no checkpoint of worker {worker} on this target",
        where=Where(source=source),
        todo=NO_CHECKPOINT,
    )


def saved_values(row: Checkpoint) -> tuple[Any, ...]:
    """Returns the values of the columns that each batch writes: batch, lsn, gtid, log_position, copy_progress."""
    return row.batch, str(row.lsn), row.gtid, row.position, written_progress(row)


def other_checkpoint(left: Checkpoint) -> OtherCheckpoint:
    """Returns the error of a transaction that expects the row `left`, and finds another row or none."""
    return OtherCheckpoint(
        "task-taken",
        f"the checkpoint of worker {left.worker} of task {left.task} has changed since this run wrote it",
        where=Where(source=left.source),
    )


def _checkpoint(row: tuple[Any, ...]) -> Checkpoint:
    return read_progress(_parsed(row))


def _parsed(row: tuple[Any, ...]) -> Checkpoint:
    """Returns the checkpoint with the text of `copy_progress` as it is stored.

    If the Lsn is not readable, the checkpoint is altered and has the smallest Lsn, so that no log counts as applied.
    """
    task, source, worker, batch, lsn, gtid, position, epoch, copy, *saved = row
    try:
        place, altered = Lsn.parse(lsn), ""
    except ValueError as error:
        place, altered = Lsn(0, 0, 0), f"its lsn is not readable: {error}"
    with reading_record("checkpoint", task=task, source=source, worker=worker):
        return Checkpoint(
            task=task,
            source=source,
            worker=int(worker),
            batch=int(batch),
            lsn=place,
            gtid=gtid,
            position=position,
            epoch=int(epoch),
            copy=copy,
            saved_at=seconds(saved[0]) if saved else 0.0,
            altered=altered,
        )
