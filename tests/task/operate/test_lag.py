"""The lag that a run reports is the lag that a reader of the target sees, and the slow stage is the one that the test
slows down.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from tests.conftest import RunSql
from tests.forked_programs import LoadedPrograms
from tests.replicate.proxy import Proxy
from tests.running import connect

from pidts.forked import Forker
from pidts.sandbox import Server
from pidts.task.config.task_file import load_task
from pidts.task.operate.progress import Progress
from pidts.task.run.task_run import run_task

TASK = """
name: {name}
task-mode: incremental
target-database: {{type: postgresql, host: 127.0.0.1, port: {target_port}, user: {target.user}, password: "{target.password}", database: {database}}}
mysql-instances:
  - source-id: s
    from: {{host: 127.0.0.1, port: {source_port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: own
block-allow-list: {{own: {{do-dbs: [{schema}]}}}}
pidts: {{relay: {relay}}}
"""


_numbers = itertools.count(1)


class Run:
    """A task that runs in a thread of this process."""

    def __init__(self, path: Path, replicators: Forker) -> None:
        self.shown: list[tuple[float, Progress]] = []
        self._path, self._replicators, self._stop = path, replicators, threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        def take(progress: Progress) -> None:
            self.shown.append((time.time(), progress))

        try:
            parts = [load_task(self._path, {})]
            run_task(parts, until_synced=False, stop=self._stop, on_progress=take, replicators=self._replicators)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self._failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(lambda progress: progress.stage == "sync" and progress.stage_report is not None, "it syncs")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self._failure is None, self._failure
        assert not self._thread.is_alive()

    def wait(self, claim: Callable[[Progress], bool], what: str, seconds: float = 240.0) -> Progress:
        """Waits for a progress of which the claim is true. The first rows may wait until decoding code is compiled."""
        deadline, begun = time.monotonic() + seconds, len(self.shown)
        while True:
            assert self._failure is None, self._failure
            for _, progress in self.shown[begun:]:
                if claim(progress):
                    return progress
            assert time.monotonic() < deadline, f"{what}: not seen; last: {self.shown[-1:]}"
            time.sleep(0.05)

    def lags(self, since: float) -> list[float]:
        return [one.lag_seconds for at, one in self.shown if at > since and one.lag_seconds is not None]


class SourceAndTarget:
    """A source and a PostgreSQL with one table, and a task file between them."""

    def __init__(
        self,
        source: Server,
        target: Server,
        database: str,
        folder: Path,
        run_sql: RunSql,
        programs: LoadedPrograms,
    ) -> None:
        self.source, self.target, self.schema, self.folder = source, target, database, folder
        self.programs = programs
        run_sql(source, f"CREATE DATABASE {database}")
        run_sql(source, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, pad LONGTEXT)")
        run_sql(target, f"CREATE DATABASE {database}")
        with closing(self.reader()) as session, session.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {database}")
            cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, pad TEXT)")

    def reader(self) -> Any:
        return connect(self.target, self.schema)

    def run(self, *, source_port: int | None = None, target_port: int | None = None) -> Run:
        path = self.folder / "task.yaml"
        path.write_text(
            TASK.format(
                name=self.schema,
                source=self.source,
                target=self.target,
                source_port=source_port or self.source.port,
                target_port=target_port or self.target.port,
                schema=self.schema,
                database=self.schema,
                relay=self.folder / "relay",
            )
        )
        return Run(path, self.programs.replicators)

    @contextmanager
    def writes(self, every: float = 0.05) -> Iterator[list[tuple[int, float]]]:
        """Inserts one row after the other; yields each row's number and the time at which its commit was answered."""
        written: list[tuple[int, float]] = []
        enough = threading.Event()

        def write() -> None:
            with closing(connect(self.source)) as session, session.cursor() as cursor:
                number = 0
                while not enough.wait(every):
                    number += 1
                    cursor.execute(f"INSERT INTO {self.schema}.t VALUES ({number}, 'x')")
                    written.append((number, time.time()))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield written
        finally:
            enough.set()
            thread.join(30)


@pytest.fixture(params=["mariadb", pytest.param("mysql97", marks=pytest.mark.long)])
def servers(
    request: pytest.FixtureRequest, postgres: Server, tmp_path: Path, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[SourceAndTarget]:
    source: Server = request.getfixturevalue(request.param)
    database = f"lag_{next(_numbers)}"
    yield SourceAndTarget(source, postgres, database, tmp_path, run_sql, programs)
    run_sql(source, f"DROP DATABASE {database}")
    run_sql(postgres, f"DROP DATABASE {database} WITH (FORCE)")


@pytest.mark.server
def test_the_lag_is_the_one_that_a_reader_of_the_target_sees(servers: SourceAndTarget) -> None:
    with servers.run() as run, closing(servers.reader()) as session, session.cursor() as cursor:
        run.wait(
            lambda one: (one.stage_report is not None) and one.stage_report.stages[0].lag_seconds is not None,
            "it is measured",
        )
        seen: dict[int, float] = {}
        with servers.writes() as written:
            run.wait(lambda one: one.rows["inserted"] > 0 and (one.lag_seconds or 9) < 1, "rows come in time")
            # A figure covers the rows of the last second, so the reader looks for some time before the first figure.
            began, first = time.time() + 1.5, len(written)
            looks = [time.time()]
            while len(seen) < 40 or time.time() < began + 2:
                cursor.execute(f"SELECT MAX(id) FROM {servers.schema}.t")
                (number,) = cursor.fetchone()
                looks.append(time.time())
                seen.setdefault(number or 0, looks[-1])
                time.sleep(0.002)
        found = run.lags(began)
    # A thread that the machine does not run for a while notes a commit late. The reader shows how long that can be.
    late = max(after - before for before, after in itertools.pairwise(looks))
    visible = {number: _visible(seen, number) for number, _ in written}
    true = [visible[number] - at for number, at in written[first:] if visible[number] < float("inf")]
    assert len(true) > 10
    assert max(found) <= max(true) + 0.25 + late, (max(found), max(true), late)
    assert max(found) >= min(true) - 0.01, (max(found), min(true))
    assert max(found) > 0


def _visible(seen: dict[int, float], number: int) -> float:
    return min((at for there, at in seen.items() if there >= number), default=float("inf"))


@pytest.mark.server
def test_a_target_that_holds_a_lock_is_named(servers: SourceAndTarget) -> None:
    with servers.run() as run, closing(servers.reader()) as holder, holder.cursor() as cursor, servers.writes():
        run.wait(lambda one: one.rows["inserted"] > 0, "rows come")
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM pidts_meta.checkpoint FOR UPDATE")
        late = run.wait(lambda one: one.stage_report is not None and one.stage_report.slow is not None, "it is behind")
        cursor.execute("ROLLBACK")
        assert (late.lag_seconds or 0) >= 1
        assert late.stage_report is not None
        assert late.stage_report.slow is not None
        assert late.stage_report.slow.name == "target", late.stage_report
        assert "server" in late.stage_report.slow.why
        run.wait(lambda one: one.stage_report is not None and one.stage_report.slow is None, "it has caught up")


class Slow(Proxy):
    """A network connection on which each packet takes longer."""

    seconds = 0.0

    def _damaged(self, data: bytes) -> bytes:
        time.sleep(self.seconds)
        return super()._damaged(data)


@pytest.mark.long
@pytest.mark.server
def test_a_far_target_is_named_with_its_network(servers: SourceAndTarget) -> None:
    with Slow(servers.target.port) as line, servers.run(target_port=line.port) as run, servers.writes():
        run.wait(lambda one: one.rows["inserted"] > 0, "rows come")
        line.seconds = 0.7
        late = run.wait(
            lambda one: (
                one.stage_report is not None
                and one.stage_report.slow is not None
                and "network" in one.stage_report.slow.why
            ),
            "the network is named",
        )
        assert late.stage_report is not None
        assert late.stage_report.slow is not None
        assert late.stage_report.slow.name == "target"
        line.seconds = 0.0


@pytest.mark.long
@pytest.mark.server
def test_a_source_that_sends_slowly_is_named_and_the_target_is_not_called_up_to_date(servers: SourceAndTarget) -> None:
    with Proxy(servers.source.port, bytes_a_second=300_000) as line, servers.run(source_port=line.port) as run:
        with closing(connect(servers.source)) as session, session.cursor() as cursor:
            for number in range(40):
                cursor.execute(f"INSERT INTO {servers.schema}.t VALUES ({number}, REPEAT('{number} ', 30000))")
        late = run.wait(lambda one: one.stage_report is not None and one.stage_report.slow is not None, "it is behind")
        assert late.stage_report is not None
        assert late.stage_report.slow is not None
        assert late.stage_report.slow.name == "source", late.stage_report
        assert (late.lag_seconds or 0) >= 1
        run.wait(lambda one: one.rows["inserted"] == 40, "all has come")
