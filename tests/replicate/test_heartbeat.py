"""If a heartbeat is configured, a row is written to the source regularly, and shows the lag; otherwise nothing is
written.
"""

from __future__ import annotations

import time
from pathlib import Path

import pymysql
import pytest
from tests.replicate.proxy import Proxy
from tests.replicate.test_live import RunSql, end_of, following, source_of

from pidts.replicate import HeartbeatConfig, ReplicatorConfig
from pidts.sandbox import Server
from pidts.source import SourceConfig
from pidts.task.checks.privileges import HEARTBEAT_PRIVILEGES

pytestmark = pytest.mark.repeats("mysql97", "mysql56")

DELAY = 0.4


def config_of(source: SourceConfig, server: Server, relay: Path, beat: HeartbeatConfig | None) -> ReplicatorConfig:
    return ReplicatorConfig(source, relay, end_of(server), written_heartbeat=beat)


@pytest.fixture
def schema(mysql_like: Server, run_sql: RunSql, database: str) -> str:
    """Drops the schema of the test, which the heartbeat creates again; returns its name."""
    run_sql(mysql_like, f"DROP DATABASE {database}")
    return database


def beats(server: Server, run_sql: RunSql, schema: str) -> list[tuple[object, ...]]:
    return run_sql(server, f"SELECT task, at FROM {schema}.heartbeat")


def test_the_lag_is_that_of_the_line_on_a_source_on_which_nothing_else_happens(
    mysql_like: Server, run_sql: RunSql, schema: str, tmp_path: Path
) -> None:
    task = "a `task` of ours' \\"
    with Proxy(mysql_like.port) as proxy:
        source = SourceConfig("127.0.0.1", proxy.port, mysql_like.user, mysql_like.password, source_id="s")
        beat = HeartbeatConfig(0.1, schema, task)
        with following(config_of(source, mysql_like, tmp_path, beat)) as run:
            state = run.replicator.state

            def is_lag(least: float, most: float) -> bool:
                lag = state().lag_seconds
                return lag is not None and least <= lag < most

            run.until(lambda: is_lag(0.0, DELAY / 2))
            ((name, first),) = beats(mysql_like, run_sql, schema)
            assert name == task
            run.until(lambda: beats(mysql_like, run_sql, schema)[0][1] != first)
            run.until_received(mysql_like)
            proxy.delay = DELAY
            run.until(lambda: is_lag(DELAY, 4 * DELAY))
            proxy.delay = 0.0
            run.until(lambda: is_lag(0.0, DELAY / 2))
            assert len(beats(mysql_like, run_sql, schema)) == 1


def test_the_privileges_that_are_asked_for_are_enough(
    mysql_like: Server, run_sql: RunSql, schema: str, tmp_path: Path
) -> None:
    account = f"beats_{schema}"[:16]
    # MySQL 5.6 has an account without a name for this machine, which is used before an account for any machine.
    everywhere = [f"{account}@'{host}'" for host in ("%", "localhost")]
    for one in everywhere:
        run_sql(mysql_like, f"CREATE USER {one} IDENTIFIED BY 'Pass_word-1'")
        run_sql(mysql_like, f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {one}")
        run_sql(mysql_like, f"GRANT {', '.join(HEARTBEAT_PRIVILEGES)} ON `{schema}`.* TO {one}")
    try:
        source = SourceConfig(mysql_like.host, mysql_like.port, account, "Pass_word-1", source_id="s")
        beat = HeartbeatConfig(0.1, schema, "task")
        there = f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = 'heartbeat'"
        with following(config_of(source, mysql_like, tmp_path, beat)) as run:
            run.until(lambda: bool(run_sql(mysql_like, there)) and bool(beats(mysql_like, run_sql, schema)))
            ((_, first),) = beats(mysql_like, run_sql, schema)
            run.until(lambda: beats(mysql_like, run_sql, schema)[0][1] != first)
    finally:
        for one in everywhere:
            run_sql(mysql_like, f"DROP USER {one}")


def test_a_source_is_not_written_to_unless_asked(mariadb: Server, run_sql: RunSql, tmp_path: Path) -> None:
    with following(config_of(source_of(mariadb), mariadb, tmp_path, None)) as run:
        run.until(lambda: run.replicator.state().lag_seconds is not None)
        end = end_of(mariadb)
        time.sleep(2.5)
        assert end_of(mariadb) == end


def test_a_source_that_refuses_the_heartbeat_is_followed_without(
    mariadb: Server, run_sql: RunSql, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = f"reader_{database}"[:16]
    run_sql(mariadb, f"CREATE USER {account}@'%' IDENTIFIED BY 'Pass_word-1'")
    run_sql(mariadb, f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}@'%'")
    try:
        source = SourceConfig(mariadb.host, mariadb.port, account, "Pass_word-1", source_id="s")
        beat = HeartbeatConfig(0.1, database, "task")
        with following(config_of(source, mariadb, tmp_path, beat)) as run:
            said: list[str] = []

            def is_refused() -> bool:
                said.append(capsys.readouterr().out)
                return "the source refuses the heartbeat" in "".join(said)

            run.until(is_refused)
            run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
            run.until_received(mariadb)
            assert run.replicator.state().connected
    finally:
        run_sql(mariadb, f"DROP USER {account}@'%'")
    assert f"{''.join(said)}{capsys.readouterr().out}".count("the source refuses the heartbeat") == 1
    assert run_sql(mariadb, f"SHOW TABLES FROM {database}") == [("t",)]


@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql97", marks=pytest.mark.long)])
def test_no_sessions_pile_up_on_a_source_that_is_locked(
    kind: str, request: pytest.FixtureRequest, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(kind)
    run_sql(server, f"CREATE DATABASE IF NOT EXISTS {database}")
    beat = HeartbeatConfig(0.1, database, "task")
    waiting = "SELECT COUNT(*), MAX(time) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO%heartbeat%'"
    with following(config_of(source_of(server), server, tmp_path, beat)) as run:
        run.until(lambda: run.replicator.state().lag_seconds is not None)
        locking = pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)
        locking.query("FLUSH TABLES WITH READ LOCK")
        run.until(lambda: run_sql(server, waiting)[0][0])
        until = time.monotonic() + 11
        while time.monotonic() < until:
            ((count, seconds),) = run_sql(server, waiting)
            assert count <= 1
            assert (seconds or 0) < 8
            time.sleep(0.2)
        locking.close()
        ((_, before),) = beats(server, run_sql, database)
        run.until(lambda: beats(server, run_sql, database)[0][1] != before)
