"""An old dump is restored on the target: neither the task nor its memory fails, however many rows differ.

If more than `pidts.lock-limit` rows of one table differ, the table halts. With a higher limit, all of them are set
aside.
"""

from __future__ import annotations

import pytest
from tests.running import Progress
from tests.spark.engine.test_large import MEGABYTE, peak
from tests.spark.test_halts import Servers

SETUP = """
CREATE TABLE {0}.a (id INT PRIMARY KEY, v INT NOT NULL, s VARCHAR(100) NOT NULL);
CREATE TABLE {0}.b (id INT PRIMARY KEY, v INT NOT NULL);
INSERT INTO {0}.b VALUES (1, 1)
"""
A_TRANSACTION = 100_000


def peaks(run, found):
    everything = {"driver": [run.process.pid], "worker": run.workers(), "jvm": run.jvm()}
    for what, pids in everything.items():
        found[what] = max(found.get(what, 0), *map(peak, pids), 0)
    return found


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.long
@pytest.mark.parametrize("rows", [20_000, 1_000_000])
def test_a_table_with_too_many_rows_that_differ_halts_and_all_others_continue(
    rows, mariadb, database, make_task, open_session, eventually, target_server
):
    target = target_server("mariadb")
    mode = {"task-mode": "incremental"}
    pidts = {"on-divergence": "lock"}
    task = make_task(mariadb, target, [database], pidts=pidts, **mode)
    servers = Servers(task, open_session(mariadb), open_session(target), database, eventually)
    servers.source("USE {0}", *SETUP.strip().split(";\n"))
    servers.source(f"INSERT INTO {{0}}.a SELECT seq, 2, REPEAT('n', 60) FROM seq_1_to_{rows}")
    servers.target("CREATE DATABASE IF NOT EXISTS {0}", "USE {0}", *SETUP.strip().split(";\n"))
    servers.target(f"INSERT INTO {{0}}.a SELECT seq, 1, REPEAT('o', 60) FROM seq_1_to_{rows}")
    progress = Progress(open_session(target))
    run = task.start("--json")
    run.wait_until(lambda: bool(progress.states()), "the task has begun")
    found = {}
    for first in range(1, rows + 1, A_TRANSACTION):
        servers.source(f"UPDATE {{0}}.a SET v = 3 WHERE id BETWEEN {first} AND {first + A_TRANSACTION - 1}")
        peaks(run, found)
    servers.source("UPDATE {0}.b SET v = 2 WHERE id = 1")

    def has_halted():
        peaks(run, found)
        return any(halt["code"] == "too-many-locked-rows" for halt in servers.halted())

    eventually(has_halted, 300, "the table is halted")
    halt = servers.halts("a", "too-many-locked-rows")
    assert "pidts.lock-limit (1000)" in halt["what"]
    servers.arrives("b", (1, 2))
    servers.source("UPDATE {0}.b SET v = 3 WHERE id = 1")
    servers.arrives("b", (1, 3))
    peaks(run, found)
    assert found["driver"] < 900 * MEGABYTE, found
    assert found["worker"] < 900 * MEGABYTE, found
    summary = run.summary()
    assert summary["locked_rows"] == 0
    servers.source("UPDATE {0}.a SET v = 4 WHERE id = 1")

    # The halt's message advises to copy the table again.
    code = task.start("--resync", f"{database}.a", "--until-synced", "--json").process.wait(600)
    assert code == 0, task.logs()
    servers._target.execute(f"SELECT COUNT(*), SUM(v = 3), MIN(s), MAX(s) FROM {database}.a")
    assert servers._target.fetchone() == (rows, rows - 1, "n" * 60, "n" * 60)


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.long
@pytest.mark.parametrize("rows", [20_000, 1_000_000])
def test_with_a_higher_limit_all_of_them_are_set_aside(
    rows, mariadb, database, make_task, open_session, eventually, target_server
):
    target = target_server("mariadb")
    mode = {"task-mode": "incremental"}
    pidts = {"on-divergence": "lock", "lock-limit": 2_000_000}
    task = make_task(mariadb, target, [database], pidts=pidts, **mode)
    servers = Servers(task, open_session(mariadb), open_session(target), database, eventually)
    servers.source("USE {0}", *SETUP.strip().split(";\n"))
    servers.source(f"INSERT INTO {{0}}.a SELECT seq, 2, REPEAT('n', 60) FROM seq_1_to_{rows}")
    servers.target("CREATE DATABASE IF NOT EXISTS {0}", "USE {0}", *SETUP.strip().split(";\n"))
    servers.target(f"INSERT INTO {{0}}.a SELECT seq, 1, REPEAT('o', 60) FROM seq_1_to_{rows}")
    progress = Progress(open_session(target))
    run = task.start("--json")
    run.wait_until(lambda: bool(progress.states()), "the task has begun")
    found = {}
    for first in range(1, rows + 1, A_TRANSACTION):
        servers.source(f"UPDATE {{0}}.a SET v = 3 WHERE id BETWEEN {first} AND {first + A_TRANSACTION - 1}")

    def all_locked():
        peaks(run, found)
        servers._target.execute("SELECT COUNT(*) FROM pidts_meta.row_lock")
        return servers._target.fetchone()[0] == rows

    eventually(all_locked, 1200, "all are locked")
    servers.source("UPDATE {0}.a SET v = 4 WHERE id < 100", "UPDATE {0}.b SET v = 2 WHERE id = 1")
    servers.arrives("b", (1, 2))
    peaks(run, found)
    assert found["driver"] < 900 * MEGABYTE, found
    assert found["worker"] < 900 * MEGABYTE, found
    servers._target.execute(f"SELECT COUNT(*) FROM {database}.a WHERE v = 1 AND s LIKE 'o%'")
    assert servers._target.fetchone()[0] == rows
    assert run.summary()["locked_rows"] == rows
