"""Tasks of each test's own, on servers that may be shared."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pymysql
import pytest
import yaml
from pymysql.constants import ER
from tests.forked_programs import LoadedPrograms
from tests.running import connect

from pidts import sandbox
from pidts.sandbox import Server

from .altering import TOOL, Altering
from .commands import Task, below
from .merged_task import Shards, routes


@pytest.fixture(params=["mariadb", "mysql97", pytest.param("mysql56", marks=pytest.mark.long)])
def mysql_like(request: pytest.FixtureRequest) -> Server:
    """Runs the test on each server of the MySQL family; tests with Spark use the oldest one only in the full tier."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def make_task(tmp_path: Path, programs: LoadedPrograms) -> Iterator[Callable[..., Task]]:
    """`make_task(source, target, schemas, spark=..., **top_level)` writes a task file. `beside`: further sources."""
    made: list[Task] = []

    def make(
        source: Server,
        target: Server,
        schemas: Sequence[str],
        *,
        spark: Mapping[str, Any] | None = None,
        database: str = "postgres",
        name: str = "t",
        workers: int = 1,
        pidts: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        instance: Mapping[str, Any] | None = None,
        beside: Mapping[str, Server] | None = None,
        **top: Any,
    ) -> Task:
        about: dict[str, Any] = {
            "host": target.host,
            "port": target.port,
            "user": target.user,
            "password": target.password,
        }
        about |= {"type": "postgresql", "database": database} if target.kind == "postgres" else {"type": "mysql"}
        task = {
            "name": name,
            "task-mode": "all",
            "target-database": about,
            "mysql-instances": [
                {
                    "source-id": source_id,
                    "from": {
                        "host": server.host,
                        "port": server.port,
                        "user": server.user,
                        "password": server.password,
                    },
                    "block-allow-list": "ours",
                    "syncer-config-name": "global",
                    **({"meta": dict(meta)} if meta else {}),
                    **(instance or {}),
                }
                for source_id, server in {"one": source, **(beside or {})}.items()
            ],
            "block-allow-list": {"ours": {"do-dbs": list(schemas)}},
            "syncers": {"global": {"worker-count": workers}},
            "pidts": {"relay": "relay", "spark": {"master": "local[2,4]", **(spark or {})}, **(pidts or {})},
            **top,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(task))
        made.append(Task(path, programs))
        return made[-1]

    yield make
    for task in made:
        for run in task.runs:
            if run.process.poll() is None:
                children = below(run.process.pid)
                run.kill()
                for pid in children:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def open_session() -> Iterator[Callable[..., Any]]:
    """Opens connections that end with the test."""
    opened = []

    def session(server: Server, database: str | None = None) -> Any:
        opened.append(connect(server, database))
        return opened[-1]

    yield session
    for one in opened:
        one.close()


@contextlib.contextmanager
def _unless_deadlocked() -> Iterator[None]:
    """Ignores a deadlock: a server may roll back any transaction that collides with another one. A program that writes
    in a loop continues with the next transaction.
    """
    try:
        yield
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.LOCK_DEADLOCK:
            raise


class Background:
    """A loop in a thread that stops on request and reports its failure."""

    def __init__(self, step: Callable[[], None], pause: float = 0.0) -> None:
        self._step, self._pause = step, pause
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        try:
            while not self._stop.is_set():
                with _unless_deadlocked():
                    self._step()
                if self._pause:
                    time.sleep(self._pause)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        if self._error is not None:
            raise self._error


@pytest.fixture(scope="session")
def background() -> type[Background]:
    return Background


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    def wait(claim: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not claim():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.1)

    return wait


@pytest.fixture
def target_server() -> Iterator[Callable[[str], Server]]:
    """Returns a target of the test's own, which shares neither data nor `pidts_meta` with other tests."""
    with contextlib.ExitStack() as servers:

        def start(kind: str) -> Server:
            launch = {
                "postgres": sandbox.start_postgres,
                "mariadb": sandbox.start_mariadb,
                "mysql97": sandbox.start_mysql97,
            }
            return servers.enter_context(launch[kind]())

        yield start


@pytest.fixture
def make_shards(
    make_task: Callable[..., Task],
    mariadb: Server,
    mysql97: Server,
    target_server: Callable[[str], Server],
    database: str,
) -> Iterator[Callable[..., Shards]]:
    """`make_shards(target's kind, extract, **top_level)` makes two sources with tables that are merged, and a task."""
    made: list[Shards] = []

    def make(kind: str, *, extract: bool = False, **more: Any) -> Shards:
        target, found = target_server(kind), routes(database, extract=extract)
        task = make_task(
            mariadb,
            target,
            [f"{database}_?"],
            beside={"two": mysql97},
            instance={"route-rules": list(found)},
            **{"is-sharding": True, "routes": found, **more},
        )
        made.append(Shards(task, {"one": mariadb, "two": mysql97}, target, database))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def altering() -> Iterator[Altering]:
    if shutil.which(TOOL) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{TOOL} is not on this machine")
        pytest.skip(f"{TOOL} is not on this machine: ./test installs percona-toolkit")
    tool = Altering()
    yield tool
    tool.end()
