"""The request to copy tables again is kept until a run that knows it has begun the copy."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pidts.service.state_folder import TaskFolder, WantedState
from pidts.service.watched_task import WatchedTask


@pytest.mark.parametrize(
    ("age", "stage", "kept"), [(60.0, "sync", True), (-1.0, "starting", True), (-1.0, "copy", False)]
)
def test_only_a_report_after_the_request_fulfils_it(tmp_path: Path, age: float, stage: str, *, kept: bool) -> None:
    # The service is killed after it has recorded the request, and before it has started the run.
    folder, since = TaskFolder(tmp_path), time.time()
    folder.want(WantedState("running", since, ("shop.orders",)))
    folder.write("progress", {"run": "r", "progress": {"stage": stage}})
    os.utime(tmp_path / "progress.json", (since - age, since - age))
    WatchedTask.found(folder, 0.0)
    assert folder.wanted().resync == (("shop.orders",) if kept else None)
