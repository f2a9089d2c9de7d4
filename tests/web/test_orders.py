"""Commands over REST are executed or refused whatever else happens: a full disk, a running task."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.web.served import FILE, Web, served

from pidts.follow import timed_protocol
from pidts.service.state_folder import TaskFolder, WantedState
from pidts.service.watched_task import WatchedTask


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    lives: list[subprocess.Popen[bytes]] = []

    def a_long_life(*_: object) -> Any:
        """Replaces a task's process by one that does nothing: no server is used here."""
        lives.append(subprocess.Popen(["sleep", "60"]))
        return lives[-1]

    with served(tmp_path, start=a_long_life) as found:
        assert found.call("POST", "/api/tasks?start=false", FILE)[0] == 201
        yield found
    for life in lives:
        life.kill()
        life.wait()


@pytest.mark.parametrize("word", ["stop", "pause"])
def test_a_full_disk_keeps_no_task_from_being_stopped(web: Web, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    assert web.call("POST", "/api/tasks/shop/start")[0] == 200
    stopped: list[str] = []

    def full(_: TaskFolder, __: WantedState) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TaskFolder, "want", full)
    monkeypatch.setattr(WatchedTask, "stop_now", lambda task: stopped.append(task.name))
    assert web.refusal("POST", f"/api/tasks/shop/{word}") == (507, "state-folder")
    assert stopped == ["shop"]
    assert web.call("GET", "/api/tasks/shop")[1]["wanted"] == ("stopped" if word == "stop" else "paused")


def test_a_task_is_not_removed_while_a_run_is_in_progress(web: Web) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:  # It accepts connections and never answers.
        file = FILE.replace("port: 9", f"port: {silent.getsockname()[1]}")
        assert web.call("PUT", "/api/tasks/shop", file)[0] == 200
        status, run = web.call("POST", "/api/tasks/shop/runs", {"kind": "check"})
        assert (status, run["state"]) == (202, "running")
        assert web.refusal("DELETE", "/api/tasks/shop") == (409, "run-under-way")
        assert web.call("GET", "/api/tasks/shop/runs")[1]["runs"][0]["state"] == "running"
        assert web.call("DELETE", "/api/tasks/shop?force=true")[0] == 200
    assert not (web.state / "tasks" / "shop").exists()
    assert web.refusal("POST", "/api/tasks/shop/runs", {"kind": "check"}) == (404, "no-such-task")


def test_a_connection_that_asks_for_nothing_is_closed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_protocol, "_FIRST_REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", web.port), timeout=20) as idle:
        began = time.monotonic()
        with suppress(ConnectionResetError):
            assert idle.recv(1) == b""
        assert time.monotonic() - began < 15
    assert web.call("GET", "/healthz")[0] == 200


def test_values_of_a_locked_row_are_in_no_arguments_of_a_process(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes Python's place records its arguments."""
    program = tmp_path / "python"
    program.write_text(f"""#!/bin/sh
echo "$@" > {tmp_path}/arguments
cat > {tmp_path}/given
echo '{{"rows": []}}'
""")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    order = {"ids": ["1"], "set": {"card": "4111 1111", "note": "NULL"}, "yes": True}
    assert web.call("POST", "/api/tasks/shop/locks/resolve", order) == (200, {"rows": []})
    assert json.loads((tmp_path / "given").read_text()) == {"card": "4111 1111", "note": None}
    arguments = (tmp_path / "arguments").read_text()
    assert "--values=-" in arguments
    assert "4111" not in arguments
    assert "--yes" in arguments
    assert web.call("POST", "/api/tasks/shop/locks/resolve", order | {"yes": False}) == (200, {"rows": []})
    arguments = (tmp_path / "arguments").read_text()
    assert "--dry-run" in arguments
    assert "--yes" not in arguments


def test_the_tasks_of_a_file_are_found_by_its_path(web: Web, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(FILE.replace("name: shop", "name: other"))
    assert web.call("POST", "/api/tasks?start=false", {"path": str(file)})[0] == 201
    file.write_text("name: [")

    def named(path: str) -> list[str]:
        return [task["name"] for task in web.call("GET", f"/api/tasks?file={path}")[1]["tasks"]]

    assert named(str(file)) == ["other"]
    assert named(f"{tmp_path}/state/../other.yaml") == ["other"]
    assert named(f"{tmp_path}/another.yaml") == []
    assert len(web.call("GET", "/api/tasks")[1]["tasks"]) == 2


def test_a_task_says_that_it_waits_for_the_program_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    is_loaded = threading.Event()
    lives: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> Any:
        if not is_loaded.is_set():
            return None
        lives.append(subprocess.Popen(["sleep", "60"]))
        return lives[-1]

    with served(tmp_path, start=start) as web:
        assert web.call("POST", "/api/tasks", FILE)[0] == 201

        def until(says: str) -> None:
            deadline = time.monotonic() + 20
            while (found := web.call("GET", "/api/tasks/shop")[1])["message"] != says:
                assert (found["stage"], time.monotonic() < deadline) == ("starting", True), found
                time.sleep(0.05)

        until("the service loads the program; the first load on a machine compiles the decoder, which takes minutes")
        is_loaded.set()
        until("")
    for life in lives:
        life.kill()
        life.wait()
