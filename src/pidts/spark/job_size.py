"""Decides which batches are a job of Spark's, and which copies are worth its start."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.batch.decoding import AT_ONCE
from pidts.plan import BatchPlan, Phase
from pidts.plan.copy.state import CopyState

_DRIVER_BYTES = 64 << 20
"""The bytes that the planner puts into a batch at most, but for its last transaction."""


def is_large(plan: BatchPlan, direct_rows: int, waiting: int = 0) -> bool:
    """Whether it is too much for the driver, with so many copied rows to be written.

    A row event may hold thousands of rows, so bytes count as well.
    """
    return plan.row_events + waiting > direct_rows or plan.log_bytes > _DRIVER_BYTES or plan.largest > AT_ONCE


def copies_much(states: Iterable[CopyState], done: int, direct_rows: int) -> bool:
    """Whether the driver, which has copied so many rows in this run, would copy too many if it went on to the end.

    A server may guess too few rows for a table, or none. So what is done counts, too: then Spark starts a little late.
    """
    left = sum(max(0, state.estimate - state.rows) for state in states if not state.done and state.phase is Phase.ROWS)
    return done + left > direct_rows
