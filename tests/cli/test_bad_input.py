"""`pidts run` reports each mistake in a task with its own message and exit code, before it writes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.sandbox import Server, start_mariadb

RunSql = Callable[..., list[tuple[Any, ...]]]

TASK = """\
name: bad
task-mode: {mode}
target-database: {{type: postgresql, host: {target.host}, port: {target_port}, user: {target_user}, password: "{target.password}",
  database: {database}}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source_port}, user: {user}, password: "{password}"}}
    block-allow-list: one
block-allow-list: {{one: {{do-dbs: [{database}]}}}}
pidts: {{relay: relay}}
{extra}
"""


@pytest.fixture(scope="module")
def own_source() -> Iterator[Server]:
    """Starts a server for these tests alone, which change its settings."""
    with start_mariadb() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, own_source: Server, postgres: Server, database: str, run_sql: RunSql, capsys: Any) -> Any:
    """Runs the task; returns the exit code and the error object. The source has one table `t`."""
    run_sql(own_source, f"CREATE DATABASE IF NOT EXISTS {database}")
    run_sql(own_source, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(10))")

    def start(command: str = "run", **changes: Any) -> tuple[int, dict[str, Any]]:
        values = {
            "mode": "all",
            "source": own_source,
            "source_port": own_source.port,
            "user": own_source.user,
            "password": own_source.password,
            "target": postgres,
            "target_port": postgres.port,
            "target_user": postgres.user,
            "database": database,
            "extra": "",
        }
        path = tmp_path / "bad.yaml"
        path.write_text(TASK.format(**{**values, **changes}))
        code = run_command([command, str(path), *(["--until-synced"] if command == "run" else []), "--json"])
        printed = capsys.readouterr()
        assert not (tmp_path / "relay").exists()
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname IN ('pidts_meta', %s)"
        assert run_sql(postgres, schemas, database, database=database) == []
        document = json.loads(printed.out.splitlines()[-1])
        if command == "check":
            return code, document
        error: dict[str, Any] = document["error"]
        assert error["what"] in " ".join(printed.err.split()) or error["code"] in printed.err
        return code, error

    return start


def test_a_wrong_password(run: Any, own_source: Server, run_sql: RunSql) -> None:
    run_sql(own_source, "CREATE USER IF NOT EXISTS someone@'127.0.0.1' IDENTIFIED BY 'right'")
    code, error = run(user="someone", password="wrong-secret")
    assert code == 3
    assert "someone" in error["what"]
    assert "wrong-secret" not in json.dumps(error)


def test_a_host_that_does_not_answer(run: Any) -> None:
    """A run waits for the server (tests/task/test_absent_servers.py).

    A check reports that the server does not answer, and ends.
    """
    for port in ("source_port", "target_port"):
        code, error = run("check", **{port: 9})
        assert code == 3
        assert "127.0.0.1:9" in json.dumps(error)


def test_a_missing_privilege(run: Any, own_source: Server, run_sql: RunSql, database: str) -> None:
    run_sql(own_source, "CREATE USER IF NOT EXISTS reader@'127.0.0.1'")
    run_sql(own_source, f"GRANT SELECT ON {database}.* TO reader@'127.0.0.1'")
    code, error = run(user="reader", password="")
    assert code == 3
    assert "REPLICATION SLAVE" in json.dumps(error)
    assert "GRANT" in error["todo"]


@pytest.mark.parametrize(("setting", "bad", "good"), [("binlog_format", "STATEMENT", "ROW")])
def test_a_log_that_does_not_hold_whole_rows(
    run: Any, own_source: Server, run_sql: RunSql, setting: str, bad: str, good: str
) -> None:
    run_sql(own_source, f"SET GLOBAL {setting} = {bad}")
    try:
        code, error = run()
    finally:
        run_sql(own_source, f"SET GLOBAL {setting} = {good}")
    assert code == 3
    assert setting in error["what"]
    assert good in error["todo"]


def test_a_source_without_a_log(run: Any, run_sql: RunSql, database: str) -> None:
    with start_mariadb(options=["--skip-log-bin"]) as server:
        run_sql(server, f"CREATE DATABASE {database}")
        run_sql(server, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(10))")
        code, error = run(source=server, source_port=server.port)
    assert code == 3
    assert "log_bin" in json.dumps(error) or "binary log" in json.dumps(error)


def test_an_unknown_key(run: Any) -> None:
    code, error = run(extra="task-modus: all")
    assert code == 2
    assert error["code"] == "unknown-key"
    assert "task-mode" in error["todo"] + error["what"]
    assert error["where"]["line"] == 11


def test_a_table_whose_log_shows_old_versions_of_rows(
    run: Any, own_source: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(own_source, f"CREATE TABLE {database}.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    code, error = run()
    assert code == 3
    assert f"{database}.v is system-versioned" in error["what"]


def test_a_structure_that_the_catalog_does_not_show(
    run: Any, own_source: Server, run_sql: RunSql, database: str
) -> None:
    run_sql(own_source, f"CREATE TABLE {database}.mood (id INT PRIMARY KEY, m ENUM('😀', 'so') CHARACTER SET utf8mb4)")
    code, error = run()
    assert code == 3
    assert f"{database}.mood" in json.dumps(error)


def test_a_target_table_of_another_shape(
    tmp_path: Path, own_source: Server, postgres: Server, database: str, run_sql: RunSql, capsys: Any
) -> None:
    run_sql(own_source, f"CREATE DATABASE IF NOT EXISTS {database}")
    run_sql(own_source, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(10))")
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".t (id INT PRIMARY KEY, other INT)', database=database)
    path = tmp_path / "bad.yaml"
    path.write_text(
        TASK.format(
            mode="all",
            source=own_source,
            source_port=own_source.port,
            user=own_source.user,
            password=own_source.password,
            target=postgres,
            target_port=postgres.port,
            target_user=postgres.user,
            database=database,
            extra="",
        )
    )
    assert run_command(["run", str(path), "--json"]) == 3
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert f"{database}.t" in error["what"]
    assert "v" in error["what"]
    meta = "SELECT 1 FROM pg_namespace WHERE nspname = 'pidts_meta'"
    assert run_sql(postgres, meta, database=database) == []
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s ORDER BY 1"
    assert run_sql(postgres, columns, database, database=database) == [("id",), ("other",)]
