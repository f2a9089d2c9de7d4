"""Decides which batches become a Spark job, and for which copies Spark is started."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.batch.decoding import AT_ONCE
from pidts.plan import BatchPlan, Phase
from pidts.plan.copy.state import CopyState

_DRIVER_BYTES = 64 << 20
"""The largest number of bytes of log in a batch that the driver carries out by itself."""


def is_large(plan: BatchPlan, direct_rows: int, waiting: int = 0) -> bool:
    """Whether a batch, with this many waiting copied rows, is too large for the driver.

    A row event may have thousands of rows, so bytes count as well.
    """
    return plan.row_events + waiting > direct_rows or plan.log_bytes > _DRIVER_BYTES or plan.largest > AT_ONCE


def copies_much(states: Iterable[CopyState], done: int, direct_rows: int) -> bool:
    """Whether the rows copied in this run (`done`) and all rows left to copy are together too many for the driver.

    A server may estimate too few rows for a table. Since `done` counts, Spark then still starts, but a little late.
    """
    left = sum(max(0, state.estimate - state.rows) for state in states if not state.done and state.phase is Phase.ROWS)
    return done + left > direct_rows
