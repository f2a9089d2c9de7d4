"""A run and all processes that it has started end after a signal, even if a server does not answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.running import Progress
from tests.spark.commands import Task, below

from pidts.cli.signals import RUN_ENDS_WITHIN
from pidts.sandbox import Server, start_mariadb

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize("frozen", ["the target", "Spark's JVM"])
def test_a_run_ends_although_something_does_not_answer(
    mariadb: Server,
    database: str,
    make_task: Callable[..., Task],
    open_session: Callable[..., Any],
    run_sql: Callable[..., Any],
    background: Callable[..., Any],
    eventually: Callable[..., None],
    frozen: str,
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)", database=database)
    with start_mariadb() as target:
        task = make_task(mariadb, target, [database], spark={"direct-rows": 0})
        run = task.start()
        progress = Progress(open_session(target), task="t")
        run.wait_until(progress.is_copied, "the copy")
        with background(lambda: run_sql(mariadb, "INSERT INTO t VALUES ()", database=database), 0.05):
            run.wait_until(lambda: progress.batches() > 3, "batches")
            assert target.pid is not None
            pid = target.pid if frozen == "the target" else run.jvm()[0]
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(3)
                started = below(run.process.pid)
                run.process.send_signal(signal.SIGTERM)
                code = run.process.wait(RUN_ENDS_WITHIN + 30)
                eventually(
                    lambda: not [one for one in started if Path(f"/proc/{one}").exists()], 10, "nothing is left of it"
                )
            finally:
                os.kill(target.pid, signal.SIGCONT)
        assert code in {0, 1}
        if code:
            assert "[not-ended]" in run.log.read_text()
        task.sync()
        rows = [run_sql(server, f"SELECT id FROM {database}.t ORDER BY id") for server in (mariadb, target)]
        assert rows[0] == rows[1]
