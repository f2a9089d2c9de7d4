"""On a machine with far more to do than it can, a task and a stream in somebody's own session take longer, and work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pidts.sandbox import Server

LOAD = 30
LONGEST = 900
LOOP = f"import time\nend = time.monotonic() + {LONGEST}\nwhile time.monotonic() < end: pass"
STREAM = """
import sys
from pyspark.sql import SparkSession
from pidts.spark import register

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
reader = spark.readStream.format("binlog").option("url", sys.argv[1]).option("tables", "busy.t")
stream = reader.option("startingPosition", "earliest").load()
query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
query.awaitTermination()
print("rows", spark.sql("select count(*) from seen where op = 'insert'").first()[0])
"""


@pytest.fixture
def busy() -> Iterator[float]:
    """Loops that fill the load up to 30; where others make it higher already, there are none."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(max(0, LOAD - round(os.getloadavg()[0])))]
    try:
        deadline = time.monotonic() + 120
        while os.getloadavg()[0] < LOAD - 2 and time.monotonic() < deadline:
            time.sleep(1)
        yield os.getloadavg()[0]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LONGEST)
def test_a_task_copies_and_follows(busy: float) -> None:
    command = [sys.executable, "-m", "pidts", "demo", "--seconds", "5"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(f"load {busy:.0f}\n{ran.stderr[-3000:]}{ran.stdout}")
    assert ran.returncode == 0
    assert "\n0 differences in " in ran.stdout


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(LONGEST)
def test_a_stream_in_somebodys_own_session_begins(mariadb: Server, run_sql, busy: float) -> None:
    run_sql(mariadb, "CREATE DATABASE busy")
    run_sql(mariadb, "CREATE TABLE busy.t (id INT PRIMARY KEY)")
    run_sql(mariadb, "INSERT INTO busy.t VALUES (1), (2), (3)")
    url = f"mysql://{mariadb.user}@{mariadb.host}:{mariadb.port}/"
    command = [sys.executable, "-c", STREAM, url]
    ran = subprocess.run(
        command, env={**os.environ, "MYSQL_PWD": mariadb.password}, capture_output=True, text=True, check=False
    )
    sys.stderr.write(f"load {busy:.0f}\n{ran.stderr[-3000:]}")
    assert ran.stdout.splitlines()[-1:] == ["rows 3"]
