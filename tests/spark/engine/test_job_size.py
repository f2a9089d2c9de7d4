"""Spark is started only for a copy that is large enough."""

from __future__ import annotations

from pidts.plan import Phase
from pidts.plan.copy.state import CopyState
from pidts.spark.job_size import copies_much


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
