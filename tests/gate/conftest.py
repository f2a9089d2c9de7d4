"""Makes channels of each test's own on servers that may be shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.forked_programs import LoadedPrograms
from tests.spark.commands import Task, below  # noqa: F401 - the process tree of a run

from pidts.sandbox import Server


@pytest.fixture
def make_channel(tmp_path: Path, programs: LoadedPrograms) -> Iterator[Callable[..., Task]]:
    """`make_channel(source, target, schema, datacenter, **top)` writes a task file."""
    made: list[Task] = []

    def make(
        source: Server,
        target: Server,
        schema: str,
        datacenter: str,
        *,
        name: str = "channel",
        workers: int = 1,
        batch: int = 100,
        pidts: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        **top: Any,
    ) -> Task:
        def login(server: Server) -> dict[str, Any]:
            return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}

        task = {
            "name": name,
            "task-mode": "incremental",
            "target-database": {"type": "datacenter", "database": datacenter, **login(target)},
            "mysql-instances": [
                {
                    "source-id": "one",
                    "from": login(source),
                    "block-allow-list": "ours",
                    "syncer-config-name": "global",
                    **({"meta": meta} if meta else {}),
                }
            ],
            "block-allow-list": {"ours": {"do-dbs": [schema]}},
            "syncers": {"global": {"worker-count": workers, "batch": batch}},
            "pidts": {"relay": "relay", **(pidts or {})},
            **top,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(task))
        made.append(Task(path, programs))
        return made[-1]

    yield make
    for task in made:
        for run in task.runs:
            if run.process.poll() is None:
                run.kill()
