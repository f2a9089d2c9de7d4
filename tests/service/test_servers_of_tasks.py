"""A service asks a task's servers for status, schema changes, comparisons and the relay, and commands get the answers
from the service.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.running import PIDTS
from tests.service.serving import serving, task_file, wait_for

from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_task_is_looked_at_and_compared(
    mariadb: Server, postgres: Server, database: str, tmp_path: Path, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT NOT NULL)")
    run_sql(mariadb, f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)")
    path = f"/api/tasks/{database}"
    file = tmp_path / "task.yaml"
    file.write_text(task_file(database, mariadb, postgres, database))

    with serving(tmp_path) as service:

        def pidts(*words: str) -> tuple[int, Any]:
            command = [*PIDTS, *words, "--state", str(service.state), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            return done.returncode, json.loads(done.stdout)

        assert pidts("start", str(file))[1]["name"] == database
        task = service.wait_for_stage(database, "sync")
        assert task["copy"] == {"tables": 1, "done": 1, "copied": 2, "estimate": 2, "eta_seconds": 0.0}
        assert pidts("list")[1]["tasks"][0]["name"] == database
        assert pidts("status", database)[0] == 0

        status = service.call("GET", f"{path}/status")[1]
        assert (status["task"], status["begun"]) == (database, True)
        assert service.call("GET", f"{path}/ddl")[0] == 200
        assert service.call("GET", f"{path}/relay")[0] == 200
        assert service.call("GET", f"{path}/locks")[0] == 200
        code, refused = service.call("POST", f"{path}/ddl/skip", {"table": "none; --yes", "at": "--yes", "yes": True})
        assert code in {400, 409}, refused
        metrics = service.call("GET", "/metrics")[1]
        assert f'pidts_up{{task="{database}"}} 1.0' in metrics
        assert f'pidts_stage{{source="one",stage="sync",task="{database}"}} 1.0' in metrics

        # A comparison finds a row that another program has changed, and a repair corrects it.
        run_sql(postgres, f"UPDATE {database}.t SET n = 7 WHERE id = 1", database=database)
        assert ran(service, path, {"kind": "verify"})["report"]["differences"][0]["key"] == {"id": 1}
        ran(service, path, {"kind": "repair", "options": {"apply": True}})
        assert run_sql(postgres, f"SELECT n FROM {database}.t WHERE id = 1", database=database) == [(1,)]
        run = ran(service, path, {"kind": "verify", "options": {"tables": f"{database}.*"}})
        assert (run["state"], run["exit_code"], run["report"]["differences"]) == ("done", 0, [])
        assert service.call("POST", f"{path}/runs", {"kind": "verify", "options": {"debug": True}})[0] == 400

        host, port = service.url.removeprefix("http://").split(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
            connection.request("GET", f"{path}/events")
            stream = connection.getresponse()
            assert stream.readline() == b"event: task\n"
            assert json.loads(stream.readline().removeprefix(b"data: "))["name"] == database

        # The service shows a halted table, and takes the ddl command that lets it continue.
        run_sql(postgres, f"CREATE VIEW {database}.v AS SELECT n FROM {database}.t", database=database)
        run_sql(mariadb, f"ALTER TABLE {database}.t DROP COLUMN n")
        wait_for(lambda: service.task(database)["halted"] == 1, lambda: service.task(database))
        assert service.task(database)["needs_operator"]
        assert pidts("status")[0] == 5
        preview = service.call("POST", f"{path}/ddl/skip", {"table": f"{database}.t"})
        assert preview[0] == 200, preview
        assert pidts("stop", database)[1]["stage"] == "stopped"
        assert pidts("pause", database)[0] == 1


def ran(service: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, begun = service.call("POST", f"{path}/runs", body)
    assert status == 202, begun
    where = f"{path}/runs/{begun['id']}"
    wait_for(lambda: service.call("GET", where)[1]["state"] != "running", lambda: service.call("GET", where))
    found: dict[str, Any] = service.call("GET", where)[1]
    return found
