"""The target's sessions get the variables of the task file, and only the schema that the file names is changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pidts.model import Checkpoint, Lsn, PidtsError, Position, SourceTablesKey, TableName
from pidts.sandbox import Server
from pidts.task.config.task_file import TaskConfig, load_task

RunSql = Callable[..., list[tuple[Any, ...]]]

TASK = """\
name: t
task-mode: all
meta-schema: {meta}
target-database: {{type: {type}, host: {host}, port: {port}, user: {user}, password: "{password}", {more}}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, user: u}}}}]
"""
LSN = Lsn.at(Position("bin.000001", 4), 0)
START = Checkpoint(task="t", source="s", worker=0, lsn=LSN, gtid="", position="bin.000001:4")


def task(path: Path, server: Server, kind: str, more: str, meta: str = "") -> TaskConfig:
    place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    path.write_text(TASK.format(type=kind, meta=meta, more=more, **place))
    return load_task(path, {})


@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_all_that_a_task_keeps_is_in_the_schema_that_it_names(
    tmp_path: Path, mariadb: Server, postgres: Server, kind: str, database: str, run_sql: RunSql
) -> None:
    server = mariadb if kind == "mysql" else postgres
    more = f"database: {database}" if kind == "postgresql" else ""
    meta = f"meta_{database}"[:60].rstrip("_")
    config = task(tmp_path / "task.yaml", server, kind, more, meta)
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = '{}' ORDER BY table_name".format
    usual = run_sql(server, tables("pidts_meta"), database=database)
    rows_before = {
        name: run_sql(server, f"SELECT count(*) FROM pidts_meta.{name}", database=database) for (name,) in usual
    }
    try:
        with closing(config.target.server.connect()) as session:
            assert session.meta.checkpoints.read("t", "s") == []
            session.meta.prepare()
            [claimed] = session.meta.checkpoints.claim("t", "s", 1, START)
            session.begin()
            locked = session.meta.checkpoints.lock("t", "s", 0)
            session.meta.structures.save("t", SourceTablesKey("s"), LSN, {})
            session.meta.safe_range.save("t", "s", LSN)
            session.meta.notes.write("t", SourceTablesKey("s"), TableName("a", "b"), "a note")
            session.meta.checkpoints.save(claimed)
            session.commit()
            assert locked == claimed
            assert session.meta.safe_range.read("t", "s") == LSN
            assert session.meta.notes.read("t", SourceTablesKey("s"), TableName("a", "b")) == "a note"
            assert [row.worker for row in session.meta.checkpoints.read("t", "s")] == [0]
        here = [name for (name,) in run_sql(server, tables(meta), database=database)]
        assert {"checkpoint", "structure", "ddl_journal", "tombstone", "safe_range"} <= set(here)
        counted = (
            f'SELECT count(*) FROM "{meta}".checkpoint'
            if kind == "postgresql"
            else f"SELECT count(*) FROM {meta}.checkpoint"
        )
        assert run_sql(server, counted, database=database) == [(1,)]
        assert run_sql(server, tables("pidts_meta"), database=database) == usual
        for name, rows in rows_before.items():
            assert run_sql(server, f"SELECT count(*) FROM pidts_meta.{name}", database=database) == rows
    finally:
        drop = f'DROP SCHEMA "{meta}" CASCADE' if kind == "postgresql" else f"DROP DATABASE {meta}"
        run_sql(server, drop, database=database)


def test_the_schema_that_a_task_keeps_is_never_replicated(tmp_path: Path, mariadb: Server) -> None:
    config = task(tmp_path / "task.yaml", mariadb, "mysql", "", "dm_meta")
    assert not config.allow(TableName("dm_meta", "checkpoint"))
    assert not config.allow(TableName("DM_META", "checkpoint"))
    assert config.allow(TableName("dm_meta2", "t"))


def test_variables_and_the_size_of_statements_reach_the_sessions(
    tmp_path: Path, mariadb: Server, run_sql: RunSql
) -> None:
    more = "max-allowed-packet: 131072, session: {SQL_LOG_BIN: '0', wait_timeout: 777, tidb_x: 1, sql_mode: ANSI}"
    config = task(tmp_path / "task.yaml", mariadb, "mysql", more)
    with closing(config.target.server.connect()) as session:
        asked = "SELECT @@SESSION.sql_log_bin, @@SESSION.wait_timeout, @@SESSION.sql_mode LIKE '%STRICT_ALL%'"
        assert session.run(asked, ())[0] == [(0, 777, 1)]  # type: ignore[attr-defined]
        assert session.server.max_packet == 131072  # type: ignore[attr-defined]
        [(theirs,)] = run_sql(mariadb, "SELECT @@max_allowed_packet")
    larger = task(tmp_path / "task.yaml", mariadb, "mysql", f"max-allowed-packet: {2 * theirs}")
    with closing(larger.target.server.connect()) as session:
        assert session.server.max_packet == theirs  # type: ignore[attr-defined]


def test_a_variable_that_the_server_does_not_know_is_reported(tmp_path: Path, mariadb: Server) -> None:
    config = task(tmp_path / "task.yaml", mariadb, "mysql", "session: {no_such_thing: 1}")
    with pytest.raises(PidtsError, match="no_such_thing"):
        config.target.server.connect()
