"""After a failover without GTIDs, changes that may come twice are written in safe mode, even by later runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.values_target import ValuesTarget

from pidts.model import Lsn, Transient
from pidts.relay.folder import Folder
from pidts.relay.repeats import add_repeats
from pidts.relay.servers_read import add_server
from pidts.task.config.current_server import choose_server
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run import failover
from pidts.task.run.failover import until_no_repeat
from pidts.task.run.replicator_process import ReplicatorProcess

FILE = """\
name: c
task-mode: all
target-database: {type: mysql, host: t, user: u}
mysql-instances:
  - source-id: one
    from: {host: a, user: u}
    standbys: [{host: b}]
"""
UNTIL = Lsn(1, 3, 700)


@pytest.fixture
def config(tmp_path: Path) -> TaskConfig:
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    found = load_task(path, {})
    Folder.of(found.relay, "one").path.mkdir(parents=True)
    return found


def _until(config: TaskConfig, target: ValuesTarget, known: Lsn | None) -> Lsn | None:
    return until_no_repeat(config, target.connect(), ReplicatorProcess(config), known, threading.Event())


def test_the_place_is_recorded_before_a_change_is_written(config: TaskConfig, tmp_path: Path) -> None:
    target = ValuesTarget("repeats")
    folder = Folder.of(config.relay, "one").path
    assert _until(config, target, None) is None
    add_server(folder, 0, "a:3306")
    choose_server(config.source, config.relay, "b:3306")
    chosen = load_task(tmp_path / "c.yaml", {})
    add_repeats(folder, UNTIL)
    add_server(folder, 1, "b:3306")
    assert _until(chosen, target, None) == UNTIL
    assert target.connect().meta.safe_range.read("c", "one") == UNTIL
    assert _until(chosen, target, Lsn(2, 1, 4)) == Lsn(2, 1, 4)
    assert target.connect().meta.safe_range.read("c", "one") == UNTIL


def test_nothing_is_written_before_the_replicator_has_found_its_place(
    config: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_server(Folder.of(config.relay, "one").path, 0, "a:3306")
    choose_server(config.source, config.relay, "b:3306")
    monkeypatch.setattr(failover, "_BEGIN_SECONDS", 0.2)
    with pytest.raises(Transient, match="has not begun to read the log of b:3306"):
        _until(load_task(tmp_path / "c.yaml", {}), ValuesTarget("repeats"), None)
