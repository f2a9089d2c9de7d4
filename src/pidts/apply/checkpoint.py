"""What a worker's stored checkpoint says about a batch that wants to commit."""

from __future__ import annotations

from enum import Enum

from pidts.model import Checkpoint, Fenced, Halted, Lsn, Where


class Outcome(Enum):
    """How a commit ended."""

    APPLIED = "applied"
    ALREADY = "already"
    """An earlier attempt had committed it; nothing was written."""


def settle(stored: Checkpoint, expected: Lsn, new: Checkpoint, *, rows: int) -> Outcome:
    """APPLIED: the batch is next, write it. ALREADY: it is in. Everything else stops the task.

    `expected` is where the batch begins, `new` where it ends. A batch that only copies existing rows, or moves held
    tables alone, ends where it begins: then its progress tells a first attempt from a second one, and its number tells
    one that comes so late that the batch behind it, which ends there as well, is in.
    """
    if stored.epoch != new.epoch:
        raise fenced(stored, new.epoch)
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
        raise _mismatch(stored, f"batch {new.batch} ends at {new.lsn}, before its begin {expected}")
    if stored.lsn >= new.lsn:
        return Outcome.ALREADY
    if stored.lsn == expected:
        return Outcome.APPLIED
    raise _mismatch(stored, f"batch {new.batch} covers {expected} to {new.lsn}, but the target is at {stored.lsn}")


def fenced(stored: Checkpoint, epoch: int) -> Fenced:
    """The error of a run that was taken over."""
    return Fenced(
        "fenced",
        f"another run of task {stored.task} has taken over (epoch {stored.epoch}, this run has {epoch})",
        where=_where(stored),
        todo="Nothing to do here: the other run goes on",
    )


def _mismatch(stored: Checkpoint, what: str) -> Halted:
    return Halted(
        "checkpoint-mismatch",
        f"worker {stored.worker}: {what}",
        where=_where(stored),
        todo="Restart the task: it goes on from the target's own checkpoint",
    )


def _where(stored: Checkpoint) -> Where:
    return Where(source=stored.source, position=stored.position or str(stored.lsn))
