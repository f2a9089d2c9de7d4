"""A task file's password file is read again at each login, so that a running task survives new passwords."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pidts.login import password_file
from pidts.model.errors import LoginRefused
from pidts.sandbox import start_mariadb, start_postgres
from pidts.source import SourceConfig, connect
from pidts.source.connection import query
from pidts.target.mysql import MySqlTarget
from pidts.task.config.diff import difference
from pidts.task.config.task_file import load_task

RunSql = Callable[..., list[tuple[Any, ...]]]
TASK = """\
name: t
task-mode: all
target-database: {{{target}, host: {host}, port: {port}, user: app, password-file: secret}}
mysql-instances: [{{source-id: a, from: {{host: {host}, port: {port}, user: app, password-file: secret}}}}]
"""

NEW_PROCESS = """
import pickle, sys
from pidts.source import SourceConfig, connect
login = pickle.load(sys.stdin.buffer)
(connect(login) if isinstance(login, SourceConfig) else login.connect()).close()
"""
START = {"mariadb": start_mariadb, "postgres": partial(start_postgres, password="of the superuser")}


@pytest.mark.parametrize("kind", START)
def test_a_login_takes_the_password_that_the_file_has_now(kind: str, run_sql: RunSql, tmp_path: Path) -> None:
    is_postgres, secret = kind == "postgres", tmp_path / "secret"
    changed = "ALTER ROLE app PASSWORD '{}'" if is_postgres else "SET PASSWORD FOR app = PASSWORD('{}')"
    with START[kind]() as server:
        run_sql(
            server, "CREATE ROLE app LOGIN PASSWORD 'first'" if is_postgres else "CREATE USER app IDENTIFIED BY 'first'"
        )
        secret.write_text("first\n")
        target = "type: postgresql, database: postgres" if is_postgres else "type: mysql"
        (tmp_path / "t.yaml").write_text(TASK.format(target=target, host=server.host, port=server.port))
        config = load_task(tmp_path / "t.yaml")

        def log_in() -> None:
            with closing(config.target.server.connect()):
                pass
            if not is_postgres:
                with closing(connect(config.source.server)) as session:
                    assert query(session, "SELECT 1") == [(1,)]

        log_in()
        for password in ("second", "third", "fourth"):
            secret.write_text(password)
            log_in()  # the file may be written before the password is changed
            run_sql(server, changed.format(password))
            log_in()
        secret.unlink()
        log_in()
        run_sql(server, changed.format("fifth"))
        with pytest.raises(LoginRefused) as refused:
            log_in()
        shown = "".join(traceback.format_exception(refused.value))
        assert not [password for password in ("first", "fourth", "fifth") if password in shown]
        assert "fourth" not in repr(vars(password_file))


def test_servers_that_share_a_password_file_change_their_passwords_one_after_the_other(
    run_sql: RunSql, tmp_path: Path
) -> None:
    """A login falls back to what its own server has accepted, since another server may be one change ahead."""
    secret = tmp_path / "secret"
    secret.write_text("first")
    with start_mariadb() as source, start_mariadb() as target:
        for server in (source, target):
            run_sql(server, "CREATE USER app IDENTIFIED BY 'first'")
        logins = [
            SourceConfig(server.host, server.port, "app", "first", password_file=str(secret))
            for server in (source, target)
        ]

        def log_in() -> None:
            for config in logins:
                connect(config).close()

        log_in()
        for password in ("second", "third"):
            secret.write_text(password)
            log_in()
            for server in (source, target):
                run_sql(server, f"SET PASSWORD FOR app = PASSWORD('{password}')")
                log_in()


def test_a_new_process_gets_the_password_that_the_server_has_accepted_last(run_sql: RunSql, tmp_path: Path) -> None:
    """Spark starts new workers at any time, also between the second new file and the server's change."""
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    with start_mariadb() as server:
        run_sql(server, "CREATE USER app IDENTIFIED BY 'first'")
        (tmp_path / "t.yaml").write_text(TASK.format(target="type: mysql", host=server.host, port=server.port))
        config = load_task(tmp_path / "t.yaml")
        secret.write_text("second")
        run_sql(server, "SET PASSWORD FOR app = PASSWORD('second')")
        config.target.server.connect().close()
        secret.write_text("third")
        for login in (config.target.server, config.source.server):
            subprocess.run([sys.executable, "-c", NEW_PROCESS], input=pickle.dumps(login), check=True, timeout=60)


def test_a_process_that_has_missed_a_change_waits_for_the_server_s_next_change(run_sql: RunSql, tmp_path: Path) -> None:
    """It has made no login between two changes, so it knows neither the file's nor the server's password."""
    secret = tmp_path / "secret"
    with start_mariadb() as server:
        run_sql(server, "CREATE USER app IDENTIFIED BY 'second'")
        secret.write_text("third")
        login = SourceConfig(server.host, server.port, "app", "first", password_file=str(secret))
        change = threading.Timer(3, run_sql, (server, "SET PASSWORD FOR app = PASSWORD('third')"))
        change.start()
        connect(login).close()
        change.join()


@pytest.mark.parametrize("is_source", [True, False])
def test_a_refused_login_after_an_accepted_one_says_that_the_run_has_to_start_again(
    run_sql: RunSql, *, is_source: bool
) -> None:
    """The password comes from the environment or the task file, and was changed on the server."""
    with start_mariadb() as server:
        run_sql(server, "CREATE USER app IDENTIFIED BY 'first'")
        login = (server.host, server.port, "app", "first")

        def log_in() -> None:
            (connect(SourceConfig(*login)) if is_source else MySqlTarget(*login).connect()).close()

        log_in()
        run_sql(server, "SET PASSWORD FOR app = PASSWORD('second')")
        with pytest.raises(LoginRefused) as refused:
            log_in()
        assert "If it was changed, put the new password into the environment or the task file" in str(refused.value)
        with pytest.raises(LoginRefused) as wrong:
            connect(SourceConfig(server.host, server.port, "nobody", "first"))
        assert "has accepted" not in str(wrong.value)


def test_a_new_password_in_the_file_is_no_edit_of_the_task(tmp_path: Path) -> None:
    """The running task would say that it takes effect at the next start."""
    (tmp_path / "secret").write_text("first")
    (tmp_path / "t.yaml").write_text(TASK.format(target="type: mysql", host="h", port=1))
    running = load_task(tmp_path / "t.yaml")
    (tmp_path / "secret").write_text("second")
    assert difference(running, load_task(tmp_path / "t.yaml")).waiting == ()
    (tmp_path / "t.yaml").write_text(TASK.format(target="type: mysql", host="h", port=2))
    assert set(difference(running, load_task(tmp_path / "t.yaml")).waiting) == {"mysql-instances", "target-database"}
