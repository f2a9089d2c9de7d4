"""Runs a task that carries one database of a source, for the benches of latency and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from pidts.sandbox import Server

# The module `machine`, which all benches share, is in this folder.
sys.path.append(str(Path(__file__).parents[1]))


def wait_for_batch(run: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the run has written its first batch; `log` is its output."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and run.poll() is None:
        if "batch done" in log.read_text():
            return
        time.sleep(0.2)
    raise RuntimeError(f"the run has not begun\n{log.read_text()[-2000:]}")


def task_file(name: str, source: Server, target: Server, folder: Path, *, on_divergence: str = "overwrite") -> Path:
    """Writes the task file for the source's database `bench`, and returns its path."""
    about: dict[str, Any] = {"host": target.host, "port": target.port, "user": target.user}
    about |= {"type": "postgresql", "database": "postgres"} if target.kind == "postgres" else {"type": "mysql"}
    task = {
        "name": name,
        "task-mode": "all",
        "target-database": about,
        "mysql-instances": [
            {
                "source-id": "one",
                "from": {"host": source.host, "port": source.port, "user": source.user, "password": source.password},
                "block-allow-list": "ours",
            }
        ],
        "block-allow-list": {"ours": {"do-dbs": ["bench"]}},
        "pidts": {"relay": str(folder / "relay"), "on-divergence": on_divergence, "spark": {"master": "local[2,4]"}},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(task))
    return path
