"""The report of a committed batch, for observers of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pidts.model import Checkpoint, TableName
from pidts.plan import BatchPlan
from pidts.reduce import Counts


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The driver's report after each batch."""

    plan: BatchPlan
    checkpoint: Checkpoint
    counts: Counts
    looked_up: Mapping[TableName, int] = field(default_factory=dict)
    """How many rows of the target were looked up on the source, to find extra rows of a table that is copied again."""
