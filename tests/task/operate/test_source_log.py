"""The end of a source's log is compared with the applied place."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.replicate.proxy import Proxy

from pidts.model import Position
from pidts.sandbox import Server
from pidts.source import SourceConfig
from pidts.task.operate.source_log import LogEnd, ask_for_ends

END = LogEnd(Position("bin.000003", 500), (("bin.000001", 1000), ("bin.000002", 2000), ("bin.000003", 700)))


@pytest.mark.parametrize(
    ("place", "count"),
    [
        (Position("bin.000003", 500), 0),
        (Position("bin.000003", 400), 100),
        (Position("bin.000002", 1900), 600),
        (Position("bin.000001", 4), 3496),
        (Position("bin.000003", 501), None),  # the log went back
        (Position("bin.000000", 4), None),  # purged
        (Position("other.000003", 4), None),  # another server
    ],
)
def test_the_bytes_after_a_place_are_those_of_its_file_and_of_all_later_files(place: Position, count: int) -> None:
    assert END.bytes_after(place) == count


def test_without_an_answer_or_without_the_list_of_files_the_bytes_are_not_known() -> None:
    place = Position("bin.000003", 4)
    assert LogEnd().bytes_after(place) is None
    assert LogEnd(Position("bin.000003", 500)).bytes_after(place) is None


class Slow(Proxy):
    """A connection on which the names of log files arrive after a long time."""

    def _damaged(self, data: bytes) -> bytes:
        if b"bin.0" in data:
            time.sleep(15)
        return super()._damaged(data)


def test_a_source_that_accepts_the_login_and_then_says_nothing_delays_the_status_for_seconds_only(
    mariadb: Server,
) -> None:
    with Slow(mariadb.port) as proxy:
        server = SourceConfig(host="127.0.0.1", port=proxy.port, user=mariadb.user, password=mariadb.password)
        part: Any = SimpleNamespace(source=SimpleNamespace(source_id="s", server=server), relay_from=None)
        found = ask_for_ends([part])["s"].result(12)
    assert found.position is None
    assert found.error is not None
