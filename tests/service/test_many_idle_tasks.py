"""Fifty tasks without work use little memory and processor time: the bench measures all processes of the service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "service" / "many_idle.py"
TASKS = 50
MOST_MEGABYTES = 60
MOST_PERCENT = 75
"""All tasks together may use at most this percentage of a core. On a quiet machine, they need half of this."""


@pytest.mark.server
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_fifty_tasks_without_work_take_little_memory_and_little_of_a_core() -> None:
    words = (sys.executable, BENCH, "--tasks", str(TASKS), "--seconds", "30")
    done = subprocess.run(words, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    # The processes: the service, the spawner, and for each task its own, the one from which its replicator is forked,
    # and the replicator.
    assert found["processes"] == 2 + 3 * TASKS, found
    assert found["mb_a_task"] < MOST_MEGABYTES, found
    assert found["percent_of_a_core_all"] < MOST_PERCENT, found
