"""Several tables of a source land in one: the target has the rows of all of them, while they are copied and written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pidts.sandbox import Server

from .conftest import Progress, Task

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]
SHARDS = ("orders_1", "orders_2", "orders_3")


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_target_has_the_rows_of_all_shards(
    kind: str,
    make_task: Callable[..., Task],
    mariadb: Server,
    target_server: Callable[[str], Server],
    database: str,
    run_sql: RunSql,
    open_session: Callable[..., Any],
    background: Any,
) -> None:
    target, lands = target_server(kind), f"{database}_all"
    source = open_session(mariadb).cursor()
    source.execute(f"USE {database}")
    for number, shard in enumerate(SHARDS):
        source.execute(f"CREATE TABLE {shard} (id INT PRIMARY KEY, state VARCHAR(10), amount INT)")
        source.execute(f"INSERT INTO {shard} SELECT seq * 10 + {number}, 'new', seq FROM seq_1_to_3000")
    task = make_task(
        mariadb,
        target,
        [database],
        pidts={"chunk-rows": 500},
        instance={"route-rules": ["orders"]},
        routes={
            "orders": {
                "schema-pattern": database,
                "table-pattern": "orders_*",
                "target-schema": lands,
                "target-table": "orders",
                "extract-table": {"table-regexp": "orders_(.*)", "target-column": "shard"},
            }
        },
    )
    turn = 0

    def write() -> None:
        """Rows change, come, go again at once, and move from one table to the next, there first."""
        nonlocal turn
        turn += 1
        here, there = SHARDS[turn % 3], SHARDS[(turn + 1) % 3]
        number = (turn * 7) % 3000 + 1
        source.execute(f"UPDATE {here} SET amount = amount + 1 WHERE id BETWEEN {number} AND {number + 200}")
        source.execute(f"INSERT INTO {here} VALUES ({50000 + turn * 10}, 'brief', 0)")
        source.execute(f"DELETE FROM {here} WHERE id = {50000 + turn * 10}")
        source.execute("BEGIN")
        source.execute(f"INSERT IGNORE INTO {there} SELECT * FROM {here} WHERE id > {number} ORDER BY id LIMIT 3")
        source.execute(f"DELETE FROM {here} WHERE id > {number} ORDER BY id LIMIT 3")
        source.execute("COMMIT")

    run = task.start()
    progress = Progress(open_session(target))
    with background(write, pause=0.02):
        run.wait_until(progress.is_copied, "all is copied")
        before = turn
        run.wait_until(lambda: turn > before + 20, "there are changes behind the copy")
    expected = {
        shard: run_sql(mariadb, f"SELECT * FROM {shard}", database=database) for shard in ("orders_2", "orders_3")
    }
    for statement in (
        "CREATE TABLE orders_4 (id INT PRIMARY KEY, state VARCHAR(10), amount INT)",
        "INSERT INTO orders_4 VALUES (7, 'late', 1)",
        "TRUNCATE TABLE orders_3",  # its rows stay, and so do those of a table that goes
        "DROP TABLE orders_2",
    ):
        source.execute(statement)
    assert run.stop() == 0, task.logs()
    task.sync()
    for shard in ("orders_1", "orders_4"):
        expected[shard] = run_sql(mariadb, f"SELECT * FROM {shard}", database=database)
    wanted = sorted((*row, shard.removeprefix("orders_")) for shard, rows in expected.items() for row in rows)
    assert sorted(run_sql(target, f"SELECT id, state, amount, shard FROM {lands}.orders")) == wanted
