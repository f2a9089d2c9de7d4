"""A copy continues while its source is written to, and is killed at critical points: it ends with the source's rows.

Sessions of the test hold locks on the target that stop the copy at a chosen point: a locked table prevents loading,
locked checkpoints prevent settling, and an open write prevents the creation of a key.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager

import pymysql
import pytest
from tests.running import Progress

HOLE = """
CREATE TABLE {0}.hole (id INT PRIMARY KEY, u INT NOT NULL, v VARCHAR(20), UNIQUE KEY u (u), KEY v (v));
INSERT INTO {0}.hole SELECT seq, -seq, CONCAT('v', seq) FROM seq_1_to_200
"""


def rows_of(session, sql: str) -> list[tuple]:
    cursor = session.cursor()
    cursor.execute(sql)
    return [tuple(row) for row in cursor.fetchall()]


@contextmanager
def in_transaction(session, *statements: str):
    """Runs the statements, and keeps their locks as long as the block lasts."""
    cursor = session.cursor()
    for statement in ("BEGIN", *statements):
        cursor.execute(statement)
    yield
    cursor.execute("ROLLBACK")


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_killed_while_loading_before_settling_and_while_finishing(
    mariadb, database, make_task, target_server, open_session
):
    """Row 7 is deleted between its reading and its writing, row 9 between its writing and a second reading."""
    server = target_server("postgres")
    source, watcher = open_session(mariadb), open_session(server)
    source.cursor().execute(f"USE {database}")
    for statement in HOLE.strip().split(";\n"):
        source.cursor().execute(statement.format(database))
    watcher.execute(f"CREATE SCHEMA {database}")
    watcher.execute(f"CREATE TABLE {database}.hole (id INT PRIMARY KEY, u INT NOT NULL, v VARCHAR(20))")
    locks, table = open_session(server), f"{database}.hole"
    # This record says that the task has created the table. So the task creates the table's keys after the rows are
    # copied.
    watcher.execute("CREATE SCHEMA pidts_meta")
    watcher.execute("CREATE TABLE pidts_meta.unfinished (relation oid PRIMARY KEY)")
    watcher.execute(f"INSERT INTO pidts_meta.unfinished VALUES ('{table}'::regclass)")
    progress = Progress(open_session(server))

    def ids() -> set[int]:
        return {row[0] for row in rows_of(watcher, f"SELECT id FROM {table}")}

    def waiting(*words: str) -> set[int]:
        sql = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE ANY(%s)"
        return {pid for (pid,) in watcher.execute(sql, [[f"%{word}%hole%" for word in words]]).fetchall()}

    def loading() -> set[int]:
        return waiting("COPY", "INSERT")

    task = make_task(mariadb, server, [database])
    with in_transaction(locks, f"LOCK TABLE {table} IN SHARE MODE"):
        run = task.start()
        run.wait_until(lambda: loading() != set(), "a chunk is being loaded")
        before = loading()
        for pid in run.workers():
            os.kill(pid, signal.SIGKILL)
        run.wait_until(lambda: loading() - before != set(), "another task loads it")
        source.cursor().execute(f"DELETE FROM {table} WHERE id = 7")
        settling = open_session(server)
        settling.execute("BEGIN")
        settling.execute("SELECT * FROM pidts_meta.checkpoint FOR SHARE")
    run.wait_until(lambda: 7 in ids(), "the chunk is loaded, with the row that is gone")
    source.cursor().execute(f"DELETE FROM {table} WHERE id = 9")
    source.cursor().execute(f"UPDATE {table} SET id = 1000 WHERE id = 11")
    source.cursor().execute(
        f"UPDATE {table} SET u = CASE id WHEN 12 THEN -13 ELSE 0 END WHERE id IN (12, 13) ORDER BY id DESC"
    )
    assert {7, 9} < ids()
    run.kill()
    settling.execute("ROLLBACK")

    with in_transaction(locks, f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE"):
        run = task.start()
        run.wait_until(lambda: waiting("INDEX") != set(), "a key is being made")
        assert not {7, 9, 11} & ids()
        assert not progress.is_copied()
        run.kill()
    run = task.start()
    run.wait_until(progress.is_copied, "all is copied")
    run.wait_until(progress.has(source), "all changes are there")
    assert run.stop() == 0
    query = f"SELECT * FROM {table} ORDER BY id"
    assert rows_of(watcher, query) == rows_of(source, query)
    made = rows_of(watcher, f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{database}' ORDER BY 1")
    assert [("UNIQUE" in text, "(" + text.rpartition("(")[2]) for (text,) in made] == [
        (False, "(v)"),
        (True, "(id)"),
        (True, "(u)"),
    ]


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=pytest.mark.long)])
def test_killed_when_only_some_chunks_of_a_request_are_loaded(
    kind, mariadb, database, make_task, target_server, open_session
):
    """The driver's threads load the other chunks while one chunk waits for a lock. Then rows of all chunks change."""
    server = target_server(kind)
    source, watcher, locks = open_session(mariadb), open_session(server), open_session(server)
    table = f"{database}.many"
    source.cursor().execute(f"USE {database}")
    source.cursor().execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)")
    source.cursor().execute(f"INSERT INTO {table} SELECT seq, CONCAT('v', seq) FROM seq_1_to_40000")
    for statement in (
        f"CREATE SCHEMA {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)",
    ):
        watcher.cursor().execute(statement)
    progress, count = Progress(open_session(server)), f"SELECT COUNT(*), MAX(id) FROM {table} WHERE id <> 35000"
    task = make_task(mariadb, server, [database], pidts={"chunk-rows": 1000})
    with in_transaction(locks, f"INSERT INTO {table} VALUES (35000, 'mine')"):
        run = task.start()
        # The first chunk has 1,000 rows, and each chunk of the next request has eight times as many.
        run.wait_until(lambda: rows_of(watcher, count) == [(33000, 33000)], "all other chunks are loaded")
        for change in (
            "DELETE FROM {} WHERE id IN (7, 20000, 36000)",
            "UPDATE {} SET v = 'new' WHERE id IN (8, 20001, 36001)",
            "UPDATE {} SET id = id + 100000 WHERE id IN (9, 20002, 36002)",
        ):
            source.cursor().execute(change.format(table))
        assert not progress.is_copied()
        run.kill()
    run = task.start()
    run.wait_until(progress.is_copied, "all is copied")
    run.wait_until(progress.has(source), "all changes are there")
    assert run.jvm() == []
    assert run.stop() == 0
    query = f"SELECT * FROM {table} ORDER BY id"
    assert rows_of(watcher, query) == rows_of(source, query)


TABLES = {
    "numbers": "id INT UNSIGNED PRIMARY KEY, u INT UNIQUE, v VARCHAR(30), n INT NOT NULL",
    "names": "k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n INT NOT NULL",
    "three": "a INT, b DECIMAL(10,2), c DATETIME(3), v TEXT, n INT NOT NULL, PRIMARY KEY (a, b, c)",
    "bytes": "k BINARY(8) PRIMARY KEY, e ENUM('x', 'ä', 'zz') NOT NULL, n INT NOT NULL",
    "loose": "a INT, v VARCHAR(20), n INT NOT NULL",
}
FILL = {
    "numbers": "seq * 1000, seq, CONCAT('v', seq), 0",
    "names": "CONCAT(CHAR(97 + seq % 26 USING utf8mb4), IF(seq % 3, 'É', 'ß'), seq), 0",
    "three": "seq % 7, seq / 4, '2020-01-01' + INTERVAL seq MINUTE, REPEAT('t', seq % 50), 0",
    "bytes": "UNHEX(LPAD(HEX(seq * 7919), 16, '0')), 1 + seq % 3, 0",
    "loose": "seq % 100, 'twice', 0",
}
ROWS = {"numbers": 12_000, "names": 3000, "three": 3000, "bytes": 2000, "loose": 1500}


class Writer:
    """Changes everything all the time: changes values and keys, swaps unique values, inserts and deletes rows."""

    def __init__(self, session, schema: str) -> None:
        self.cursor, self.schema, self.chance = session.cursor(), schema, random.Random(5)
        self.cursor.execute(f"USE {schema}")
        self.round = 0
        self.pause = 0.005

    def work(self) -> None:
        """Makes one transaction, unless a table is being altered or renamed."""
        try:
            self.change()
        except pymysql.Error as error:
            if error.args[0] not in {1146, 1205, 1213, 1412}:
                raise
            self.cursor.execute("ROLLBACK")
        time.sleep(self.pause)

    def change(self) -> None:
        self.round += 1
        chance, number = self.chance, self.round
        one, two = (chance.randrange(1, ROWS["numbers"]) * 1000 for _ in range(2))
        run = self.cursor.execute
        run("BEGIN")
        run(f"UPDATE numbers SET n = n + 1, v = 'changed' WHERE id BETWEEN {one} AND {one + 3000}")
        run(f"UPDATE numbers SET id = id + {number % 999} WHERE id = {two}")
        run(f"SELECT id, u FROM numbers WHERE u IS NOT NULL AND id >= {one} LIMIT 2")
        pair = self.cursor.fetchall()
        if len(pair) == 2:
            (a, u), (b, w) = pair
            run(f"UPDATE numbers SET u = NULL WHERE id = {a}")
            run(f"UPDATE numbers SET u = {u} WHERE id = {b}")
            run(f"UPDATE numbers SET u = {w} WHERE id = {a}")
        if number < 1000:
            run(f"UPDATE numbers SET id = {number} WHERE id < {10**8} ORDER BY id DESC LIMIT 1")
        run(f"DELETE FROM numbers WHERE id BETWEEN {two + 1000} AND {two + 2000}")
        run(f"INSERT INTO numbers (id, u, v, n) VALUES ({10**9 - number}, {10**8 + number}, 'new', 1)")
        run(
            f"UPDATE names SET k = CONCAT(LEFT(k, 20), '!{number}!', n), n = n + 1 WHERE k LIKE '{chance.choice('abcxyz')}%' ORDER BY k LIMIT 2"
        )
        run(f"DELETE FROM names WHERE k > '{chance.choice('abcdnopq')}' LIMIT 1")
        run(f"INSERT INTO names VALUES ('{chance.choice('amz')}New{number}', {number})")
        run(f"UPDATE three SET b = b + 0.01, n = n + 1 WHERE a = {number % 7} ORDER BY b DESC LIMIT 2")
        run(f"DELETE FROM three WHERE a = {number % 7} ORDER BY b LIMIT 1")
        run(f"UPDATE bytes SET e = 'zz', n = n + 1 WHERE k > UNHEX('{chance.randrange(2**24):016x}') LIMIT 2")
        run("UPDATE loose SET n = n + 1, v = 'once' WHERE n = 0 LIMIT 2")
        run(f"DELETE FROM loose WHERE a = {number % 100} LIMIT 1")
        run(f"INSERT INTO loose VALUES ({number}, 'new', 7)")
        run("COMMIT" if number % 9 else "ROLLBACK")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("source_kind", "target_kind", "image", "workers"),
    [
        ("mariadb", "postgres", "FULL", 2),
        ("mysql97", "mariadb", "FULL", 2),
        ("mariadb", "postgres", "MINIMAL", 1),
        ("mariadb", "mysql97", "MINIMAL", 1),
    ],
)
def test_equal_after_a_copy_under_full_write_load(
    source_kind, target_kind, image, workers, request, database, make_task, target_server, open_session, background
):
    """With MINIMAL images, the values of many rows at their new keys are unknown, so these keys are read again."""
    origin = request.getfixturevalue(source_kind)
    source = open_session(origin)
    cursor = source.cursor()
    cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
    cursor.execute(f"USE {database}")
    deep = "cte_max_recursion_depth" if source_kind == "mysql97" else "max_recursive_iterations"
    cursor.execute(f"SET SESSION {deep} = 100000")
    for name, columns in TABLES.items():
        cursor.execute(f"CREATE TABLE {name} ({columns}) CHARACTER SET utf8mb4")
        seq = f"WITH RECURSIVE s AS (SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM s WHERE seq < {ROWS[name]})"
        cursor.execute(f"INSERT INTO {name} {seq} SELECT {FILL[name]} FROM s")
    server = target_server(target_kind)
    target, progress = open_session(server), Progress(open_session(server))
    task = make_task(origin, server, [database], pidts={"chunk-rows": 600}, workers=workers)
    writer = Writer(open_session(origin), database)
    writer.cursor.execute(f"SET SESSION binlog_row_image = {image}")
    recorded = f"SELECT 1 FROM pidts_meta.reread WHERE table_schema = '{database}' LIMIT 1"
    with background(writer.work):
        run = task.start()
        run.wait_until(lambda: copied(progress) > 0, "the copy has begun")
        cursor.execute("ALTER TABLE numbers ADD COLUMN late VARCHAR(9) NOT NULL DEFAULT 'late' AFTER u")
        cursor.execute("ALTER TABLE three DROP PRIMARY KEY, ADD PRIMARY KEY (c, a, b)")
        before = copied(progress)
        run.wait_until(lambda: copied(progress) > before, "it goes on")
        cursor.execute("ALTER TABLE names ADD KEY n (n), RENAME TO titles")
        cursor.execute("RENAME TABLE titles TO names")
        if image == "MINIMAL":
            run.wait_until(lambda: rows_of(target, recorded), "a key is recorded")
        run.wait_until(progress.is_copied, "all is copied")
        writer.pause = 0.05
    run.wait_until(progress.has(source), "all changes are there")
    assert run.stop() == 0
    assert not rows_of(target, recorded)
    for name in TABLES:
        cursor.execute(f"SHOW COLUMNS FROM {name}")
        columns = ", ".join(row[0] for row in cursor.fetchall())
        query = f"SELECT {columns} FROM {database}.{name}"
        assert sorted(map(repr, rows_of(target, query))) == sorted(map(repr, rows_of(source, query))), name
    cursor.execute(f"DROP DATABASE {database}")


def copied(progress: Progress) -> int:
    return sum(state.rows for one in progress.states()[:1] for state in one.copy.values())
