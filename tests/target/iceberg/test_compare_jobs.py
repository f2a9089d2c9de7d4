"""A Spark cluster compares a warehouse with its source. It finds what one process finds, in the same order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import InOneSession
from tests.spark.standalone_cluster import FOR_A_SHORT_LIFE, Cluster, standalone_cluster
from tests.target.iceberg.test_warehouse import SECONDS, RunSql, WarehouseTask

from pidts.cli.verify import verified
from pidts.sandbox import Server
from pidts.task.compare.wiring import compare_task
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.run import comparison_jobs
from pidts.verify import Callbacks, ComparisonInterrupted, ComparisonProgress, Report

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 6000
LOSSES = (
    "DELETE FROM item WHERE id IN (17, 3333, 5999)",
    "UPDATE item SET name = 'other' WHERE id % 1000 = 1",
    "INSERT INTO item VALUES (9001, 'new', 1), (-5, 'new', 1)",
    "DELETE FROM word WHERE id LIKE '%77'",
    "INSERT INTO word VALUES ('zzz', 1), ('A', 2)",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def task(
    mariadb: Server,
    tmp_path_factory: pytest.TempPathFactory,
    run_sql: RunSql,
    in_one_session: InOneSession,
    cluster: Cluster,
) -> Iterator[WarehouseTask]:
    """Makes two tables that differ on both sides. Their keys are numbers, and texts, which a warehouse and a server
    order differently.
    """
    made = WarehouseTask(mariadb, tmp_path_factory.mktemp("lake"), run_sql)
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.executor.extraJavaOptions": FOR_A_SHORT_LIFE,
    }
    text = made.file.read_text()
    made.file.write_text(f"{text}pidts: {{spark: {{master: '{cluster.url}', conf: {conf}}}}}\n")
    made.sql("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(9,2))")
    made.sql(f"INSERT INTO item SELECT seq, CONCAT('item ', seq), seq / 4 FROM seq_1_to_{ROWS}")
    made.sql("CREATE TABLE word (id VARCHAR(30) PRIMARY KEY, n INT)")
    made.sql(f"INSERT INTO word SELECT CONCAT('Word ', seq), seq FROM seq_1_to_{ROWS}")
    for table in ("item", "word"):
        made.sql(f"ANALYZE TABLE {table}")
    made.run()
    in_one_session(mariadb, made.database, "SET sql_log_bin = 0", *LOSSES)
    # Other tests write to the same log, so a run of the task has to show that the log has no changes of the tables.
    run = made.start()
    # Small tables have many spans, each of which is the work of one Spark task.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["pidts.verify.compare"], "_MANY_ROWS", 1)
        patch.setattr("pidts.verify.spans._PARTS", 1)
        patch.setattr("pidts.verify.spans.KEY_ROWS", 300)
        yield made
    run.terminate()
    assert run.wait(SECONDS) == 0
    made.sql(f"DROP DATABASE {made.database}", database=None)


@pytest.fixture
def parts(task: WarehouseTask) -> tuple[TaskConfig, ...]:
    return load_parts(task.file)


@pytest.fixture(scope="module")
def alone(task: WarehouseTask) -> Report:
    """Returns the report of one process."""
    report = compare_task(*load_parts(task.file), examples=50)
    (item, word) = report.tables
    assert (item.missing, item.extra, item.different) == (2, 3, 6)
    assert (word.missing, word.extra) == (2, 60)
    return report


def test_a_cluster_finds_what_one_process_finds(parts: tuple[TaskConfig, ...], cluster: Cluster, alone: Report) -> None:
    before = applications(cluster)
    assert verified(parts, "", examples=50, restart=False, stop=threading.Event()) == alone
    assert len(applications(cluster)) == len(before) + 1


def test_the_task_of_a_killed_executor_is_done_again(
    parts: tuple[TaskConfig, ...], cluster: Cluster, alone: Report
) -> None:
    killed: list[int] = []

    def kill_one(_: ComparisonProgress) -> None:
        if not killed:
            killed.extend(executors(cluster)[:1])
            os.kill(killed[0], signal.SIGKILL)

    said: list[str] = []
    with comparison_jobs.comparison_jobs(parts, said.append) as elsewhere:
        found = compare_task(*parts, examples=50, callbacks=Callbacks(show=kill_one), elsewhere=elsewhere)
    assert killed
    assert found == alone
    assert not said


def test_a_comparison_ends_while_a_job_runs_and_another_one_begins(
    parts: tuple[TaskConfig, ...], alone: Report
) -> None:
    stop = threading.Event()

    def stop_now(progress: ComparisonProgress) -> None:
        if progress.rows > ROWS / 3:
            stop.set()

    with comparison_jobs.comparison_jobs(parts, print) as elsewhere:
        with pytest.raises(ComparisonInterrupted):
            compare_task(*parts, callbacks=Callbacks(show=stop_now, stop=stop), elsewhere=elsewhere)
        assert compare_task(*parts, examples=50, elsewhere=elsewhere) == alone


def test_without_a_free_executor_this_process_compares(
    task: WarehouseTask, alone: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_jobs, "_PATIENCE", 1.0)
    large = task.folder / "large.yaml"
    large.write_text(task.file.read_text().replace("'spark.executor.memory': '512m'", "'spark.executor.memory': '9g'"))
    parts, said = load_parts(large), list[str]()
    with comparison_jobs.comparison_jobs(parts, said.append) as elsewhere:
        assert compare_task(*parts, examples=50, elsewhere=elsewhere) == alone
    (text,) = said
    assert "no executor of Spark was free within 1 seconds" in text


def applications(cluster: Cluster) -> set[str]:
    return {path.parent.name for path in cluster.work.glob("worker-*/app-*/*")}


def executors(cluster: Cluster) -> list[int]:
    """Returns the processes of the cluster's executors."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_executor = b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words
        if is_executor and str(folder.joinpath("cwd").resolve()).startswith(str(cluster.work)):
            found.append(int(folder.name))
    return found
