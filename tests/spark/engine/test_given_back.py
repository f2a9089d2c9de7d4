"""Spark starts while small batches continue, ends when it has had no work for a while, and starts again, even if
processes are killed.

The processes are killed at moments that exist only because Spark does not always run. For other moments see
`test_crashes`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.running import NO_TABLE, Progress
from tests.spark.commands import Run, Task

from pidts.sandbox import Server

QUICK = "from pidts.spark import on_demand; on_demand.SparkOnDemand.quiet_seconds = 1.0"
"""The statement for a shorter time until Spark ends."""
DIRECT_ROWS = 3
MANY = 300


def begin(task: Task) -> Run:
    return task.start(before=QUICK)


def kill_jvm(run: Run) -> None:
    for pid in run.jvm():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_spark_that_comes_and_goes_loses_and_doubles_nothing(
    mariadb: Server,
    postgres: Server,
    database: str,
    make_task: Callable[..., Task],
    open_session: Callable[..., Any],
) -> None:
    source, target = open_session(mariadb).cursor(), open_session(postgres)
    source.execute(f"USE {database}")
    source.execute(f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL)")
    task = make_task(
        mariadb,
        postgres,
        [database],
        spark={"direct-rows": DIRECT_ROWS},
        # For so many threads, Spark copies.
        mydumpers={"many": {"threads": 16}},
        instance={"mydumper-config-name": "many"},
    )
    progress = Progress(target)

    def write(rows: int) -> None:
        """Writes one transaction with one event for each row: the number of events decides whether a batch is a job."""
        source.execute("BEGIN")
        for number in range(rows):
            source.execute(f"INSERT INTO {database}.t (n) VALUES ({number})")
        source.execute("COMMIT")

    def count() -> int:
        with suppress(*NO_TABLE):
            return int(target.execute(f"SELECT COUNT(*) FROM {database}.t").fetchone()[0])
        return 0

    def is_equal() -> bool:
        source.execute(f"SELECT id, n FROM {database}.t ORDER BY id")
        rows = list(source.fetchall())
        with suppress(*NO_TABLE):
            return rows == target.execute(f"SELECT id, n FROM {database}.t ORDER BY id").fetchall()  # type: ignore[no-any-return]
        return False

    # The copy begins without Spark. The driver is killed while Spark starts for the rest.
    write(MANY)
    run = begin(task)
    run.wait_until(lambda: run.jvm() != [], "Spark starts for the copy")
    run.kill()
    run = begin(task)
    run.wait_until(progress.is_copied, "all is copied")
    run.wait_until(is_equal, "the copy")
    run.wait_until(lambda: run.jvm() == [], "Spark is given back")

    # A small batch needs no Spark.
    write(1)
    run.wait_until(is_equal, "a small batch")
    assert run.jvm() == []

    # The JVM is killed while it starts for a noted job. The same run continues.
    write(MANY)
    run.wait_until(lambda: run.jvm() != [], "Spark starts for a job")
    kill_jvm(run)
    run.wait_until(is_equal, "the job, after all")
    run.wait_until(lambda: run.jvm() == [], "Spark is given back once more")

    # The driver is killed while Spark starts for a noted job. No part of the job has run, and the next run plans it
    # anew.
    before = count()
    write(MANY)
    write(1)
    run.wait_until(lambda: run.jvm() != [], "Spark starts for a job")
    assert count() == before
    run.kill()
    run = begin(task)
    run.wait_until(is_equal, "the job, by the next run")
    assert run.stop() == 0
