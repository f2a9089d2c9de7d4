"""All processes are killed while rows are set aside, and while they are resolved: each change is held once, and applied
once.

Another program overwrites rows of the target. The source increments a counter in every row. A table lock of the test
stops the task between the record of a lock and its held changes, and stops `locks resolve` before it writes: at these
points, all processes are killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import closing

import pytest
from tests.apply.test_on_servers import target_on
from tests.running import PIDTS, Progress
from tests.spark.commands import below

from pidts.apply.locks.held_changes import held_batch
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Op, TableName

ROWS = 60
TABLE = "CREATE TABLE {0}.a (id INT PRIMARY KEY, n BIGINT NOT NULL, v VARCHAR(20) NOT NULL)"


class Counting:
    """The load: each transaction increments the counters of two rows. Some rows are deleted and inserted again."""

    def __init__(self, session, schema):
        self._cursor, self._schema, self._random = session.cursor(), schema, random.Random(5)

    def step(self):
        first, second = self._random.sample(range(ROWS), 2)
        run = self._cursor.execute
        run("BEGIN")
        for row in (first, second):
            run(f"UPDATE {self._schema}.a SET n = n + 1 WHERE id = {row}")
        if first % 9 == 0:
            run(f"DELETE FROM {self._schema}.a WHERE id = {first}")
            run(f"INSERT INTO {self._schema}.a VALUES ({first}, {self._random.randrange(1000)}, 'again')")
        run("COMMIT")


class Stopped:
    """A session that prevents other sessions from writing to a table, until it ends the lock."""

    def __init__(self, session, kind):
        self._cursor, self._kind = session.cursor(), kind

    @contextlib.contextmanager
    def writes_to(self, table):
        postgres = self._kind == "postgres"
        self._cursor.execute("BEGIN" if postgres else "SET SESSION lock_wait_timeout = 30")
        self._cursor.execute(f"LOCK TABLE {table} IN SHARE MODE" if postgres else f"LOCK TABLES {table} READ")
        try:
            yield
        finally:
            self._cursor.execute("ROLLBACK" if postgres else "UNLOCK TABLES")

    def is_waited_for(self, session):
        """Returns whether another session waits for the lock of the table."""
        cursor = session.cursor()
        if self._kind == "postgres":
            cursor.execute("SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'")
        else:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%lock'"
            )
        return cursor.fetchone()[0] > 0


def kill_all(run):
    """Kills the task, its replicator, and Spark."""
    everything = [run.process.pid, *below(run.process.pid)]
    for pid in everything:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.process.wait(30)


def held(target, schema):
    """Returns the keys, and the held changes of each locked row as (op, counter before, counter after)."""
    name = TableName(schema, "a")
    with closing(target.connect()) as session:
        locks = session.meta.row_locks.read("t", "one", name)
        changes = session.meta.row_locks.held("t", "one", name, {lock.id for lock in locks})
    by_id = {lock.id: lock for lock in locks}
    keys = {lock.id: unpacked(lock.key)["id"][0].as_py() for lock in locks}
    found = {key: [] for key in keys.values()}
    for each in changes:
        for row in held_batch(by_id[each.id], each)[0].rows.to_pylist():
            before, after = row["before"] or {}, row["after"] or {}
            found[keys[each.id]].append((row["lsn"], Op(row["op"]), before.get("n"), after.get("n")))
    return found


def demand_whole(found, rows):
    """Checks that each row's held changes follow one another without a gap and without repetition, up to the source's
    row.
    """
    for key, changes in found.items():
        places = [lsn for lsn, *_ in changes]
        assert places == sorted(set(places)), f"changes of {key} are doubled, or out of order"
        for (_, _, _, one), (_, _, other, _) in itertools.pairwise(changes):
            assert one == other, f"a change of {key} is missing"
        assert changes[-1][3] == rows[key][0], f"the last change of {key} is missing"


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_each_change_is_held_once_and_follows_once_whatever_is_killed(
    kind, mariadb, database, make_task, open_session, background, eventually, target_server, tmp_path
):
    server = target_server(kind)
    target, source = target_on(server), open_session(mariadb)
    pidts = {"on-divergence": "lock", "lock-limit": ROWS}
    mode = {"task-mode": "incremental"}
    task = make_task(mariadb, server, [database], workers=2, pidts=pidts, **mode)
    ours, theirs = source.cursor(), open_session(server).cursor()
    rows = ", ".join(f"({number}, 0, 'ours')" for number in range(ROWS))
    for cursor in (ours, theirs):
        cursor.execute(f"CREATE {'SCHEMA' if kind == 'postgres' else 'DATABASE'} IF NOT EXISTS {database}")
        cursor.execute(TABLE.format(database))
        cursor.execute(f"INSERT INTO {database}.a VALUES {rows}")
    stopped = Stopped(open_session(server), kind)
    watching, chance = open_session(server), random.Random(3)
    progress = Progress(open_session(server))
    foreign: set[int] = set()

    def overwrite(count):
        new = chance.sample(sorted(set(range(ROWS)) - foreign), count)
        foreign.update(new)
        for place, row in enumerate(new):
            change = "DELETE FROM {0}.a WHERE id = {1}" if place % 4 == 3 else TAKE
            theirs.execute(change.format(database, row))

    def locked():
        theirs.execute("SELECT COUNT(*) FROM pidts_meta.row_lock")
        return theirs.fetchone()[0]

    def target_rows():
        theirs.execute(f"SELECT id, n, v FROM {database}.a")
        return {key: (n, v) for key, n, v in theirs.fetchall()}

    run = task.start()
    run.wait_until(lambda: bool(progress.states()), "the task has begun")
    with background(Counting(source, database).step, pause=0.005):
        # Some rows are locked, and more are being locked, when all processes die.
        overwrite(8)
        eventually(lambda: locked() >= 8, 60, "eight rows are locked")
        for table in ("held_change", "row_lock"):
            with stopped.writes_to(f"pidts_meta.{table}"):
                overwrite(8)
                eventually(lambda: stopped.is_waited_for(watching), 60, "a batch waits with its locks")
                kill_all(run)
            run = task.start()
            eventually(lambda: locked() >= len(foreign), 120, "these rows are locked, too")
        # All processes also die at random moments.
        for _ in range(2):
            batches = progress.batches() + 2
            run.wait_until(lambda wanted=batches: progress.batches() >= wanted, "it goes on")
            time.sleep(chance.uniform(0, 0.3))
            kill_all(run)
            run = task.start()
        batches = progress.batches() + 3
        run.wait_until(lambda wanted=batches: progress.batches() >= wanted, "it goes on")
    wanted = progress.has(source)
    run.wait_until(wanted, "all of the log is there")
    ours.execute(f"SELECT id, n, v FROM {database}.a")
    expected = {key: (n, v) for key, n, v in ours.fetchall()}
    found = held(target, database)
    # A DELETE of a row that the target does not have is not a difference, so the row is not locked. The next INSERT
    # inserts it again.
    missing = foreign - found.keys()
    assert not found.keys() - foreign
    demand_whole(found, expected)
    there = target_rows()
    for key in found:
        assert there.get(key, (0, "theirs")) == (-1, "theirs") or key not in there, "a locked row was written"
    assert {key: row for key, row in there.items() if key not in found} == {
        key: row for key, row in expected.items() if key not in found
    }, missing

    # The command is killed when it has all locks and is about to write; the task runs.
    words = ["locks", "resolve", str(task.path), "--table", f"{database}.a", "--all", "--take", "source", "--yes"]
    said = tmp_path / "resolve.log"
    with stopped.writes_to(f"{database}.a"), said.open("wb") as output:
        dying = subprocess.Popen([*PIDTS, *words], stdout=output, stderr=output)

        def is_about_to_write():
            assert dying.poll() is None, said.read_text()
            return stopped.is_waited_for(watching)

        eventually(is_about_to_write, 180, "it is about to write")  # The command may take a minute to start.
        dying.kill()
        dying.wait(30)
    assert held(target, database) == found
    assert target_rows() == there
    kill_all(run)

    # Two commands at once, while the task starts and the source changes.
    run = task.start()
    with background(Counting(source, database).step, pause=0.005):
        codes: list[int] = []
        both = [threading.Thread(target=lambda: codes.append(task.command(*words).returncode)) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join(120)
        assert codes == [0, 0]
    assert locked() == 0
    run.wait_until(progress.has(source), "all of the log is there")
    assert run.stop() == 0
    ours.execute(f"SELECT id, n, v FROM {database}.a")
    assert target_rows() == {key: (n, v) for key, n, v in ours.fetchall()}


TAKE = "UPDATE {0}.a SET n = -1, v = 'theirs' WHERE id = {1}"
