"""A replicator that starts slowly is not treated as stuck; a replicator that gets stuck later is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pidts.replicate import Replicator, ReplicatorConfig, not_receiving, status
from pidts.replicate.receiver import Receiver
from pidts.sandbox import Server
from pidts.source import SourceConfig

SILENT = 2.0
SLOW = 4 * SILENT


@pytest.mark.timeout(60)
def test_only_the_first_bytes_may_take_their_time(
    mariadb: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_SIGN_OF_LIFE_SECONDS", SILENT)
    monkeypatch.setattr(status, "_INTERVAL", 0.1)
    receive: Callable[..., None] = Receiver.receive
    began, over = threading.Event(), threading.Event()
    calls = 0

    def slow_first(receiver: Receiver, *given: Any) -> None:
        """Makes the first wait long, as when functions are compiled. The wait after the first events never ends."""
        nonlocal calls
        calls += 1
        if calls == 1:
            began.set()
            time.sleep(SLOW)
        elif receiver.events:
            over.wait(30)
        receive(receiver, *given)

    monkeypatch.setattr(Receiver, "receive", slow_first)
    source = SourceConfig(mariadb.host, mariadb.port, mariadb.user, mariadb.password, source_id="s")
    stop = threading.Event()
    run = threading.Thread(target=Replicator(ReplicatorConfig(source, tmp_path)).run, args=(stop,))
    run.start()
    try:
        assert began.wait(30)
        until = time.monotonic() + SLOW - SILENT / 2
        while time.monotonic() < until:
            assert not_receiving(tmp_path, "s") is None
            time.sleep(0.05)
        deadline = time.monotonic() + 30
        while (found := not_receiving(tmp_path, "s")) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found.error.code == "replicator-silent"
    finally:
        stop.set()
        over.set()
        run.join(30)
    assert not run.is_alive()


def test_a_replicator_that_compiles_after_its_start_is_not_stuck(tmp_path: Path) -> None:
    file, compiles = FreshFile(tmp_path), threading.Event()
    with closing(status.SignsOfLife(file.status, compiles.is_set, 0.05)) as signs:
        assert file.is_written_anew(), "it starts"
        signs.end_start()
        file.is_written_anew()  # a write may have been under way
        assert not file.is_written_anew()
        compiles.set()
        assert file.is_written_anew()
        compiles.clear()
        file.is_written_anew()
        assert not file.is_written_anew()


def test_a_replicator_whose_compilation_does_not_end_is_stuck(tmp_path: Path) -> None:
    file, compiles = FreshFile(tmp_path), threading.Event()
    with closing(status.SignsOfLife(file.status, compiles.is_set, 0.05, limit=1.5)) as signs:
        signs.end_start()
        for _ in range(2):
            compiles.set()
            assert file.is_written_anew()
            time.sleep(1.5)
            file.is_written_anew()
            assert not file.is_written_anew(), "it has compiled for longer than the limit"
            compiles.clear()
            time.sleep(0.5)  # the next compilation has the whole limit again


class FreshFile:
    """A status file that is removed before each look."""

    def __init__(self, folder: Path) -> None:
        (folder / "s").mkdir()
        self._path = folder / "s" / "status.json"
        self.status = status.StatusFile(self._path, "s")

    def is_written_anew(self) -> bool:
        """Whether the status is written within half a second."""
        self._path.unlink(missing_ok=True)
        deadline = time.monotonic() + 0.5
        while not self._path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._path.exists()
