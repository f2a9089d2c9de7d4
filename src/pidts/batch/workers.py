"""Where the workers of a task stand, from one batch to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pidts.model import Checkpoint
from pidts.plan import PlanState


@dataclass(frozen=True, slots=True)
class Commit:
    """What the workers of one batch write besides rows: each one's checkpoint before and after."""

    before: tuple[Checkpoint, ...]
    after: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class Workers:
    """Their checkpoints, by worker. After a crash some may be ahead of others."""

    checkpoints: tuple[Checkpoint, ...]

    @classmethod
    def claimed(cls, checkpoints: tuple[Checkpoint, ...]) -> tuple[Workers, Checkpoint]:
        """The workers of a new run, and the slowest of them: where the log and the copy are read on.

        At equal Lsns the batch's number tells who is behind in the copy. So all workers count on from the same number:
        a batch of which one worker has nothing to store would else make their own numbers drift apart, and the one
        with the higher number could be the one that lacks a chunk.
        """
        slowest = min(checkpoints, key=lambda checkpoint: (checkpoint.lsn, checkpoint.batch))
        latest = max(checkpoint.batch for checkpoint in checkpoints)
        return cls(tuple(replace(checkpoint, batch=latest) for checkpoint in checkpoints)), slowest

    def moved(self, end: PlanState, gtid: str = "", position: str = "") -> Workers:
        """After a batch; a worker that was ahead does not go back."""
        copy = end.copy_json()
        return Workers(
            tuple(
                replace(one, batch=one.batch + 1, lsn=max(one.lsn, end.lsn), gtid=gtid, position=position, copy=copy)
                for one in self.checkpoints
            )
        )
