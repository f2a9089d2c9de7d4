"""A folder for warehouses of many commits, and a clock that a test moves on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory, where the system has such: a hundred commits wait for the disk a thousand times."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of all of Python, in its only element."""
    now = [1_900_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    return now
