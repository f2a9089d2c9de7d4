"""A run that begins waits until its relay has log, and gives up if nothing happens."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from pidts.binlog.machine_code import cache_folder
from pidts.model import Transient
from pidts.relay import RelayReader
from pidts.source import Session
from pidts.task.config.task_file import load_task
from pidts.task.run.read_structures import StartStopped, StructureReader, wait_for_relay
from pidts.task.run.replicator_process import NoReplicator, ReplicatorProcess

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances: [{source-id: s, from: {host: 127.0.0.1, port: 9, user: root}}]
pidts: {relay: ./relay}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of machine code that no other test uses."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache_folder.cache_clear()
    yield cache_folder()
    cache_folder.cache_clear()


@pytest.mark.parametrize("compiles", [True, False])
def test_a_replicator_that_compiles_code_is_not_stuck(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    """The first start on a machine compiles for a minute or two before it receives log."""
    monkeypatch.setenv("PIDTS_KERNEL", "compiled")
    kept = cache / "module" / "function.nbc"
    kept.parent.mkdir(parents=True)
    kept.touch()
    at = time.time() + (60 if compiles else -60)
    for one in (kept, kept.parent):
        os.utime(one, (at, at))
    (tmp_path / "t.yaml").write_text(TASK)
    config, stop = load_task(tmp_path / "t.yaml"), threading.Event()
    threading.Timer(1.0, stop.set).start()
    with (
        closing(RelayReader(config.relay, "s")) as relay,
        pytest.raises(StartStopped if compiles else Transient) as raised,
    ):
        wait_for_relay(config, NoReplicator(config), None, stop, relay, patience=0.1)
    assert compiles or raised.match("relay-stuck")


def test_a_wait_for_the_source_says_why_nothing_comes(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TASK)
    config, stop, steps = load_task(tmp_path / "t.yaml"), threading.Event(), list[str]()

    def show(text: str) -> None:
        steps.append(text)
        if "refused" in text:  # nothing listens at this port
            stop.set()

    replicator = ReplicatorProcess(config)
    replicator.start()
    assert not replicator.await_connection(stop, show), steps
    assert "connected to the source: " in steps[-1]
    stop.clear()
    steps.clear()
    with closing(RelayReader(config.relay, "s")) as relay:
        with pytest.raises(StartStopped):
            wait_for_relay(config, replicator, None, stop, relay, patience=10, show_step=show)
        stop.clear()
        with pytest.raises(StartStopped):
            StructureReader(config, cast("Session", None), replicator, stop, show).wait_for(None, relay)
    assert [step.partition("waiting for the source's log: ")[0] for step in steps] == ["", "step 2 of 3: "]
    replicator.stop()
