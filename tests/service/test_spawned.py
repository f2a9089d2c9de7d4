"""A task's process is forked from one that has loaded the program: it is independent, and continues if that process
ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.service.serving import wait_for
from tests.web.served import FILE

from pidts.service.process_lock import holder_of
from pidts.service.spawned import SpawnedProcess, Spawner
from pidts.service.starter import StartedProcess
from pidts.service.state_folder import StateFolder, TaskFolder, posted_file

pytestmark = pytest.mark.slow


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskFolder]:
    """Returns a task whose servers accept a connection and never answer, so that its process stays alive."""
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    state = StateFolder(tmp_path / "state")
    state.prepare()
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, state.draft() as draft:
        posted_file(draft, FILE.replace("port: 9", f"port: {silent.getsockname()[1]}"))
        made = state.create(draft, "shop", "running")
        yield made
        if holder := holder_of(made.lock):
            os.kill(holder, signal.SIGKILL)


def started(spawner: Spawner, task: TaskFolder) -> StartedProcess:
    found: list[StartedProcess] = []

    def ready() -> bool:
        found.extend(filter(None, [spawner(task, [])]))
        return bool(found)

    wait_for(ready, lambda: "the spawner has not come to life")
    wait_for(lambda: holder_of(task.lock) == found[0].pid, lambda: holder_of(task.lock))
    return found[0]


def test_a_forked_process_is_a_task_of_its_own(task: TaskFolder) -> None:
    spawner = Spawner()
    try:
        process = started(spawner, task)
        assert isinstance(process, SpawnedProcess)
        assert process.poll() is None
        assert os.getsid(process.pid) == process.pid
        wait_for(lambda: (task.read("process") or {}).get("process") == process.pid, lambda: task.read("process"))
        # ps shows the name of the task, and top the name of the program.
        assert Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0") == "pidts-task shop"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "pidts-task\n"
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: process.poll() is not None, lambda: process.pid)
        assert process.poll() == -signal.SIGKILL
        process = started(spawner, task)
    finally:
        spawner.close()
    # The spawner has ended, and the task has not.
    assert holder_of(task.lock) == process.pid
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: holder_of(task.lock) is None, lambda: process.pid)


def program_of(spawner: Spawner) -> subprocess.Popen[bytes]:
    assert spawner._process is not None
    return spawner._process


def end(task: TaskFolder, process: StartedProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: holder_of(task.lock) is None, lambda: holder_of(task.lock))


def test_a_spawner_that_is_lost_has_a_successor(task: TaskFolder) -> None:
    spawner = Spawner(seconds_between=0.0)
    try:
        process = started(spawner, task)
        first = program_of(spawner)
        first.kill()
        first.wait()
        # Its task continues.
        assert holder_of(task.lock) == process.pid
        end(task, process)
        process = started(spawner, task)
        assert isinstance(process, SpawnedProcess)
        assert program_of(spawner).pid != first.pid
        end(task, process)
    finally:
        spawner.close()


def test_a_spawner_that_is_lost_soon_is_not_replaced_at_once(task: TaskFolder) -> None:
    spawner = Spawner()
    try:
        end(task, started(spawner, task))
        program_of(spawner).kill()
        process = started(spawner, task)
        assert isinstance(process, subprocess.Popen)
        process.kill()
        process.wait()
    finally:
        spawner.close()


def test_no_caller_waits_for_a_spawner_that_hangs(task: TaskFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidts.forked._ANSWER_SECONDS", 3.0)
    longest = 0.0
    spawner = Spawner(seconds_between=0.0)
    try:
        process = started(spawner, task)
        hanging = program_of(spawner)
        hanging.send_signal(signal.SIGSTOP)
        os.kill(process.pid, signal.SIGKILL)

        def timed(ask: Callable[[], object]) -> object:
            nonlocal longest
            began = time.monotonic()
            found = ask()
            # A new spawner is a new program that starts slowly; nothing waits for its start.
            longest = max(longest, time.monotonic() - began)
            return found

        wait_for(lambda: timed(process.poll) is not None, lambda: "its end is not seen")
        found: list[StartedProcess] = []

        def again() -> bool:
            found.extend(filter(None, [timed(lambda: spawner(task, []))]))  # type: ignore[list-item]
            return bool(found)

        wait_for(again, lambda: "no other spawner has come to life")
        assert longest < 2.0
        assert hanging.poll() == -signal.SIGKILL
        assert isinstance(found[0], SpawnedProcess)
        wait_for(lambda: holder_of(task.lock) == found[0].pid, lambda: holder_of(task.lock))
        end(task, found[0])
    finally:
        spawner.close()
