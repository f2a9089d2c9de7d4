"""`own_changes` waits long enough to read the whole log of a zone, and no longer if the server is silent."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import RunSql

from pidts.model import Position, TableName, Transient
from pidts.replicate.receiver import Receiver
from pidts.sandbox import Server
from pidts.sandbox.server import free_port
from pidts.source import connect, log_end
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.zones.own_changes import own_changes


@pytest.fixture
def config(tmp_path: Path, mariadb: Server, database: str) -> TaskConfig:
    server = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
    path = tmp_path / "t.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "t",
                "task-mode": "incremental",
                "target-database": {"type": "mysql", **server},
                "mysql-instances": [{"source-id": "z", "from": server, "block-allow-list": "ours"}],
                "block-allow-list": {"ours": {"do-dbs": [database]}},
                "pidts": {"zone": "z"},
            }
        )
    )
    return load_task(path)


@pytest.fixture
def log(config: TaskConfig, mariadb: Server, database: str, run_sql: RunSql) -> Iterator[tuple[Position, Position]]:
    """Returns a part of the log, with two changed rows."""
    with closing(connect(config.source.server)) as session:
        run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
        start = log_end(session)
        run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
        run_sql(mariadb, "INSERT INTO t VALUES (2)", database=database)
        yield start, log_end(session)


def test_a_slow_first_look_at_the_log_is_no_silence_of_the_server(
    config: TaskConfig, log: tuple[Position, Position], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decoder may have to be compiled before the first reading."""
    waited: list[float] = []
    receive = Receiver.receive

    def slowly(*arguments: Any) -> None:
        if not waited:
            waited.append(2.0)
            time.sleep(2.0)
        receive(*arguments)

    monkeypatch.setattr(Receiver, "receive", slowly)
    assert own_changes(config, *log, threading.Event(), 1.0) == Counter({TableName(database, "t"): 2})
    assert waited


def test_a_server_that_does_not_answer_is_given_up_soon(
    config: TaskConfig, log: tuple[Position, Position], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = replace(config.source.server, port=free_port())
    unknown_transactions = replace(config, source=replace(config.source, server=server))
    began = time.monotonic()
    with pytest.raises(Transient, match="zone-log-not-read"):
        own_changes(unknown_transactions, *log, threading.Event(), 1.0)
    assert time.monotonic() - began < 30
