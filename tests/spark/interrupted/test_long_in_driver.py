"""The driver applies a large transaction part by part: completely or not at all, whatever interrupts it.

A lock on the target stops the transaction in one of its later parts, and the interruption comes then.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.running import Progress
from tests.spark.commands import Run, Task

from pidts.model import Halt
from pidts.sandbox import Server

SMALL_PARTS = (
    "from pidts.batch import applying; applying.PART_BYTES = 1 << 20; "
    "from pidts.spark.stream import TaskStream; TaskStream.leave_seconds = 0.5"
)
"""Statements for smaller parts, and for less patience when the program has to end."""
WIDE = "REPEAT(MD5(seq), 30)"
TRANSACTION = f"""
INSERT INTO wide SELECT seq, 0, {WIDE} FROM seq_1_to_2250;
INSERT INTO loose SELECT seq % 10, MD5(seq) FROM seq_1_to_3000;
UPDATE wide SET n = n + 1 WHERE id <= 750;
INSERT INTO wide SELECT seq, 0, {WIDE} FROM seq_2251_to_4500;
UPDATE wide SET id = id + 100000 WHERE id % 7 = 1;
INSERT INTO loose SELECT seq % 10, MD5(seq) FROM seq_1_to_3000;
DELETE FROM loose WHERE n = 3 ORDER BY v LIMIT 250;
DELETE FROM wide WHERE id % 11 = 2
"""
"""The statements of one transaction of 7 MB of log. The first UPDATE has row 0, which was there before. Each part has
rows that an earlier part has written.
"""
WAITING = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
"""For each kind of target, the query for the session that waits for a lock."""
KILLS = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


class Pair:
    """A source and a target with the same two tables, and the task between them."""

    def __init__(self, source: Any, target: Any, task: Task, kind: str, schema: str) -> None:
        self.session, self.task, self.kind, self.schema = source, task, kind, schema
        self.source, self.target = source.cursor(), target.cursor()
        self.progress = Progress(target)

    def start(self) -> Run:
        return self.task.start(before=SMALL_PARTS)

    def begun(self) -> Run:
        """Returns a run that has copied the tables."""
        self.source.execute(f"USE {self.schema}")
        self.source.execute(
            "CREATE TABLE wide (id INT PRIMARY KEY, n INT NOT NULL, v VARCHAR(1000) CHARACTER SET latin1 NOT NULL)"
        )
        self.source.execute("INSERT INTO wide VALUES (0, 0, 'before')")
        run = self.start()
        run.wait_until(self.progress.is_copied, "the table is copied")
        # A table without a key cannot be copied here, but its changes can be applied.
        self.source.execute("CREATE TABLE loose (n INT, v VARCHAR(40) CHARACTER SET latin1)")
        run.wait_until(self.progress.has(self.session), "the second table is there")
        return run

    def write(self, *more: str) -> Callable[[], bool]:
        """Makes the transaction, and returns the condition that it is on the target."""
        self.source.execute("BEGIN")
        for statement in (*TRANSACTION.strip().split(";\n"), *more):
            self.source.execute(statement)
        self.source.execute("COMMIT")
        return self.progress.has(self.session)

    def waits(self) -> bool:
        """Whether a session of the target waits for a lock."""
        return bool(self.waiting())

    def waiting(self) -> list[int]:
        """Returns the target's sessions that wait for a lock."""
        self.target.execute(WAITING[self.kind])
        return [number for (number,) in self.target.fetchall()]

    def count(self) -> tuple[int, int]:
        """Returns the number of rows of each table on the target."""
        counts = []
        for table in ("wide", "loose"):
            self.target.execute(f"SELECT COUNT(*) FROM {self.schema}.{table}")
            counts.append(self.target.fetchone()[0])
        return counts[0], counts[1]

    def check(self) -> None:
        """Checks that both servers have the same rows."""
        for query in (
            "SELECT id, n, MD5(v) FROM {}.wide ORDER BY id",
            "SELECT n, v, COUNT(*) FROM {}.loose GROUP BY n, v ORDER BY n, v",
        ):
            found = []
            for cursor in (self.source, self.target):
                cursor.execute(query.format(self.schema))
                found.append(list(map(tuple, cursor.fetchall())))
            assert found[0] == found[1]
            assert found[0]


@pytest.fixture
def pair(
    mariadb: Server,
    database: str,
    make_task: Callable[..., Task],
    open_session: Callable[..., Any],
    target_server: Callable[[str], Server],
) -> Callable[[str], tuple[Pair, Any]]:
    def made(kind: str) -> tuple[Pair, Any]:
        """Returns the pair, and another session on the target."""
        target = target_server(kind)
        task = make_task(mariadb, target, [database], **{"ignore-checking-items": ["primary_key"]})
        return Pair(open_session(mariadb), open_session(target), task, kind, database), open_session(target).cursor()

    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "interruption"),
    [
        ("mariadb", "kill"),
        ("mariadb", "stop"),
        ("postgres", "cut"),
        pytest.param("postgres", "kill", marks=pytest.mark.long),
        pytest.param("postgres", "stop", marks=pytest.mark.long),
        pytest.param("mariadb", "cut", marks=pytest.mark.long),
    ],
)
def test_a_transaction_that_is_interrupted_in_a_later_part_is_applied_once(
    pair: Callable[[str], tuple[Pair, Any]], kind: str, interruption: str
) -> None:
    at, locking = pair(kind)
    run = at.begun()
    locking.execute("BEGIN")
    locking.execute(f"SELECT * FROM {at.schema}.wide WHERE id = 0 FOR UPDATE")
    is_there = at.write()
    run.wait_until(at.waits, "a later part waits for the lock")
    assert at.count() == (1, 0), "a reader sees a part of the transaction"
    assert not run.jvm()
    if interruption == "kill":
        run.kill()
        locking.execute("ROLLBACK")
        run = at.start()
    elif interruption == "stop":
        run.process.send_signal(signal.SIGTERM)
        time.sleep(5)
        locking.execute("ROLLBACK")
        assert run.process.wait(60) == 0, at.task.logs()
        assert at.count() == (1, 0), "the transaction was left"
        run = at.start()
    else:
        for number in at.waiting():
            at.target.execute(KILLS[kind].format(number))
        run.wait_until(at.waits, "the transaction has begun again")
        assert at.count() == (1, 0), "a reader sees a part of the transaction"
        locking.execute("ROLLBACK")
    run.wait_until(is_there, "the transaction is applied")
    at.check()
    assert run.stop() == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=pytest.mark.long)])
def test_a_row_that_is_refused_in_a_later_part_halts_its_table_and_is_named(
    pair: Callable[[str], tuple[Pair, Any]], kind: str
) -> None:
    at, changing = pair(kind)
    run = at.begun()
    changing.execute(f"ALTER TABLE {at.schema}.wide ADD CONSTRAINT few CHECK (n < 5)")
    is_there = at.write("UPDATE wide SET n = 7 WHERE id = 4400")

    def halts() -> list[Halt]:
        """Returns the halts of the table; other tests on the same server may have left halts of their tables."""
        at.target.execute("SELECT about FROM pidts_meta.halt")
        found = [Halt.loads(about) for (about,) in at.target.fetchall()]
        return [halt for halt in found if [str(name) for name in halt.tables] == [f"{at.schema}.wide"]]

    run.wait_until(lambda: bool(halts()), "the table has halted")
    (halt,) = halts()
    assert re.search(r"\b4400\b", str(halt.to_json()))
    assert at.count()[0] == 1, "no part of the transaction is there"
    run.stop()
    changing.execute(f"ALTER TABLE {at.schema}.wide DROP CONSTRAINT few")
    run = at.start()
    run.wait_until(is_there, "the transaction is applied")
    at.check()
    assert run.stop() == 0
