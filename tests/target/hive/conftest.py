"""A task with a Hive target, a real metastore on loopback, and readers that are separate programs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import loaded_programs
from tests.object_store import ObjectStore, object_store
from tests.spark.standalone_cluster import FOR_A_SHORT_LIFE
from tests.target.hive.metastore_server import BUCKET

from pidts.forked import ForkedProcess
from pidts.sandbox import Server

__all__ = ["object_store"]

SECONDS = 240
READER = Path(__file__).with_name("reader.py")
METASTORE = Path(__file__).with_name("metastore_server.py")
RunSql = Callable[..., Any]


class Reader:
    """A Spark that reads through a metastore."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: str) -> Any:
        """Returns the answer to one question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def rows(self, sql: str) -> list[list[Any]]:
        """Returns all rows of a query."""
        return list(self.ask("all", sql))


class HiveTask:
    """A database of the source, a task, its warehouse and a metastore."""

    def __init__(
        self, server: Server, folder: Path, run_sql: RunSql, *, metastore: str = "", refresh: str = "1h"
    ) -> None:
        self.server, self.folder, self._run_sql = server, folder, run_sql
        self.metastore, self.warehouse = metastore, folder / "warehouse"
        self.database = f"hive_{uuid.uuid4().hex[:8]}"
        self.sql(f"CREATE DATABASE {self.database}", database=None)
        self.file = folder / "task.yaml"
        (folder / "password").write_text(server.password)
        (folder / "password").chmod(0o600)
        at = f", metastore: '{metastore}'" if metastore else ""
        self.file.write_text(
            f"""\
name: to-hive
task-mode: all
target-database: {{type: hive, warehouse: warehouse{at}}}
mysql-instances:
  - source-id: shop
    from: {{host: {server.host}, port: {server.port}, user: {server.user}, password-file: password}}
    block-allow-list: ours
block-allow-list: {{ours: {{do-dbs: [{self.database}]}}}}
pidts: {{hive: {{refresh: {refresh}, changes: true}}}}
"""
        )

    def sql(self, statement: str, *values: object, database: str | None = "") -> Any:
        """Runs a statement on the source."""
        return self._run_sql(self.server, statement, *values, database=self.database if database == "" else database)

    def start(self, *more: str) -> ForkedProcess:
        """Starts a run."""
        with (self.folder / "log").open("ab") as log:
            return loaded_programs().start(["run", str(self.file), "--json", *more], log, log)

    def run(self) -> None:
        """Runs the task until the target has all rows of the source, and they are published."""
        done = self.start("--until-synced").wait(SECONDS)
        assert done == 0, self.log[-3000:]

    @property
    def log(self) -> str:
        """Returns the log of the runs."""
        return (self.folder / "log").read_text()

    def pidts(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Runs another command on the task file."""
        return loaded_programs().text([command, str(self.file), *more], SECONDS)

    def status(self) -> dict[str, Any]:
        """Returns what `pidts status` shows of the published tables, by their names."""
        found = json.loads(self.pidts("status", "--json").stdout)
        return {one["table"].partition(".")[2]: one for one in found["published"]}

    @contextmanager
    def reader(self, **settings: str) -> Iterator[Reader]:
        """Starts a Spark that reads the tables."""
        where = settings | {"spark.driver.extraJavaOptions": f"{FOR_A_SHORT_LIFE} -Duser.timezone=UTC"}
        where |= (
            {"spark.hadoop.hive.metastore.uris": self.metastore}
            if self.metastore
            else {
                "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.warehouse}/metastore_db"
            }
        )
        with (self.folder / "reader.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(READER), json.dumps(where)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == '"ready"', (self.folder / "reader.log").read_text()[-3000:]
            yield Reader(process)
        finally:
            process.communicate(timeout=SECONDS)


@pytest.fixture(name="files")
def files_of_a_test(request: pytest.FixtureRequest) -> str:
    """Returns the place in an object store for the files of a test's warehouse; empty if they are on this machine."""
    words = getattr(request.node, "callspec", None)
    if words is None or words.params.get("store") != "thrift-and-s3":
        return ""
    objects: ObjectStore = request.getfixturevalue("object_store")
    return f"{objects.bucket(BUCKET)}/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the address of a metastore of the test's own, from the jars of PySpark."""
    with metastore_server(tmp_path_factory.mktemp("metastore")) as address:
        yield address


@contextmanager
def metastore_server(tmp_path: Path, *words: str) -> Iterator[str]:
    """Starts a metastore; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "metastore.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(METASTORE), str(port), str(tmp_path), *words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "HADOOP_USER_NAME": "pidts"},
        )
    try:
        until = time.monotonic() + SECONDS
        while True:
            assert process.poll() is None, (tmp_path / "metastore.log").read_text()[-3000:]
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.2)
            else:
                break
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.communicate(timeout=SECONDS)
