"""A task file's password file is read again at each login, so that a running task survives new passwords."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pidts.login import password_file
from pidts.model.errors import LoginRefused
from pidts.sandbox import Server, start_mariadb, start_postgres
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


def log_in_at_once(login: SourceConfig, number: int = 8) -> None:
    """Opens many connections at the same moment, as the workers of a run do."""
    with ThreadPoolExecutor(number) as pool:
        for session in pool.map(lambda _: connect(login), range(number)):
            session.close()


def test_a_change_of_the_password_does_not_lock_an_account_with_few_attempts(
    mysql97: Server, run_sql: RunSql, tmp_path: Path
) -> None:
    """The server counts the refused logins in a row."""
    secret = tmp_path / "secret"
    secret.write_text("first")
    run_sql(mysql97, "CREATE USER few IDENTIFIED BY 'first' FAILED_LOGIN_ATTEMPTS 2 PASSWORD_LOCK_TIME 1")
    try:
        login = SourceConfig(mysql97.host, mysql97.port, "few", "first", password_file=str(secret))
        log_in_at_once(login)
        for password in ("second", "third"):
            secret.write_text(password)
            log_in_at_once(login)
            run_sql(mysql97, f"ALTER USER few IDENTIFIED BY '{password}'")
            log_in_at_once(login)
    finally:
        run_sql(mysql97, "DROP USER few")


def test_a_suspended_process_does_not_keep_others_from_logging_in(
    mariadb: Server, run_sql: RunSql, tmp_path: Path
) -> None:
    (secret := tmp_path / "secret").write_text("second")
    run_sql(mariadb, "CREATE USER turn IDENTIFIED BY 'first'")
    with secret.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        connect(SourceConfig(mariadb.host, mariadb.port, "turn", "first", password_file=str(secret))).close()
    run_sql(mariadb, "DROP USER turn")


def test_a_login_waits_for_the_other_half_of_a_change(mysql97: Server, run_sql: RunSql, tmp_path: Path) -> None:
    """Three processes: one has started between the two halves, one has missed a change, one finds the server ahead."""
    logins = {
        user: SourceConfig(mysql97.host, mysql97.port, user, read, password_file=str(tmp_path / user))
        for user, read in (("started", "third"), ("missed", "first"), ("ahead", "second"))
    }
    for user in logins:
        run_sql(
            mysql97,
            f"CREATE USER {user} IDENTIFIED BY 'second' FAILED_LOGIN_ATTEMPTS 3 PASSWORD_LOCK_TIME 1",
        )
        (tmp_path / user).write_text("second" if user == "ahead" else "third")
    try:
        connect(logins["ahead"]).close()
        os.utime(tmp_path / "ahead", (0, 0))
        run_sql(mysql97, "ALTER USER ahead IDENTIFIED BY 'third'")
        with ThreadPoolExecutor() as pool:
            waiting = [pool.submit(connect, login) for login in logins.values()]
            assert not wait(waiting, timeout=3).done
            for user in ("started", "missed"):
                run_sql(mysql97, f"ALTER USER {user} IDENTIFIED BY 'third'")
            (tmp_path / "ahead").write_text("third")
            for one in waiting:
                one.result().close()
    finally:
        run_sql(mysql97, "DROP USER started, missed, ahead")


def test_a_wrong_password_in_a_file_that_is_not_new_is_refused_at_once(
    mariadb: Server, run_sql: RunSql, tmp_path: Path
) -> None:
    (secret := tmp_path / "secret").write_text("wrong")
    os.utime(secret, (0, 0))
    run_sql(mariadb, "CREATE USER wrong IDENTIFIED BY 'right'")
    began = time.monotonic()
    with pytest.raises(LoginRefused):
        connect(SourceConfig(mariadb.host, mariadb.port, "wrong", "wrong", password_file=str(secret)))
    assert time.monotonic() - began < password_file._WAIT_SECONDS / 2
    run_sql(mariadb, "DROP USER wrong")


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


def test_a_catalog_on_a_server_gets_the_file_too(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    (secret := tmp_path / "secret").write_text("first")
    to = "publish-to: {host: h, user: app, database: lake, password-file: secret}"
    task = TASK.format(target="type: iceberg", host="h", port=1)
    start, _, rest = task.partition("target-database: ")
    (tmp_path / "t.yaml").write_text(
        f"{start}target-database: {{type: iceberg, warehouse: lake, {to}}}\n{rest[rest.index('mysql-') :]}"
    )
    running = load_task(tmp_path / "t.yaml")
    catalog: Any = running.target.server_catalog
    assert (catalog.password, catalog.password_file) == ("first", str(secret))
    secret.write_text("second")
    assert difference(running, load_task(tmp_path / "t.yaml")).waiting == ()
