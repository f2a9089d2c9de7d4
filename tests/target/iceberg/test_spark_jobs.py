"""Two workers write to a warehouse in jobs of a Spark cluster: first the copy, then changes. A run is killed in
between.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.standalone_cluster import FOR_A_SHORT_LIFE, Cluster, standalone_cluster
from tests.target.iceberg.test_warehouse import SECONDS, RunSql, WarehouseTask, equal

from pidts.sandbox import Server

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 6000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path) as started:
        yield started


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql, cluster: Cluster) -> Iterator[WarehouseTask]:
    made = WarehouseTask(mariadb, tmp_path, run_sql)
    text = made.file.read_text().replace(
        "    block-allow-list: ours\n", "    block-allow-list: ours\n    syncer-config-name: two\n"
    )
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.executor.extraJavaOptions": FOR_A_SHORT_LIFE,
    }
    made.file.write_text(
        f"{text}syncers: {{two: {{worker-count: 2}}}}\n"
        f"pidts: {{chunk-rows: 2000, spark: {{master: '{cluster.url}', direct-rows: 0, conf: {conf}}}}}\n"
    )
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def test_a_cluster_copies_and_follows_and_a_killed_run_continues(task: WarehouseTask, cluster: Cluster) -> None:
    task.sql("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(9,2))")
    task.sql(f"INSERT INTO item SELECT seq, CONCAT('item ', seq), seq / 4 FROM seq_1_to_{ROWS}")
    run = task.start()
    until = time.monotonic() + SECONDS
    while not task.has("item", ROWS):
        assert time.monotonic() < until, (task.folder / "log").read_text()[-3000:]
        time.sleep(0.2)
    task.sql("UPDATE item SET price = price + 1 WHERE id % 3 = 0")
    task.sql("UPDATE item SET id = id + 100000 WHERE id % 11 = 0")
    time.sleep(1)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    task.sql("DELETE FROM item WHERE id % 7 = 0")
    task.run()
    assert equal(task, "item")
    assert task.verified()["equal"]
    assert cluster.executors()
    shown = task.pidts("status")
    assert shown.returncode == 0, shown.stderr[-2000:]
