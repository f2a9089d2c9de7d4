"""The application of a service on a port of its own, in this process."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pidts.service.starter import Starter
from pidts.service.state_folder import StateFolder
from pidts.service.supervisor import Supervisor
from pidts.web.access import Policy
from pidts.web.server import ServiceEndpoint, listening_socket, serve

TOKEN = "a-token-of-the-tests"
FILE = """
name: shop
task-mode: all
target-database: {type: postgresql, host: 127.0.0.1, port: 9, user: app, password: "never shown", database: shop}
mysql-instances:
  - source-id: one
    from: {host: 127.0.0.1, port: 9, user: repl, password: "${SOURCE_PASSWORD}"}
    block-allow-list: all
block-allow-list: {all: {do-dbs: [shop]}}
"""


class Web:
    """A plain HTTP client."""

    def __init__(self, port: int, state: Path) -> None:
        self.port, self.state = port, state

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def call(self, method: str, path: str, body: str | dict[str, Any] | None = None, **more: str) -> tuple[int, Any]:
        headers = {"X-Pidts": "1"} | {name.replace("_", "-"): value for name, value in more.items()}
        data = None
        if isinstance(body, str):
            headers["Content-Type"], data = "application/yaml", body.encode()
        elif body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        status, got, answer = self.send(method, path, data, headers)
        return status, json.loads(answer) if got.get("content-type") == "application/json" else answer.decode()

    def refusal(self, *request: Any, **headers: str) -> tuple[int, str]:
        """Returns the status and the code of the error."""
        status, value = self.call(*request, **headers)
        return status, value["error"]["code"]


@contextmanager
def served(folder: Path, token: str = "", start: Starter | None = None) -> Iterator[Web]:
    state = StateFolder(folder / "state")
    state.prepare()
    place, stop, ready = ServiceEndpoint("127.0.0.1", 0), threading.Event(), threading.Event()
    supervisor = Supervisor(state, start)
    with closing(listening_socket(place)) as listener:
        work = threading.Thread(
            target=serve, args=(supervisor, listener, place, Policy("127.0.0.1", token), stop, lambda _: ready.set())
        )
        supervisor.begin()
        work.start()
        try:
            assert ready.wait(30)
            yield Web(listener.getsockname()[1], state.path)
        finally:
            stop.set()
            work.join()
            supervisor.end()
