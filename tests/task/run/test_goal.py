"""A run reaches its goal only in a log that is proven to be the relay's log. The proof needs no replicator."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pidts import sandbox
from pidts.model import Halted, Position
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.replicate import Replicator, ReplicatorConfig, end_of_same_log
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, log_end
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.attempts import Attempts
from pidts.task.run.goal import ProvenGoal

RunSql = Callable[..., object]


def source_of(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s")


def insert(run_sql: RunSql, server: Server, count: int) -> None:
    run_sql(server, "CREATE TABLE IF NOT EXISTS d.t (v VARCHAR(99))")
    for number in range(count):
        run_sql(server, f"INSERT INTO d.t VALUES ('row {number} of {count}')")


def receive(server: Server, relay: Path) -> None:
    """Receives everything that the server has logged; then the replicator has ended."""
    stop = threading.Event()
    config = ReplicatorConfig(source_of(server), relay, Position("bin.000001", 4), use_gtid=True)
    replicator = Replicator(config)
    thread = threading.Thread(target=replicator.run, args=(stop,))
    thread.start()
    try:
        with closing(connect(source_of(server))) as session:
            end = log_end(session)
        deadline = time.monotonic() + 60
        while replicator.state().position != str(end):
            assert thread.is_alive()
            assert time.monotonic() < deadline, replicator.state()
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()


def config(server: Server, folder: Path) -> TaskConfig:
    path = folder / "task.yaml"
    path.write_text(
        "name: t\ntask-mode: all\ntarget-database: {host: 127.0.0.1, port: 9, user: root}\n"
        f"mysql-instances: [{{source-id: s, from: {{host: {server.host}, port: {server.port}, user: {server.user}}}}}]\n"
        "pidts: {relay: ./relay}\n"
    )
    return load_task(path)


@contextmanager
def reader(relay: Path) -> Iterator[RelayReader]:
    with closing(RelayReader(relay, "s")) as found:
        yield found


def demand_went_back(server: Server, relay: Path, begun: ProvenGoal) -> None:
    """Checks that both fail with `source-went-back`: to take the end of this log as goal, and to prove the goal
    `begun`, which was taken before.
    """
    with reader(relay) as opened:
        for ask in (ProvenGoal(partial(end_of_same_log, source_of(server))).take, begun.is_proven):
            with pytest.raises(Halted) as caught:
                ask(opened)
            assert caught.value.code == "source-went-back"


def test_no_goal_is_reached_on_a_source_that_went_back(
    run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.task.run.goal._BELIEVED_SECONDS", 0.0)
    home, backup, relay = tmp_path / "server", tmp_path / "backup", tmp_path / "relay"
    with sandbox.start_mariadb(home) as server:
        run_sql(server, "CREATE DATABASE d")
        insert(run_sql, server, 2)
        server.stop()
        shutil.copytree(home, backup, symlinks=True)
        server.start()
        insert(run_sql, server, 4)
        receive(server, relay)
        goal = ProvenGoal(partial(end_of_same_log, source_of(server)))
        attempts = Attempts(config(server, tmp_path), *[cast("Any", SimpleNamespace(alerts=None))] * 5, ())
        with reader(relay) as opened:
            assert goal.take(opened)
            assert goal.lsn == opened.received
            assert goal.is_proven(opened)
            attempts._take_goal(opened)
            state = PlanState(goal.lsn)
            assert attempts._is_goal(state, opened, only_halts_left=False)
        server.stop()
        shutil.rmtree(home)
        shutil.copytree(backup, home, symlinks=True)
        server.start()
        with reader(relay) as opened, pytest.raises(Halted, match="source-went-back"):
            attempts._is_goal(state, opened, only_halts_left=False)
        demand_went_back(server, relay, goal)  # The log of this older state ends before the received log.
        insert(run_sql, server, 9)
        demand_went_back(server, relay, goal)  # The log is longer, and has other rows with the same GTIDs.
        run_sql(server, "RESET MASTER")
        demand_went_back(server, relay, goal)
        insert(run_sql, server, 30)
        demand_went_back(server, relay, goal)


def test_another_servers_log_has_no_goal_before_the_replicator_has_begun_with_it(
    run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.task.run.goal._BELIEVED_SECONDS", 0.0)
    relay = tmp_path / "relay"
    with sandbox.start_mysql97(tmp_path / "a") as first:
        run_sql(first, "CREATE DATABASE d")
        insert(run_sql, first, 5)
        first.stop()
        ignore = shutil.ignore_patterns("auto.cnf", "*.sock", "*.pid", "*.lock")
        shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=ignore)
        first.start()
        receive(first, relay)
        goal = ProvenGoal(partial(end_of_same_log, source_of(first)))
        with reader(relay) as opened:
            assert goal.take(opened)
        first.stop()
    with sandbox.start_mysql97(tmp_path / "b") as second, reader(relay) as opened:
        goal._end = partial(
            end_of_same_log, replace(source_of(first), port=second.port)
        )  # By now, another server has this address.
        assert not ProvenGoal(goal._end).take(opened)
        assert not goal.is_proven(opened)
        insert(run_sql, second, 2)
        receive(second, relay)
        assert goal.is_outdated(opened)
        assert not goal.is_proven(opened)
        assert goal.take(opened)
        assert goal.lsn is not None
        assert goal.lsn.change_no == 1
        assert goal.lsn == goal._end(opened)
        assert goal.is_proven(opened)
