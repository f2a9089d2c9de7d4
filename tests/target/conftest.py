"""A clock that tests of warehouses set."""

from __future__ import annotations

import time

import pytest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the time of all Python code, also of pyiceberg, by the only element of a list.

    The replaced time begins at the present, because servers and other processes compare times with their own clocks.
    """
    now = [time.time()]
    monkeypatch.setattr("time.time", lambda: now[0])
    return now
