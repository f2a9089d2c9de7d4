"""The demo with a page: the demo starts a service, which runs the task.

Usually a task outlives its service. The demo's task must not outlive the demo, which removes its servers and its
folder. So if the demo is killed, the kernel also kills the task and the servers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pidts.model import Lsn, PidtsError, Position, Where
from pidts.plan import Phase
from pidts.service.starter import PROGRAM, StartedProcess, output_file
from pidts.service.state_folder import StateFolder, TaskFolder
from pidts.service.supervisor import Supervisor
from pidts.task.operate.progress import Progress, SourceProgress, Stage, TableProgress
from pidts.web.access import Policy
from pidts.web.server import ServiceEndpoint, listening_socket, serve

_HOST: Final = "127.0.0.1"
_LOOK_SECONDS: Final = 0.3
_END_SECONDS: Final = 60.0


class _BoundStarter:
    """Starts the process of a task. The kernel kills this process when the thread that has started it ends."""

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> StartedProcess:
        with output_file(folder).open("ab") as output:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", PROGRAM, str(folder.path), *tables],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )


@dataclass(frozen=True, slots=True)
class DemoPage:
    """A service that runs on loopback, and the address of its page."""

    url: str
    supervisor: Supervisor

    def run(self, task_file: Path, stop: threading.Event, on_progress: Callable[[Progress], None]) -> Progress:
        """Runs the task until `stop` is set, and returns its last snapshot."""
        name = str(self.supervisor.create_from(task_file, start=True)["name"])
        latest = Progress(task=name)
        while not stop.wait(_LOOK_SECONDS):
            found = self.supervisor.detail(name)
            if found["stage"] == "failed":
                raise _error(found["error"])
            latest = progress_of(found)
            on_progress(latest)
        self.supervisor.stop(name)
        deadline = time.monotonic() + _END_SECONDS
        while self.supervisor.summary(name)["process"] is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return progress_of(self.supervisor.detail(name))


@contextmanager
def demo_page(folder: Path) -> Iterator[DemoPage]:
    """Serves the page on a free port of this machine while the block runs."""
    state = StateFolder(folder / "state")
    state.prepare()
    place = ServiceEndpoint(_HOST, 0)
    supervisor = Supervisor(state, _BoundStarter())
    stop, is_ready, urls = threading.Event(), threading.Event(), list[str]()

    def ready(url: str) -> None:
        urls.append(url)
        is_ready.set()

    with listening_socket(place) as listener:
        thread = threading.Thread(
            target=serve, args=(supervisor, listener, place, Policy(_HOST), stop, ready), name="page", daemon=True
        )
        supervisor.begin()
        thread.start()
        try:
            if not is_ready.wait(_END_SECONDS):
                raise PidtsError(
                    "unexpected",
                    f"the page was not served within {_END_SECONDS:.0f} seconds",
                    todo="This machine may be too busy: run the demo again",
                )
            yield DemoPage(urls[0], supervisor)
        finally:
            stop.set()
            thread.join(_END_SECONDS)
            supervisor.end()


def open_page(url: str) -> None:
    """Opens the page in the user's browser, if there is a display."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def progress_of(found: dict[str, Any]) -> Progress:
    """Returns the progress that a task of the service has reported."""
    report: dict[str, Any] = found.get("progress") or {}
    return Progress(
        task=str(found["name"]),
        sources=tuple(_source(one, found["stage"]) for one in report.get("sources", ())),
        rows=report.get("rows", {}),
        batches=report.get("batches", 0),
        seconds=report.get("seconds", 0.0),
        rate=report.get("rate", 0.0),
        tables=tuple(_table(one) for one in report.get("tables", ())),
        message=str(found.get("message") or ""),
        refetched=report.get("refetched", 0),
    )


def _source(one: dict[str, Any], of_task: str) -> SourceProgress:
    applied = one["applied"]
    # If the task was paused or stopped on the page, the run's last report may be older and name another stage.
    stage: Stage = of_task if of_task in get_args(Stage) else "starting"  # type: ignore[assignment]
    return SourceProgress(
        source=one["source"],
        stage=one["stage"] if stage in {"copy", "sync", "starting"} else stage,
        applied_lsn=Lsn.parse(applied["lsn"]) if applied["lsn"] else None,
        gtid=applied["gtid"],
        position=Position(applied["file"], applied["position"]) if applied["file"] else None,
        lag_seconds=one["lag_seconds"],
        relay_bytes=one["relay_bytes"],
    )


def _table(one: dict[str, Any]) -> TableProgress:
    return TableProgress(
        name=one["name"],
        copied=one["copied"],
        estimate=one["estimate"],
        done=one["done"],
        phase=Phase(one["phase"]),
        rate=one["rate"],
    )


def _error(found: dict[str, Any] | None) -> PidtsError:
    known = found or {"code": "unexpected", "what": "the task has failed, and has reported no error"}
    where = Where(**known.get("where", {}))
    return PidtsError(known["code"], known["what"], where=where, todo=known.get("todo", ""))
