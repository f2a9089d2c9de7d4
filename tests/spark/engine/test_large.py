"""A transaction larger than memory is applied in limited memory, completely or not at all, whatever process is killed.

The driver applies it; with `direct-rows: 0`, a Spark job does.

With `split-transactions` it is applied in parts. If a process is killed between two parts, no row is lost or doubled.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.running import Progress

WIDE, WIDE_ROWS = 30 * 32, 100_000
"""The bytes of a row, and the number of rows. Together, the rows are 100 MB of log, and as much in Arrow."""
MEGABYTE = 1 << 20


def peak(pid: int) -> int:
    """Returns the most memory that a process has used."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def busiest(pids: list[int]) -> int:
    def time_used(pid: int) -> int:
        try:
            return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            return -1

    return max(pids, key=time_used)


def sums(session, schema):
    """Returns sums that are the same on any server."""
    cursor = session.cursor()
    cursor.execute(f"SELECT COUNT(*), SUM(id), SUM(n), SUM(LENGTH(v)), MIN(v), MAX(v) FROM {schema}.wide")
    (row,) = cursor.fetchall()
    cursor.execute(f"SELECT v FROM {schema}.wide WHERE id % 9973 = 7 ORDER BY id")
    return [*map(str, row), list(map(tuple, cursor.fetchall()))]


def started_with_wide_table(source, database, task, progress):
    """Creates the empty table `wide`, starts a run of the task, and returns the run after it has copied the table."""
    source.execute(f"USE {database}")
    source.execute(f"CREATE TABLE wide (id INT PRIMARY KEY, n INT NOT NULL, v VARCHAR({WIDE}) NOT NULL)")
    run = task.start()
    run.wait_until(progress.is_copied, "the empty table is copied")
    return run


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("target_kind", "workers", "victim"), [("postgres", 1, "worker")])
def test_a_large_transaction_is_applied_completely_or_not_at_all(
    target_kind, workers, victim, mariadb, database, make_task, target_server, open_session
):
    server = target_server(target_kind)
    session = open_session(mariadb)
    source = session.cursor()
    task = make_task(mariadb, server, [database], workers=workers, spark={"direct-rows": 0})
    progress, reader = Progress(open_session(server)), open_session(server).cursor()
    run = started_with_wide_table(source, database, task, progress)
    source.execute(f"INSERT INTO wide SELECT seq, seq % 1000, REPEAT(MD5(seq), 30) FROM seq_1_to_{WIDE_ROWS}")
    is_there = progress.has(session)
    peaks: dict[str, int] = {}
    some = f"SELECT COUNT(*) FROM {database}.wide WHERE id IN (1, 2, {WIDE_ROWS // 2}, {WIDE_ROWS - 1}, {WIDE_ROWS})"
    killed = False
    deadline = time.monotonic() + 300
    while not is_there():
        assert time.monotonic() < deadline, task.logs()
        assert run.process.poll() is None, task.logs()
        for what, pids in {"driver": [run.process.pid], "jvm": run.jvm(), "worker": run.workers()}.items():
            peaks[what] = max(peaks.get(what, 0), *map(peak, pids), 0)
        # A worker with so much memory has loaded numba, and decodes or writes.
        if peaks["worker"] > 320 * MEGABYTE and not killed:
            time.sleep(1)
            os.kill(busiest(run.workers()) if victim == "worker" else run.jvm()[0], signal.SIGKILL)
            killed = True
        if workers == 1:
            reader.execute(some)
            assert reader.fetchone()[0] in {0, 5}
        time.sleep(0.1)
    assert killed
    assert run.stop() == 0
    assert sums(open_session(server), database) == sums(session, database)
    assert peaks["worker"] < 700 * MEGABYTE, peaks
    assert peaks["driver"] < 600 * MEGABYTE, peaks
    assert peaks["jvm"] < 1000 * MEGABYTE, peaks


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target_kind", ["postgres", "mariadb"])
def test_the_driver_applies_a_large_transaction_in_limited_memory_and_without_spark(
    target_kind, mariadb, database, make_task, target_server, open_session
):
    server = target_server(target_kind)
    session = open_session(mariadb)
    source = session.cursor()
    task = make_task(mariadb, server, [database])
    run = started_with_wide_table(source, database, task, Progress(open_session(server)))
    source.execute(f"INSERT INTO wide SELECT seq, seq % 1000, REPEAT(MD5(seq), 30) FROM seq_1_to_{2 * WIDE_ROWS}")
    source.execute("UPDATE wide SET n = n + 1 WHERE id % 3 = 0")
    run.wait_until(Progress(open_session(server)).has(session), "both transactions are applied")
    assert peak(run.process.pid) < 600 * MEGABYTE
    assert not run.jvm()
    assert run.stop() == 0
    assert sums(open_session(server), database) == sums(session, database)


def counted(session, schema):
    """For each of the two tables, returns the number of rows, the length of all texts together, the number of different
    texts, and each row that occurs more than once, with its number.
    """
    cursor = session.cursor()
    found = []
    for table, columns in (("twice", "n, v"), ("once", "id, v")):
        cursor.execute(f"SELECT COUNT(*), SUM(LENGTH(v)), COUNT(DISTINCT v) FROM {schema}.{table}")
        found.append([*map(int, cursor.fetchone())])
        cursor.execute(
            f"SELECT {columns}, COUNT(*) FROM {schema}.{table} GROUP BY {columns} HAVING COUNT(*) > 1 ORDER BY {columns}"
        )
        found.append([tuple(row) for row in cursor.fetchall()])
    return found


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("target_kind", "loses_relay"), [("mariadb", True)])
def test_split_it_continues_after_its_last_part(
    target_kind, loses_relay, mariadb, database, make_task, target_server, open_session
):
    server = target_server(target_kind)
    session = open_session(mariadb)
    source = session.cursor()
    source.execute(f"USE {database}")
    source.execute("CREATE TABLE once (id INT PRIMARY KEY, v VARCHAR(500))")
    # A table without a key cannot be copied here, but its changes can be applied.
    leniently = {"ignore-checking-items": ["primary_key"]}
    task = make_task(mariadb, server, [database], workers=2, pidts={"split-transactions": 5000}, **leniently)
    run = task.start()
    progress = Progress(open_session(server))
    run.wait_until(progress.is_copied, "the empty table is copied")
    source.execute("CREATE TABLE twice (n INT, v VARCHAR(500))")
    source.execute("INSERT INTO once VALUES (0, 'before')")
    source.execute("BEGIN")
    for half in range(2):
        # Every row of the table without a key occurs twice, far apart.
        source.execute("INSERT INTO twice SELECT seq, REPEAT(MD5(seq), 10) FROM seq_1_to_30000")
        source.execute(f"INSERT INTO once SELECT seq + {30_000 * half}, REPEAT(MD5(seq), 10) FROM seq_1_to_30000")
    source.execute("DELETE FROM twice WHERE n % 3 = 0 LIMIT 15000")
    source.execute("UPDATE once SET id = id + 100000, v = 'moved' WHERE id % 7 = 0")
    source.execute("COMMIT")
    is_there = progress.has(session)

    def is_inside() -> bool:
        return any(state.lsn.row for state in progress.states())

    run.wait_until(is_inside, "a part is committed")
    run.kill()
    assert is_inside(), "killed too late to show anything"
    if loses_relay:
        shutil.rmtree(task.path.parent / "relay")
    run = task.start()
    run.wait_until(is_there, "the rest is written")
    assert run.stop() == 0
    assert counted(open_session(server), database) == counted(session, database)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_transaction_that_is_small_only_in_the_compressed_log_is_applied_in_limited_memory(
    mysql97, database, make_task, target_server, open_session
):
    """300 MB of rows are 6 MB of log or less, so the size of the log would not limit the memory."""
    server, session = target_server("postgres"), open_session(mysql97)
    source = session.cursor()
    source.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
    task = make_task(mysql97, server, [database])
    run = started_with_wide_table(source, database, task, Progress(open_session(server)))
    source.execute(f"SET SESSION cte_max_recursion_depth = {3 * WIDE_ROWS}, binlog_transaction_compression = ON")
    seq = f"WITH RECURSIVE s AS (SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM s WHERE seq < {3 * WIDE_ROWS})"
    source.execute(f"INSERT INTO wide {seq} SELECT seq, seq % 1000, REPEAT('a', {WIDE}) FROM s")
    run.wait_until(Progress(open_session(server)).has(session), "the transaction is there", 300)
    most = peak(run.process.pid)
    assert run.stop() == 0
    assert sums(open_session(server), database) == sums(session, database)
    assert not run.jvm()
    assert most < 700 * MEGABYTE, f"{most / MEGABYTE:.0f} MB"
    source.execute(f"DROP DATABASE {database}")
