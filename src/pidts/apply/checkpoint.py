"""Compares a worker's stored checkpoint with a batch that is about to commit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pidts.model import Checkpoint, Fenced, Halted, Lsn, Where
from pidts.model.advice import CHECKPOINT, MAKE_EQUAL, NO_CHECKPOINT

_SET_RIGHT = (
    "Do not continue from this checkpoint: changes would be applied again, and rows of tables without a key would be "
    f"doubled. Give the row in {CHECKPOINT} all of its old values, or {MAKE_EQUAL}"
)


class Outcome(Enum):
    """How a commit has ended."""

    APPLIED = "applied"
    ALREADY = "already"
    """An earlier attempt has committed the batch; nothing was written."""


def settle(stored: Checkpoint, expected: Lsn, new: Checkpoint, *, rows: int) -> Outcome:
    """Returns APPLIED if the batch has to be written, ALREADY if the target has the batch; otherwise raises an error.

    The batch begins at `expected` and ends at `new`. Some batches end where they begin: they only copy existing rows,
    or only move waiting tables. For such a batch:

    - If the stored copy progress differs from the batch's, this is the first attempt. If both are equal, the attempt is
      repeated.
    - If the stored batch number is larger, the attempt is late: the target already has the next batch, which ends at
      the same place.
    """
    if stored.epoch != new.epoch:
        raise fenced(stored, new.epoch)
    demand_unaltered(stored)
    if stored.lsn == expected == new.lsn:
        if stored.batch > new.batch:
            return Outcome.ALREADY
        if stored.copy != new.copy:
            return Outcome.APPLIED
        if rows and stored.batch != new.batch:
            raise _mismatch(
                stored, f"batch {new.batch} has {rows} rows and moves neither the position nor the copy progress"
            )
        return Outcome.ALREADY
    if new.lsn < expected:
        raise _mismatch(stored, f"batch {new.batch} ends at {new.lsn}, before its start {expected}")
    if stored.lsn >= new.lsn:
        return Outcome.ALREADY
    if stored.lsn == expected:
        return Outcome.APPLIED
    raise _mismatch(stored, f"batch {new.batch} covers {expected} to {new.lsn}, but the target is at {stored.lsn}")


def demand_unaltered(stored: Checkpoint) -> None:
    """Raises if a checkpoint was altered by hand, since the target may already have later changes."""
    if stored.altered:
        raise Halted(
            "checkpoint-altered",
            f"the checkpoint of worker {stored.worker} of task {stored.task} was changed by hand: {stored.altered}",
            where=_where(stored),
            todo=_SET_RIGHT,
        )


def fenced(stored: Checkpoint, epoch: int) -> Fenced:
    """Returns the error for a run that another run has replaced."""
    return Fenced(
        "fenced",
        f"another run of task {stored.task} has taken over (epoch {stored.epoch}, this run has {epoch})",
        where=_where(stored),
        todo="Nothing to do here: the other run continues",
    )


def demand_epoch(stored: Sequence[Checkpoint], task: str, source: str, epoch: int) -> None:
    """Raises if there is no checkpoint, or if the epoch of a checkpoint is not the epoch of this run's claim."""
    _demand_some(stored, task, source)
    for row in stored:
        if row.epoch != epoch:
            raise fenced(row, epoch)


def demand_not_fenced(
    stored: Sequence[Checkpoint], task: str, source: str, epoch: int, *, has_begun: bool = False
) -> None:
    """Raises if another run has claimed the task since this run's claim.

    `epoch` is the epoch of this run's claim; 0: this run has made no claim. `has_begun`: the claim was certainly
    committed. Then a missing checkpoint is an error, too: a run that begins anew would omit all changes since the
    deleted checkpoint.
    """
    if has_begun:
        _demand_some(stored, task, source)
    for row in stored:
        if epoch and row.epoch > epoch:
            raise fenced(row, epoch)


def _demand_some(stored: Sequence[Checkpoint], task: str, source: str) -> None:
    if not stored:
        raise Fenced(
            "fenced",
            f"task {task} has no checkpoint on this target",
            where=Where(source=source),
            todo=NO_CHECKPOINT,
        )


def _mismatch(stored: Checkpoint, what: str) -> Halted:
    return Halted(
        "checkpoint-mismatch",
        f"worker {stored.worker}: {what}",
        where=_where(stored),
        todo="If the whole target was restored, restart the task: it continues from the restored checkpoint. "
        f"Otherwise: {_SET_RIGHT}",
    )


def _where(stored: Checkpoint) -> Where:
    return Where(source=stored.source, position=stored.position or str(stored.lsn))
