"""Rows of XA transactions that were prepared before the task's relay begins are not lost."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.conftest import RunSql
from tests.running import connect
from tests.spark.commands import Task

from pidts.relay.task_needs import TaskNeed
from pidts.replicate import read_status
from pidts.sandbox import Server

ROWS = "SELECT id, v FROM {}.t ORDER BY id"


@contextmanager
def prepared(server: Server, database: str, xid: str, row: int) -> Iterator[Callable[[], object]]:
    """Prepares an XA transaction that inserts a row. Yields a function that commits it."""
    with connect(server) as session, session.cursor() as cursor:
        cursor.execute(f"XA START {xid}")
        cursor.execute(f"INSERT INTO {database}.t VALUES ({row}, {row})")
        cursor.execute(f"XA END {xid}")
        cursor.execute(f"XA PREPARE {xid}")
        yield lambda: cursor.execute(f"XA COMMIT {xid}")


def connects(task: Task, since: float) -> bool:
    """Whether a replicator has been connected to the source since this time."""
    status = read_status(task.path.parent / "relay", "one") or {}
    return bool(status.get("connected")) and float(status["time"]) >= since


def test_a_transaction_that_was_prepared_before_the_relay_begins(
    database: str, mariadb: Server, postgres: Server, make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    source = mariadb
    run_sql(source, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    run_sql(source, "INSERT INTO t VALUES (1, 1)", database=database)
    task = make_task(source, postgres, [database], database=database)

    def are_equal() -> bool:
        rows = ROWS.format(database)
        return run_sql(postgres, rows, database=database) == run_sql(source, rows)

    with prepared(source, database, "X'00ff', 'first'", 2) as commit:
        task.sync()
        assert are_equal()
        commit()
    task.sync()
    assert are_equal()
    # The relay that replaces a lost one begins at the checkpoint, after the PREPARE. So it begins again, before it.
    with prepared(source, database, "'second'", 3) as commit:
        run_sql(source, "INSERT INTO t VALUES (4, 4)", database=database)
        task.sync()
        shutil.rmtree(task.path.parent / "relay")
        commit()
        run_sql(source, "INSERT INTO t VALUES (5, 5)", database=database)
    task.sync()
    assert are_equal()

    def is_copied_again() -> bool:
        """Whether the run halts and names the remedy, which makes the tables equal."""
        run = task.start("--until-synced", "--json")
        assert run.process.wait(120) == 5, task.logs()
        error = json.loads(run.log.read_text().splitlines()[-1])["error"]
        assert error["code"] == "xa-not-received", error
        assert "the relay begins anew" not in run.log.read_text()
        assert "pidts run" in error["todo"]
        assert "--resync" in error["todo"]
        run = task.start("--until-synced", "--resync")
        assert run.process.wait(120) == 0, task.logs()
        return are_equal()

    with prepared(source, database, "'third'", 6) as commit:
        run_sql(source, "INSERT INTO t VALUES (7, 7)", database=database)
        task.sync()
        shutil.rmtree(task.path.parent / "relay")
        task.sync()
        began = time.time()
        receiving = task.start(command="replicate")
        receiving.wait_until(lambda: connects(task, began), "the replicator receives the log")
        commit()
    # Another process writes the relay, so it cannot be emptied.
    assert is_copied_again()
    assert receiving.stop() == 0
    with prepared(source, database, "'fourth'", 8) as commit:
        run_sql(source, "INSERT INTO t VALUES (9, 9)", database=database)
        task.sync()
        shutil.rmtree(task.path.parent / "relay")
        commit()
    # Another task needs the relay, so it cannot be emptied.
    TaskNeed(task.path.parent / "relay", "one", "other").begin()
    assert is_copied_again()
