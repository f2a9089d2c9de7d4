"""A warning is logged if the source will soon purge log that was not read yet, or has purged it."""

from __future__ import annotations

import pytest

from pidts.model import Position
from pidts.replicate.expiry import SourceLogs, outlook
from pidts.replicate.observer import expire_seconds

FILES = (("bin.000007", 1000), ("bin.000008", 2000), ("bin.000009", 500))
DAY = 86400
NOW = 1_800_000_000


def logs(expire: int = 10 * DAY, size_limit: int = 0) -> SourceLogs:
    return SourceLogs(FILES, expire, size_limit, NOW)


def test_bytes_after_a_place_are_counted() -> None:
    assert outlook(logs(), Position("bin.000007", 400), NOW).behind_bytes == 600 + 2000 + 500
    assert outlook(logs(), Position("bin.000009", 500), NOW).behind_bytes == 0
    assert outlook(logs(), Position("bin.000009", 700), NOW).behind_bytes == 0, "it grew since its size was asked"
    assert outlook(logs(), Position("bin.000003", 4), NOW).behind_bytes == 3500
    assert outlook(logs(), Position("bin.000010", 4), NOW).behind_bytes == 0


@pytest.mark.parametrize(
    ("age", "warned"),
    [(0, ""), (7 * DAY, ""), (8 * DAY, "in 2 days"), (9.99 * DAY, "in 14 minutes"), (11 * DAY, "at any moment")],
)
def test_a_file_that_expires_soon(age: float, warned: str) -> None:
    warning = outlook(logs(), Position("bin.000008", 4), int(NOW - age)).warning
    assert bool(warning) == bool(warned)
    assert warned in warning
    assert outlook(logs(), Position("bin.000009", 4), int(NOW - age)).warning == "", "the last file is never purged"


def test_a_file_that_was_purged_already() -> None:
    assert "has purged bin.000006" in outlook(logs(), Position("bin.000006", 900), NOW).warning


def test_a_limit_on_all_files_together_takes_the_oldest() -> None:
    assert outlook(logs(0, 10_000), Position("bin.000007", 4), NOW).warning == ""
    assert "4,000 bytes" in outlook(logs(0, 4_000), Position("bin.000007", 4), NOW).warning
    assert outlook(logs(0, 4_000), Position("bin.000008", 4), NOW).warning == ""


def test_where_only_a_person_purges_the_oldest_file_is_named() -> None:
    assert "bin.000007 is the oldest" in outlook(logs(0), Position("bin.000007", 4), NOW).warning
    assert outlook(logs(0), Position("bin.000008", 4), NOW).warning == ""
    assert outlook(logs(), Position("bin.000007", 4), NOW).warning == "", "it has ten days"


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        ({"binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "ON"}, 2592000),
        ({"binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "OFF"}, 0),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000"}, 0),
        ({"expire_logs_days": "7"}, 7 * DAY),
        ({"binlog_expire_logs_seconds": "43200", "expire_logs_days": "0.500000"}, DAY // 2),
        ({}, 0),
    ],
)
def test_every_server_has_its_own_variables(found: dict[str, str], seconds: int) -> None:
    assert expire_seconds(found) == seconds
