"""The change table of merged shards has each change exactly once, even if the log has partial row images and several
workers write.

`tests/apply/merge/test_logged_changes.py` shows the same for the changes that the target session is given.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.target.hive.conftest import HiveTask, RunSql

from pidts.sandbox import Server

pytest.importorskip("pyiceberg")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 300
MERGED = """\
routes:
  merged: {{schema-pattern: {database}, table-pattern: "orders_*", target-schema: {database}, target-table: orders}}
syncers: {{all: {{worker-count: 3}}}}
"""


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql) -> Iterator[HiveTask]:
    made = HiveTask(mariadb, tmp_path, run_sql)
    text = made.file.read_text()
    of_source = "    block-allow-list: ours\n"
    text = text.replace(of_source, f"{of_source}    route-rules: [merged]\n    syncer-config-name: all\n")
    made.file.write_text(text + MERGED.format(database=made.database))
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def changes(task: HiveTask) -> list[dict[str, Any]]:
    """Returns what a reader of the published files finds, in log order."""
    folder = task.warehouse / "hive-changes" / "pidts_meta" / task.database / "orders_changes"
    rows = [row for path in folder.rglob("[!.]*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: (row["pidts_lsn"], row["pidts_op"]))


def test_each_change_of_the_shards_is_there_once(task: HiveTask, in_one_session: Callable[..., None]) -> None:
    for shard, offset in ((1, 0), (2, 100_000)):
        task.sql(f"CREATE TABLE orders_{shard} (id INT PRIMARY KEY, v INT, note VARCHAR(20) NOT NULL DEFAULT '')")
        task.sql(f"INSERT INTO orders_{shard} SELECT seq + {offset}, 0, 'old' FROM seq_1_to_{ROWS}")
    task.run()
    assert changes(task) == [], "what a copy reads is no change"
    plan = json.loads(task.pidts("plan", "--json").stdout)
    assert {
        f"all changes are published in {task.database}.orders_changes" in "".join(each["notes"])
        for each in plan["tables"]
    } == {True}
    for shard, offset in ((1, 0), (2, 100_000)):
        in_one_session(
            task.server,
            task.database,
            "SET SESSION binlog_row_image = 'MINIMAL'",
            f"UPDATE orders_{shard} SET v = id + 1 WHERE id <= {offset + 200}",
            f"UPDATE orders_{shard} SET v = v + 1 WHERE id <= {offset + 100}",
            f"DELETE FROM orders_{shard} WHERE id > {offset + 250}",
            f"INSERT INTO orders_{shard} SELECT seq + {offset}, seq, 'new' FROM seq_{ROWS + 1}_to_{ROWS + 50}",
        )
    task.run()
    found = changes(task)
    expected = Counter[tuple[str, str, int, int | None]]()
    for shard, offset in ((1, 0), (2, 100_000)):
        of = f"{task.database}.orders_{shard}"
        expected.update(("update_to", of, offset + n, offset + n + 1) for n in range(1, 201))
        expected.update(("update_to", of, offset + n, offset + n + 2) for n in range(1, 101))
        expected.update(("insert", of, offset + n, n) for n in range(ROWS + 1, ROWS + 51))
    seen = [(row["pidts_op"], row["pidts_table"], row["id"], row["v"]) for row in found]
    assert Counter(each for each in seen if each[0] in ("update_to", "insert")) == expected
    removed = Counter(each[1:3] for each in seen if each[0] == "delete")
    assert removed == Counter(
        (f"{task.database}.orders_{s}", o + n) for s, o in ((1, 0), (2, 100_000)) for n in range(251, 301)
    )
    assert Counter(each[2] for each in seen if each[0] == "update_from") == Counter(
        each[2] for each in seen if each[0] == "update_to"
    )
    assert {row["note"] for row in found if row["pidts_op"] == "update_to"} == {"old"}
    assert {row["note"] for row in found if row["pidts_op"] == "insert"} == {"new"}
    assert len(found) == 2 * (2 * 300 + 50 + 50)
