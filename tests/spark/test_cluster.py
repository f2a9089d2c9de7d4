"""The same job on a Spark standalone cluster: one master, two workers, all on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from tests.running import Progress

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
ROWS = 20_000


@dataclass
class Cluster:
    url: str
    work: Path

    def executors(self) -> set[str]:
        """The worker folders in which an executor of some application has run."""
        return {path.parents[1].name for path in self.work.glob("worker-*/app-*/*") if path.is_dir()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path),
    }
    with contextlib.ExitStack() as daemons:

        def start(name: str, *words: str) -> Path:
            log = tmp_path / f"{name}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [SPARK_CLASS, *words], stdout=output, stderr=output, env=environment, start_new_session=True
                )
            daemons.callback(process.wait)
            daemons.callback(os.killpg, process.pid, signal.SIGKILL)
            return log

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        host = ("--host", "127.0.0.1", "--webui-port", "0")
        log = start("master", "org.apache.spark.deploy.master.Master", "--port", str(port), *host)
        url = f"spark://127.0.0.1:{port}"
        for number in (1, 2):
            folder = tmp_path / f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
            start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *host, *size, url)
        deadline = time.monotonic() + 90
        while len(re.findall(r"Registering worker", log.read_text())) < 2:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Cluster(url, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_cluster_copies_and_follows_like_a_local_master(
    cluster, mariadb, database, make_task, target_server, open_session
):
    source = open_session(mariadb)
    cursor = source.cursor()
    cursor.execute(f"USE {database}")
    cursor.execute(f"CREATE TABLE {database}.item (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(9,2))")
    cursor.execute(f"INSERT INTO {database}.item SELECT seq, CONCAT('item ', seq), seq / 4 FROM seq_1_to_{ROWS}")
    target = target_server("postgres")
    conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    task = make_task(
        mariadb,
        target,
        [database],
        spark={"master": cluster.url, "direct-rows": 0, "conf": conf},
        pidts={"chunk-rows": 4000},
        workers=2,
    )
    run, progress = task.start("--json"), Progress(open_session(target))
    run.wait_until(progress.is_copied, "all is copied")
    cursor.execute(f"UPDATE {database}.item SET price = price + 1 WHERE id % 3 = 0")
    cursor.execute(f"DELETE FROM {database}.item WHERE id % 7 = 0")
    run.wait_until(progress.has(source), "all changes are there")
    rows = run.summary()["rows"]
    assert (rows["copied"], rows["updated"], rows["deleted"]) == (ROWS, ROWS // 3, ROWS // 7)
    query = f"SELECT id, name, price FROM {database}.item ORDER BY id"
    cursor.execute(query)
    copied = open_session(target).execute(query).fetchall()
    assert [tuple(row) for row in copied] == [tuple(row) for row in cursor.fetchall()]
    assert cluster.executors() == {"worker-1", "worker-2"}
