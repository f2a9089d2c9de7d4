"""A service that starts finds the tasks of the service before it, each with the stage that it has had since then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pidts.service.state_folder import TaskFolder, WantedState
from pidts.service.watched_task import WatchedTask

DIED = {"run": "r", "at": 200.0, "exit_code": 3, "error": {"code": "access-denied", "what": "refused"}}


@pytest.mark.parametrize(
    ("process", "ended", "since"),
    [
        ({"run": "r", "began": 100.0}, DIED, 200.0),
        ({"run": "s", "began": 300.0}, DIED, 300.0),
        ({"run": "r", "began": 100.0}, None, 100.0),
        (None, None, 50.0),
    ],
)
def test_a_task_has_its_stage_since_its_run_ended_or_began(
    tmp_path: Path, process: dict[str, Any] | None, ended: dict[str, Any] | None, since: float
) -> None:
    folder = TaskFolder(tmp_path)
    folder.want(WantedState("running", 50.0))
    folder.write("progress", {"run": "r", "progress": {"stage": "sync"}})
    for name, record in (("process", process), ("ended", ended)):
        if record is not None:
            folder.write(name, record)
    assert WatchedTask.found(folder, 0.0).since == since
