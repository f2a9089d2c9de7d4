"""A task that has never begun waits for a server that does not answer, and ends at once if a server refuses it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.replicate.proxy import Proxy
from tests.running import connect

from pidts.model import PrecheckFailed, ServerDown
from pidts.sandbox import Server
from pidts.task.checks.all_sources import require_all_sources_fit
from pidts.task.config.task_file import load_parts
from pidts.task.operate.alert_conditions import conditions_of
from pidts.task.operate.pause import stored_pauses
from pidts.task.operate.progress import Progress
from pidts.task.run.task_run import run_task

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def write(tmp_path: Path, mariadb: Server, postgres: Server, database: str) -> Callable[..., Path]:
    def task(**source: object) -> Path:
        given = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
        lines = ", ".join(f'{name}: "{value}"' for name, value in {**given, **source}.items() if name != "port")
        port = source.get("port", mariadb.port)
        path = tmp_path / "task.yaml"
        path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
  - source-id: one
    from: {{{lines}, port: {port}}}
    block-allow-list: ours
block-allow-list: {{ours: {{do-dbs: ["{database}"]}}}}
""")
        return path

    return task


def run_until_paused(path: Path, times: int = 2) -> tuple[Progress, list[Progress], list[Any]]:
    """Runs the task until it has paused this number of times, and stops it. Returns its end, the pauses and its log."""
    stop, seen, parts = threading.Event(), list[Progress](), load_parts(path)

    def look(progress: Progress) -> None:
        pauses = stored_pauses(parts[0], os.getpid())
        if progress.stage == "paused":
            seen.append(progress)
            assert progress.cause is not None
            assert [pause.error.code for pause in pauses.values()] == [progress.cause.code], "status shows it"
            if len(seen) >= times:
                stop.set()

    began = time.monotonic()
    with capture_logs() as log:
        end = run_task(parts, until_synced=True, stop=stop, on_progress=look)
    assert stored_pauses(parts[0], os.getpid()) == {}, "the run has ended"
    assert time.monotonic() - began < 60
    return end, seen, log


@pytest.mark.timeout(120)
@pytest.mark.parametrize("address", [{"port": 1}, {"host": "nowhere.invalid"}])
def test_the_first_start_without_the_source_is_a_pause(
    write: Callable[..., Path], address: dict[str, object], mariadb: Server
) -> None:
    place = f"{address.get('host', mariadb.host)}:{address.get('port', mariadb.port)}"
    end, seen, log = run_until_paused(write(**address), 3)
    assert f"the task waits for the source at {place}" in seen[0].message
    assert "tries again by itself at" in seen[0].message
    assert seen[0].cause is not None
    assert seen[0].cause.code == "source-unreachable"
    assert end.stage == "paused"
    assert [one.key.kind for one in conditions_of(seen[0], None)] == ["not-receiving"], "an operator is informed"
    warned = [one for one in log if one["log_level"] == "warning" and one.get("code") == "source-unreachable"]
    assert len(warned) == 1, "not one for each attempt"


@pytest.mark.timeout(120)
def test_a_source_without_a_free_connection_is_waited_for_and_then_checked(
    write: Callable[..., Path], mariadb: Server, run_sql: RunSql, database: str
) -> None:
    user = f"u_{database}"[-32:]
    run_sql(mariadb, f"CREATE USER `{user}`@'%' IDENTIFIED BY 'p' WITH MAX_USER_CONNECTIONS 1")
    held = connect(replace(mariadb, user=user, password="p"))
    seen = list[Progress]()

    def look(progress: Progress) -> None:
        if progress.stage == "paused":
            seen.append(progress)
            held.close()

    try:
        # An error that waiting does not remove ends the run when the source answers.
        with pytest.raises(PrecheckFailed, match="replication_privilege"):
            run_task(
                load_parts(write(user=user, password="p")), until_synced=True, stop=threading.Event(), on_progress=look
            )
    finally:
        run_sql(mariadb, f"DROP USER `{user}`@'%'")
    assert seen[0].cause is not None
    assert seen[0].cause.code == "source-busy"


@pytest.mark.timeout(120)
def test_the_target_is_waited_for_as_well(
    write: Callable[..., Path], mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    path = write()
    path.write_text(path.read_text().replace(f"port: {postgres.port},", "port: 1,", 1))
    end, seen, _ = run_until_paused(path)
    assert f"the task waits for the target at postgresql {postgres.host}:1" in seen[0].message
    assert end.stage == "paused"


@pytest.mark.timeout(120)
def test_a_login_that_is_refused_ends_the_run_at_once(write: Callable[..., Path]) -> None:
    with pytest.raises(PrecheckFailed, match=r"\[access-denied\] source_connection: "):
        run_task(
            load_parts(write(password="wrong")),
            until_synced=True,
            stop=threading.Event(),
            on_progress=lambda _: None,
        )


class CutOnce(Proxy):
    """Cuts all connections once, instead of forwarding the piece with this number that the server sends."""

    def __init__(self, port: int, number: int) -> None:
        self.left = number
        super().__init__(port)

    def _damaged(self, data: bytes) -> bytes:
        self.left -= 1
        if self.left == 0:
            self.cut()
        return data


@pytest.mark.timeout(120)
def test_a_connection_to_the_target_that_is_lost_during_the_first_checks_is_waited_for(
    write: Callable[..., Path], mariadb: Server, postgres: Server, run_sql: RunSql, database: str
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    (part,) = load_parts(write())
    for number in itertools.count(1):
        with CutOnce(postgres.port, number) as proxy:
            config = replace(part, target=replace(part.target, host="127.0.0.1", port=proxy.port))
            with suppress(ServerDown):
                require_all_sources_fit([config], {})
            if proxy.left > 0:
                break
    assert number > 10
