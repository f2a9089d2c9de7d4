"""The work of a job arrives complete at an executor, a process with another environment, folder and memory than the
driver.

`test_cluster.py` runs whole tasks on a cluster, in the long tier.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pyspark.serializers import CloudPickleSerializer
from tests.apply.table_history import PLAIN, batch_of
from tests.apply.table_history import Change as RowChange
from tests.target.conformance.samples import create

from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.pointers import Pointer
from pidts.batch.workers import Commit, Workers
from pidts.login import Mode, Tls
from pidts.model import Checkpoint, Lsn, Op, TableName
from pidts.reduce import buckets
from pidts.sandbox import Server
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark.job import _applying, _blob_rows, _decoding
from pidts.spark.master import is_local
from pidts.target import PostgresTarget

WORKERS = 2
EXECUTOR = """
import json, sys
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
decoding, applying, pointer, blobs = CloudPickleSerializer().loads(open(sys.argv[1], "rb").read())
decoded = list(decoding(iter([pa.RecordBatch.from_pydict({"pointer": [pointer]})])))
for found in applying(iter([*decoded, blobs])):
    print(json.dumps(found.to_pylist()))
"""


def row(key: int, a: int) -> dict[str, object]:
    return {"id": key, "a": a, "b": f"text {key}", "u": None}


CHANGES: list[RowChange] = [
    *((Op.INSERT, None, row(key, 1)) for key in range(20)),
    *((Op.UPDATE, row(key, 1), row(key, 2)) for key in range(0, 20, 3)),
    *((Op.DELETE, row(key, 1), None) for key in (1, 7, 10)),
]
END = Lsn(0, 1, 900)


def test_a_process_without_anything_of_the_driver_applies_a_batch(
    postgres: Server, database: str, tmp_path: Path
) -> None:
    table = replace(PLAIN, name=TableName("cluster", "cart"))
    target = PostgresTarget(
        host=postgres.host,
        port=postgres.port,
        user=postgres.user,
        password=postgres.password,
        database=database,
        tls=Tls(Mode.DISABLED),
    )
    with closing(target.connect()) as session:
        session.meta.prepare()
        create(session, table)
        first = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4))
        workers, state, _ = Workers.claimed(tuple(session.meta.checkpoints.claim("t", "s", WORKERS, first)))
    context = JobContext(
        task="t",
        source=SourceConfig("127.0.0.1", 1, source_id="s"),
        relay=tmp_path,
        staging=tmp_path / "staging",
        target=target,
        workers=WORKERS,
        epoch=workers.checkpoints[0].epoch,
        change_no=0,
        structures={table.name: table},
        dialect=Dialect(),
        charsets={},
    )
    commit = Commit(workers.checkpoints, workers.moved(replace(state, lsn=END)).checkpoints)
    parts = buckets(batch_of(table, CHANGES), WORKERS)
    assert None not in parts, "each worker has changes"
    blobs = [Blob(worker, Blob.first_order(0), part) for worker, part in enumerate(parts) if part is not None]
    shuffled = _blob_rows([(blob.worker, blob.order, blob.pack()) for blob in blobs])
    sent = tmp_path / "sent"
    work = (_decoding(context), _applying(context, commit), Pointer().to_json(), shuffled)
    sent.write_bytes(CloudPickleSerializer().dumps(work))
    done = subprocess.run(
        [sys.executable, "-c", EXECUTOR, str(sent)], capture_output=True, text=True, cwd="/", env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [one for line in done.stdout.splitlines() for one in json.loads(line)]
    assert [(one["worker"], one["error"]) for one in results] == [(0, ""), (1, "")]
    counts = [json.loads(one["counts"]) for one in results]
    assert [sum(each[kind] for each in counts) for kind in ("inserted", "updated", "deleted")] == [20, 7, 3]
    with closing(target.connect()) as session:
        rows = session.read_rows(table).sort_by("id").to_pylist()
        stored = session.meta.checkpoints.read("t", "s")
    assert rows == [row(key, 2 if key % 3 == 0 else 1) for key in range(20) if key not in (1, 7, 10)]
    assert [one.lsn for one in stored] == [END, END]


def test_the_master_says_whether_executors_run_elsewhere() -> None:
    """On other machines, executors start the Python interpreter itself. The launcher that a local session starts
    instead is only on the driver's machine.
    """
    assert [is_local(master) for master in ("local", "local[2]", "local[*,4]")] == [True] * 3
    assert [is_local(master) for master in ("spark://a:7077", "yarn", "k8s://https://a")] == [False] * 3
