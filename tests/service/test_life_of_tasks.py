"""A service's task on real servers is started by REST, is stopped at the end of a transaction, and runs again after
each crash.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pidts.sandbox import Server

from .serving import serving, task_file, wait_for

RunSql = Callable[..., list[tuple[Any, ...]]]


@contextmanager
def written(source: Server, database: str, run_sql: RunSql) -> Iterator[list[int]]:
    """Writes transactions of two rows each as long as the block lasts; yields their number so far."""
    count, over = [0], threading.Event()

    def write() -> None:
        while not over.wait(0.01):
            number = count[0] * 2 + 1
            run_sql(source, f"INSERT INTO {database}.t VALUES ({number}, {count[0]}), ({number + 1}, {count[0]})")
            count[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_task_survives_commands_and_crashes(
    mariadb: Server, postgres: Server, database: str, tmp_path: Path, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, pair INT NOT NULL)")

    def on_target() -> list[tuple[Any, ...]]:
        return run_sql(postgres, f"SELECT id, pair FROM {database}.t ORDER BY id", database=database)

    def on_source() -> list[tuple[Any, ...]]:
        return run_sql(mariadb, f"SELECT id, pair FROM {database}.t ORDER BY id")

    def arrives() -> None:
        wait_for(lambda: on_target() == on_source(), lambda: service.task(database))

    with serving(tmp_path) as service:
        status, made = service.call("POST", "/api/tasks", task_file(database, mariadb, postgres, database))
        assert (status, made["name"], made["wanted"]) == (201, database, "running")
        assert service.call("POST", "/api/tasks", task_file(database, mariadb, postgres, database))[0] == 409
        with written(mariadb, database, run_sql) as count:
            task = service.wait_for_stage(database, "sync")
            assert task["sources"] == ["one"]
            assert task["target"] == f"postgresql {postgres.host}:{postgres.port}/{database}"
            assert task["process"] == service.process_of(database)
            wait_for(
                lambda: service.task(database)["progress"]["rows"]["inserted"] > 10, lambda: service.task(database)
            )

            # A pause takes effect at the end of a transaction, while writes continue.
            service.call("POST", f"/api/tasks/{database}/pause")
            assert service.wait_for_stage(database, "paused")["process"] is None
            here = on_target()
            assert len(here) % 2 == 0
            before = count[0]
            wait_for(lambda: count[0] > before + 5, lambda: count)
            assert on_target() == here
            resumed = service.call("POST", f"/api/tasks/{database}/resume")[1]
            assert (resumed["wanted"], resumed["stage"]) == ("running", "starting")
            service.wait_for_stage(database, "sync")

            # The service dies. The task continues, and another service takes it over.
            process = service.process_of(database)
            service.kill()
            before, there = count[0], len(on_target())
            wait_for(lambda: len(on_target()) > there, lambda: service.log_of(database))
            service.start()
            task = service.task(database)
            assert (task["process"], task["wanted"], task["restarts"]) == (process, "running", 0)
            wait_for(lambda: service.task(database)["stage"] == "sync", lambda: service.task(database))

            # The task dies, and is started again.
            assert process is not None
            os.kill(process, signal.SIGKILL)
            wait_for(lambda: service.process_of(database) not in {None, process}, lambda: service.task(database))
            assert service.task(database)["restarts"] == 1
            service.wait_for_stage(database, "sync")

            # The machine dies: no process is left, and the next service starts the wanted tasks again.
            process = service.process_of(database)
            service.kill()
            assert process is not None
            os.kill(process, signal.SIGKILL)
            wait_for(lambda: service.process_of(database) is None, lambda: process)
            service.start()
            service.wait_for_stage(database, "sync")
        arrives()

        # A stopped task stays stopped with a new service, and can then be removed.
        assert service.call("DELETE", f"/api/tasks/{database}")[0] == 409
        service.call("POST", f"/api/tasks/{database}/stop")
        service.wait_for_stage(database, "stopped")
        assert service.stop() == 0
        service.start()
        time.sleep(1)
        assert service.task(database)["stage"] == "stopped"
        assert service.process_of(database) is None
        lines = service.call("GET", f"/api/tasks/{database}/logs?limit=1000")[1]["lines"]
        assert {line["event"] for line in lines} >= {"the task begins", "the task has ended"}
        assert service.call("DELETE", f"/api/tasks/{database}")[0] == 200
        assert service.call("GET", "/api/tasks")[1] == {"tasks": []}
        assert not (service.state / "tasks" / database).exists()


@pytest.mark.timeout(300)
def test_a_task_that_never_began_waits_for_its_source(
    mariadb: Server, postgres: Server, database: str, tmp_path: Path, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    absent = task_file(database, replace(mariadb, port=1), postgres, database)
    with serving(tmp_path) as service:
        assert service.call("POST", "/api/tasks", absent)[0] == 201
        task = service.wait_for_stage(database, "waiting")
        assert f"the task waits for the source at {mariadb.host}:1" in str(task), task
        process = service.process_of(database)
        assert process is not None, "the run waits itself"
        assert task["restarts"] == 0
        service.call("POST", f"/api/tasks/{database}/pause")
        service.wait_for_stage(database, "paused")
