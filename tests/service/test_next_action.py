"""A service decides whether a task whose process has ended needs an operator, or is started again."""

from __future__ import annotations

import pytest

from pidts.service.lag_curve import EVERY_SECONDS, LagCurve
from pidts.service.next_action import LONGEST_PAUSE, ProcessEnd, pause_before, task_stage


@pytest.mark.parametrize(
    ("ended", "final"),
    [
        (ProcessEnd(None), False),  # The process was killed.
        (ProcessEnd(1), False),  # The process failed.
        (ProcessEnd(0, "stopped"), False),  # The service itself has not stopped the task.
        (ProcessEnd(0, "paused"), False),
        (ProcessEnd(0, "synced"), True),  # A full copy is complete.
        (ProcessEnd(2), True),
        (ProcessEnd(3), True),
        (ProcessEnd(3, may_pass=True), False),  # The task's servers were down.
        (ProcessEnd(5), True),
        (ProcessEnd(5, error={"code": "cut-over"}), True),
        (ProcessEnd(5, error={"code": "being-cut-over"}, may_pass=True), False),  # The cutover has not ended yet.
    ],
)
def test_only_a_task_that_would_end_the_same_way_is_not_restarted(ended: ProcessEnd, final: bool) -> None:
    assert ended.is_final is final


def test_pauses_grow_to_a_minute() -> None:
    assert [pause_before(count) for count in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_before(10**6) == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("wish", "alive", "reported", "ended", "stage"),
    [
        ("running", True, "", None, "starting"),
        ("running", True, "sync", None, "sync"),
        ("running", True, "paused", None, "waiting"),
        ("running", True, "halted", None, "halted"),
        ("paused", True, "sync", None, "sync"),
        ("paused", False, "sync", ProcessEnd(0, "stopped"), "paused"),
        ("stopped", False, "", None, "stopped"),
        ("running", False, "", None, "starting"),
        ("running", False, "", ProcessEnd(None), "waiting"),
        ("running", False, "", ProcessEnd(1), "waiting"),
        ("running", False, "", ProcessEnd(3, may_pass=True), "waiting"),
        ("running", False, "", ProcessEnd(3), "failed"),
        ("running", False, "", ProcessEnd(5), "halted"),
        ("running", False, "", ProcessEnd(5, error={"code": "cut-over"}), "cut-over"),
        ("running", False, "", ProcessEnd(5, error={"code": "being-cut-over"}, may_pass=True), "waiting"),
        ("running", False, "", ProcessEnd(0, "synced"), "synced"),
        ("running", False, "", ProcessEnd(0, "stopped"), "waiting"),
    ],
)
def test_a_stage_says_what_a_task_does(wish, alive, reported, ended, stage) -> None:
    assert task_stage(wish, is_alive=alive, reported=reported, ended=ended) == stage


def test_a_history_has_a_number_for_each_interval() -> None:
    history = LagCurve()
    assert history.take(1000.0, 0.5, 10.0)
    assert not history.take(1001.0, 2.0, 20.0)
    assert history.take(1000.0 + EVERY_SECONDS, None, None)
    assert history.take(1000.0 + 3 * EVERY_SECONDS, 1.0, 5.0)
    assert history.to_json() == {"every_seconds": 20, "lag": [2.0, None, None, 1.0], "rate": [15.0, None, None, 5.0]}


def test_a_history_continues_where_an_earlier_service_has_ended() -> None:
    history = LagCurve()
    history.take(1000.0, 1.0, 1.0)
    later = LagCurve(history.stored(), 1000.0 + 2 * EVERY_SECONDS)
    later.take(1000.0 + 2 * EVERY_SECONDS, 3.0, 3.0)
    assert later.to_json()["lag"] == [1.0, None, 3.0]
    for _ in range(300):
        later.take(2000.0, 1.0, 1.0)
    later.take(10**6, 1.0, 1.0)
    assert len(later.to_json()["lag"]) == 180


@pytest.mark.parametrize(
    "stored",
    [{}, {"slot": "x"}, {"slot": 1, "lag": ["x", None], "rate": []}, {"slot": 10**12, "lag": [1], "rate": [1]}],
)
def test_a_broken_history_is_replaced(stored) -> None:
    history = LagCurve(stored, 1000.0)
    history.take(1000.0, 1.0, 1.0)
    assert history.to_json()["lag"][-1] == 1.0
