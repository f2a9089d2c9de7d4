"""A relay's disk is reported before it is full, and a long transaction is requested again only if it has room."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pidts.relay.disk_space import has_room, low_space

MB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch):
    """Sets size and free bytes of the disk, in MB."""

    def of(size: int, free: int) -> None:
        found = SimpleNamespace(f_blocks=size * 256, f_bavail=free * 256, f_frsize=4096)
        monkeypatch.setattr("pidts.relay.disk_space.os.statvfs", lambda _: found)

    return of


@pytest.mark.parametrize(("size", "free", "warns"), [(1000, 99, True), (1000, 101, False), (100_000, 2000, True), (100_000, 2100, False), (0, 0, False)])  # fmt: skip
def test_a_disk_is_low_with_a_tenth_or_two_gigabytes_left(disk, size: int, free: int, warns: bool) -> None:
    disk(size, free)
    assert bool(low_space(Path("/relay"))) == warns


def test_a_transaction_that_has_filled_the_disk_waits_for_more_room_than_it_had(disk) -> None:
    disk(1000, 200)
    assert has_room(Path("/relay"))
    assert has_room(Path("/relay"), 100 * MB)
    assert not has_room(Path("/relay"), 200 * MB), "it would fill the disk again"
    disk(1000, 251)
    assert has_room(Path("/relay"), 200 * MB)
