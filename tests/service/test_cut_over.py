"""A task that a service runs is cut over: its run ends, it does not start again, and the service shows the reason."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.running import PIDTS
from tests.service.serving import serving, wait_for

from pidts import sandbox
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_task_that_was_cut_over_stays_stopped_and_continues_after_an_undo(
    postgres: Server, database: str, tmp_path: Path, run_sql: RunSql
) -> None:
    # a server of its own, since it is made read-only
    with sandbox.start_mariadb() as source, serving(tmp_path) as service:
        file = tmp_path / "shop.yaml"
        # All rows come by the log, which needs no Spark.
        file.write_text(f"""
name: shop
task-mode: all
ignore-checking-items: [table_list]
target-database:
  {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user}, password: "{postgres.password}", database: {database}}}
mysql-instances:
  - source-id: one
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: all
block-allow-list: {{all: {{do-dbs: [shop]}}}}
""")

        def pidts(*words: str, code: int = 0) -> str:
            command = [*PIDTS, *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout

        def arrives(rows: int) -> None:
            sql = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'shop'"
            wait_for(lambda: run_sql(postgres, sql, database=database) == [(1,)], lambda: service.task("shop"))
            sql = "SELECT count(*) FROM shop.t"
            wait_for(lambda: run_sql(postgres, sql, database=database) == [(rows,)], lambda: service.task("shop"))

        state = ("--state", str(service.state))
        run_sql(source, "CREATE DATABASE shop")
        pidts("start", str(file), *state)
        service.wait_for_stage("shop", "sync")
        run_sql(source, "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        run_sql(source, "INSERT INTO shop.t VALUES (1), (2)")
        arrives(2)

        assert json.loads(pidts("cutover", str(file), "--yes", "--json"))["done"]
        task = service.wait_for_stage("shop", "cut-over")
        assert task["process"] is None
        assert not task["needs_operator"]
        assert "was cut over at" in task["message"]
        assert "PiDTS has made source one read-only for it" in task["message"]
        assert task["error"]["code"] == "cut-over"
        assert "--undo" in task["error"]["todo"]
        # The stage stays, even after a restart of the service.
        restarts = task["restarts"]
        service.stop()
        service.start()
        task = service.task("shop")
        assert (task["stage"], task["restarts"] <= restarts) == ("cut-over", True)
        assert "was cut over at" in pidts("list", *state)
        shown = pidts("status", "shop", *state)
        assert "was cut over at" in shown
        assert "error" not in shown
        assert json.loads(pidts("status", str(file), "--json"))["cutover"]["read_only"] == ["one"]
        # `pidts start` fails at once, because the task was cut over.
        assert "was cut over at" in pidts("start", "shop", *state), (
            "it waits until it knows, and does not say that it starts"
        )
        assert service.wait_for_stage("shop", "cut-over", "failed", "halted")["stage"] == "cut-over"

        pidts("cutover", str(file), "--undo", "--yes")
        pidts("start", "shop", *state)
        service.wait_for_stage("shop", "sync")
        run_sql(source, "INSERT INTO shop.t VALUES (3)")
        arrives(3)
