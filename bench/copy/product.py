"""Measures PiDTS, from source to target: `pidts run` of a new task until everything is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import beside  # noqa: F401 - makes the next imports possible
import yaml
from followed import task_file
from origin import Source
from ours import figures, run_task
from targets import TargetServer


def run(source: Source, target: TargetServer, folder: Path, *, mode: str, threads: int) -> dict[str, Any]:
    """Copies all tables, and returns the figures.

    No program writes on the source meanwhile, although PiDTS would allow that.
    """
    path = task_file("copied", source.server, target.server, folder)
    task = yaml.safe_load(path.read_text())
    task["task-mode"] = mode
    task["mydumpers"] = {"global": {"threads": threads}}
    task["loaders"] = {"global": {"pool-size": threads}}
    task["mysql-instances"][0] |= {"mydumper-config-name": "global", "loader-config-name": "global"}
    task["pidts"]["spark"]["master"] = f"local[{threads},4]"
    path.write_text(yaml.safe_dump(task))
    log, begun, rows = run_task(path, folder)
    found = figures(log, begun, rows["copied"])
    del found["changes"], found["changes_per_second"]
    return found
