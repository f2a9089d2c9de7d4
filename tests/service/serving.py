"""Starts a service in a folder of its own, and calls it with a plain client."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.forked_programs import loaded_programs

from pidts.forked import ForkedProcess
from pidts.sandbox import Server
from pidts.service.process_lock import holder_of

SECONDS = 300.0
"""The timeout of each step, in seconds: a first run on a machine compiles the decoder."""


class Service:
    """A running `pidts serve`. Its tasks do not end with it, so `end_all` ends the tasks that still run."""

    def __init__(self, folder: Path, *options: str, **environ: str) -> None:
        self.state = folder / "state"
        self.options, self.environ = options, environ
        self.log = folder / "serve.log"
        self.process: ForkedProcess | None = None
        self.url = ""

    def start(self) -> None:
        (self.state / "service.json").unlink(missing_ok=True)
        words = ["serve", "--listen", "127.0.0.1:0", "--state", str(self.state), *self.options]
        with self.log.open("ab") as log:
            self.process = loaded_programs().start(words, log, log, self.environ)
        wait_for((self.state / "service.json").exists, self.log.read_text)
        self.url = json.loads((self.state / "service.json").read_text())["url"]

    def kill(self) -> None:
        """Kills the service, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def call(
        self, method: str, path: str, body: bytes | str | dict[str, Any] | None = None, **headers: str
    ) -> tuple[int, Any]:
        host, port = self.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        sent = {"X-Pidts": "1"} | ({"Content-Type": "application/yaml"} if isinstance(body, str) else {})
        if isinstance(body, dict):
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, sent)
            answer = connection.getresponse()
            data = answer.read()
            kind = answer.getheader("content-type") or ""
            return answer.status, json.loads(data) if kind == "application/json" else data.decode()
        finally:
            connection.close()

    def task(self, name: str) -> dict[str, Any]:
        status, found = self.call("GET", f"/api/tasks/{name}")
        assert status == 200, found
        return found  # type: ignore[no-any-return]

    def wait_for_stage(self, name: str, *stages: str, seconds: float = SECONDS) -> dict[str, Any]:
        def there() -> bool:
            return self.task(name)["stage"] in stages

        wait_for(there, lambda: f"{self.task(name)} {self.log_of(name)}", seconds)
        return self.task(name)

    def log_of(self, name: str) -> str:
        folder = self.state / "tasks" / name
        return "\n".join(
            (folder / file).read_text()[-4000:] for file in ("task.log", "output.txt") if (folder / file).exists()
        )

    def process_of(self, name: str) -> int | None:
        return holder_of(self.state / "tasks" / name / "process.lock")

    def end_all(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for lock in self.state.glob("tasks/*/process.lock"):
            if holder := holder_of(lock):
                os.kill(holder, signal.SIGKILL)


@contextmanager
def serving(folder: Path, *options: str, **environ: str) -> Iterator[Service]:
    service = Service(folder, *options, **environ)
    try:
        service.start()
        yield service
    finally:
        service.end_all()


def wait_for(condition: Callable[[], bool], says: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, says()
        time.sleep(0.05)


def task_file(name: str, source: Server, target: Server, database: str, **more: str) -> str:
    """Returns the text of a task that copies a schema to a PostgreSQL database of the same name."""
    lines = "\n".join(f"{key.replace('_', '-')}: {value}" for key, value in more.items())
    return f"""
name: {name}
task-mode: all
target-database:
  {{type: postgresql, host: {target.host}, port: {target.port}, user: {target.user}, password: "{target.password}", database: {database}}}
mysql-instances:
  - source-id: one
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: all
block-allow-list:
  all: {{do-dbs: [{database}]}}
{lines}
"""
