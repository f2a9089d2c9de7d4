"""A task begins at a given position, and the target already has the changes after this position."""

from __future__ import annotations

import pytest

from pidts.task.compare.wiring import compare_task
from pidts.task.config.task_file import load_task

ITEM = """CREATE TABLE {}.item (id INT PRIMARY KEY, name VARCHAR(20), body TEXT, u INT UNIQUE,
    update_time TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))"""
PLAIN = "CREATE TABLE {}.plain (id INT PRIMARY KEY, n INT DEFAULT 4, body TEXT, u INT UNIQUE)"
CHANGES = """
SET SESSION binlog_row_image = NOBLOB
INSERT INTO {0}.item (id, name, body, u) VALUES (1, 'a', 'long', 1), (2, 'b', NULL, 2), (3, 'c', 'x', 3)
UPDATE {0}.item SET name = 'aa' WHERE id = 1
UPDATE {0}.item SET u = 9 WHERE id = 1
INSERT INTO {0}.item (id, name, u) VALUES (4, 'd', 1)
DELETE FROM {0}.item WHERE id = 3
UPDATE {0}.item SET body = 'new', id = 20 WHERE id = 2
SET SESSION binlog_row_image = MINIMAL
INSERT INTO {0}.plain (id, u) VALUES (1, 1), (2, 2)
UPDATE {0}.plain SET body = 'b' WHERE id = 1
UPDATE {0}.plain SET u = 7 WHERE id = 1
INSERT INTO {0}.plain (id, n, u) VALUES (50, 5, 1)
UPDATE {0}.plain SET n = n + 1
"""
LATER = """
SET SESSION binlog_row_image = NOBLOB
UPDATE {0}.item SET name = 'later' WHERE id = 4
SET SESSION binlog_row_image = MINIMAL
UPDATE {0}.plain SET n = n * 2 WHERE id > 1
"""


def run(cursor, database, statements):
    for statement in statements.strip().splitlines():
        cursor.execute(statement.format(database))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("target_kind", ["mariadb"])
def test_a_range_that_the_target_has_seen_already_is_written_again_and_changes_nothing(
    target_kind, mariadb, database, make_task, target_server, open_session
):
    cursor = open_session(mariadb).cursor()
    target = target_server(target_kind)
    other = open_session(target).cursor()
    other.execute(f"CREATE DATABASE {database}")
    other.execute("SET time_zone = '+00:00'")
    cursor.execute("SET time_zone = '+00:00'")
    for statement in (ITEM, PLAIN):
        cursor.execute(statement.format(database))
        other.execute(statement.format(database))
    cursor.execute("SHOW MASTER STATUS")
    file, position = cursor.fetchone()[:2]
    run(cursor, database, CHANGES)
    for table in ("item", "plain"):
        cursor.execute(f"SELECT * FROM {database}.{table}")
        rows = cursor.fetchall()
        other.executemany(f"INSERT INTO {database}.{table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
    run(cursor, database, LATER)

    task = make_task(
        mariadb,
        target,
        [database],
        pidts={"version-column": "update_time"},
        **{"task-mode": "incremental"},
        meta={"binlog-name": file, "binlog-pos": position},
    )
    done = task.sync()
    report = compare_task(load_task(task.path))
    assert report.differences == 0, report.examples
    assert done["rows"]["stale"] >= 4
    other.execute("SELECT COUNT(*) FROM pidts_meta.safe_range")
    assert other.fetchone()[0] == 1
