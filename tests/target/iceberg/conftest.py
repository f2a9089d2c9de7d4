"""A folder for warehouses with many commits, and a clock that tests set."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Returns a folder in memory, if the system has one: on a disk, a hundred commits would wait a thousand times."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the time of all Python code by the only element of a list."""
    now = [1_900_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    return now
