"""A repair waits for pending changes even if the checkpoints stand for a moment, and not again where they do not move."""

from __future__ import annotations

from pidts.task.compare.repair import PendingWait

AT, LATER = ("place 1",), ("place 2",)


def seconds(wait: PendingWait, *places: tuple[str, ...]) -> float:
    """Waits for another table, and returns for how long. The checkpoints are at the next place every three seconds."""
    wait.begin()
    now = 100.0
    while not wait.is_over(places[min(int((now - 100) // 3), len(places) - 1)], now):
        now += 0.5
    return now - 100


def test_checkpoints_that_stand_for_some_seconds_do_not_end_the_wait() -> None:
    assert seconds(PendingWait(), AT) > 10
    assert 10 < seconds(PendingWait(), AT, LATER) < 11


def test_the_next_table_waits_for_a_short_time_if_the_checkpoints_have_stood_during_a_whole_wait() -> None:
    wait = PendingWait()
    assert seconds(wait, AT) > 10
    assert 2 < seconds(wait, AT) < 3
    assert seconds(wait, LATER) > 10, "the checkpoints have moved, so the task runs"


def test_the_next_table_waits_for_the_whole_time_if_the_checkpoints_have_moved() -> None:
    wait = PendingWait()
    assert seconds(wait, AT, LATER) > 10
    assert seconds(wait, LATER) > 10
