"""On a machine with far more work than it can do, a task and a stream in a user's own session are slow, but they work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.busy import LONGEST, busy_machine

from pidts.sandbox import Server

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
    with busy_machine() as load:
        yield load


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
def test_a_stream_in_a_users_own_session_begins(mariadb: Server, run_sql, busy: float) -> None:
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
