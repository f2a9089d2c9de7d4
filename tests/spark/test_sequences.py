"""A task ignores MariaDB's SEQUENCE objects: their state, and the statements on them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
def test_sequences_in_a_schema_of_the_task_are_left_out(
    mariadb, database, make_task, target_server, open_session, eventually
):
    cursor = open_session(mariadb).cursor()
    for text in ("CREATE SEQUENCE s", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"):
        cursor.execute(f"USE {database}")
        cursor.execute(text)
    server = target_server("postgres")
    target = open_session(server)
    task = make_task(mariadb, server, [database])
    findings = json.loads(task.command("check", str(task.path), "--json").stdout.splitlines()[-1])
    assert f"not replicated, because they are SEQUENCE objects: {database}.s;" in json.dumps(findings)
    notes = json.loads(task.command("plan", str(task.path), "--json").stdout.splitlines()[-1])["notes"]
    assert [note for note in notes if f"SEQUENCE objects: {database}.s;" in note]
    run = task.start()

    def has(*ids: int) -> bool:
        with suppress(Exception):
            return [one for (one,) in target.execute(f"SELECT id FROM {database}.t ORDER BY id")] == list(ids)
        return False

    eventually(lambda: has(1), 120, "the copy")
    for text in (
        "SELECT NEXTVAL(s)",
        "INSERT INTO t VALUES (2)",
        "RENAME TABLE s TO s2",
        "SELECT NEXTVAL(s2)",
        "CREATE SEQUENCE other",
        "SELECT NEXTVAL(other)",
        "ALTER TABLE other RENAME TO third",
        "SELECT NEXTVAL(third)",
        "CREATE TABLE fourth LIKE third",
        "SELECT NEXTVAL(fourth)",
        "DROP TABLE third",
        "INSERT INTO t VALUES (3)",
    ):
        cursor.execute(text)
    eventually(lambda: has(1, 2, 3), 60, "what comes behind the sequences")
    assert run.process.poll() is None
    # The state of a sequence is logged when its cached numbers are used up.
    cursor.execute("SELECT NEXTVAL(s2) FROM seq_1_to_1001")
    cursor.execute("INSERT INTO t VALUES (4)")
    assert run.stop() == 0
    again = task.start("--until-synced")
    assert again.process.wait(120) == 0
    assert has(1, 2, 3, 4)
    names = target.execute("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", (database,)).fetchall()
    assert "s2" not in {name for (name,) in names}
