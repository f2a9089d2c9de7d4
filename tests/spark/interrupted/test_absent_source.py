"""A new run waits for a source that is down. If an earlier run has begun the task, the new run meanwhile applies the
log that is in the relay.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.running import PIDTS
from tests.spark.commands import Task

from pidts.model import Lsn, Position
from pidts.relay import RelayReader
from pidts.sandbox import Server, start_mariadb

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_log_in_the_relay_is_applied_without_the_source(
    target_server: Callable[[str], Server],
    make_task: Callable[..., Task],
    run_sql: RunSql,
    eventually: Callable[..., None],
) -> None:
    target = target_server("postgres")
    with start_mariadb() as source:
        run_sql(source, "CREATE DATABASE shop")
        # All rows come by the log, which needs no Spark.
        task = make_task(source, target, ["shop"], **{"ignore-checking-items": ["table_list"]})
        run_sql(source, "CREATE TABLE shop.begun (id INT PRIMARY KEY)")
        task.sync()

        def received() -> bool:
            ((file, place, *_),) = run_sql(source, "SHOW MASTER STATUS")
            at = RelayReader(task.path.parent / "relay", "one").received
            return at is not None and at >= Lsn.at(Position(str(file), int(place)))

        replicator = subprocess.Popen([*PIDTS, "replicate", str(task.path)], stdin=subprocess.DEVNULL)
        try:
            for sql in (
                "INSERT INTO shop.begun VALUES (1), (2)",
                "ALTER TABLE shop.begun ADD name VARCHAR(20)",
                "UPDATE shop.begun SET name = 'two' WHERE id = 2",
                "CREATE TABLE shop.later (id INT PRIMARY KEY, a TEXT)",
                "INSERT INTO shop.later VALUES (1, 'x')",
            ):
                run_sql(source, sql)
            eventually(received, 180, "the relay has all of it")
        finally:
            replicator.send_signal(signal.SIGTERM)
            replicator.wait(30)
        source.kill()

        def on_target(sql: str) -> list[tuple[Any, ...]]:
            return run_sql(target, sql)

        def has(table: str, rows: list[tuple[Any, ...]]) -> Callable[[], bool]:
            exists = f"SELECT 1 FROM information_schema.tables WHERE table_schema || '.' || table_name = '{table}'"
            return lambda: bool(on_target(exists)) and on_target(f"SELECT * FROM {table} ORDER BY id") == rows

        run = task.start("--until-synced", "--json")
        run.wait_until(has("shop.later", [(1, "x")]), "the last change that the relay has")
        assert has("shop.begun", [(1, None), (2, "two")])()
        assert "the log in the relay is applied" in run.log.read_text()
        assert run.process.poll() is None, "what the source has now is not known, so nobody can say that it is there"

        source.restart()
        run_sql(source, "INSERT INTO shop.later VALUES (2, 'y')")
        assert run.process.wait(120) == 0, task.logs()
        assert has("shop.later", [(1, "x"), (2, "y")])()
        assert json.loads(run.log.read_text().splitlines()[-1])["stage"] == "synced"
        source.kill()


@pytest.mark.timeout(600)
def test_the_first_start_waits_for_the_source(
    target_server: Callable[[str], Server], make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    target = target_server("postgres")
    with start_mariadb() as source:
        run_sql(source, "CREATE DATABASE first_start")
        run_sql(source, "CREATE TABLE first_start.t (id INT PRIMARY KEY)")
        run_sql(source, "INSERT INTO first_start.t VALUES (1), (2)")
        source.kill()
        task = make_task(source, target, ["first_start"], name="first")
        said = f"the task waits for the source at {source.host}:{source.port}"

        run = task.start()
        run.wait_until(lambda: said in run.log.read_text(), "it says so")
        assert run.stop() == 0, "a user who ends the wait has not failed"
        assert "first: paused after" in run.log.read_text()

        check = task.command("check", str(task.path))
        assert check.returncode == 3, "a check says that the source is not there, and ends"
        assert b"source-unreachable" in check.stdout + check.stderr

        run = task.start("--until-synced", "--json")
        run.wait_until(lambda: said in run.log.read_text(), "it says so")
        status = task.command("status", str(task.path))
        assert f"process {run.process.pid} " in status.stdout.decode()
        source.restart()
        assert run.process.wait(120) == 0, task.logs()
        assert run_sql(target, "SELECT id FROM first_start.t ORDER BY id") == [(1,), (2,)]

        def status_line(number: int) -> str:
            return task.command("status", str(task.path)).stdout.decode().splitlines()[number]

        stopped = "first: it is not running, as far as this machine can tell; the last run here ended at "
        assert status_line(-1).startswith(stopped)
        assert status_line(-1).endswith(" ago); nothing is halted")
        assert status_line(1).endswith("; 0 B of it is not applied; lag 0 s")
        run_sql(source, "INSERT INTO first_start.t VALUES (3)")
        assert status_line(1).endswith(" B of it is not applied; lag unknown"), "the relay does not have it yet"
        run = task.start()
        run.wait_until(
            lambda: run_sql(target, "SELECT id FROM first_start.t WHERE id = 3") == [(3,)], "the row is there"
        )
        assert status_line(-1) == f"first: it is running (process {run.process.pid}); nothing is halted"
        assert status_line(1).endswith("lag 0 s")
        source.kill()
        assert status_line(-1).endswith(f"process {run.process.pid}); the source does not answer; nothing is halted")
        assert "log ends   unknown" in status_line(1)
        run.process.kill()
        run.process.wait(30)
        assert "; its replicator was last active here at " in status_line(-1)
