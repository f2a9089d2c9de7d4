"""Decides how a batch is carried out, and for which copies Spark is started."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from pidts.batch.decoding import AT_ONCE
from pidts.plan import BatchPlan, Phase
from pidts.plan.copy.state import CopyState

_DRIVER_BYTES = 64 << 20
"""The largest number of bytes of log in a batch that the driver decodes at once."""
_MANY_EVENTS = 100_000
"""A batch with more row events than this is large, however few bytes it has. Only a single large transaction makes such
a batch: the planner ends all other batches earlier.
"""
_SHARED_BYTES = 1 << 30
"""The largest number of bytes of log in a batch that several workers of the driver share. The driver's workers are
threads, which partly wait for each other. Spark's workers are processes, which take as long to start as the driver
needs for these bytes.
"""


class Execution(Enum):
    """How a batch is carried out."""

    AT_ONCE = auto()
    """The driver decodes the whole batch, then applies it."""
    IN_PARTS = auto()
    """The driver decodes and applies the batch part by part, see `pidts.batch.long_batch`."""
    JOB = auto()
    """Spark carries out the batch."""


def execution_of(
    plan: BatchPlan, direct_rows: int, waiting: int = 0, *, workers: int = 1, buffers_rows: bool = False
) -> Execution:
    """Returns how a batch is carried out. `waiting` is the number of copied rows that wait for the batch.

    A row event may have thousands of rows, so bytes count as well. `buffers_rows`: the target keeps a transaction's
    rows in memory, so parts would save no memory. A batch with `waiting` rows is never carried out in parts, since
    these rows are reduced together with the batch's whole log.
    """
    fits = plan.log_bytes <= _DRIVER_BYTES and plan.largest <= AT_ONCE
    if fits and plan.row_events + waiting <= direct_rows:
        return Execution.AT_ONCE
    if not direct_rows or waiting or buffers_rows:
        return Execution.JOB
    is_large = not fits or plan.row_events > _MANY_EVENTS
    is_shared = workers > 1 and plan.log_bytes > _SHARED_BYTES
    return Execution.IN_PARTS if is_large and not is_shared else Execution.JOB


def copies_much(states: Iterable[CopyState], done: int, direct_rows: int) -> bool:
    """Whether the rows copied in this run (`done`) and all rows left to copy are together too many for the driver.

    If a server's estimate of a table's rows is too low, `done` still grows, so Spark starts later.
    """
    left = sum(max(0, state.estimate - state.rows) for state in states if not state.done and state.phase is Phase.ROWS)
    return done + left > direct_rows
