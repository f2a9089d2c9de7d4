"""The state folder survives a crash at any point, accepts one service, and finds processes by their locks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pidts.model import ConfigError, PidtsError
from pidts.service.process_lock import holder_of, signal_holder, take_lock
from pidts.service.state_folder import StateFolder, TaskFolder, WantedState, posted_file, usual_state_folder

HOLDS = """
import sys, time
from pathlib import Path
from pidts.service.process_lock import take_lock
print(take_lock(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.prepare()
    return found


def made(state: StateFolder, name: str = "shop") -> TaskFolder:
    with state.draft() as draft:
        posted_file(draft, f"name: {name}\n")
        return state.create(draft, name, "running")


def test_a_task_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    state = folder(tmp_path)
    with state.draft() as draft:
        posted_file(draft, "name: shop\n")
    assert state.all() == []
    # The service is killed while it creates one task and removes another.
    (state.tasks / ".new-1").mkdir()
    (state.tasks / ".gone-2").mkdir()
    assert state.all() == []
    with state.sole_service():
        assert list(state.tasks.iterdir()) == []
        # Another service is refused, and removes nothing that this one creates.
        with state.draft() as draft:
            with pytest.raises(PidtsError, match="serves this state folder"), StateFolder(state.path).sole_service():
                pass
            assert draft.is_dir()


def with_relay(state: StateFolder) -> TaskFolder:
    task = made(state)
    (task.path / "relay" / "shop").mkdir(parents=True)
    (task.path / "relay" / "shop" / "log").write_text("received")
    for own in ("task.log", "task.log.1", "output.txt", ".wanted.json.7.new"):
        (task.path / own).write_text("")
    task.runs.mkdir()
    return task


def test_a_removed_task_leaves_its_relay_to_the_next_one_of_its_name(tmp_path: Path) -> None:
    state = folder(tmp_path)
    state.remove(with_relay(state))
    assert list(state.tasks.iterdir()) == []
    assert [path.name for path in (state.left / "shop").iterdir()] == ["relay"]
    with state.sole_service():  # The next service leaves the relay's folder in `left`.
        made(state, "other")
        task = made(state)
    assert (task.path / "relay" / "shop" / "log").read_text() == "received"
    assert {path.name for path in task.path.iterdir()} == {"relay", "task.yaml", "wanted.json"}
    assert not (state.left / "shop").exists()
    state.remove(task)
    assert (state.left / "shop" / "relay" / "shop" / "log").read_text() == "received"


def test_a_crash_while_a_task_is_removed_or_made_again_keeps_the_relay(tmp_path: Path) -> None:
    state = folder(tmp_path)
    task = with_relay(state)
    task.path.rename(state.tasks / ".gone-0123456789abcdef-shop")
    with state.sole_service():
        assert list(state.tasks.iterdir()) == []
    assert (state.left / "shop" / "relay" / "shop" / "log").read_text() == "received"
    (state.tasks / "shop").mkdir()  # makes a new task with the same name, whose relay does not exist yet
    with state.sole_service():
        assert (state.tasks / "shop" / "relay" / "shop" / "log").read_text() == "received"
    assert list(state.left.iterdir()) == []


def test_wanted_states_are_kept(tmp_path: Path) -> None:
    state = folder(tmp_path)
    task = made(state)
    assert [one.name for one in state.all()] == ["shop"]
    assert task.wanted().wish == "running"
    task.want(WantedState("paused", 5.0, ("shop.t",)))
    assert StateFolder(state.path).all()[0].wanted() == WantedState("paused", 5.0, ("shop.t",))
    (task.path / "wanted.json").write_text("{half")
    assert task.wanted().wish == "stopped"
    with pytest.raises(FileExistsError):
        made(state)
    state.remove(task)
    assert state.all() == []


def test_only_its_user_can_enter(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = folder(tmp_path)
        task = made(state)
    finally:
        os.umask(before)
    for path in (state.path, state.tasks, task.path):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in task.path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    state.path.chmod(0o750)
    with pytest.raises(ConfigError) as caught:
        state.prepare()
    assert caught.value.code == "state-folder"


def test_nothing_is_created_in_a_folder_that_others_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError):
        StateFolder(tmp_path).prepare()
    assert list(tmp_path.iterdir()) == []


def test_one_service_has_a_folder(tmp_path: Path) -> None:
    state = folder(tmp_path)
    with state.sole_service():
        state.service.write_text(json.dumps({"process": 7, "url": "http://here"}))
        with pytest.raises(PidtsError, match="process 7 serves this state folder at http://here"), state.sole_service():
            pass
    with state.sole_service():
        assert not state.service.exists()


def test_the_usual_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert usual_state_folder() == tmp_path / "pidts"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert usual_state_folder() == tmp_path / ".local" / "state" / "pidts"


def test_a_lock_names_its_process_and_ends_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "process.lock"
    assert holder_of(lock) is None
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert holder_of(lock) == process.pid
        assert not take_lock(lock)
        assert holder_of(lock) == process.pid
        assert signal_holder(lock, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert holder_of(lock) is None
    assert not signal_holder(lock, signal.SIGTERM)
