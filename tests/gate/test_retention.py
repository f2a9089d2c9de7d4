"""A channel removes old records, but not while it lags so far that its new records are old already."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.conftest import RunSql
from tests.spark.commands import Task

from pidts.gate.retention import Retention
from pidts.sandbox import Server

NOW, DAY = 1_700_000_000, 86_400


class Clock:
    """A clock whose time the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return NOW + self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nothing_is_removed_until_the_channel_has_caught_up_with_the_retention(clock: Clock) -> None:
    retention = Retention(7 * DAY, clock=clock, monotonic=clock)
    for _ in range(30):
        clock.now += 1
        retention.passed(NOW - 8 * DAY)
        assert not retention.is_due()
    for _ in range(9):
        clock.now += 1
        retention.passed(NOW - 6 * DAY)
        assert not retention.is_due()
    clock.now += 1
    retention.passed(NOW - 6 * DAY)
    assert retention.is_due()


def test_a_busy_source_does_not_hold_up_the_removal(clock: Clock) -> None:
    retention = Retention(7 * DAY, clock=clock, monotonic=clock)
    due = 0
    for _ in range(30):
        retention.passed(int(clock()))
        due += retention.is_due()
        clock.now += 1
    assert due == 3


def test_an_unknown_time_holds_nothing_up_and_without_a_retention_nothing_goes(clock: Clock) -> None:
    retention, without = Retention(90, clock=clock, monotonic=clock), Retention(0, clock=clock, monotonic=clock)
    retention.passed(0)
    without.passed(NOW)
    assert (retention.is_due(), without.is_due()) == (True, False)


@pytest.mark.long
def test_old_records_stay_while_the_channel_catches_up(
    mariadb: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: Callable[..., None],
) -> None:
    datacenter = f"{database[-40:].strip('_')}_dc"
    run_sql(mariadb, "CREATE TABLE t (a int)", database=database)
    channel = make_channel(mariadb, mariadb, database, datacenter, pidts={"retention": "7d"})
    channel.sync()

    def ids() -> list[int]:
        return [id_ for (id_,) in run_sql(mariadb, "SELECT id FROM transfer_data ORDER BY id", database=datacenter)]

    run, count, until = channel.start(), 0, 0.0
    while not until or time.monotonic() < until:
        count += 1
        in_one_session(
            mariadb, database, "SET timestamp = UNIX_TIMESTAMP() - 8 * 86400", f"INSERT INTO t VALUES ({count})"
        )
        run.wait_until(lambda last=count: ids()[-1:] == [last], "the record is there", 60)  # type: ignore[misc]
        until = until or time.monotonic() + 15
        assert ids() == list(range(1, count + 1))
        time.sleep(0.2)
    run.wait_until(lambda: not ids(), "they go when no more come", 60)
    assert run.stop() == 0
    run_sql(mariadb, f"DROP DATABASE `{datacenter}`")
