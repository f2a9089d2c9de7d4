"""Spark's JVM is killed in the middle of a copy and of batches, even while Python workers are busy.

The run starts another JVM and continues: no row is lost or doubled, and the terminal shows only PiDTS's own messages.
The files of the dead JVMs in the temporary folder are gone after the next start, and none of their processes is left.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.running import Progress
from tests.spark.commands import Run, below
from tests.spark.interrupted.test_crashes import Bank, contents

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
FOREIGN = ("Traceback", "py4j", "Py4J", "java.", "org.apache", "pyspark", "Exception", "BrokenPipe", "ERROR:")


def assert_only_own_words(run: Run) -> None:
    log = run.log.read_text()
    assert not [word for word in FOREIGN if word in log], log[-8000:]


def kill_jvm(run: Run, number: int) -> list[int]:
    """Returns all processes that the JVM had started."""
    run.wait_until(lambda: run.jvm() != [], "Spark has a JVM")
    (jvm, *_) = run.jvm()
    started = [jvm, *below(jvm)]
    os.kill(jvm, number)
    return started


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_jvm_that_dies_is_replaced(
    mariadb, postgres, database, make_task, open_session, background, eventually, tmp_path: Path
) -> None:
    """With `direct-rows: 0`, Python workers of Spark apply each batch. Batches that the driver applies need no JVM."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    bank = Bank(mariadb, postgres, database, open_session)
    name = "t0"
    task = make_task(mariadb, postgres, [database], name=name, spark={"direct-rows": 0}, pidts={"chunk-rows": 100})
    progress = Progress(open_session(postgres), task=name)
    killed: list[int] = []
    with background(bank.work, pause=0.05):
        run = task.start(environment=environment)
        for number in (signal.SIGKILL, signal.SIGTERM):
            run.wait_until(lambda: any(state.copying for state in progress.states()), "the copy goes on")
            run.wait_until(lambda: run.workers() != [], "Spark has a worker")
            killed += kill_jvm(run, number)
        run.wait_until(progress.is_copied, "all is copied")
        for step, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
            wanted = progress.batches() + 1 + step % 2
            run.wait_until(lambda n=wanted: progress.batches() >= n, "a batch is written")
            run.wait_until(lambda: run.workers() != [], "Spark has a worker")
            time.sleep(step * 0.07)
            killed += kill_jvm(run, number)
        wanted = progress.batches() + 1
        run.wait_until(lambda: progress.batches() >= wanted, "a batch is written")
        run.kill()
        eventually(lambda: not living(killed), 30, "no process of a killed JVM is left")
        left = {path.name for path in temporary.iterdir()}
        assert any(one.startswith(f"pidts-{name}-") for one in left)
    run = task.start("--until-synced", environment=environment)
    assert run.process.wait(300) == 0, task.logs()
    for each in task.runs:
        assert_only_own_words(each)
    assert task.runs[0].log.read_text().count("[spark-died]") >= 4
    assert list(temporary.iterdir()) == []
    assert contents(open_session(postgres), database) == contents(open_session(mariadb), database)


def test_a_jvm_that_dies_again_and_again_ends_the_run(
    mariadb, postgres, database, make_task, open_session, eventually, tmp_path: Path
) -> None:
    Bank(mariadb, postgres, database, open_session)
    task = make_task(mariadb, postgres, [database], name="dies_again", spark={"direct-rows": 0})
    run = task.start(environment={**os.environ, "TMPDIR": str(tmp_path)})
    killed: list[int] = []
    deadline = time.monotonic() + 300
    while run.process.poll() is None and time.monotonic() < deadline:
        for pid in run.jvm():
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    assert run.process.wait(60) == 1
    assert_only_own_words(run)
    assert "spark-died" in run.log.read_text()[-1500:]
    eventually(lambda: not living(killed), 30, "no process of a killed JVM is left")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("pidts-", "artifacts-", "liblz4-"))]
