"""Runs of the real command in processes of their own, so that a test can kill any part of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
import pymysql
import pytest
import yaml

from pidts import sandbox
from pidts.model import Lsn
from pidts.plan import PlanState
from pidts.sandbox import Server
from pidts.source.position import log_end

PIDTS = [sys.executable, "-m", "pidts"]
NO_TABLE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, pymysql.err.ProgrammingError)
"""What a target answers before the task has come to create its tables."""


@dataclass
class Run:
    """One `pidts run`, and whatever it has started."""

    process: subprocess.Popen[bytes]
    log: Path

    def pids(self, *words: str) -> list[int]:
        """Processes below this run whose command line has all of these words."""
        found = []
        for pid in _below(self.process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if all(word in command for word in words):
                    found.append(pid)
        return found

    def replicator(self) -> list[int]:
        return self.pids("pidts.task.replicator_process")

    def jvm(self) -> list[int]:
        return self.pids("org.apache.spark.deploy.SparkSubmit")

    def workers(self) -> list[int]:
        """Python workers of Spark: the children of its daemon."""
        daemons = self.pids("pyspark.daemon")
        return [pid for pid in daemons if _parent(pid) in daemons]

    def kill(self) -> None:
        """The driver, as the kernel would when memory runs out."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def wait_until(self, claim: Callable[[], bool], what: str, seconds: float = 240) -> None:
        """While it runs: one that has ended will not make it true."""
        deadline = time.monotonic() + seconds
        while not claim():
            assert self.process.poll() is None, f"ended before this: {what}\n{self.log.read_text()[-8000:]}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.log.read_text()[-8000:]}"
            time.sleep(0.1)

    def summary(self) -> dict[str, Any]:
        """Stop it, and what it says in the end, where it was started with `--json`."""
        assert self.stop() == 0, self.log.read_text()[-8000:]
        said: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return said


def _below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found, open_pids = [], [root]
    while open_pids:
        below = children.get(open_pids.pop(), [])
        found += below
        open_pids += below
    return found


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@dataclass
class Task:
    """A task file and the commands over it."""

    path: Path
    runs: list[Run] = field(default_factory=list)

    def start(self, *options: str) -> Run:
        log = self.path.with_suffix(f".{len(self.runs)}.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*PIDTS, "run", str(self.path), *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        run = Run(process, log)
        self.runs.append(run)
        return run

    def sync(self, timeout: float = 120) -> dict[str, Any]:
        """Run until what the source has now is on the target; the JSON that the command ends with."""
        run = self.start("--until-synced", "--json")
        try:
            code = run.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not synced within {timeout} s:\n{self.logs()}")
        assert code == 0, self.logs()
        last: dict[str, Any] = json.loads(run.log.read_text().splitlines()[-1])
        self.check_mark(last["applied"]["lsn"])
        return last

    def check_mark(self, applied: str) -> None:
        """Others purge a shared relay by what a task that has ended left there."""
        for path in self.path.parent.glob("relay/*/needs/*.json"):
            assert applied in path.read_text()

    def command(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*PIDTS, *words], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False
        )

    def logs(self) -> str:
        replicator = [path.read_text() for path in self.path.parent.glob("relay/*/replicator.log")]
        return "\n".join([run.log.read_text() for run in self.runs] + replicator)[-8000:]


@pytest.fixture
def make_task(tmp_path: Path) -> Iterator[Callable[..., Task]]:
    """`make_task(source, target, schema, spark=..., **top_level)` writes a task file."""
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
                    "source-id": "one",
                    "from": {
                        "host": source.host,
                        "port": source.port,
                        "user": source.user,
                        "password": source.password,
                    },
                    "block-allow-list": "ours",
                    "syncer-config-name": "global",
                    **({"meta": dict(meta)} if meta else {}),
                    **(instance or {}),
                }
            ],
            "block-allow-list": {"ours": {"do-dbs": list(schemas)}},
            "syncers": {"global": {"worker-count": workers}},
            "pidts": {"relay": "relay", "spark": {"master": "local[2,4]", **(spark or {})}, **(pidts or {})},
            **top,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(task))
        made.append(Task(path))
        return made[-1]

    yield make
    for task in made:
        for run in task.runs:
            if run.process.poll() is None:
                below = _below(run.process.pid)
                run.kill()
                for pid in below:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def connect(server: Server, database: str | None = None) -> Any:
    """A plain driver's connection, autocommit."""
    if server.kind == "postgres":
        return psycopg.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=database or "postgres",
            autocommit=True,
        )
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


@pytest.fixture
def open_session() -> Iterator[Callable[..., Any]]:
    """Connections that end with the test."""
    opened = []

    def session(server: Server, database: str | None = None) -> Any:
        opened.append(connect(server, database))
        return opened[-1]

    yield session
    for one in opened:
        one.close()


NOT_THERE = (*NO_TABLE, pymysql.err.OperationalError)
"""MySQL says so of a missing schema."""


class Progress:
    """How far a task is, by its checkpoints on the target."""

    def __init__(self, target: Any) -> None:
        self._cursor = target.cursor()

    def states(self) -> list[PlanState]:
        """Each worker's."""
        try:
            self._cursor.execute("SELECT lsn, copy_progress FROM pidts_meta.checkpoint ORDER BY worker")
        except NOT_THERE:
            return []
        return [PlanState.from_checkpoint(Lsn.parse(lsn), copy) for lsn, copy in self._cursor.fetchall()]

    def batches(self) -> int:
        """How many there have been."""
        try:
            self._cursor.execute("SELECT SUM(batch) FROM pidts_meta.checkpoint")
        except NOT_THERE:
            return 0
        return int(self._cursor.fetchone()[0] or 0)

    def is_copied(self) -> bool:
        states = self.states()
        return bool(states) and not any(state.copying for state in states)

    def has(self, source: Any) -> Callable[[], bool]:
        """Whether everything that the source's log has now is there, of all tables."""
        end = Lsn.at(log_end(source))
        return lambda: min((state.needs for state in self.states()), default=Lsn(0, 0, 0)) >= end

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Nothing is committed meanwhile; what comes to the log then is as much as a batch takes."""
        self._cursor.execute("BEGIN")
        self._cursor.execute("SELECT * FROM pidts_meta.checkpoint FOR UPDATE")
        try:
            yield
        finally:
            self._cursor.execute("ROLLBACK")


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
    """A target of the test's own: it may share neither data nor `pidts_meta` with others."""
    with contextlib.ExitStack() as servers:

        def start(kind: str) -> Server:
            launch = {
                "postgres": sandbox.start_postgres,
                "mariadb": sandbox.start_mariadb,
                "mysql97": sandbox.start_mysql97,
            }
            return servers.enter_context(launch[kind]())

        yield start
