"""Which batches are a job of Spark's."""

from __future__ import annotations

from pidts.batch.decoding import AT_ONCE
from pidts.plan import BatchPlan

_DRIVER_BYTES = 64 << 20
"""The bytes that the planner puts into a batch at most, but for its last transaction."""


def is_large(plan: BatchPlan, direct_rows: int, waiting: int = 0) -> bool:
    """Whether it is too much for the driver, with so many copied rows to be written.

    A row event may hold thousands of rows, so bytes count as well.
    """
    return plan.row_events + waiting > direct_rows or plan.log_bytes > _DRIVER_BYTES or plan.largest > AT_ONCE
