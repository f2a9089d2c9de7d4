"""Processes of tasks are forked from one that has loaded the program: each is a process of its own, and outlives it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.service.serving import wait_for
from tests.web.served import FILE

from pidts.forked import ForkedProcess
from pidts.service.process_lock import owner_of
from pidts.service.spawned import Spawner
from pidts.service.starter import Started
from pidts.service.state_folder import StateFolder, TaskFolder, posted_file


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskFolder]:
    """A task whose servers take a connection and never say a word, so that its process lives."""
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    state = StateFolder(tmp_path / "state")
    state.prepare()
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, state.draft() as draft:
        posted_file(draft, FILE.replace("port: 9", f"port: {silent.getsockname()[1]}"))
        made = state.create(draft, "shop", "running")
        yield made
        if owner := owner_of(made.lock):
            os.kill(owner, signal.SIGKILL)


def started(spawner: Spawner, task: TaskFolder) -> Started:
    found: list[Started] = []

    def ready() -> bool:
        found.extend(filter(None, [spawner(task, [])]))
        return bool(found)

    wait_for(ready, lambda: "the spawner has not come to life")
    wait_for(lambda: owner_of(task.lock) == found[0].pid, lambda: owner_of(task.lock))
    return found[0]


def test_a_forked_process_is_a_task_of_its_own(task: TaskFolder) -> None:
    spawner = Spawner()
    try:
        process = started(spawner, task)
        assert isinstance(process, ForkedProcess)
        assert process.poll() is None
        assert os.getsid(process.pid) == process.pid
        assert (task.read("process") or {})["process"] == process.pid
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: process.poll() is not None, lambda: process.pid)
        assert process.poll() == -signal.SIGKILL
        process = started(spawner, task)
    finally:
        spawner.close()
    # The spawner has ended, and the task has not.
    assert owner_of(task.lock) == process.pid
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: owner_of(task.lock) is None, lambda: process.pid)


def test_without_a_spawner_each_task_loads_the_program(task: TaskFolder) -> None:
    spawner = Spawner()
    try:
        os.kill(started(spawner, task).pid, signal.SIGKILL)
        wait_for(lambda: owner_of(task.lock) is None, lambda: owner_of(task.lock))
        assert spawner._process is not None
        spawner._process.kill()
        process = started(spawner, task)
        assert isinstance(process, subprocess.Popen)
        process.kill()
        process.wait()
    finally:
        spawner.close()
