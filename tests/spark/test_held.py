"""Only the tables of a schema change wait for it, and the result is the same if the run is killed meanwhile.

A session on the target prevents the ALTER of a table for as long as the test wants. Meanwhile rows of another table
arrive. Rows of the altered table arrive only when the session ends its lock.
"""

from __future__ import annotations

import time

import psycopg
import pymysql
import pytest
from tests.running import Progress

SETUP = """
CREATE TABLE {0}.slow (id INT PRIMARY KEY, v INT NOT NULL);
CREATE TABLE {0}.other (id INT PRIMARY KEY, v INT NOT NULL);
INSERT INTO {0}.slow VALUES (1, 1), (2, 2);
INSERT INTO {0}.other VALUES (1, 1)
"""


class Source:
    """Changes tables of the source, and compares them with the target's tables."""

    def __init__(self, source, target, schema, open_session, eventually):
        self.schema, self.eventually = schema, eventually
        self.cursor = open_session(source).cursor()
        session = open_session(target)
        session.prepare_threshold = None  # A prepared SELECT * would not survive a schema change.
        self.target = session.cursor()
        for statement in SETUP.strip().split(";\n"):
            self.run(statement)
        self.last = 1

    def run(self, statement: str) -> None:
        self.cursor.execute(statement.format(self.schema))

    def rows(self, cursor, table: str) -> list[tuple]:
        cursor.execute(f"SELECT * FROM {self.schema}.{table} ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]

    def add_other(self) -> None:
        self.last += 1
        self.run(f"INSERT INTO {{0}}.other VALUES ({self.last}, {self.last})")

    def others_arrive(self, seconds: float, what: str) -> None:
        """Checks that a row that is written now arrives."""
        self.add_other()
        self.eventually(lambda: len(self.rows(self.target, "other")) == self.last, seconds, what)

    def is_same(self) -> bool:
        try:
            return all(self.rows(self.cursor, table) == self.rows(self.target, table) for table in ("slow", "other"))
        except (psycopg.Error, pymysql.err.ProgrammingError):
            return False  # not created yet


def hold(cursor, schema: str) -> None:
    """Opens a transaction in which this session reads.

    The transaction makes every ALTER wait. Its own session can still read; other readers would wait for the ALTER.
    """
    if isinstance(cursor, pymysql.cursors.Cursor):
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # This is PostgreSQL's default.
    cursor.execute("BEGIN")
    cursor.execute(f"SELECT COUNT(*) FROM {schema}.slow")


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [pytest.param("mariadb", marks=pytest.mark.long), "postgres"])
def test_others_continue_while_a_schema_change_waits(
    kind, mariadb, database, make_task, open_session, eventually, target_server
):
    target = target_server(kind)
    source = Source(mariadb, target, database, open_session, eventually)
    task = make_task(mariadb, target, [database], workers=2)
    run = task.start()
    try:
        run.wait_until(Progress(open_session(target)).is_copied, "all is copied")
        reader = open_session(target).cursor()
        hold(reader, database)
        source.run("UPDATE {0}.slow SET v = 10 WHERE id = 1")
        source.run("ALTER TABLE {0}.slow ADD COLUMN late INT NOT NULL DEFAULT 7")
        source.run("UPDATE {0}.slow SET late = 8 WHERE id = 2")
        source.run("INSERT INTO {0}.slow VALUES (3, 3, 3)")
        source.others_arrive(90, "the other table goes on")
        # The rows before the schema change are there, and nothing after it.
        assert source.rows(reader, "slow") == [(1, 10), (2, 2)]
        run.kill()
        source.run("DELETE FROM {0}.slow WHERE id = 1")
        source.run("ALTER TABLE {0}.slow DROP COLUMN v")
        source.run("INSERT INTO {0}.slow VALUES (4, 4)")
        run = task.start()
        source.others_arrive(150, "the next run goes on with the other table, too")
        assert source.rows(reader, "slow") == [(1, 10), (2, 2)]
        if kind == "mariadb":
            began = time.monotonic()
            assert run.stop(120) == 0
            assert time.monotonic() - began < 60, "a run that is to stop does not wait for the schema change"
            run = task.start()
            source.others_arrive(150, "and the one after a stop")
            assert source.rows(reader, "slow") == [(1, 10), (2, 2)]
        reader.execute("ROLLBACK")
        eventually(source.is_same, 120, "the tables are equal")
        assert source.rows(source.target, "slow") == [(2, 8), (3, 3), (4, 4)]
        run.kill()
    except AssertionError as error:
        error.add_note(task.logs())
        raise
