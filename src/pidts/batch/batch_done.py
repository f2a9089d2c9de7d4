"""The report of a committed batch, for observers of the run."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model import Checkpoint
from pidts.plan import BatchPlan
from pidts.reduce import Counts


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The driver's report after each batch."""

    plan: BatchPlan
    checkpoint: Checkpoint
    counts: Counts
