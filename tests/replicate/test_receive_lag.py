"""Queries to the source show how late its log is received, by this machine's clock alone."""

from __future__ import annotations

import pytest

from pidts.model import Lsn
from pidts.replicate.receive_lag import ReceiveLag, SourceLogEnd

WALL = 1_000_000.0
"""The wall clock's time when the monotonic clock shows 0."""
END = SourceLogEnd(Lsn(0, 1, 500), asked_at=100.0, seconds=0.001, clock_ahead=0.2)


def measured(arrived: float | None) -> ReceiveLag:
    return ReceiveLag(lambda _: arrived)


def look(lag: ReceiveLag, received: int, *, data_at: float, heard_at: float = 0.0, now: float = 101.0) -> None:
    lag.look(END, Lsn(0, 1, received), data_at, heard_at, now, WALL + now)


def test_log_that_was_there_when_the_source_was_asked_is_not_late() -> None:
    lag = measured(WALL + 99.0)
    assert lag.seconds(100.0) is None
    look(lag, 500, data_at=99.0)
    assert lag.seconds(105.0) == 0.0
    assert lag.known(105.0).clock_ahead == 0.2


def test_log_that_comes_later_is_late_by_the_time_since_the_question() -> None:
    lag = measured(WALL + 100.3)
    look(lag, 400, data_at=99.9)
    assert lag.seconds(100.8) == pytest.approx(0.8, abs=0.01), "while it is awaited, the lag is at least that"
    look(lag, 600, data_at=100.7)
    assert lag.seconds(110.0) == pytest.approx(0.3)


def test_a_heartbeat_says_that_all_was_sent_though_the_server_counts_more_bytes() -> None:
    lag = measured(None)
    look(lag, 400, data_at=99.0, heard_at=99.5)
    assert lag.seconds(101.0) == pytest.approx(1.0, abs=0.01), "a heartbeat from before the question says nothing"
    look(lag, 400, data_at=99.0, heard_at=100.9)
    assert lag.seconds(120.0) == 0.0


def test_log_that_is_no_longer_remembered_came_long_ago() -> None:
    lag = measured(None)
    look(lag, 500, data_at=99.0)
    assert lag.seconds(120.0) == 0.0
