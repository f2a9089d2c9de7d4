"""Whatever process is killed at whatever time: after the next start, the target becomes equal to the source, and no
reader has seen a counter become smaller.

The source increments counters, moves amounts between accounts (their sum never changes), inserts and deletes. A reader
samples the target all the time. Every few seconds one process is killed with SIGKILL: the replicator, a Python worker
of Spark, the JVM, the driver. The last run continues while the source is written to, and until the target has
everything.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from tests.running import NO_TABLE, Progress

SETUP = """
CREATE TABLE account (id INT PRIMARY KEY, counter BIGINT NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(40));
CREATE TABLE event (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, at DATETIME(6) NOT NULL, text TEXT)
"""
ACCOUNTS = 200


class Bank:
    """The source's load, and the conditions that each sample of the reader must fulfil."""

    def __init__(self, source, target, schema, open_session):
        self.schema, self.random = schema, random.Random(7)
        self.session = open_session(source)
        self.cursor = self.session.cursor()
        self.cursor.execute(f"USE {schema}")
        for statement in SETUP.strip().split(";\n"):
            self.cursor.execute(statement)
        rows = [(number, 0, 100, None) for number in range(ACCOUNTS)]
        self.cursor.executemany("INSERT INTO account VALUES (%s, %s, %s, %s)", rows)
        self.cursor.executemany(
            "INSERT INTO event (account, at, text) VALUES (%s, NOW(6), %s)",
            [(n % ACCOUNTS, "before") for n in range(3000)],
        )
        self.target, self.open_session = target, open_session
        self.reading = None
        self.seen: dict[int, int] = {}
        self.samples = 0
        self.copied = False

    def work(self):
        """Makes ten transactions in one message: a message takes more processor time than the server's work for it."""
        statements = [statement for _ in range(10) for statement in self.transaction()]
        self.cursor.execute(f"BEGIN NOT ATOMIC {'; '.join(statements)}; END")

    def transaction(self):
        """Returns the statements of one transaction."""
        first, second = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randrange(1, 50)
        statements = [
            "START TRANSACTION",
            f"UPDATE account SET counter = counter + 1, amount = amount - {amount} WHERE id = {first}",
            f"UPDATE account SET counter = counter + 1, amount = amount + {amount} WHERE id = {second}",
            f"INSERT INTO event (account, at, text) VALUES ({first}, NOW(6), REPEAT('é', {amount}))",
        ]
        if amount % 5 == 0:
            statements.append("DELETE FROM event ORDER BY id LIMIT 2")
        if amount % 11 == 0:
            statements.append(f"UPDATE account SET note = NULLIF('moved {amount}', 'moved 22') WHERE id = {second}")
        return [*statements, "COMMIT"]

    def read(self):
        """Takes one sample of the target, in one statement."""
        whole = self.copied
        try:
            if self.reading is None:
                self.reading = self.open_session(self.target)
            cursor = self.reading.cursor()
            cursor.execute(f"SELECT id, counter, amount FROM {self.schema}.account")
            rows = cursor.fetchall()
        except NO_TABLE:
            return
        for number, counter, _ in rows:
            assert counter >= self.seen.get(number, 0), (
                f"account {number} went back from {self.seen[number]} to {counter}"
            )
            self.seen[number] = counter
        if whole:
            assert sum(amount for _, _, amount in rows) == 100 * ACCOUNTS, "a transaction is torn"
        self.samples += 1


def contents(session, schema):
    """Returns every row, as plain values."""
    cursor = session.cursor()
    found = {}
    for table in ("account", "event"):
        cursor.execute(f"SELECT * FROM {schema}.{table} ORDER BY id")
        found[table] = cursor.fetchall()
    return {table: [tuple(row) for row in rows] for table, rows in found.items()}


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("target_kind", "direct_rows", "steps"),
    [
        ("postgres", 0, 4),
        pytest.param("mariadb", 4, 5, marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_doubled_or_seen_going_back(
    target_kind, direct_rows, steps, mariadb, database, make_task, open_session, background, request
):
    """With `direct-rows: 0` every batch is a Spark job; otherwise the driver itself applies batches of one transaction."""
    target = request.getfixturevalue("target_server")(target_kind)
    bank = Bank(mariadb, target, database, open_session)
    task = make_task(mariadb, target, [database], spark={"direct-rows": direct_rows}, pidts={"chunk-rows": 500})
    chance = random.Random(direct_rows)
    killed: dict[str, int] = {}

    def kill(what, pids):
        if pids:
            os.kill(chance.choice(pids), signal.SIGKILL)
            killed[what] = killed.get(what, 0) + 1

    progress = Progress(open_session(target))

    def batches() -> int:
        bank.copied = bank.copied or progress.is_copied()
        return progress.batches()

    run = task.start("--json")
    try:
        # Without pauses, the writers would use the processor time that the task needs to start again; and each batch is
        # a job of Spark.
        with background(bank.work, pause=0.7), background(bank.read, pause=0.15):
            for step in range(steps):
                # Every third kill comes just after a start. The others come after batches have been written.
                wanted = batches() + (0 if step % 3 == 2 else chance.randrange(1, 4))
                run.wait_until(lambda n=wanted: batches() >= n, "a batch is written")
                time.sleep(chance.uniform(0.0, 1.0))
                match step % 4:
                    case 0:
                        run.wait_until(lambda r=run: r.replicator() != [], "there is a replicator")
                        kill("replicator", run.replicator())
                    case 1:
                        run.wait_until(lambda r=run: r.workers() != [], "Spark has a worker")
                        kill("worker", run.workers())
                    case 2:
                        run.wait_until(lambda r=run: r.jvm() != [], "Spark has a JVM")
                        kill("jvm", run.jvm())
                    case 3:
                        run.kill()
                        killed["driver"] = killed.get("driver", 0) + 1
                        run = task.start("--json")
            run.wait_until(progress.is_copied, "all is copied")
            bank.copied = True
            before, wanted = bank.samples, batches() + 3
            run.wait_until(
                lambda: bank.samples > before + 20 and batches() > wanted, "the reader sees whole transactions"
            )
        run.wait_until(progress.has(bank.session), "the target has what the source has")
        assert run.summary()["stage"] == "stopped"
    except AssertionError as error:
        error.add_note(task.logs())
        raise
    source_rows = contents(open_session(mariadb), database)
    target_rows = contents(open_session(target), database)
    assert {table: len(rows) for table, rows in target_rows.items()} == {
        t: len(rows) for t, rows in source_rows.items()
    }
    assert target_rows == source_rows
    assert killed["replicator"] >= steps // 4
    assert (killed["driver"], killed["jvm"]) == (steps // 4, steps // 4)
    assert killed["worker"] >= 1
