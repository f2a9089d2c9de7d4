"""The demo ends when the target has all rows, even if its goal is a heartbeat that changes no table of the task."""

from __future__ import annotations

import pytest

from pidts.cli.demo.run import _has_everything
from pidts.model import Lsn, Position
from pidts.task.operate.progress import SourceProgress

GOAL = Position("bin.000001", 500)


@pytest.mark.parametrize(
    ("applied", "lag", "seconds", "ends"),
    [
        (500, None, 0.0, True),
        (400, 0.1, 1.0, False),
        (400, 0.1, 9.0, True),
        (400, 8.0, 9.0, False),
        (400, None, 900.0, False),
    ],
)
def test_the_end(applied: int, lag: float | None, seconds: float, *, ends: bool) -> None:
    source = SourceProgress(source="s", stage="sync", applied_lsn=Lsn(0, 1, applied), lag_seconds=lag)
    assert _has_everything(source, GOAL, seconds) is ends
