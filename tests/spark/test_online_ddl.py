"""The real pt-online-schema-change alters tables of the source during a task, and the target gets each change once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.running import Progress

from pidts.sandbox import Server
from pidts.task.compare.wiring import compare_task
from pidts.task.config.task_file import load_task

from .altering import Altering
from .commands import Task
from .conftest import Background

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SETUP = """
CREATE TABLE {0}.orders (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20), note TEXT, n INT NOT NULL, KEY by_name (name));
CREATE TABLE {0}.other (id INT PRIMARY KEY, n INT NOT NULL);
INSERT INTO {0}.other VALUES (1, 0)
"""


@pytest.mark.parametrize(
    ("source_kind", "target_kind"),
    [("mariadb", "postgres"), pytest.param("mysql97", "mariadb", marks=pytest.mark.long)],
)
def test_a_table_is_altered_once_also_where_the_task_begins_in_the_middle(
    source_kind: str,
    target_kind: str,
    request: pytest.FixtureRequest,
    altering: Altering,
    make_task: Callable[..., Task],
    target_server: Callable[[str], Server],
    open_session: Callable[..., Any],
    eventually: Callable[..., None],
    background: type[Background],
    database: str,
) -> None:
    server = request.getfixturevalue(source_kind)
    session, writing = open_session(server), open_session(server).cursor()
    cursor = session.cursor()
    for statement in (f"CREATE DATABASE IF NOT EXISTS {database}", *SETUP.format(database).strip().split(";\n")):
        cursor.execute(statement)
    values = ", ".join(f"('name {n}', 'note', {n})" for n in range(400))
    cursor.execute(f"INSERT INTO {database}.orders (name, note, n) VALUES {values}")
    cursor.execute(f"ANALYZE TABLE {database}.orders")  # A table that looks small is one chunk.

    def write() -> None:
        """Writes to columns whose names no change affects."""
        writing.execute(f"UPDATE {database}.orders SET n = n + 1 WHERE id % 7 = 0")
        writing.execute(f"INSERT INTO {database}.orders (n) VALUES (0)")
        writing.execute(f"DELETE FROM {database}.orders WHERE id % 50 = 3 AND n < 100")
        writing.execute(f"UPDATE {database}.other SET n = n + 1")

    def is_altered() -> bool:
        about = f"table_schema = '{database}' AND table_name = '_orders_new' AND column_name = 'price'"
        cursor.execute(f"SELECT 1 FROM information_schema.columns WHERE {about}")
        return bool(cursor.fetchall())

    place, target = (server, database, "orders"), target_server(target_kind)
    # The tool copies eight chunks with a pause after each, so it has not ended before the test stops it.
    change = "ADD COLUMN price DECIMAL(10,2) NOT NULL DEFAULT 1.50 AFTER name, DROP KEY by_name"
    first = altering.start(place, change, "--sleep", "0.5")
    eventually(is_altered, 60, "the shadow is altered")
    first.send_signal(signal.SIGSTOP)
    task = make_task(server, target, [database])
    run, progress = task.start("--json"), Progress(open_session(target))
    with background(write, 0.02):
        run.wait_until(progress.is_copied, "all is copied")
        first.send_signal(signal.SIGCONT)
        altering.finish(first)
        altering.finish(
            altering.start(place, "CHANGE note remark TEXT, ADD COLUMN second INT NOT NULL DEFAULT 7 FIRST")
        )
        altering.finish(altering.start(place, "DROP COLUMN second, MODIFY n BIGINT NOT NULL"))
    run.wait_until(progress.has(session), "all changes are there")
    rows = run.summary()["rows"]
    assert rows["copied"] >= 401
    report = compare_task(load_task(task.path))
    assert report.differences == 0, report.examples
    assert {table.table.name for table in report.tables} == {"orders", "other"}

    there = open_session(target).cursor()
    there.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'")
    assert {name for (name,) in there.fetchall()} == {"orders", "other"}
    there.execute(f"SELECT * FROM {database}.orders LIMIT 1")
    # PostgreSQL adds new columns at the end.
    assert {about[0] for about in there.description} == {"id", "name", "price", "remark", "n"}
    there.execute("SELECT COUNT(*) FROM pidts_meta.shadow")
    assert there.fetchone()[0] == 0
    cursor.execute(f"DROP DATABASE {database}")
