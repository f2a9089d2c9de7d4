"""Throwaway servers offer what tests and the demo need, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pidts import sandbox
from pidts.model.errors import PidtsError
from pidts.sandbox import Server
from pidts.sandbox.made_data import FOLDER

RunSql = Callable[..., list[tuple[Any, ...]]]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_the_mysql_family_logs_full_rows(mysql_like: Server, run_sql: RunSql) -> None:
    settings = run_sql(mysql_like, "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@character_set_server")
    assert settings == [(1, "ROW", "FULL", "utf8mb4")]


def test_each_server_is_of_the_version_its_name_says(
    mariadb: Server, mysql97: Server, mysql56: Server, run_sql: RunSql
) -> None:
    versions = [run_sql(server, "SELECT version()")[0][0] for server in (mariadb, mysql97, mysql56)]
    assert "MariaDB" in versions[0]
    assert versions[1].startswith("9.")
    assert versions[2].startswith("5.6.")


def test_postgres_speaks_utf8(postgres: Server, run_sql: RunSql) -> None:
    assert run_sql(postgres, "SHOW server_encoding") == [("UTF8",)]


def test_a_database_of_ones_own_is_made_on_every_server_of_the_test(
    mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    assert run_sql(mariadb, "SELECT schema_name FROM information_schema.schemata WHERE schema_name = %s", database)
    assert run_sql(postgres, "SELECT datname FROM pg_database WHERE datname = %s", database)


@pytest.mark.parametrize("start", [sandbox.start_mariadb, sandbox.start_postgres])
def test_committed_data_survives_a_crash_and_a_restart_on_the_same_port(
    start: Callable[..., Server], run_sql: RunSql
) -> None:
    database = "postgres" if start is sandbox.start_postgres else "mysql"
    with start(password="it's \\secret") as server:
        port = server.port
        run_sql(server, "CREATE TABLE kept (id int)", database=database)
        run_sql(server, "INSERT INTO kept VALUES (7)", database=database)
        server.kill()
        assert server.pid is None
        server.restart()
        assert server.port == port
        assert run_sql(server, "SELECT id FROM kept", database=database) == [(7,)]
        assert "secret" not in repr(server)
    assert not server.directory.exists()
    with socket.socket() as probe:
        assert probe.connect_ex((server.host, port)) != 0


def test_options_reach_the_server(run_sql: RunSql) -> None:
    with sandbox.start_mariadb(options=["--gtid-domain-id=41"]) as server:
        assert run_sql(server, "SELECT @@gtid_domain_id") == [(41,)]


def test_servers_that_start_at_the_same_time_do_not_disturb_each_other(
    run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER)  # Each server makes its own data.
    # If servers shared a temporary folder, the start of one would remove the temporary tables of the others.
    with ThreadPoolExecutor(2) as pool:
        servers = list(pool.map(lambda _: sandbox.start_mariadb(), range(2)))
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        assert [run_sql(server, "SELECT 1") for server in servers] == [[(1,)]] * 2
        assert len({server.port for server in servers}) == 2
        assert all((server.directory / "init.log").read_text().count("temporary table") == 0 for server in servers)


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(PidtsError) as caught:
        sandbox.start_mariadb(options=["--no-such-option"])
    assert caught.value.code == "sandbox-failed"
    assert "no-such-option" in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_missing_programs_are_named_with_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL97_ROOT", str(tmp_path))
    with pytest.raises(PidtsError) as caught:
        sandbox.start_mysql97()
    assert caught.value.code == "sandbox-missing"
    assert str(tmp_path) in caught.value.what
    assert sandbox.installed()["mysql97"] is None


_OWNER = """
import signal, sys, threading, time
from pidts import sandbox
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in a shell's background ignores it
started = []
def start():  # in a thread that is gone when the servers are in use
    for begin in (sandbox.start_mariadb, sandbox.start_postgres):
        started.append(begin())
thread = threading.Thread(target=start)
thread.start()
thread.join()
try:
    print(*(server.pid for server in started), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    if all(server.pid is not None for server in started):
        print("still there", flush=True)
finally:
    for server in started:
        server.stop()
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Returns a folder that the user postgres may enter, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="pidts-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_survives_its_owner(ending: signal.Signals, open_folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(open_folder)}
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    try:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(_is_alive(pid) for pid in pids)
        os.killpg(owner.pid, ending)  # The whole process group gets the signal, as from a terminal.
        if ending == signal.SIGINT:
            assert owner.stdout.readline() == b"still there\n"
        owner.wait(60)
        assert _wait_until(lambda: not any(_is_alive(pid) for pid in pids))
        if ending == signal.SIGINT:
            assert list(open_folder.iterdir()) == []
    finally:
        owner.kill()
        owner.communicate()
