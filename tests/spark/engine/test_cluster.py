"""The jobs of a task run on a Spark standalone cluster: one master and one or two workers, all on loopback.

`test_executor_code.py` shows, without a cluster, that the work of a job arrives complete at another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.running import Progress
from tests.spark.standalone_cluster import FOR_A_SHORT_LIFE, Cluster, standalone_cluster

ROWS = 20_000


@pytest.fixture
def cluster(tmp_path: Path, workers: int) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path, workers) as started:
        yield started


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_cluster_copies_and_follows_like_a_local_master(
    workers, cluster, mariadb, database, make_task, target_server, open_session
):
    source = open_session(mariadb)
    cursor = source.cursor()
    cursor.execute(f"USE {database}")
    cursor.execute(f"CREATE TABLE {database}.item (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(9,2))")
    cursor.execute(f"INSERT INTO {database}.item SELECT seq, CONCAT('item ', seq), seq / 4 FROM seq_1_to_{ROWS}")
    target = target_server("postgres")
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(workers),
        "spark.executor.extraJavaOptions": FOR_A_SHORT_LIFE,
    }
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
    assert cluster.executors() == {f"worker-{number}" for number in range(1, workers + 1)}
