"""Runs the demo: a MariaDB, to which a small shop writes all the time, and a task to a PostgreSQL or a warehouse.

The demo connects only to servers that it has started itself, on free ports and in a temporary folder. A warehouse is a
directory in this folder. At its end, the demo removes everything.
"""

from __future__ import annotations

import secrets
import shlex
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from pidts.cli.demo.question import Answers, of_source, of_warehouse
from pidts.cli.demo.workload import Workload
from pidts.forked import Forker
from pidts.model import ConfigError, Lsn, PidtsError, Position
from pidts.sandbox import Server, start_mariadb, start_postgres
from pidts.source.connection import connect
from pidts.source.position import position
from pidts.task.compare.wiring import compare_task
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.operate.progress import Progress, SourceProgress
from pidts.task.run.task_run import run_task
from pidts.verify import Report

_DRAIN_SECONDS = 600.0
_QUIET_SECONDS = 5.0
"""The writes must have stopped for longer than this, and than the lag, before the lag shows that no row is missing."""
_ALTER_AFTER = 15.0

Kind = Literal["postgresql", "iceberg"]
"""The types of target that the demo can have."""

_WAREHOUSE: Final = "warehouse"
_POSTGRES = """
  type: postgresql
  host: {target.host}
  port: {target.port}
  user: {target.user}
  password-file: target.password
  database: postgres"""
_TASK = """\
# Written by `pidts demo`.
name: demo
task-mode: all
target-database:{database}
mysql-instances:
  - source-id: shop
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password-file: source.password}}
    block-allow-list: shop
block-allow-list: {{shop: {{do-dbs: [shop]}}}}
pidts: {{heartbeat: 250ms}}   # the source is the demo's own, so it may be written to
"""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The summary of the demo's run and the comparison at its end."""

    summary: Progress
    report: Report
    answers: Answers | None = None
    """The answers to the question of `question.py`; None if the target is a server."""


def kind_of(target: str) -> Kind:
    """Returns the type of target that an option names."""
    for kind in get_args(Kind):
        if kind == target:
            return kind  # type: ignore[no-any-return]
    raise ConfigError("usage", f"the demo has no target {target}", todo=f"Give --target {' or '.join(get_args(Kind))}")


def run_demo(
    seconds: float | None,
    stop: threading.Event,
    say: Callable[[str], None],
    show: Callable[[Progress], None],
    *,
    kind: Kind = "postgresql",
    with_page: bool = False,
    replicators: Forker | None = None,
) -> DemoResult | None:
    """Syncs for `seconds` while the shop writes (None: until stopped), lets the target catch up, and compares.

    With `with_page`, a service runs the task and shows it on its page. Otherwise `replicators` forks the replicator.
    Returns None if the demo was stopped before the copy was complete.
    """
    with ExitStack() as cleanup:
        folder = Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="pidts-demo-", ignore_cleanup_errors=True))
        )
        say(_starting(kind))
        source, target = _start_servers(cleanup, kind)
        config = _task_file(folder, source, target)
        workload = Workload(config.source.server)
        say("filling the shop's tables")
        workload.fill()
        place = f"warehouse {folder}/{_WAREHOUSE}" if target is None else f"target {target.host}:{target.port}"
        say(f"source {source.host}:{source.port}, {place}, task file {config.path}")
        if stop.is_set():
            return None
        control = _DemoControl(config, workload, seconds, stop, show)
        workload.start()
        cleanup.callback(workload.stop)
        if with_page:
            from pidts.cli.demo.page import demo_page, open_page

            page = cleanup.enter_context(demo_page(folder))
            say(f"the page: {page.url}")
            open_page(page.url)
            summary = page.run(config.path, control.ended, control)
        else:
            summary = run_task(
                [config], until_synced=False, stop=control.ended, on_progress=control, replicators=replicators
            )
        if not control.was_live:
            return None
        control.check()
        say("writes have stopped, comparing both sides")
        report = compare_task(config)
        if target is not None:
            return DemoResult(summary, report)
        say("asking the source and the warehouse for the orders of each state; pyiceberg reads the warehouse")
        answers = Answers(of_source(config.source.server), of_warehouse(folder / _WAREHOUSE))
        return DemoResult(summary, report, answers)


def run_servers(stop: threading.Event, say: Callable[[str], None], kind: Kind = "postgresql") -> None:
    """Starts the servers, with the shop's tables and a task file, but runs no task. Ends when `stop` is set."""
    say(_starting(kind))
    with ExitStack() as cleanup:
        folder = Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="pidts-demo-", ignore_cleanup_errors=True))
        )
        source, target = _start_servers(cleanup, kind)
        config = _task_file(folder, source, target)
        say("filling the shop's tables")
        Workload(config.source.server).fill()
        say(f"source: a MariaDB at {source.host}:{source.port}, user {source.user}, database shop")
        if target is None:
            say(f"target: Iceberg tables in {folder}/{_WAREHOUSE}")
        else:
            say(f"target: a PostgreSQL at {target.host}:{target.port}, user {target.user}, database postgres")
        say(f"passwords: {folder}/*.password")
        say(f"to run a task between them: pidts run {config.shell_path}")
        if target is not None:
            ports = f"SOURCE_PORT={source.port} TARGET_PORT={target.port}"
            say(f"for a task of your own, in another terminal: export DEMO={shlex.quote(str(folder))} {ports}")
            say("the page about it: docs/start/own-task.md")
        say("Ctrl-C ends the servers and removes their data")
        stop.wait()


def _starting(kind: Kind) -> str:
    return f"starting a MariaDB{' and a PostgreSQL' if kind == 'postgresql' else ''} for this demo"


def _start_servers(cleanup: ExitStack, kind: Kind) -> tuple[Server, Server | None]:
    """Returns the source and the target; the target is None if it is a warehouse."""
    starts = [start_mariadb, start_postgres][: 2 if kind == "postgresql" else 1]
    with ThreadPoolExecutor(2) as pool:
        starting = [pool.submit(start, password=secrets.token_hex(12)) for start in starts]
        errors = [error for error in (one.exception() for one in starting) if error is not None]
        servers = [cleanup.enter_context(one.result()) for one in starting if one.exception() is None]
    if errors:
        raise errors[0]
    return servers[0], servers[1] if len(servers) > 1 else None


def _task_file(folder: Path, source: Server, target: Server | None) -> TaskConfig:
    for name, server in (("source", source), ("target", target)):
        if server is not None:
            path = folder / f"{name}.password"
            path.touch(mode=0o600)
            path.write_text(server.password, "utf-8")
    path = folder / "demo.yaml"
    iceberg = f" {{type: iceberg, warehouse: {_WAREHOUSE}}}"
    database = iceberg if target is None else _POSTGRES.format(target=target)
    path.write_text(_TASK.format(source=source, database=database), "utf-8")
    return load_task(path)


class _DemoControl:
    """Controls the demo's run: alters a table at half time, stops the writes, and ends the run after the last change.

    `seconds` begin when the run begins to copy, so the time before that does not count.
    """

    def __init__(
        self,
        config: TaskConfig,
        workload: Workload,
        seconds: float | None,
        stop: threading.Event,
        show: Callable[[Progress], None],
    ) -> None:
        self._config, self._workload, self._show = config, workload, show
        self._stop = stop
        self._seconds = seconds
        self._live: float | None = None
        self._deadline = 0.0
        self._batches = 0
        self._goal: Position | None = None
        self._stopped = 0.0
        """The time at which the writes had stopped."""
        self._given_up = False
        self.ended = threading.Event()
        """Ends the run when it is set. The user's stop is another event: after it, the run still applies the last rows.
        """

    def __call__(self, progress: Progress) -> None:
        self._show(progress)
        now = time.monotonic()
        if self._live is None and progress.stage in {"copy", "sync"}:
            self._live = now
        if self._goal is None and self._stop.is_set() and progress.stage != "sync":
            self._live = None
            self.ended.set()
        elif self._goal is None:
            live = 0.0 if self._live is None else now - self._live
            if live > (_ALTER_AFTER if self._seconds is None else self._seconds / 2):
                self._workload.alter()
            if self._stop.is_set() or (self._seconds is not None and live >= self._seconds):
                self._workload.stop()
                with closing(connect(self._config.source.server)) as session:
                    self._goal = position(session)[0]
                self._stopped = time.monotonic()
                self._deadline = now + _DRAIN_SECONDS
        elif progress.stage == "sync" and _has_everything(progress.sources[0], self._goal, now - self._stopped):
            self.ended.set()
        elif progress.batches != self._batches:
            # A busy machine may be slow. So each batch extends the time limit: the demo fails only if no batch comes.
            self._batches, self._deadline = progress.batches, now + _DRAIN_SECONDS
        elif now > self._deadline:
            self._given_up = True
            self.ended.set()

    @property
    def was_live(self) -> bool:
        """Whether there is something to compare: the user has not stopped the demo before the copy was complete."""
        return self._live is not None

    def check(self) -> None:
        """Raises if the run ended before the target had caught up."""
        if self._given_up:
            what = f"the target has not caught up within {_DRAIN_SECONDS:.0f} seconds after the last write"
            raise PidtsError("not-synced", what, todo="This machine may be too busy: run the demo again")


def _has_everything(source: SourceProgress, goal: Position, seconds: float) -> bool:
    """Whether the target has all rows of the source, whose writes stopped `seconds` ago.

    A heartbeat may be the last transaction before the goal. It changes no table of the task, so the target may stay
    before the goal. The lag shows then that no row is missing.
    """
    applied, lag = source.applied_lsn, source.lag_seconds
    is_at_goal = applied is not None and applied >= Lsn.at(goal, applied.change_no)
    return is_at_goal or (lag is not None and lag + _QUIET_SECONDS < seconds)
