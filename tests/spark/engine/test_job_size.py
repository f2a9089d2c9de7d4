"""Spark is started only for work that is large enough, and that the driver cannot do part by part."""

from __future__ import annotations

import pytest

from pidts.model import Extent, Lsn
from pidts.plan import BatchPlan, LogSlice, Phase, PlanState
from pidts.plan.copy.state import CopyState
from pidts.spark.job_size import Execution, copies_much, execution_of

MB = 1 << 20
FEW, MANY = 100, 150_000
"""Numbers of row events: of an ordinary batch, and more than the planner takes unless one transaction has them."""


def batch(*slices: int, events: int = FEW) -> BatchPlan:
    """Returns a batch with slices of this many bytes."""
    log = tuple(LogSlice(Extent(1, 0, size), Lsn(0, 1, 4), number) for number, size in enumerate(slices))
    at = PlanState(Lsn(0, 1, 4))
    return BatchPlan(at, at, log, len(log), events, 0, (), frozenset())


@pytest.mark.parametrize(
    ("plan", "direct_rows", "settings", "execution"),
    [
        (batch(8 * MB, 8 * MB), 1000, {}, Execution.AT_ONCE),
        (batch(8 * MB, 8 * MB), 1000, {"waiting": 900}, Execution.AT_ONCE),
        (batch(8 * MB, 8 * MB), 1000, {"waiting": 901}, Execution.JOB),
        (batch(8 * MB, events=1001), 1000, {}, Execution.JOB),
        (batch(17 * MB), 1000, {}, Execution.IN_PARTS),
        (batch(17 * MB, events=1001), 1000, {}, Execution.IN_PARTS),
        (batch(*[8 * MB] * 9), 1000, {}, Execution.IN_PARTS),
        (batch(8 * MB, events=MANY), 100_000, {}, Execution.IN_PARTS),
        (batch(8 * MB, events=MANY), 1_000_000, {}, Execution.AT_ONCE),
        (batch(17 * MB), 0, {}, Execution.JOB),
        (batch(17 * MB), 1000, {"waiting": 1}, Execution.JOB),
        (batch(17 * MB), 1000, {"buffers_rows": True}, Execution.JOB),
        (batch(5000 * MB, events=10 * MANY), 100_000, {}, Execution.IN_PARTS),
        (batch(1000 * MB), 1000, {"workers": 2}, Execution.IN_PARTS),
        (batch(1025 * MB), 1000, {"workers": 2}, Execution.JOB),
    ],
)
def test_a_large_transaction_is_carried_out_in_parts_unless_that_saves_nothing(
    plan: BatchPlan, direct_rows: int, settings: dict[str, int], execution: Execution
) -> None:
    assert execution_of(plan, direct_rows, **settings) is execution  # type: ignore[arg-type]


def test_the_driver_copies_at_most_its_limit_of_rows() -> None:
    small = CopyState(estimate=60)
    assert not copies_much([small], 0, 100)
    assert copies_much([small, small], 0, 100)
    assert copies_much([small], 50, 100), "many small tables are as much as a large one"


def test_rows_that_are_read_already_count_once() -> None:
    assert not copies_much([CopyState(estimate=100, rows=80)], 80, 100)


def test_only_tables_with_rows_to_read_are_left() -> None:
    read = CopyState(estimate=1000, phase=Phase.FINISH)
    assert not copies_much([read, CopyState(estimate=1000, done=True)], 0, 100)


def test_a_server_that_guesses_too_little_is_found_out() -> None:
    state = CopyState(estimate=10, rows=101)
    assert copies_much([state], 101, 100)
    assert copies_much([CopyState(rows=101)], 101, 100)


def test_without_rows_for_the_driver_all_that_is_left_is_much() -> None:
    assert copies_much([CopyState(estimate=1)], 0, 0)
