"""Another program writes to the target: rows that differ are set aside, all others continue, and an operator decides."""

from __future__ import annotations

import json
import time

import pytest
from tests.running import Progress
from tests.spark.test_halts import Servers

SETUP = """
CREATE TABLE {0}.a (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL, w INT);
INSERT INTO {0}.a VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)
"""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_rows_that_differ_are_locked_and_resolved_while_the_task_runs_and_while_not(
    mariadb, database, make_task, open_session, eventually, target_server, tmp_path
):
    target = target_server("postgres")
    # Without a copy, nothing here waits for Spark.
    mode = {"task-mode": "incremental"}
    reported = tmp_path / "received"
    pidts = {"on-divergence": "lock", "alerts": {"command": f"tee -a {reported}"}}
    task = make_task(mariadb, target, [database], workers=2, pidts=pidts, **mode)
    servers = Servers(task, open_session(mariadb), open_session(target), database, eventually)
    servers.source(*SETUP.strip().split(";\n"))
    servers.target("CREATE SCHEMA {0}", *SETUP.strip().split(";\n"))
    progress = Progress(open_session(target))
    run = task.start("--json")
    try:
        run.wait_until(lambda: bool(progress.states()), "the task has begun")
        servers.source("INSERT INTO {0}.a VALUES (4, 'four', 4)")
        servers.arrives("a", (4, "four", 4))
        servers.target("UPDATE {0}.a SET v = 'theirs' WHERE id < 3")
        servers.source(
            "UPDATE {0}.a SET w = 10 WHERE id = 1",
            "UPDATE {0}.a SET w = 11 WHERE id = 1",
            "DELETE FROM {0}.a WHERE id = 2",
            "UPDATE {0}.a SET v = 'drei' WHERE id = 3",
        )
        servers.arrives("a", (3, "drei", 3))
        eventually(lambda: servers.pidts("locks", "list", str(task.path))["locked_rows"] == 2, 60, "two are locked")
        assert servers.rows("a") == [(1, "theirs", 1), (2, "theirs", 2), (3, "drei", 3), (4, "four", 4)]

        # Both commands distinguish these rows from all others, and a repair leaves them to the operator.
        for command in ("verify", "repair"):
            done = task.command(command, str(task.path), "--json")
            assert done.returncode == 5, done.stdout
            report = json.loads(done.stdout.splitlines()[-1])
            (one,) = report["tables"]
            assert (one["locked"], one["different"], one["missing"]) == (2, 0, 0)
            assert {each["kind"] for each in report["differences"]} == {"locked"}
        status = task.command("status", str(task.path), "--json")
        assert status.returncode == 5
        (source,) = json.loads(status.stdout)["sources"]
        assert source["locked_rows"] == [{"table": f"{database}.a", "rows": 2}]

        # A new column is added, even to the rows with held changes. A renamed column waits for the operator.
        servers.source("ALTER TABLE {0}.a ADD COLUMN late INT DEFAULT 7", "UPDATE {0}.a SET late = 8 WHERE id = 4")
        servers.arrives("a", (4, "four", 4, 8))
        servers.source("ALTER TABLE {0}.a CHANGE COLUMN w width INT")
        halt = servers.halts("a", "rows-locked")
        assert "2 rows" in halt["what"]
        # The test waits for the alert: no alert would be sent for a row that is resolved before.
        eventually(
            lambda: reported.exists() and '"event": "rows-locked"' in reported.read_text(), 60, "somebody is informed"
        )
        found = {one["key"]: one["id"] for one in servers.pidts("locks", "list", str(task.path))["locks"]}
        shown = servers.pidts("locks", "show", str(task.path), found["id=1"])
        for change in shown["changes"]:
            assert abs(change["time"] - time.time()) < 600
            assert change["gtid"].startswith("0-")
        (value,) = [column for column in shown["columns"] if column["name"] == "v"]
        assert (value["source"], value["target"], value["outcome"]) == ("'one'", "'theirs'", "'one'")
        preview = servers.pidts("locks", "resolve", str(task.path), found["id=1"], "--take", "target", "--dry-run")
        assert not preview["resolved"]
        assert servers.rows("a")[0] == (1, "theirs", 1, 7)
        done = servers.pidts("locks", "resolve", str(task.path), found["id=1"], "--take", "target")
        assert done["resolved"]
        assert servers.rows("a")[0] == (1, "theirs", 11, 7)
        summary = run.summary()
        assert summary["locked_rows"] == 1
        alerts = list(map(json.loads, reported.read_text().replace("}{", "}\n{").splitlines()))
        rows = [one["tables"] for one in alerts if one["event"] == "rows-locked"]
        assert rows in ([{f"{database}.a": 2}], [{f"{database}.a": 1}] * 2)
    finally:
        if run.process.poll() is None:
            run.kill()
    servers.pidts("locks", "resolve", str(task.path), "--table", f"{database}.a", "--all", "--take", "source", "--yes")
    left = [(1, "theirs", 11, 7), (3, "drei", 3, 7), (4, "four", 4, 8)]
    assert servers.rows("a") == left
    code, summary = servers.synced()
    assert (code, summary["locked_rows"], json.dumps(summary["halted"])) == (0, 0, "[]")
    assert servers.rows("a") == left
