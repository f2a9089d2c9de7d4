"""Several tasks on one relay: one replicator fills it, and another takes over when it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.forked_programs import LoadedPrograms
from tests.values_target import ValuesTarget

from pidts.model import Checkpoint, ConfigError, Fenced, Halted, Lsn, Transient
from pidts.relay import RelayReader, RelayWriter
from pidts.replicate import read_status
from pidts.sandbox import Server
from pidts.task.config.duration import parse_duration
from pidts.task.config.servers import TargetSpec
from pidts.task.config.task_file import load_task
from pidts.task.run.attempts import Attempts
from pidts.task.run.replicator_process import ReplicatorProcess, ReplicatorWaits

TASK = """
name: {name}
task-mode: all
target-database: {{host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: {host}, port: {port}, user: root}}}}]
pidts: {{relay: ./relay, relay-keep: {keep}}}
"""


def task(folder: Path, name: str, port: int = 9, keep: str = "0") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(TASK.format(name=name, host="127.0.0.1", port=port, keep=keep))
    return path


@pytest.fixture
def replicators(mariadb: Server, tmp_path: Path, programs: LoadedPrograms) -> Iterator[list[ReplicatorProcess]]:
    found = [
        ReplicatorProcess(load_task(task(tmp_path, name, mariadb.port)), forker=programs.replicators)
        for name in ("one", "two")
    ]
    yield found
    for replicator in found:
        replicator.stop()


def until(condition: Callable[[], object], meanwhile: Callable[[], None], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        meanwhile()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_replicator_fills_the_relay_and_another_takes_over(
    replicators: list[ReplicatorProcess], tmp_path: Path
) -> None:
    first, second = replicators
    first.waits = second.waits = ReplicatorWaits(lock=0.0, longest_pause=0.3)
    relay = tmp_path / "relay"

    def tables_written_by() -> int | None:
        status = read_status(relay, "s")
        return status["pid"] if status and status["connected"] else None

    first.start()
    assert not first.has_connected
    until(tables_written_by, first.watch)
    holder = tables_written_by()
    assert holder is not None
    assert first.has_connected
    second.start()
    assert not second.has_connected, "the status was written before its start"
    until(lambda: second._served, second.watch)
    until(lambda: second.has_connected, second.watch)
    attempts = second._child
    until(lambda: second._child is not attempts, second.watch)
    assert tables_written_by() == holder
    assert second.has_connected, "the other task's replicator receives the log"
    assert RelayReader(relay, "s").first is not None
    os.kill(holder, signal.SIGKILL)
    until(lambda: tables_written_by() not in {None, holder}, second.watch)
    assert second._child is not None
    assert tables_written_by() == second._child.pid


def test_a_source_that_is_absent_at_the_start_was_never_connected(
    replicators: list[ReplicatorProcess], tmp_path: Path
) -> None:
    connected, _ = replicators
    connected.start()
    until(lambda: connected.has_connected, connected.watch)
    killed = connected._child
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert connected.has_connected, "this run knows the log up to now"
    connected.stop()
    absent = ReplicatorProcess(load_task(task(tmp_path, "three", 9)))
    absent.start()
    try:
        assert not absent.has_connected, "the status is that of the replicator before"
        until(lambda: absent.lack() is not None, absent.watch)
        assert not absent.has_connected
    finally:
        absent.stop()


def test_while_another_holds_the_relay_and_does_nothing_the_task_pauses_and_tries_again(
    replicators: list[ReplicatorProcess], tmp_path: Path
) -> None:
    replicators[0].waits = ReplicatorWaits(lock=0.0)
    hanging = RelayWriter.open(tmp_path / "relay", "s")
    try:
        for _ in range(2):
            replicators[0].start()
            with pytest.raises(Transient, match=f"process {os.getpid()}") as caught:
                until(lambda: False, replicators[0].watch)
            assert caught.value.code == "relay-in-use"
            replicators[0].watch()
    finally:
        hanging.close()
    replicators[0].start()
    until(lambda: RelayReader(tmp_path / "relay", "s").first is not None, replicators[0].watch)


def _starts_after(replicator: ReplicatorProcess, moment: float) -> bool:
    return replicator._started > moment


def test_while_a_silent_process_has_the_relay_the_log_is_not_reported_as_received(
    replicators: list[ReplicatorProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicators
    first.waits = second.waits = ReplicatorWaits(longest_pause=0.3)
    first.start()
    until(lambda: (status := first.status()) and status["connected"], first.watch)
    holder = (first.status() or {})["pid"]
    os.kill(holder, signal.SIGSTOP)
    try:
        monkeypatch.setattr("pidts.replicate.status._SIGN_OF_LIFE_SECONDS", 1.0)
        second.start()
        until(lambda: second.lack() is not None, second.watch)
        for _ in range(3):
            started = second._started
            until(partial(_starts_after, second, started), second.watch)
            lack = second.lack()
            assert lack is not None
            assert lack.error.code == "replicator-silent"
    finally:
        os.kill(holder, signal.SIGKILL)
    until(lambda: (status := second.status()) and status["pid"] != holder, second.watch)
    until(lambda: second.lack() is None, second.watch)


def test_a_run_that_was_replaced_says_so_and_never_takes_the_task_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former replicator ends in any case: the relay belongs to the next one, which may have purged or emptied it."""
    target = ValuesTarget("replaced")
    monkeypatch.setattr(TargetSpec, "server", target)
    attempts = Attempts(load_task(task(tmp_path, "one")), *[cast("Any", SimpleNamespace(alerts=None))] * 5, ())
    with closing(target.connect()) as session:
        (row,) = session.meta.checkpoints.claim(
            "one", "s", 1, Checkpoint(task="one", source="s", worker=0, lsn=Lsn(0, 1, 4))
        )
        attempts._epoch = row.epoch
        attempts._demand_own_epoch()
        session.meta.checkpoints.claim("one", "s", 1, row)
    for meet in (
        partial(attempts._answer, Halted("relay-purged", "segment 1 is gone", todo="Empty this folder")),
        partial(attempts._attempt_once, until_synced=False),
    ):
        with pytest.raises(Fenced, match="has taken over"):
            meet()
    target.forget()


def test_how_long_the_relay_keeps_what_is_applied(tmp_path: Path) -> None:
    assert load_task(task(tmp_path, "shop", keep="1h30m")).relay_keep == 5400
    assert load_task(task(tmp_path, "shop")).relay_keep == 0
    with pytest.raises(ConfigError, match=r"pidts.relay-keep: 'soon' is not a length of time") as caught:
        load_task(task(tmp_path, "shop", keep="soon"))
    assert caught.value.where.line == 6


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("1d12h", 129600)]
)
def test_lengths_of_time(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "h", "1 h", "-1h", "1h!", "1.5h", "\u0661h", "99999d", "1w"])
def test_texts_that_are_no_duration_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)
