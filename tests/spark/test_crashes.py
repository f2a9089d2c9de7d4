"""Whatever is killed, whenever: after the next start the target equals the source, and no reader ever saw a counter go back.

The source increments counters, moves amounts between accounts (their sum never changes), inserts and deletes. A reader
samples the target all the time. Every few seconds one process is killed with SIGKILL: the replicator, a Python worker of
Spark, the JVM, the driver.
"""

from __future__ import annotations

import os
import random
import signal
import time

import psycopg
import pymysql
import pytest

SETUP = """
CREATE TABLE account (id INT PRIMARY KEY, counter BIGINT NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(40));
CREATE TABLE event (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, at DATETIME(6) NOT NULL, text TEXT)
"""
ACCOUNTS = 200


class Bank:
    """The source's load and the reader's claims."""

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
        """One transaction."""
        first, second = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randrange(1, 50)
        self.cursor.execute("BEGIN")
        self.cursor.execute(f"UPDATE account SET counter = counter + 1, amount = amount - {amount} WHERE id = {first}")
        self.cursor.execute(f"UPDATE account SET counter = counter + 1, amount = amount + {amount} WHERE id = {second}")
        self.cursor.execute(f"INSERT INTO event (account, at, text) VALUES ({first}, NOW(6), REPEAT('é', {amount}))")
        if amount % 5 == 0:
            self.cursor.execute("DELETE FROM event ORDER BY id LIMIT 2")
        if amount % 11 == 0:
            self.cursor.execute(f"UPDATE account SET note = NULLIF('moved {amount}', 'moved 22') WHERE id = {second}")
        self.cursor.execute("COMMIT")
        time.sleep(0.002)

    def read(self):
        """One sample of the target, in one statement."""
        try:
            if self.reading is None:
                self.reading = self.open_session(self.target)
            cursor = self.reading.cursor()
            cursor.execute(f"SELECT id, counter, amount FROM {self.schema}.account")
            rows = cursor.fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, pymysql.err.ProgrammingError):
            return
        for number, counter, _ in rows:
            assert counter >= self.seen.get(number, 0), (
                f"account {number} went back from {self.seen[number]} to {counter}"
            )
            self.seen[number] = counter
        if self.copied:
            assert sum(amount for _, _, amount in rows) == 100 * ACCOUNTS, "a transaction is torn"
        self.samples += 1


def contents(session, schema):
    """Every row, as plain values."""
    cursor = session.cursor()
    found = {}
    for table in ("account", "event"):
        cursor.execute(f"SELECT * FROM {schema}.{table} ORDER BY id")
        found[table] = cursor.fetchall()
    return {table: [tuple(row) for row in rows] for table, rows in found.items()}


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("target_kind", "direct_rows"), [("postgres", 0), ("mariadb", 20_000)])
def test_nothing_is_lost_doubled_or_seen_going_back(
    target_kind, direct_rows, mariadb, database, make_task, open_session, background, eventually, request
):
    """With `direct-rows: 0` every batch is a Spark job; otherwise the driver applies most of them itself."""
    target = request.getfixturevalue("target_server")(target_kind)
    bank = Bank(mariadb, target, database, open_session)
    task = make_task(mariadb, target, [database], spark={"direct-rows": direct_rows}, pidts={"chunk-rows": 500})
    chance = random.Random(direct_rows)
    killed: dict[str, int] = {}

    def kill(what, pids):
        if pids:
            os.kill(chance.choice(pids), signal.SIGKILL)
            killed[what] = killed.get(what, 0) + 1

    progress = open_session(target).cursor()

    def batches() -> int:
        try:
            progress.execute("SELECT batch FROM pidts_meta.checkpoint")
            return sum(row[0] for row in progress.fetchall())
        except (psycopg.Error, pymysql.err.ProgrammingError):
            return 0

    with background(bank.work), background(bank.read, pause=0.01):
        run = task.start()
        try:
            for step in range(13):
                # Every third kill hits whatever goes on just after a start; before the others, batches have been written.
                wanted = batches() + (0 if step % 3 == 2 else chance.randrange(1, 4))
                eventually(
                    lambda n=wanted, r=run: batches() >= n or r.process.poll() is not None, 120, "a batch is written"
                )
                assert run.process.poll() is None
                time.sleep(chance.uniform(0.0, 1.0))
                match step % 4:
                    case 0:
                        kill("replicator", run.replicator())
                    case 1:
                        eventually(lambda r=run: r.workers() != [] or direct_rows > 0, 60, "Spark has a worker")
                        kill("worker", run.workers())
                    case 2:
                        eventually(lambda r=run: r.jvm() != [], 60, "Spark has a JVM")
                        kill("jvm", run.jvm())
                    case 3:
                        run.kill()
                        killed["driver"] = killed.get("driver", 0) + 1
                        run = task.start()
            run.kill()
            task.sync()
            bank.copied = True
            before = bank.samples
            run = task.start()
            eventually(lambda: bank.samples > before + 300, 60, "the reader sees whole transactions")
            assert run.stop() == 0
        except AssertionError as error:
            error.add_note(task.logs())
            raise
    summary = task.sync()
    assert summary["stage"] == "synced"
    source_rows = contents(open_session(mariadb), database)
    target_rows = contents(open_session(target), database)
    assert {table: len(rows) for table, rows in target_rows.items()} == {
        t: len(rows) for t, rows in source_rows.items()
    }
    assert target_rows == source_rows
    assert killed["replicator"] >= 3
    assert killed["driver"] == 3
    assert killed["jvm"] == 3
    assert killed.get("worker", 0) >= (2 if direct_rows == 0 else 0)
    assert bank.samples > 300
