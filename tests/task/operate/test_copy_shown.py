"""A large copy shows its progress while a single job reads its rows, not only after the job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.conftest import RunSql
from tests.forked_programs import LoadedPrograms

from pidts.sandbox import Server
from pidts.task.config.task_file import load_task
from pidts.task.operate.progress import Progress
from pidts.task.run.task_run import run_task

ROWS = 600_000


@pytest.fixture(params=["PRIMARY KEY", "NOT NULL"])
def database(mariadb: Server, postgres: Server, run_sql: RunSql, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with one large table, with or without a key."""
    name = "copy_shown"
    run_sql(mariadb, f"CREATE DATABASE {name}")
    run_sql(mariadb, f"CREATE TABLE t (id INT {request.param}, a VARCHAR(80))", database=name)
    run_sql(mariadb, f"INSERT INTO t SELECT seq, RPAD(seq, 80, 'x') FROM seq_1_to_{ROWS}", database=name)
    run_sql(mariadb, "ANALYZE TABLE t", database=name)
    run_sql(postgres, f"CREATE DATABASE {name}")
    run_sql(postgres, f"CREATE SCHEMA {name}", database=name)
    # The target sleeps at some rows, so that the job lasts for seconds on any machine.
    slow = f"CHECK (id % {ROWS // 10} <> 0 OR pg_sleep(0.4)::text IS NOT NULL)"
    run_sql(postgres, f"CREATE TABLE {name}.t (id INT {request.param}, a VARCHAR(80), {slow})", database=name)
    yield name
    run_sql(mariadb, f"DROP DATABASE {name}")
    run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)")


def test_rows_that_a_job_has_read_are_shown_before_it_ends(
    mariadb: Server, postgres: Server, database: str, tmp_path: Path, programs: LoadedPrograms
) -> None:
    task = {
        "name": database,
        "task-mode": "full",
        "target-database": {
            "type": "postgresql",
            "host": postgres.host,
            "port": postgres.port,
            "user": postgres.user,
            "database": database,
        },
        "mysql-instances": [
            {
                "source-id": "s",
                "from": {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user},
                "block-allow-list": "own",
            }
        ],
        "block-allow-list": {"own": {"do-dbs": [database]}},
        "pidts": {"relay": str(tmp_path / "relay")},
    }
    path = tmp_path / "task.yaml"
    path.write_text(yaml.safe_dump(task))
    shown: list[Progress] = []
    ended = run_task(
        [load_task(path, {})],
        until_synced=True,
        stop=threading.Event(),
        on_progress=shown.append,
        replicators=programs.replicators,
    )
    assert ended.stage == "synced"
    (table,) = ended.tables
    assert (table.copied, table.done) == (ROWS, True)
    before_their_job_ended = [one for one in shown if one.tables and one.tables[0].copied > one.rows["copied"]]
    assert before_their_job_ended
    assert all(one.tables[0].copied <= ROWS for one in shown if one.tables), "no row counts twice"
    rows = [one.tables[0].copied for one in shown if one.tables]
    assert rows == sorted(rows)
