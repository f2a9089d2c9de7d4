"""Spark's own standalone cluster: one master and its workers, all on loopback."""

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

from pidts.spark.class_data import java_options

FOR_A_SHORT_LIFE = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java_options()}".rstrip()
"""JVM options that leave out the best machine code, for a JVM that ends before this would pay. It loads Spark's classes
as the set-up has kept them.
"""
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@dataclass
class Cluster:
    url: str
    work: Path

    def executors(self) -> set[str]:
        """Returns the worker folders in which an executor of some application has run."""
        return {path.parents[1].name for path in self.work.glob("worker-*/app-*/*") if path.is_dir()}


@contextlib.contextmanager
def standalone_cluster(tmp_path: Path, workers: int = 2) -> Iterator[Cluster]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FOR_A_SHORT_LIFE,
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
        for number in range(1, workers + 1):
            folder = tmp_path / f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
            start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *host, *size, url)
        deadline = time.monotonic() + 90
        while len(re.findall(r"Registering worker", log.read_text())) < workers:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Cluster(url, tmp_path)
