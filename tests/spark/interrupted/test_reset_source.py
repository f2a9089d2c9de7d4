"""A source is reset while the task does not run, and the relay is lost, too: no change of the new log is left out."""

from __future__ import annotations

import json
import shutil
import time

import pytest
from tests.running import connect

from pidts import sandbox


def refusals(task):
    """Returns the codes of the errors with which `pidts check` says that a run would refuse the log."""
    check = task.start("--json", command="check")
    code = check.process.wait(60)
    findings = json.loads(check.log.read_text().splitlines()[-1])["findings"]
    failed = [one for one in findings if not one["ok"]]
    assert ({one["item"] for one in failed}, code) in ((set(), 0), ({"log_kept"}, 3))
    return [one["message"].partition("]")[0].removeprefix("[") for one in failed]


@pytest.mark.parametrize("use_gtid", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_log_that_matches_the_checkpoint_only_by_chance_is_refused(use_gtid, make_task, target_server, open_session):
    """The new log has other rows, with a transaction's end at the checkpoint's place and the same GTIDs before it."""
    postgres = target_server("postgres")
    schema = f"reset_{int(use_gtid)}"

    def rows(session):
        cursor = session.cursor()
        cursor.execute(f"SELECT id, v FROM {schema}.t ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]

    with sandbox.start_mariadb() as server:
        session, target = connect(server), open_session(postgres)
        source = session.cursor()

        def begin(word):
            source.execute(f"DROP DATABASE IF EXISTS {schema}")
            time.sleep(1.1)  # the head of a log file has the second in which the file was created
            source.execute("RESET MASTER")
            source.execute(f"CREATE DATABASE {schema}")
            source.execute(f"CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9))")
            for _ in range(3):
                source.execute(f"INSERT INTO {schema}.t (v) VALUES ('{word}')")

        def end_of_log():
            source.execute("SHOW MASTER STATUS")
            file, offset, *_ = source.fetchone()
            source.execute("SELECT @@gtid_binlog_pos")
            return f"{file}:{offset}", source.fetchone()[0]

        begin("old")
        task = make_task(server, postgres, [schema], name=schema, instance={"enable-gtid": True} if use_gtid else None)
        relay = task.path.parent / "relay"
        task.sync()
        source.execute(f"INSERT INTO {schema}.t (v) VALUES ('old')")
        applied = end_of_log()
        task.sync()
        shutil.rmtree(relay)
        assert refusals(task) == []
        task.sync()  # the same log
        assert refusals(task) == []
        shutil.rmtree(relay)
        begin("new")
        source.execute(f"INSERT INTO {schema}.t (v) VALUES ('new')")
        assert end_of_log() == applied
        source.execute(f"INSERT INTO {schema}.t (v) VALUES ('more')")
        assert refusals(task) == ["source-went-back"]
        run = task.start("--until-synced", "--json")
        assert run.process.wait(120) == 5
        assert json.loads(run.log.read_text().splitlines()[-1])["error"]["code"] == "source-went-back"
        assert [value for _, value in rows(target)] == ["old"] * 4
        run = task.start("--until-synced", "--resync")
        assert run.process.wait(120) == 0, task.logs()
        assert rows(target) == rows(session)
        source.execute(f"INSERT INTO {schema}.t (v) VALUES ('last')")
        shutil.rmtree(relay)
        task.sync()  # the new log
        assert rows(target) == rows(session)
        begin("last")
        assert refusals(task) == ["source-went-back"], "this relay has a later place of the former log"
        session.close()


@pytest.mark.parametrize(
    ("kind", "filled"),
    [
        ("mariadb", "before the checkpoint's place"),
        ("mysql97", "at the checkpoint's place"),
        ("mariadb", "from a log that does not reach this place"),
        pytest.param("mariadb", "at the checkpoint's place", marks=pytest.mark.long),
        pytest.param("mysql97", "before the checkpoint's place", marks=pytest.mark.long),
        pytest.param("mysql97", "from a log that does not reach this place", marks=pytest.mark.long),
    ],
)
def test_a_relay_that_another_task_has_filled_from_the_new_log_is_refused(
    kind, filled, make_task, target_server, open_session
):
    """The first task would continue at its place in the new log, and leave out the changes before this place."""
    is_shorter = filled.startswith("from")
    start = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97}[kind]
    reset = {"mariadb": "RESET MASTER", "mysql97": "RESET BINARY LOGS AND GTIDS"}[kind]
    status = {"mariadb": "SHOW MASTER STATUS", "mysql97": "SHOW BINARY LOG STATUS"}[kind]
    postgres = target_server("postgres")
    schema, other = f"filled_{kind}_{filled[0]}", f"filling_{kind}_{filled[0]}"

    def rows(session):
        cursor = session.cursor()
        cursor.execute(f"SELECT id, v FROM {schema}.t ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]

    with start() as server:
        session, target = connect(server), open_session(postgres)
        source = session.cursor()

        def begin(word):
            for name in (schema, other):
                source.execute(f"DROP DATABASE IF EXISTS {name}")
            time.sleep(1.1)  # the head of a log file has the second in which the file was created
            source.execute(reset)
            for name in (schema, other):
                source.execute(f"CREATE DATABASE {name}")
                source.execute(f"CREATE TABLE {name}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9))")
            source.execute(f"INSERT INTO {schema}.t (v) VALUES ('{word}')")

        def add(word):
            source.execute(f"INSERT INTO {schema}.t (v) VALUES ('{word}')")
            source.execute(status)
            file, offset, *_ = source.fetchone()
            return file, offset

        begin("old")
        task = make_task(server, postgres, [schema], name=schema)
        filling = make_task(server, postgres, [other], name=other)
        task.sync()
        if is_shorter:
            source.execute("FLUSH BINARY LOGS")
        applied = add("old")
        task.sync()
        shutil.rmtree(task.path.parent / "relay")
        begin("new")
        if is_shorter:
            # A table that joins the task makes the start wait for the relay earlier.
            source.execute(f"CREATE TABLE {schema}.joins (id INT PRIMARY KEY)")
        if not filled.startswith("at"):
            filling.sync()
            assert refusals(task) == ["source-went-back"]
        assert (add("new") < applied) if is_shorter else (add("new") == applied)
        if filled.startswith("at"):
            filling.sync()
        add("more")
        run = task.start("--until-synced", "--json")
        assert run.process.wait(120) == 5, task.logs()
        assert json.loads(run.log.read_text().splitlines()[-1])["error"]["code"] == "source-went-back"
        assert [value for _, value in rows(target)] == ["old"] * 2
        assert refusals(task) == ["source-went-back"]
        # The new log's Lsns are not new to the task, and the other task needs the relay.
        run = task.start("--until-synced", "--json", "--resync")
        assert run.process.wait(120) == 5, task.logs()
        assert json.loads(run.log.read_text().splitlines()[-1])["error"]["code"] == "relay-still-needed"
        task.path.write_text(task.path.read_text().replace("relay: relay", "relay: own"))
        run = task.start("--until-synced", "--resync")
        assert run.process.wait(120) == 0, task.logs()
        assert rows(target) == rows(session)
        run = filling.start("--until-synced")
        assert run.process.wait(120) == 0, filling.logs()
        add("last")
        run = task.start("--until-synced")
        assert run.process.wait(120) == 0, task.logs()
        assert rows(target) == rows(session)
        session.close()
