"""`pidts verify` compares tables during a run that copies some of them again, while a program writes to all of them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.running import Progress

from pidts.sandbox import Server
from pidts.source import connect
from pidts.task.config.task_file import load_task
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.start import begin_task
from pidts.task.run.table_set import StartRequest

from .commands import Task
from .conftest import Background

QUIET = 5000
"""Rows with higher numbers are not changed."""


def started(task: Task) -> None:
    """Starts a task for the first time only: its tables are known, and none of their rows is copied."""
    config = load_task(task.path)
    replicator = ReplicatorProcess(config)
    try:
        with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
            begin_task(config, source, target, replicator, threading.Event(), StartRequest())
    finally:
        replicator.stop()


class Writer:
    """Changes, removes and adds rows, and moves unique values."""

    def __init__(self, session: Any, schema: str) -> None:
        self._cursor, self._chance = session.cursor(), random.Random(3)
        self._cursor.execute(f"USE {schema}")
        self.transactions = 0

    def work(self) -> None:
        key = self._chance.randrange(QUIET)
        self._cursor.execute("BEGIN")
        self._cursor.execute(f"DELETE FROM t WHERE id = {key}")
        if self._chance.random() < 0.8:
            self._cursor.execute(
                f"REPLACE INTO t VALUES ({key}, {-self._chance.randrange(QUIET)}, {self.transactions})"
            )
        self._cursor.execute(f"UPDATE other SET n = n + 1 WHERE id = {key % 50}")
        self._cursor.execute("COMMIT")
        self.transactions += 1
        time.sleep(0.01)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(500)
def test_tables_are_put_right_and_verified_while_everything_is_written_to(
    make_task: Callable[..., Task],
    mariadb: Server,
    target_server: Callable[[str], Server],
    open_session: Callable[..., Any],
    database: str,
) -> None:
    server = target_server("postgres")
    source, target = open_session(mariadb), open_session(server)
    cursor = source.cursor()
    for statement in (
        f"USE {database}",
        "CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, n INT)",
        "CREATE TABLE other (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE bag (n INT)",
        f"INSERT INTO t SELECT seq, seq, 0 FROM seq_1_to_{2 * QUIET}",
        "INSERT INTO other SELECT seq, 0 FROM seq_0_to_99",
        "INSERT INTO bag SELECT seq % 10 FROM seq_1_to_500",
    ):
        cursor.execute(statement)
    task = make_task(mariadb, server, [database])
    started(task)
    target.execute(f"INSERT INTO {database}.t SELECT n, -n - 100000, 7 FROM generate_series(1, 20000, 3) AS s(n)")
    target.execute(f"INSERT INTO {database}.bag VALUES (1), (99)")

    def verified(*words: str) -> tuple[int, dict[str, Any]]:
        done = task.command("verify", str(task.path), "--json", *words)
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    writer, progress = Writer(source, database), Progress(open_session(server))
    run = task.start("--resync", f"{database}.t,{database}.bag")
    with Background(writer.work):
        run.wait_until(progress.is_copied, "rows are there, and those that the source has not are gone")
        written = writer.transactions
        code, report = verified()
        assert (code, report["equal"], report["differences"]) == (0, True, [])
        assert writer.transactions > written
        quiet = 2 * QUIET
        target.execute(f"DELETE FROM {database}.t WHERE id = {quiet}")
        target.execute(f"UPDATE {database}.t SET n = 1 WHERE id = {quiet - 1}")
        target.execute(f"INSERT INTO {database}.t VALUES ({quiet + 1}, {quiet + 1}, 0)")
        target.execute(f"DELETE FROM {database}.bag WHERE n = 3")
        code, report = verified("--restart")
        assert code == 4
        found = {(one["table"], one["kind"], one["key"]["id"]) for one in report["differences"]}
        name = f"{database}.t"
        assert found == {(name, "missing", quiet), (name, "different", quiet - 1), (name, "extra", quiet + 1)}
        assert {one["name"]: one["missing"] for one in report["tables"]} == {
            name: 1,
            f"{database}.other": 0,
            f"{database}.bag": 50,
        }
    run.wait_until(progress.has(source), "all changes are there")
    assert run.stop() == 0, task.logs()
